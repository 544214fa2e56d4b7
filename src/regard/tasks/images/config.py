"""The configuration of a classifier of images: its data, its model, its training, and how it is used."""

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
from regard.training.config import TrainingConfig
from regard.training.sections import check_at_least, check_between, check_choices, check_probabilities

BUNDLED_SCENES = 6000
"""Training scenes of the bundled corpus when no number is given."""


@dataclass(frozen=True, slots=True)
class DataConfig:
    """The data of a run."""

    train: str | None = None
    """Training images: a folder with a folder of images for each label, a .jsonl, .json, .tsv or .csv file with the
    columns image and label (paths are relative to the file), or 'bundled' for generated scenes."""
    validation: str | None = None
    """Validation images, in any of these forms. Default: random training images, as many as held_out says."""
    test: str | None = None
    """Test images, evaluated when training is over. Default: none."""
    bundled: int = 0
    """Number of generated scenes to train on, instead of train; the label is the shape of the one large object."""
    held_out: int = 1000
    """Training images that are used for validation when there are no validation images; at most a tenth of them."""
    image_size: int = 0
    """Pixels of a side that every image is brought to; 0: 128, generated scenes 64."""
    fit: Literal["crop", "stretch"] = "crop"
    """How an image becomes square: crop (its middle) or stretch."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_image_data(self, BUNDLED_SCENES)


_OF_VIT = ("hidden", "layers", "heads", "feedforward")
_OF_CNN = ("grid", "stages", "blocks", "backbone", "backbone_weights", "freeze_backbone")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The model of a run, without the number of its labels."""

    network: Literal["vit", "cnn", "se", "cbam"] = "vit"
    """vit (a Transformer on patches), or a residual convolutional network: cnn, se (which weighs channels) or cbam
    (channels and positions)."""
    pooling: Literal["cls", "attention", "mean"] | None = None
    """cls (the output of a class token; vit only), attention (with a learned query) or mean. Default: cls; of the
    other networks mean."""
    pooling_heads: int = 1
    """attention pooling: learned queries."""
    patch: int = 0
    """Pixels of a side of a patch; 0: image_size / 8 for vit, so that there are 8 × 8 patches; image_size / 32 for the
    others, whose three stages then give 8 × 8 cells."""
    hidden: int = 128
    """vit: features of a patch."""
    layers: int = 4
    """vit: layers."""
    heads: int = 4
    """vit: heads; a divisor of hidden."""
    feedforward: int = 0
    """vit: units of the hidden layer of the feedforward networks; 0: four times hidden."""
    grid: int = 256
    """cnn, se, cbam: features of the last stage; each stage has twice as many as the one before."""
    stages: int = 3
    """cnn, se, cbam: stages; each halves the grid."""
    blocks: int = 1
    """cnn, se, cbam: residual blocks of a stage."""
    backbone: str = ""
    """cnn: a network of another package instead: torchvision:NAME or timm:NAME, if it is installed. Default: none."""
    backbone_weights: str | None = None
    """File with the weights of the backbone (.safetensors, .pth). Default: random weights."""
    freeze_backbone: bool = False
    """Whether the weights of the backbone stay as they are."""
    dropout: float = 0.1
    """Dropout rate, 0 to below 1."""

    def __post_init__(self) -> None:
        check_choices(self)
        vit = self.network == "vit"
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in (_OF_CNN if vit else _OF_VIT) and value != field.default:
                raise ArgumentError(f"{field.name} has no meaning with network {self.network!r}; it is {value!r}")
        if self.pooling is None:
            object.__setattr__(self, "pooling", "cls" if vit else "mean")
        if self.pooling == "cls" and not vit:
            raise ArgumentError(f"pooling 'cls' is of network 'vit'; network is {self.network!r}")
        if self.backbone and self.network != "cnn":
            raise ArgumentError(f"a backbone is another network than {self.network!r}; give it with network 'cnn'")
        check_network(self)
        check_between(self, 1, MOST_FEATURES, "hidden")
        check_between(self, 0, 16 * MOST_FEATURES, "feedforward")
        check_between(self, 1, MOST_LAYERS, "layers")
        check_between(self, 1, MOST_HEADS, "heads", "pooling_heads")
        check_probabilities(self, "dropout")
        if vit and self.hidden % self.heads:
            raise ArgumentError(f"heads must divide hidden, {self.hidden}; it is {self.heads}")


@dataclass(frozen=True, slots=True)
class ImageTrainingConfig(TrainingConfig):
    """How a classifier of images is trained, and for how long."""

    batch_size: int = 64
    """Images of a batch, on each device."""
    label_smoothing: float = 0.1
    """Probability that is distributed over all labels, 0 to below 1 (Szegedy et al. 2016, section 7)."""
    class_weights: Literal["none", "balanced"] = "none"
    """none, or balanced: an image counts in inverse proportion to the number of training images with its label."""
    flip: bool = False
    """Mirror half of the training images, left to right."""
    zoom: float = 0.0
    """Read a random part of each training image, whose side is at least 1 − zoom of that of the image."""
    jitter: float = 0.0
    """Change brightness and contrast of each training image by a factor from 1 − jitter to 1 + jitter."""

    def __post_init__(self) -> None:
        TrainingConfig.__post_init__(self)  # the class of `super()` is another one in a dataclass with slots
        check_augmentation(self)


@dataclass(frozen=True, slots=True)
class PredictionConfig:
    """How images are classified."""

    batch_size: int = 64
    """Images classified at once."""

    def __post_init__(self) -> None:
        check_between(self, 1, MOST_BATCH, "batch_size")


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """How a classifier of images is measured on a data set."""

    batch_size: int = 64
    """Images classified at once."""
    limit: int | None = None
    """Number of images to evaluate, from the first. Default: all."""

    def __post_init__(self) -> None:
        check_between(self, 1, MOST_BATCH, "batch_size")
        if self.limit is not None:
            check_at_least(self, 1, "limit")
