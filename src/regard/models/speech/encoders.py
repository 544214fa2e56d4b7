"""Encoders of sounds: convolutions that shorten time, then a pyramid of bidirectional layers, or a Transformer."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ArgumentError, UnknownNameError
from regard.models.encoders import Encoded
from regard.models.recurrence import CELLS, initialize_forget_bias, run_sequences
from regard.models.speech.configs import SpeechEncoderConfig
from regard.models.speech.feature_input import FeatureInput, SpecAugment, present_frames
from regard.models.token_input import ended, layer_config
from regard.nn import TransformerEncoder
from regard.positions import Sinusoidal
from regard.tracing.module_calls import Module


class Frames(NamedTuple):
    """Features in time.

    Attributes:
        features: ``[batch, frames, dim]``, 0 after the end of each utterance.
        lengths: ``int64 [batch]``.
    """

    features: Tensor
    lengths: Tensor


class HalvingConvolution(Module):
    """A convolution over time and features that halves both, with layer normalization and ReLU.

    The kernel has 4 × 4 cells and a stride of 2, so output t is centred between the inputs 2t and 2t + 1, which are
    those that it stands for. An odd number of frames or features is completed by zeros.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        width: features of the input.
    """

    def __init__(self, in_channels: int, out_channels: int, width: int):
        super().__init__()
        self.convolution = nn.Conv2d(in_channels, out_channels, 4, stride=2)
        self.width = -(-width // 2)
        self.norm = nn.LayerNorm([out_channels, self.width])

    def forward(self, channels: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Halves frames, features and lengths.

        Args:
            channels: ``[batch, in_channels, frames, width]``, 0 after the end of each utterance.
            lengths: ``int64 [batch]``.

        Returns:
            ``[batch, out_channels, ⌈frames / 2⌉, ⌈width / 2⌉]``, likewise, and the new lengths.
        """
        frames, width = channels.shape[2:]
        padded = F.pad(channels, (1, 1 + width % 2, 1, 1 + frames % 2))
        rows = self.convolution(padded).transpose(1, 2)  # batch, frames, channels, width
        halved = torch.relu(self.norm(rows)).transpose(1, 2)
        lengths = (lengths + 1) // 2
        present = present_frames(lengths, halved.shape[2])[:, None, :, None]
        return halved.masked_fill(~present, 0.0), lengths


class BidirectionalLayer(Module):
    """One bidirectional LSTM or GRU layer over rows of different lengths; halving, it is a layer of a pyramid.

    .. math::

        h_i^j = BLSTM(h_{i−1}^j, [h_{2i}^{j−1}, h_{2i+1}^{j−1}])

    Chan et al. 2016, "Listen, Attend and Spell", eq. 5, for ``halves``. A row of odd length is completed by zeros.

    Args:
        input_dim: features of the input.
        dim: features of the output, half for each direction.
        cell: ``"lstm"`` or ``"gru"``.
        halves: whether two neighbours together are one input.
    """

    def __init__(self, input_dim: int, dim: int, cell: str = "lstm", halves: bool = False):
        super().__init__()
        if cell not in CELLS:
            raise UnknownNameError("cell", cell, CELLS)
        kind = nn.LSTM if cell == "lstm" else nn.GRU
        self.halves = halves
        self.rnn = kind(input_dim * (2 if halves else 1), dim // 2, batch_first=True, bidirectional=True)
        if cell == "lstm":
            initialize_forget_bias(self.rnn)

    def forward(self, frames: Frames) -> tuple[Frames, tuple[Tensor, ...]]:
        """Computes the output, and the last states of both directions, each ``[batch, dim]``."""
        features, lengths = frames
        if self.halves:
            # Always, as an exporter leaves open whether the number of frames is odd.
            features = F.pad(features, (0, 0, 0, features.shape[1] % 2))
            features = features.unflatten(1, (-1, 2)).flatten(2)
            lengths = (lengths + 1) // 2
        outputs, last = run_sequences(self.rnn, features, lengths)
        return Frames(outputs, lengths), tuple(torch.cat(tensor.unbind(0), dim=-1) for tensor in last)


class SpeechEncoder(Module):
    """Features of sounds → annotations, each of `SpeechEncoderConfig.reduction` frames.

    Convolutions, then bidirectional layers of which the last ones form a pyramid, or a Transformer. Padding has no
    influence: an utterance has the same annotations in every batch.

    Args:
        config: the configuration.

    Attributes:
        summary_dim: features of the summary; 0 of a Transformer, which has none.
    """

    def __init__(self, config: SpeechEncoderConfig):
        super().__init__()
        self.config = config
        masks = SpecAugment(config.time_masks, config.longest_mask, config.feature_masks, config.widest_mask)
        self.input = FeatureInput(config.width, config.deltas, config.normalization, masks)
        self.convolutions = nn.ModuleList()
        channels, width = config.deltas + 1, config.width
        for _ in range(config.convolutions):
            self.convolutions.append(HalvingConvolution(channels, config.channels, width))
            channels, width = config.channels, -(-width // 2)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList()
        self.transformer: TransformerEncoder | None = None
        dim = channels * width
        if config.architecture == "transformer":
            self.projection = nn.Linear(dim, config.hidden)
            self.position = Sinusoidal(config.hidden) if config.position == "sinusoidal" else None
            self.transformer = ended(TransformerEncoder.create(config.encoder_layers, layer_config(config)), config)
            self.summary_dim = 0
            return
        for number in range(config.encoder_layers + config.pyramids):
            halves = number >= config.encoder_layers
            self.layers.append(BidirectionalLayer(dim, config.hidden, config.architecture, halves))
            dim = config.hidden
        self.summary_dim = config.hidden * (2 if config.architecture == "lstm" else 1)

    def forward(self, features: Tensor, lengths: Tensor) -> Encoded:
        """Computes the annotations of a batch.

        Args:
            features: ``[batch, frames, width]``, padding has no effect.
            lengths: ``int64 [batch]``, frames of each utterance.

        Returns:
            Annotations ``[batch, ⌈frames / reduction⌉, hidden_dim]``, their lengths, and of a recurrent encoder the
            top layer's last states as summary.
        """
        if features.dim() != 3 or features.shape[2] != self.config.width:
            raise ArgumentError(
                f"features must be [batch, frames, {self.config.width}]; their shape is {list(features.shape)}"
            )
        if not features.shape[1]:  # a convolution needs a frame
            features = features.new_zeros(features.shape[0], 1, self.config.width)
        channels = self.input(features, lengths)
        for layer in self.convolutions:
            channels, lengths = layer(channels, lengths)
        frames = Frames(channels.transpose(1, 2).flatten(2), lengths)
        if self.transformer is not None:
            rows = self.projection(self.dropout(frames.features))
            rows = self.dropout(rows if self.position is None else self.position(rows))
            return Encoded(self.transformer(rows, lengths=lengths), lengths)
        last: tuple[Tensor, ...] = ()
        for layer in self.layers:
            frames, last = layer(Frames(self.dropout(frames.features), frames.lengths))
        return Encoded(self.dropout(frames.features), frames.lengths, torch.cat(last, dim=-1))
