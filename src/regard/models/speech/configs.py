"""The configurations of models of sounds, which are the options of their tasks; this file imports no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from regard.configuration import COUNT, HEADS, LAYERS, RATE, SIZE, Range, from_data, option, varies
from regard.errors import ArgumentError
from regard.models.configs import (
    MONOTONIC_KINDS,
    RECURRENT_CELLS,
    STEP_SCORES,
    PoolingConfig,
    TransformerOptions,
    WritingConfig,
    check_even,
)

FILTERED = ("location_aware", "dynamic_convolution")
"""Scores with filters over earlier weights."""

MOST_HALVINGS = 10
"""Largest number of layers that each halve the number of frames; more would leave a sound no annotation."""


@dataclass(frozen=True, kw_only=True)
class SpeechEncoderConfig(TransformerOptions):
    """The configuration of a `SpeechEncoder`."""

    width: int = from_data()
    """Features of a frame."""
    architecture: Literal["lstm", "gru", "transformer"] = "lstm"
    """Architecture: lstm, gru (both bidirectional, with a pyramid) or transformer."""
    convolutions: int = option(2, within=Range(0, LAYERS.high))
    """Convolutional layers before the encoder, each of which halves the number of frames."""
    channels: int = option(32, within=SIZE)
    """Channels of a convolutional layer."""
    hidden: int = option(256, within=SIZE)
    """Features of an annotation; even for lstm and gru."""
    encoder_layers: int = varies(1, transformer=4, within=Range(0, LAYERS.high))
    """Layers of the encoder; of lstm and gru those before the pyramid."""
    pyramid_layers: int = option(1, within=Range(0, LAYERS.high), architecture=RECURRENT_CELLS)
    """Layers after the encoder's that each halve the number of frames (Chan et al. 2016, section 3.1)."""
    deltas: int = option(0, within=Range(0, 2))
    """Derivatives in time that are added to the features: 0, 1 or 2."""
    normalization: Literal["utterance", "corpus", "none"] = "utterance"
    """Mean 0 and variance 1 of each feature: over each utterance, over the training corpus, or none."""
    dropout: float = varies(0.3, transformer=0.1, within=RATE)
    """Dropout rate, 0 to below 1."""
    time_masks: int = option(2, within=COUNT)
    """Blocks of time of each training sound that are masked (SpecAugment, Park et al. 2019); 0: none."""
    longest_mask: int = option(40, within=COUNT)
    """Frames of the longest masked block of time; at most a fifth of the sound."""
    feature_masks: int = option(2, within=COUNT)
    """Blocks of features that are masked; 0: none."""
    widest_mask: int = option(8, within=COUNT)
    """Features of the widest masked block of features."""
    heads: int = option(4, within=HEADS, architecture="transformer")
    position: Literal["sinusoidal", "rotary", "alibi", "t5", "shaw", "none"] = option(
        "sinusoidal", architecture="transformer"
    )
    """Positions that are added (sinusoidal) or part of self-attention (rotary, alibi, t5, shaw); or none."""

    def check(self) -> None:
        super().check()
        check_even(self)
        if not self.encoder_layers + self.pyramids:
            raise ArgumentError("encoder_layers and pyramid_layers must not both be 0")
        if self.convolutions + self.pyramids > MOST_HALVINGS:
            raise ArgumentError(
                f"convolutions and pyramid_layers together must be at most {MOST_HALVINGS}: each halves the time"
            )

    @property
    def pyramids(self) -> int:
        """Layers of the pyramid; a Transformer has none."""
        return self.pyramid_layers if self.architecture in RECURRENT_CELLS else 0

    @property
    def reduction(self) -> int:
        """Frames of an annotation."""
        return 2 ** (self.convolutions + self.pyramids)


@dataclass(frozen=True, kw_only=True)
class TranscriberConfig(WritingConfig, SpeechEncoderConfig):
    """The configuration of a `RecurrentTranscriber` or a `TransformerTranscriber`."""

    target_vocabulary: int = from_data()
    """Target tokens."""
    decoder_layers: int = varies(1, transformer=2, within=LAYERS)
    """Layers of the decoder."""
    embedding: int = option(128, within=SIZE, architecture=RECURRENT_CELLS)
    """Features of an embedded token and of the readout; a transformer has ``hidden`` features everywhere."""
    decoder_hidden: int = option(256, within=SIZE, architecture=RECURRENT_CELLS)
    """Features of a state of the decoder."""
    attention: Literal["soft", "monotonic", "chunkwise", "stepwise", "forward"] = option(
        "soft", architecture=RECURRENT_CELLS
    )
    """Attention of the decoder: soft (to all annotations), monotonic (to one, and only forwards), chunkwise (to a chunk
    that ends there), stepwise or forward (both move on by one annotation a token at most, forward as an agent
    decides)."""
    chunk_width: int = option(4, within=Range(2, COUNT.high), architecture=RECURRENT_CELLS, attention="chunkwise")
    """Annotations of a chunk (Chiu and Raffel 2018)."""
    score: Literal["location_aware", "coverage", "dynamic_convolution", "additive", "dot", "scaled_dot", "general"] = (
        varies("location_aware", monotonic="additive", chunkwise="additive", needs={"architecture": RECURRENT_CELLS})
    )
    """Score of the attention: location_aware, coverage, dynamic_convolution, additive, dot, scaled_dot or general."""
    score_features: int = option(
        128, within=SIZE, architecture=RECURRENT_CELLS, score=(*FILTERED, "coverage", "additive")
    )
    """Units of the hidden layer of the score."""
    location_channels: int = option(10, within=SIZE, architecture=RECURRENT_CELLS, score=FILTERED)
    """Filters over the weights of the step before."""
    location_width: int = option(31, within=SIZE, architecture=RECURRENT_CELLS, score=FILTERED)
    """Annotations that each filter sees; odd."""
    normalizer: Literal["softmax", "smoothing", "sparsemax", "entmax15"] = option(
        "softmax", architecture=RECURRENT_CELLS, attention="soft"
    )
    """Normalizer of the attention weights: softmax, smoothing (logistic functions instead of exponentials), sparsemax
    or entmax15."""
    ctc_weight: float = option(0.3, within=RATE)
    """Weight of the loss of connectionist temporal classification beside that of the decoder, 0 to below 1 (Kim et al.
    2017)."""

    models: ClassVar[dict[str, str]] = {
        **dict.fromkeys(RECURRENT_CELLS, "regard.models.speech.transcriber:RecurrentTranscriber"),
        "transformer": "regard.models.speech.transcriber:TransformerTranscriber",
    }

    def check(self) -> None:
        super().check()
        if self.location_width % 2 == 0:
            raise ArgumentError(f"location_width must be odd; it is {self.location_width}")
        if self.score in STEP_SCORES and self.attention in MONOTONIC_KINDS:
            raise ArgumentError(f"score {self.score!r} sees all annotations; attention is {self.attention!r}")
        if (
            self.architecture in RECURRENT_CELLS
            and self.score in ("dot", "scaled_dot")
            and self.decoder_hidden != self.hidden
        ):
            raise ArgumentError(
                f"decoder_hidden must be hidden, {self.hidden}, with score {self.score!r}; it is {self.decoder_hidden}"
            )


@dataclass(frozen=True, kw_only=True)
class SoundClassifierConfig(PoolingConfig, SpeechEncoderConfig):
    """The configuration of a `SoundClassifier`."""

    labels: int = from_data()
    """Labels."""

    models: ClassVar[dict[str, str]] = dict.fromkeys(
        (*RECURRENT_CELLS, "transformer"), "regard.models.speech.sound_classifier:SoundClassifier"
    )
