"""The configuration of a captioner: its data, its model, its training, and how it is used."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

from regard.errors import ArgumentError
from regard.tasks.image_config import (
    MOST_BATCH,
    MOST_FEATURES,
    MOST_HEADS,
    MOST_LAYERS,
    check_augmentation,
    check_image_data,
    check_network,
)
from regard.tasks.search_options import SearchOptions
from regard.training.config import TrainingConfig
from regard.training.sections import check_at_least, check_between, check_choices, check_probabilities

BUNDLED_SCENES = 6000
"""Training scenes of the bundled corpus when no number is given."""


@dataclass(frozen=True, slots=True)
class DataConfig:
    """The data of a run."""

    train: str | None = None
    """Training images: a .jsonl or .json file of objects with image and captions, a .tsv or .csv file with the columns
    image and caption (paths are relative to the file), or 'bundled' for generated scenes."""
    validation: str | None = None
    """Validation images, in any of these forms. Default: random training images, as many as held_out says."""
    test: str | None = None
    """Test images, evaluated when training is over. Default: none."""
    bundled: int = 0
    """Number of generated scenes to train on, instead of train."""
    held_out: int = 1000
    """Training images that are used for validation when there are no validation images; at most a tenth of them."""
    image_size: int = 0
    """Pixels of a side that every image is brought to; 0: 128, generated scenes 64."""
    fit: Literal["crop", "stretch"] = "crop"
    """How an image becomes square: crop (its middle) or stretch."""
    tokenizer: Literal["word", "bpe", "char"] = "word"
    """word, bpe (sub-words) or char."""
    lowercase: bool = True
    """Turn captions into lower case."""
    vocabulary: int = 10000
    """Largest size of the vocabulary, in tokens."""
    min_count: int = 1
    """word: a word that occurs fewer times in the training captions is unknown."""
    max_length: int = 40
    """Largest number of tokens of a caption; longer ones are cut in training."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_image_data(self, BUNDLED_SCENES)
        check_between(self, 8, 10_000_000, "vocabulary")
        check_at_least(self, 1, "min_count")
        check_between(self, 1, 10_000, "max_length")


_OF_RECURRENT = (
    "cell", "readout", "gated", "query_token", "doubly_stochastic", "hard_estimator", "entropy_weight", "embedding",
)  # fmt: skip
_OF_TRANSFORMER = ("heads", "feedforward")
_OF_SCRATCH = ("grid", "stages", "blocks", "patch", "weigh")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The model of a run, without the size of its vocabulary."""

    attention: Literal["soft", "hard", "transformer", "none"] = "soft"
    """soft or hard (Show, Attend and Tell), transformer (a Transformer decoder) or none (only the mean of the grid)."""
    grid: int = 256
    """Features of an annotation; each stage of the network has twice as many as the one before."""
    stages: int = 3
    """Stages of the network; each halves the grid."""
    blocks: int = 1
    """Residual blocks of a stage."""
    patch: int = 0
    """Pixels of a side of the patches that the first stage reads; 0: image_size / 32, so that three stages give 8 × 8
    cells."""
    weigh: Literal["none", "se", "cbam"] = "none"
    """What each residual block weighs: none, se (channels) or cbam (channels and positions)."""
    backbone: str = ""
    """A network of another package instead: torchvision:NAME or timm:NAME, if it is installed. Default: none."""
    backbone_weights: str | None = None
    """File with the weights of the backbone (.safetensors, .pth). Default: random weights."""
    freeze_backbone: bool = False
    """Whether the weights of the backbone stay as they are."""
    embedding: int | None = None
    """Features of an embedded token and of the readout. Default: 256; a transformer has hidden features everywhere."""
    hidden: int = 256
    """Features of a decoder state."""
    layers: int | None = None
    """Layers of the decoder. Default: 1; transformer: 2."""
    cell: Literal["lstm", "gru"] = "lstm"
    """lstm or gru; a transformer has none."""
    readout: Literal["tanh", "maxout"] = "tanh"
    """tanh or maxout; a transformer has none."""
    score: Literal["additive", "concat", "dot", "general", "scaled_dot"] | None = None
    """additive (= concat), dot, general or scaled_dot. Default: additive; transformer: scaled_dot."""
    gated: bool = True
    """soft, hard: a number from 0 to 1 multiplies the context of each step."""
    query_token: bool = True
    """soft, hard: the attention depends on the last word, too; --no-query-token: only on the state before it, as in the
    paper."""
    doubly_stochastic: float = 0.0
    """soft: weight of the term that makes the decoder attend to every part of the image."""
    hard_estimator: Literal["reinforce", "straight_through"] = "reinforce"
    """hard: reinforce or straight_through."""
    entropy_weight: float = 0.01
    """hard with reinforce: weight of the entropy bonus."""
    heads: int = 8
    """transformer: heads; a divisor of hidden."""
    feedforward: int = 1024
    """transformer: units of the hidden layer of the feedforward networks."""
    dropout: float = 0.3
    """Dropout rate, 0 to below 1."""
    tied: bool = True
    """Output matrix and embedding are one matrix."""

    def __post_init__(self) -> None:
        check_choices(self)
        transformer = self.attention == "transformer"
        self._check_kind(_OF_RECURRENT if transformer else _OF_TRANSFORMER, f"attention {self.attention!r}")
        if self.backbone:
            self._check_kind(_OF_SCRATCH, "a backbone")
        for name, of in (("doubly_stochastic", "soft"), ("hard_estimator", "hard"), ("entropy_weight", "hard")):
            if self.attention != of:
                self._check_kind((name,), f"attention {self.attention!r}")
        if self.attention == "none":
            self._check_kind(("score", "gated", "query_token"), "attention 'none'")
        defaults = {"embedding": self.hidden if transformer else 256, "layers": 2 if transformer else 1}
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        check_network(self)
        check_between(self, 1, MOST_FEATURES, "embedding", "hidden", "feedforward")
        check_between(self, 1, MOST_LAYERS, "layers")
        check_between(self, 1, MOST_HEADS, "heads")
        check_at_least(self, 0, "doubly_stochastic", "entropy_weight")
        check_probabilities(self, "dropout")
        if transformer and self.hidden % self.heads:
            raise ArgumentError(f"heads must divide hidden, {self.hidden}; it is {self.heads}")

    def _check_kind(self, fields_of_others: tuple[str, ...], kind: str) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in fields_of_others and value != field.default:
                # A configuration that was written has the embedding of a Transformer filled in.
                if field.name == "embedding" and value == self.hidden:
                    continue
                raise ArgumentError(f"{field.name} has no meaning with {kind}; it is {value!r}")


@dataclass(frozen=True, slots=True)
class CaptionTrainingConfig(TrainingConfig):
    """How a captioner is trained, and for how long."""

    batch_size: int = 32
    """Images of a batch, with all their captions, on each device."""
    label_smoothing: float = 0.0
    """Probability that is distributed over all words, 0 to below 1 (Szegedy et al. 2016, section 7)."""
    flip: bool = False
    """Mirror half of the training images, left to right; not for captions that say left or right."""
    zoom: float = 0.0
    """Read a random part of each training image, whose side is at least 1 − zoom of that of the image."""
    jitter: float = 0.0
    """Change brightness and contrast of each training image by a factor from 1 − jitter to 1 + jitter."""

    def __post_init__(self) -> None:
        TrainingConfig.__post_init__(self)  # the class of `super()` is another one in a dataclass with slots
        check_augmentation(self)


@dataclass(frozen=True, slots=True)
class PredictionConfig(SearchOptions):
    """How captions are searched."""

    batch_size: int = 32
    """Images captioned at once."""

    def __post_init__(self) -> None:
        _check_search(self)


@dataclass(frozen=True, slots=True)
class EvaluationConfig(SearchOptions):
    """How a captioner is measured on a data set."""

    batch_size: int = 32
    """Images captioned at once."""
    limit: int | None = None
    """Number of images to evaluate, from the first. Default: all."""

    def __post_init__(self) -> None:
        _check_search(self)
        if self.limit is not None:
            check_at_least(self, 1, "limit")


def _check_search(options: PredictionConfig | EvaluationConfig) -> None:
    SearchOptions.__post_init__(options)  # the class of `super()` is another one in a dataclass with slots
    check_between(options, 1, MOST_BATCH, "batch_size")
