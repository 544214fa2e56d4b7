"""Pointer-generators: translators that copy words of the source, and cover it (See et al. 2017)."""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError
from regard.models.configs import PointerConfig
from regard.models.copying import CopyGate, copy_log_probabilities, copy_loss, copy_share, coverage_loss
from regard.models.encoders import Encoded
from regard.models.recurrent_decoder import SearchStep
from regard.models.recurrent_translator import RecurrentTranslator
from regard.models.text_predictor import Loss, TranslatorOutput, predicted_tokens
from regard.models.transformer_translator import TransformerTranslator
from regard.models.translator import Translator
from regard.names.missing_names import hinted


@dataclass(frozen=True)
class EncodedSource(Encoded):
    """The output of the encoder; the source, ``int64 [batch, source]``, as ids of each row's extended vocabulary; and
    the entries of that (None: as many as the largest id needs)."""

    source: Tensor = field(kw_only=True)
    size: int | None = field(kw_only=True, default=None)


@hinted
@dataclass(frozen=True)
class PointerState:
    """The state of the decoder of a pointer-generator for a batch of rows: that of the translator's decoder, the
    annotations ``[rows, source, dim]``, and source and size as in `EncodedSource`."""

    decoder: Any
    annotations: Tensor
    source: Tensor
    size: int

    def select(self, index: Tensor) -> "PointerState":
        """Returns the rows ``index [rows]`` of this state, in that order; a row may occur several times."""
        return replace(
            self, decoder=self.decoder.select(index), annotations=self.annotations[index], source=self.source[index]
        )

    def reordered(self, index: Tensor) -> "PointerState":
        """Selects rows that have the source of the row that each replaces."""
        return replace(self, decoder=self.decoder.reordered(index))


class Copied(NamedTuple):
    """Which tokens of known targets are copied: the part of each one's probability, ``[batch, target − 1]``; from
    where, as the position of the same word with the largest weight, 0 without one; and
    ``weights [batch, target − 1, source]``."""

    share: Tensor
    position: Tensor
    weights: Tensor


class PointerGenerator(Translator):
    """A translator whose decoder generates words or copies them from the source (See et al. 2017, section 2.2).

    With ``config.copy`` a gate mixes the distribution over the vocabulary with the attention weights (eq. 8 and 9), and
    ids beyond the vocabulary are words of the source, see `regard.models.copying`; encoder and decoder read them as
    ``unk``. With ``config.coverage`` the loss has ``coverage_weight`` times the coverage loss (eq. 12 and 13). Without
    both it is the translator, with equal outputs and an equal loss.

    Args:
        translator: the encoder and the decoder.
        annotation_dim: features of an annotation.
        readout_dim: features of the readout.

    Attributes:
        config: as `Translator` says; besides, ``unk``, ``copy``, ``coverage`` and ``coverage_weight``.
        gate: the gate; None without copying.

    Example:
        >>> import torch
        >>> from regard import models
        >>> model = models.RecurrentPointerGenerator(models.PointerConfig(20, 20, hidden=8, embedding=8)).eval()
        >>> isinstance(model, models.PointerGenerator)
        True
        >>> source = torch.tensor([[5, 20, 21]])  # two words out of the vocabulary of 20
        >>> state = model.start(model.encode(source, torch.tensor([3])))
        >>> model.step(torch.tensor([1]), state).log_probabilities.shape  # both can be copied
        torch.Size([1, 22])
    """

    def __init__(self, translator: RecurrentTranslator | TransformerTranslator, annotation_dim: int, readout_dim: int):
        super().__init__()
        self.config = config = translator.config
        self.translator = translator
        embedding_dim = self.target_embedding.embedding_dim
        self.gate = CopyGate(annotation_dim, readout_dim, embedding_dim) if config.copy else None

    @property
    def target_embedding(self) -> nn.Embedding:
        """The embedding of the target tokens."""
        return self.translator.target_embedding

    @property
    def output(self) -> nn.Linear:
        """The output matrix."""
        return self.translator.output

    @property
    def attends(self) -> bool:
        return True

    def known(self, tokens: Tensor) -> Tensor:
        """Returns ids of the vocabulary: those beyond it become ``unk``."""
        return tokens.masked_fill(tokens >= self.config.target_vocabulary, self.config.unk)

    def encode(self, source: Tensor, lengths: Tensor) -> EncodedSource:
        encoded = self.translator.encode(self.known(source), lengths)
        return EncodedSource(encoded.annotations, encoded.lengths, encoded.summary, source=source)

    def start(self, encoded: Encoded) -> PointerState:
        assert isinstance(encoded, EncodedSource)
        source, size = encoded.source, encoded.size
        if size is None:
            size = self.config.target_vocabulary
            if self.gate is not None and source.numel():
                size = max(size, int(source.max()) + 1)
        return PointerState(self.translator.start(encoded), encoded.annotations, source, size)

    def step(self, tokens: Tensor, state: PointerState) -> SearchStep:
        known = self.known(tokens)
        row = self.translator.decode_row(known, state.decoder)
        logits = self.output(row.readout).float()
        if self.gate is None:
            log_probabilities = logits.log_softmax(-1)
        else:
            gate = self._gate(row.readout[:, None], row.weights[:, None], state.annotations, known[:, None])[:, 0]
            log_probabilities = copy_log_probabilities(
                logits, gate.float(), row.weights.float(), state.source, state.size
            )
        return SearchStep(log_probabilities, replace(state, decoder=row.state), row.weights.float())

    def forward(
        self,
        source: Tensor,
        source_lengths: Tensor,
        target: Tensor,
        target_lengths: Tensor | None = None,
        *,
        sampling_probability: float = 0.0,
        need_weights: bool = True,
    ) -> TranslatorOutput:
        """Returns the translator's prediction; its ``logits`` are those of the vocabulary, before the gate."""
        options = {"sampling_probability": sampling_probability, "need_weights": need_weights}
        return self.translator(self.known(source), source_lengths, self.known(target), target_lengths, **options)

    def decode(
        self, encoded: Encoded, target: Tensor, target_lengths: Tensor | None = None, **options: Any
    ) -> TranslatorOutput:
        """Returns the translator's prediction of known targets, whose ids are those of the vocabulary."""
        return self.translator.decode(encoded, target, target_lengths, **options)

    def loss(
        self,
        source: Tensor,
        source_lengths: Tensor,
        target: Tensor,
        target_lengths: Tensor,
        *,
        label_smoothing: float = 0.0,
        sampling_probability: float = 0.0,
    ) -> Loss:
        """Computes the loss of a batch as `Translator.loss`, with ids of the extended vocabulary.

        With copying, ``label_smoothing`` smooths the distribution over the vocabulary. Copying and coverage need the
        true tokens before a token, so that ``sampling_probability`` must be 0 with them.
        """
        if self.gate is None and not self.config.coverage:
            options = {"label_smoothing": label_smoothing, "sampling_probability": sampling_probability}
            known = self.known(source), source_lengths, self.known(target), target_lengths
            return self.translator.loss(*known, **options)
        if sampling_probability:
            raise ArgumentError("sampling_probability must be 0 with copying or coverage")
        encoded = self.encode(source, source_lengths)
        predicted = self.decode(encoded, self.known(target), target_lengths)
        assert predicted.weights is not None
        labels, is_token = predicted_tokens(target, target_lengths)
        count = is_token.sum().clamp(min=1)
        if self.gate is None:
            loss = self._cross_entropy(predicted, self.known(labels), is_token, label_smoothing)
        else:
            gate = self._gate(predicted.readout, predicted.weights, encoded.annotations, self.known(target[:, :-1]))
            counted = labels.masked_fill(~is_token, -1)
            loss = copy_loss(
                predicted.readout, predicted.output, gate, predicted.weights, source, counted,
                label_smoothing=label_smoothing,
            )  # fmt: skip
        total = loss.total
        if self.config.coverage:
            total = total + self.config.coverage_weight * coverage_loss(predicted.weights, is_token)
        return Loss(total / count, loss.nll.sum() / count, is_token.sum())

    def copied(self, source: Tensor, source_lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Copied:
        """Returns which tokens of known targets are copied; arguments as in `loss`.

        Without copying no share is above 0.
        """
        encoded = self.encode(source, source_lengths)
        predicted = self.decode(encoded, self.known(target), target_lengths)
        weights, labels = predicted.weights, target[:, 1:]
        assert weights is not None
        same = labels[:, :, None] == source[:, None, :]
        position = weights.masked_fill(~same, -1).argmax(-1).masked_fill(~same.any(-1), 0)
        if self.gate is None:
            return Copied(torch.zeros_like(weights[..., 0]), position, weights)
        gate = self._gate(predicted.readout, weights, encoded.annotations, self.known(target[:, :-1]))
        return Copied(copy_share(predicted.logits, gate, weights, source, labels), position, weights)

    def _gate(self, readout: Tensor, weights: Tensor, annotations: Tensor, known: Tensor) -> Tensor:
        """Computes the logit of p_gen, ``[batch, steps]``."""
        assert self.gate is not None
        context = weights.to(annotations.dtype) @ annotations
        return self.gate(context, readout, self.target_embedding(known).to(readout.dtype))


class RecurrentPointerGenerator(PointerGenerator):
    """A recurrent translator that copies (See et al. 2017).

    With coverage the additive score is ``v · tanh(W_h h_i + W_s s_t + w_c c_i^t + b)`` (eq. 11).

    Args:
        config: the configuration.

    Raises:
        ArgumentError: the architecture is neither ``"lstm"`` nor ``"gru"``, or a vocabulary is missing.

    Example:
        >>> import torch
        >>> from regard import models
        >>> _ = torch.manual_seed(0)
        >>> config = models.PointerConfig(20, 20, hidden=16, embedding=16, dropout=0.0, coverage=True)
        >>> model = models.RecurrentPointerGenerator(config)
        >>> source, target = torch.tensor([[5, 20, 6]]), torch.tensor([[1, 20, 2]])  # 20 is out of the vocabulary
        >>> copied = model.copied(source, torch.tensor([3]), target, torch.tensor([3]))
        >>> copied.share[0, 0].item(), copied.position[0, 0].item()  # it can only be copied, from position 1
        (1.0, 1)
    """

    def __init__(self, config: PointerConfig):
        super().__init__(RecurrentTranslator(config), config.hidden, config.embedding)


class TransformerPointerGenerator(PointerGenerator):
    """A Transformer translator that copies, by the gate of See et al. 2017 (eq. 8 and 9).

    The distribution over the source is the mean over the heads of the last decoder layer's attention. All steps of a
    training run at once, so its attention does not see the coverage.

    Args:
        config: the configuration.

    Raises:
        ArgumentError: the architecture is not ``"transformer"``, or a vocabulary is missing.

    Example:
        >>> import torch
        >>> from regard import models
        >>> sizes = {"hidden": 16, "encoder_layers": 1, "decoder_layers": 1}
        >>> config = models.PointerConfig(20, 20, architecture="transformer", **sizes)
        >>> model = models.TransformerPointerGenerator(config)
        >>> source, target = torch.tensor([[5, 20, 6]]), torch.tensor([[1, 20, 2]])  # 20 is out of the vocabulary
        >>> copied = model.copied(source, torch.tensor([3]), target, torch.tensor([3]))
        >>> copied.share[0, 0].item(), copied.weights.shape
        (1.0, torch.Size([1, 2, 3]))
    """

    def __init__(self, config: PointerConfig):
        translator = TransformerTranslator(config)
        translator.aligned_layer = config.decoder_layers - 1
        super().__init__(translator, config.hidden, config.hidden)
