"""The configuration of a transcriber: its data, its model, its training, and how it is used."""

from dataclasses import dataclass
from typing import Literal

from regard.errors import ArgumentError
from regard.tasks.search_options import SearchOptions
from regard.tasks.sound_options import (
    MOST_BATCH,
    MOST_FEATURES,
    MOST_LAYERS,
    SoundDataConfig,
    SoundModelConfig,
)
from regard.training.config import TrainingConfig
from regard.training.sections import check_at_least, check_between, check_probabilities


@dataclass(frozen=True, slots=True)
class DataConfig(SoundDataConfig):
    """The sounds of a run, their features, and how texts are split into tokens."""

    lowercase: bool = False
    """Turn all text into lower case, references included."""
    tokenizer: Literal["char", "word", "bpe"] = "char"
    """char, word or bpe (sub-words)."""
    vocabulary: int = 4000
    """Largest size of the vocabulary, in tokens."""
    max_length: int = 400
    """Largest number of tokens of a text; sounds with longer training texts are left out."""

    def __post_init__(self) -> None:
        SoundDataConfig.__post_init__(self)  # the class of `super()` is another one in a dataclass with slots
        check_between(self, 8, 10_000_000, "vocabulary")
        check_between(self, 1, 1_000_000, "max_length")


@dataclass(frozen=True, slots=True)
class ModelConfig(SoundModelConfig):
    """The model of a run, without the sizes that the data decide."""

    decoder_layers: int | None = None
    """Layers of the decoder. Default: 1; transformer: 2."""
    embedding: int = 128
    """Recurrent decoder: features of an embedded token and of the readout."""
    decoder_hidden: int = 256
    """Recurrent decoder: features of a state."""
    score: Literal["location_aware", "additive", "dot", "scaled_dot", "general"] = "location_aware"
    """Recurrent decoder: location_aware, additive, dot, scaled_dot or general."""
    score_features: int = 128
    """location_aware and additive: tanh units."""
    location_channels: int = 10
    """location_aware: filters over the weights of the step before."""
    location_width: int = 31
    """location_aware: annotations that each filter sees; odd."""
    normalizer: Literal["softmax", "smoothing", "sparsemax", "entmax15"] = "softmax"
    """Recurrent decoder: softmax, smoothing (logistic functions instead of exponentials), sparsemax or entmax15."""
    ctc_weight: float = 0.3
    """Weight of the loss of connectionist temporal classification beside that of the decoder, 0 to below 1."""

    def __post_init__(self) -> None:
        SoundModelConfig.__post_init__(self)
        transformer = self.encoder == "transformer"
        if self.decoder_layers is None:
            object.__setattr__(self, "decoder_layers", 2 if transformer else 1)
        check_between(self, 1, MOST_LAYERS, "decoder_layers")
        check_between(self, 1, MOST_FEATURES, "embedding", "decoder_hidden", "score_features", "location_channels",
                      "location_width")  # fmt: skip
        check_probabilities(self, "ctc_weight")
        if self.location_width % 2 == 0:
            raise ArgumentError(f"location_width must be odd; it is {self.location_width}")
        if transformer:
            for name, value in (("score", "location_aware"), ("normalizer", "softmax")):
                if getattr(self, name) != value:
                    raise ArgumentError(
                        f"{name} has no meaning with encoder 'transformer', whose decoder is one too; it is "
                        f"{getattr(self, name)!r}"
                    )
        elif self.score in ("dot", "scaled_dot") and self.decoder_hidden != self.hidden:
            raise ArgumentError(
                f"decoder_hidden must be hidden, {self.hidden}, with score {self.score!r}; it is {self.decoder_hidden}"
            )


@dataclass(frozen=True, slots=True)
class TranscriptionTrainingConfig(TrainingConfig):
    """How a transcriber is trained, and for how long."""

    batch_size: int = 16
    """Sounds of a batch, on each device."""
    label_smoothing: float = 0.1
    """Probability that is distributed over all tokens, 0 to below 1 (Szegedy et al. 2016, section 7)."""
    scheduled_sampling: float = 0.0
    """Probability that a decoder step reads the predicted token, 0 to below 1 (Bengio et al. 2015)."""
    join: int = 1
    """Each training example is made of 1 to so many random sounds, one after the other."""
    stretch: float = 0.0
    """The speed of each training example varies at random by this share, 0 to below 1: 0.1 is 0.9 to 1.1 times."""

    def __post_init__(self) -> None:
        TrainingConfig.__post_init__(self)
        check_between(self, 1, MOST_BATCH, "batch_size")
        check_between(self, 1, 1000, "join")
        check_probabilities(self, "label_smoothing", "scheduled_sampling", "stretch")


@dataclass(frozen=True, slots=True)
class PredictionConfig(SearchOptions):
    """How sounds are transcribed."""

    length_penalty: float = 0.5
    """Exponent of the beam's length normalization, 0 or more."""
    window: float = 0.0
    """Recurrent decoder: seconds before and after the median of the last weights that a step attends to; 0: all."""
    ctc_weight: float | None = None
    """Weight of the alignment head in the search beside the decoder, 0 to 1. Default: 0.3 where the model has one."""
    batch_size: int = 32
    """Sounds transcribed at once."""

    def __post_init__(self) -> None:
        _check_search(self)


@dataclass(frozen=True, slots=True)
class EvaluationConfig(SearchOptions):
    """How a transcriber is measured on a data set."""

    sound_column: str | None = None
    """Column of the paths. Default: as in training."""
    text_column: str | None = None
    """Column of the texts. Default: as in training."""
    length_penalty: float = 0.5
    """Exponent of the beam's length normalization, 0 or more."""
    window: float = 0.0
    """Recurrent decoder: seconds before and after the median of the last weights that a step attends to; 0: all."""
    ctc_weight: float | None = None
    """Weight of the alignment head in the search beside the decoder, 0 to 1. Default: 0.3 where the model has one."""
    batch_size: int = 32
    """Sounds transcribed at once."""
    limit: int | None = None
    """Number of sounds to evaluate, from the first. Default: all."""

    def __post_init__(self) -> None:
        _check_search(self)
        if self.limit is not None:
            check_at_least(self, 1, "limit")


def _check_search(config: PredictionConfig | EvaluationConfig) -> None:
    SearchOptions.__post_init__(config)  # the class of `super()` is another one in a dataclass with slots
    check_between(config, 1, MOST_BATCH, "batch_size")
    check_between(config, 0, 3600, "window")
    if config.ctc_weight is not None:
        check_between(config, 0, 1, "ctc_weight")
