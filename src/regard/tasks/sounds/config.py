"""The configuration of a classifier of sounds: its data, its model, its training, and how it is used."""

from dataclasses import dataclass
from typing import Literal

from regard.tasks.sound_options import MOST_BATCH, SoundDataConfig, SoundModelConfig
from regard.training.config import TrainingConfig
from regard.training.sections import check_at_least, check_between, check_probabilities


@dataclass(frozen=True, slots=True)
class DataConfig(SoundDataConfig):
    """The sounds of a run and their features; the texts are labels. A folder with a folder of sounds for each label is
    a table too."""


@dataclass(frozen=True, slots=True)
class ModelConfig(SoundModelConfig):
    """The model of a run, without the sizes that the data decide."""

    pooling: Literal["attention", "mean", "max"] = "attention"
    """attention (with a learned query), mean or max."""
    pooling_heads: int = 1
    """attention pooling: learned queries."""
    score: Literal["additive", "concat", "cosine", "distance", "dot", "general", "mlp", "scaled_dot"] = "additive"
    """attention pooling: additive, concat, cosine, distance, dot, general, mlp or scaled_dot."""
    normalizer: Literal["softmax", "sparsemax", "entmax15", "sigmoid"] = "softmax"
    """attention pooling: softmax, sparsemax, entmax15 or sigmoid."""

    def __post_init__(self) -> None:
        SoundModelConfig.__post_init__(self)  # the class of `super()` is another one in a dataclass with slots
        check_between(self, 1, 1024, "pooling_heads")


@dataclass(frozen=True, slots=True)
class SoundsTrainingConfig(TrainingConfig):
    """How a classifier of sounds is trained, and for how long."""

    batch_size: int = 32
    """Sounds of a batch, on each device."""
    label_smoothing: float = 0.1
    """Probability that is distributed over all labels, 0 to below 1 (Szegedy et al. 2016, section 7)."""
    stretch: float = 0.0
    """The speed of each training sound varies at random by this share, 0 to below 1: 0.1 is 0.9 to 1.1 times."""

    def __post_init__(self) -> None:
        TrainingConfig.__post_init__(self)
        check_between(self, 1, MOST_BATCH, "batch_size")
        check_probabilities(self, "label_smoothing", "stretch")


@dataclass(frozen=True, slots=True)
class PredictionConfig:
    """How sounds are classified."""

    batch_size: int = 32
    """Sounds classified at once."""

    def __post_init__(self) -> None:
        check_between(self, 1, MOST_BATCH, "batch_size")


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """How a classifier of sounds is measured on a data set."""

    sound_column: str | None = None
    """Column of the paths. Default: as in training."""
    text_column: str | None = None
    """Column of the labels. Default: as in training."""
    batch_size: int = 32
    """Sounds classified at once."""
    limit: int | None = None
    """Number of sounds to evaluate, from the first. Default: all."""

    def __post_init__(self) -> None:
        check_between(self, 1, MOST_BATCH, "batch_size")
        if self.limit is not None:
            check_at_least(self, 1, "limit")
