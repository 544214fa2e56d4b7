"""The configuration of a segmentation: its data, its model, its training, and how it is used."""

from dataclasses import dataclass
from typing import Literal

from regard.errors import ArgumentError
from regard.training.config import ScheduleName, TrainingConfig
from regard.training.sections import check_at_least, check_between, check_choices, check_probabilities

BUNDLED_SCENES = 500
"""Training scenes of the bundled corpus when no number is given."""

MOST_BUNDLED = 1_000_000
"""Largest number of training scenes that are generated."""

MOST_SIDE = 8192
"""Largest height or width of an image, in pixels."""

MOST_BATCH = 100_000


@dataclass(frozen=True, slots=True)
class DataConfig:
    """The data of a run."""

    train: str | None = None
    """Training images: a folder with the folders images and labels (class maps of the same names), a table (.tsv,
    .csv, .jsonl, .parquet) with the columns image and mask, or 'bundled' for generated scenes."""
    validation: str | None = None
    """Validation images, in any of these forms. Default: random training images, as many as held_out says."""
    test: str | None = None
    """Test images, evaluated when training is over. Default: none."""
    bundled: int = 0
    """Number of generated scenes to train on, instead of train."""
    held_out: int = 100
    """Training images that are used for validation when there are no validation images; at most a tenth of them."""
    classes: str | None = None
    """Names of the classes in the order of their numbers, separated by commas, or a text file with a name on each line.
    Default: their numbers."""
    ignore: int = -1
    """Number of the pixels in class maps that do not count, such as those without a class; -1: all pixels count."""
    height: int = 0
    """Height that images are resized to, in pixels; 0: that of the first training image."""
    width: int = 0
    """Width that images are resized to, in pixels; 0: that of the first training image."""

    def __post_init__(self) -> None:
        if self.train == "bundled":
            object.__setattr__(self, "train", None)
            object.__setattr__(self, "bundled", self.bundled or BUNDLED_SCENES)
        check_between(self, 0, MOST_BUNDLED, "bundled")
        if self.train is not None and self.bundled:
            raise ArgumentError("--train and --bundled exclude each other; give one of them")
        if self.train is None and not self.bundled:
            raise ArgumentError(
                f"there is nothing to train on; give --train FOLDER, or --train bundled for {BUNDLED_SCENES:,} "
                "generated scenes (--bundled says how many)"
            )
        for name in ("train", "validation", "test", "classes"):
            if getattr(self, name) == "":
                raise ArgumentError(f"{name} is empty; give a name, or leave it out")
        if self.bundled and (self.classes is not None or self.ignore != -1):
            raise ArgumentError("the generated scenes have classes of their own; leave out --classes and --ignore")
        check_at_least(self, 1, "held_out")
        check_between(self, -1, 65_535, "ignore")
        check_between(self, 0, MOST_SIDE, "height", "width")
        if bool(self.height) != bool(self.width):
            raise ArgumentError(
                f"--height and --width belong together; they are {self.height} and {self.width}: give both or neither"
            )


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The model of a run, without the number of classes, which the data decide."""

    channels: int = 24
    """Channels of the encoder at half of the image's size; each halving doubles them."""
    levels: int = 4
    """How often the encoder halves the image, 2 to 6."""
    blocks: int = 2
    """Residual blocks at each scale but the first."""
    decoder_channels: int = 32
    """Channels of the decoder."""
    gate: Literal["none", "se", "cbam"] = "se"
    """Gate of each residual block: none, se (channels: squeeze-and-excitation) or cbam (channels and positions)."""
    context: Literal["none", "non_local", "dual"] = "dual"
    """Attention over the whole image: none, non_local (positions) or dual (positions and channels, as in DANet)."""
    fusion: Literal["sum", "aff", "iaff"] = "aff"
    """How the decoder takes in the encoder's maps: sum, aff (attentional feature fusion) or iaff (iterative)."""
    fusion_norm: Literal["batch", "layer"] = "layer"
    """Normalization of the global context of aff and iaff: batch (as in their paper, for large batches) or layer."""
    dropout: float = 0.1
    """Probability that a channel is dropped before the last convolution, 0 to below 1."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_between(self, 1, 4096, "channels", "decoder_channels")
        check_between(self, 2, 6, "levels")
        check_between(self, 0, 100, "blocks")
        check_probabilities(self, "dropout")

    @property
    def attends(self) -> bool:
        """Whether there is attention of any kind."""
        return (self.gate, self.context, self.fusion) != ("none", "none", "sum")


@dataclass(frozen=True, slots=True)
class SegmentationTrainingConfig(TrainingConfig):
    """How a segmentation is trained, and for how long."""

    learning_rate: float = 2e-3
    """Peak learning rate."""
    weight_decay: float = 0.02
    """Decoupled weight decay of adamw, for each unit of learning rate."""
    schedule: ScheduleName = "cosine"
    """Learning rate after the warmup: constant, inverse_sqrt, cosine, linear (the last two decay to 0 over all epochs)
    or plateau (halves)."""
    warmup: int = 100
    """Steps of linear warmup."""
    epochs: int = 60
    """Epochs after which training ends."""
    patience: int = 0
    """Validations without a better result after which training ends; 0: never."""
    batch_size: int = 4
    """Images of a batch, on each device."""
    crop: float = 0.8
    """Sides of the part of an image that is trained on, as a share of the image's; above 0, at most 1."""
    zoom: float = 1.5
    """Images are enlarged by up to this factor and made smaller by up to its inverse; 1: never."""
    colour: float = 0.3
    """Brightness, contrast and saturation change by a factor of up to 1 ± this; 0 to below 1."""
    mirror: bool = True
    """Mirror half of the images, left to right."""
    class_weights: Literal["none", "root", "balanced"] = "root"
    """none; balanced: a pixel counts in inverse proportion to the number of training pixels of its class; root: to the
    square root of that number."""

    def __post_init__(self) -> None:
        TrainingConfig.__post_init__(self)  # the class of `super()` is another one in a dataclass with slots
        check_between(self, 1, MOST_BATCH, "batch_size")
        check_between(self, 1, 10, "zoom")
        check_probabilities(self, "colour")
        if not 0 < self.crop <= 1:
            raise ArgumentError(f"crop must be above 0 and at most 1; it is {self.crop}")


@dataclass(frozen=True, slots=True)
class PredictionConfig:
    """How images are segmented, and what is drawn of them."""

    pixel: str | None = None
    """Pixel whose attention is drawn, as 'x,y' from the upper left corner. Default: the middle of the image."""
    masks: str | None = None
    """Folder for the class map of each image, as PNG with the numbers of the classes. Default: none are written."""
    batch_size: int = 4
    """Images segmented at once."""

    def __post_init__(self) -> None:
        check_between(self, 1, MOST_BATCH, "batch_size")
        if self.pixel is not None:
            pixel_of(self.pixel)
        if self.masks == "":
            raise ArgumentError("masks is empty; give the name of a folder, or leave it out")


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """How a segmentation is measured on a data set."""

    batch_size: int = 4
    """Images segmented at once."""
    limit: int | None = None
    """Number of images to evaluate, from the first. Default: all."""

    def __post_init__(self) -> None:
        check_between(self, 1, MOST_BATCH, "batch_size")
        if self.limit is not None:
            check_at_least(self, 1, "limit")


def pixel_of(text: str) -> tuple[int, int]:
    """The x and y that a text such as ``"120,80"`` names.

    Raises:
        ArgumentError: it is of another form.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        raise ArgumentError(f"pixel must be two whole numbers, 'x,y'; it is {text!r}")
    return int(parts[0]), int(parts[1])
