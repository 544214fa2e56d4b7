"""The configurations of models of images, which are the options of their tasks; this file imports no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from regard.configuration import HEADS, LAYERS, RATE, SIZE, WEIGHT, Configuration, Range, from_data, option, varies
from regard.configuration.options import fill
from regard.errors import ArgumentError
from regard.models.configs import FEEDFORWARD, RECURRENT_CELLS, SpecialTokens, TransformerOptions, check_heads

GRIDS = ("cnn", *RECURRENT_CELLS, "transformer")
"""Architectures whose first part is the grid of a convolutional network."""

PACKAGES = ("torchvision", "timm")
"""Packages that have backbones."""

MOST_SIDE = 4096
"""Largest side of a patch, in pixels."""

Gate = Literal["none", "se", "eca", "cbam", "coordinate", "global_context", "sk", "split"]


def backbone_name(text: str) -> tuple[str, str]:
    """Splits the package and the name of a network: ``("timm", "resnet18")`` for ``"timm:resnet18"``.

    Raises:
        ArgumentError: the text does not have this form.
    """
    package, _, name = text.partition(":")
    if package not in PACKAGES or not name:
        raise ArgumentError(f"backbone must be torchvision:NAME or timm:NAME; it is {text!r}")
    return package, name


@dataclass(frozen=True, kw_only=True)
class GridConfig(Configuration):
    """The configuration of a `GridEncoder`.

    Raises:
        UnknownNameError: a name that the field does not know.
        ArgumentError: a number is out of its range, or fields contradict each other.

    Example:
        >>> from regard import models
        >>> config = models.GridConfig(image_height=128, image_width=96, grid=64)
        >>> config.channels, config.patch, config.stride
        ([16, 32, 64], 4, 16)
        >>> config.image_height // config.stride, config.image_width // config.stride
        (8, 6)
    """

    image_height: int = from_data()
    """Height of the images in pixels; without a backbone a multiple of the stride, ``patch · 2 ** (stages − 1)``."""
    image_width: int = from_data()
    """Width of the images in pixels."""
    grid: int = option(256, within=SIZE, architecture=GRIDS, backbone="")
    """Features of an annotation; each stage has twice as many as the one before."""
    stages: int = option(3, within=Range(1, 8), architecture=GRIDS, backbone="")
    """Stages of the convolutional network; each halves the grid."""
    blocks: int = option(1, within=Range(0, LAYERS.high), architecture=GRIDS, backbone="")
    """Residual blocks at each scale."""
    gate: Gate = option("none", architecture=GRIDS, backbone="")
    """Gate of each residual block: none, se (channels: squeeze-and-excitation), eca (near channels), cbam (channels and
    positions), coordinate (rows and columns) or global_context (adds a mean of all positions); or its first convolution
    has branches: sk (selective kernels) or split (split attention)."""
    patch: int = option(0, within=Range(0, MOST_SIDE), backbone="")
    """Pixels of a side of the patches that are read first; 0: a 32nd of the height of the images, an 8th for vit."""
    backbone: str = option("", architecture=GRIDS)
    """A network of another package instead: torchvision:NAME or timm:NAME, if it is installed. Default: none."""
    backbone_map: Literal["pooled", "last_stage"] = option("pooled", architecture=GRIDS, backbone=True)
    """Feature map of the backbone: pooled (the one that it pools), or last_stage (the last stage's map, as versions
    before 0.3 had it; not for new trainings)."""

    first_grid: ClassVar[int] = 32
    """Patches of a side, where ``patch`` is 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.patch and self.image_height is not None and not self.backbone:
            fill(self, patch=max(1, self.image_height // self.first_grid))

    def check(self) -> None:
        super().check()
        if self.backbone:
            backbone_name(self.backbone)
            return
        if self.grid % 2 ** (self.stages - 1):
            raise ArgumentError(
                f"grid must be a multiple of 2 ** (stages − 1); it is {self.grid} with {self.stages} stages"
            )
        for name in ("image_height", "image_width"):
            side, stride = getattr(self, name), self.stride
            if side is not None and side % stride:
                raise ArgumentError(f"{name} must be a multiple of {self.strided} = {stride}; it is {side}")

    strided: ClassVar[str] = "patch · 2 ** (stages − 1)"

    @property
    def stride(self) -> int:
        """Pixels of a side of a cell of the grid."""
        patch = self.patch or max(1, (self.image_height or 0) // self.first_grid)
        return patch * 2 ** (self.stages - 1)

    @property
    def channels(self) -> list[int]:
        """Features of each stage."""
        return [self.grid // 2 ** (self.stages - 1 - stage) for stage in range(self.stages)]


@dataclass(frozen=True, kw_only=True)
class ImageClassifierConfig(GridConfig):
    """The configuration of an `ImageClassifier`.

    Raises:
        UnknownNameError: a name that the field does not know.
        ArgumentError: a number is out of its range, or fields contradict each other.

    Example:
        >>> from regard import models
        >>> config = models.ImageClassifierConfig(image_height=32, image_width=32, labels=10, hidden=64, layers=2)
        >>> config.architecture, config.pooling, config.patch
        ('vit', 'cls', 4)
        >>> models.ImageClassifierConfig(image_height=32, image_width=32, labels=10, architecture="cnn").pooling
        'mean'
    """

    labels: int = from_data()
    """Labels."""
    architecture: Literal["vit", "cnn"] = "vit"
    """Architecture: vit (a Transformer on patches) or cnn (a residual convolutional network, or a backbone)."""
    pooling: Literal["cls", "attention", "mean"] = varies("mean", vit="cls")
    """Pooling of the annotations to one vector: cls (the output of a class token; vit only), attention (with a learned
    query) or mean."""
    pooling_heads: int = option(1, within=HEADS, pooling="attention")
    """Learned queries."""
    hidden: int = option(128, within=SIZE, architecture="vit")
    """Features of a patch."""
    layers: int = option(4, within=LAYERS, architecture="vit")
    """Layers of the Transformer."""
    heads: int = option(4, within=HEADS, architecture="vit")
    """Query heads; a divisor of ``hidden``."""
    feedforward: int = option(0, within=FEEDFORWARD, architecture="vit")
    """Units of the hidden layer of the feedforward networks; 0: four times ``hidden``."""
    dropout: float = option(0.1, within=RATE)
    """Dropout rate, 0 to below 1."""

    models: ClassVar[dict[str, str]] = dict.fromkeys(
        ("vit", "cnn"), "regard.models.vision.image_classifier:ImageClassifier"
    )

    @property
    def first_grid(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 8 if self.architecture == "vit" else 32

    @property
    def strided(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "patch" if self.architecture == "vit" else GridConfig.strided

    @property
    def stride(self) -> int:
        return super().stride if self.architecture == "cnn" else super().stride // 2 ** (self.stages - 1)

    def check(self) -> None:
        super().check()
        check_heads(self)
        if self.architecture == "cnn" and self.pooling == "cls":
            raise ArgumentError("pooling 'cls' has no meaning with architecture 'cnn', only with 'vit'")


@dataclass(frozen=True, kw_only=True)
class CaptionerConfig(SpecialTokens, TransformerOptions, GridConfig):
    """The configuration of a `RecurrentCaptioner` or a `TransformerCaptioner`.

    Raises:
        UnknownNameError: a name that the field does not know.
        ArgumentError: a number is out of its range, or fields contradict each other.

    Example:
        >>> from regard import models
        >>> sizes = {"image_height": 64, "image_width": 64, "target_vocabulary": 1000}
        >>> models.CaptionerConfig(**sizes, attention="hard").score
        'additive'
        >>> config = models.CaptionerConfig(**sizes, architecture="transformer", hidden=128)
        >>> config.layers, config.score
        (2, 'scaled_dot')
    """

    target_vocabulary: int = from_data()
    """Tokens of the captions."""
    architecture: Literal["lstm", "gru", "transformer"] = "lstm"
    """Architecture of the decoder: lstm, gru or transformer."""
    attention: Literal["none", "soft", "hard"] = option("soft", architecture=RECURRENT_CELLS)
    """Attention of the decoder: none (only the mean of the grid), soft or hard (Xu et al. 2015)."""
    score: Literal["additive", "concat", "coverage", "dot", "general", "scaled_dot"] = varies(
        "additive", transformer="scaled_dot", needs={"attention": ("soft", "hard")}
    )
    """Score of the attention: additive (= concat), coverage (additive, and sees how much each cell has received), dot,
    general or scaled_dot."""
    embedding: int = option(256, within=SIZE, architecture=RECURRENT_CELLS)
    """Features of an embedded token and of the readout; a transformer has ``hidden`` features everywhere."""
    hidden: int = option(256, within=SIZE)
    """Features of a state of the decoder."""
    layers: int = varies(1, transformer=2, within=LAYERS)
    """Layers of the decoder."""
    readout: Literal["tanh", "maxout"] = option("tanh", architecture=RECURRENT_CELLS)
    """Layer between the decoder and the output matrix: tanh or maxout."""
    gated: bool = option(True, architecture=RECURRENT_CELLS, attention=("soft", "hard"))
    """A number from 0 to 1 multiplies the context of each step (Xu et al. 2015, section 4.2.1)."""
    query_token: bool = option(True, architecture=RECURRENT_CELLS, attention=("soft", "hard"))
    """The attention depends on the last word, too; --no-query-token: only on the state before it, as in the paper."""
    doubly_stochastic: float = option(0.0, within=WEIGHT, architecture=RECURRENT_CELLS, attention="soft")
    """Weight of the term that makes the decoder attend to every part of the image (Xu et al. 2015, eq. 14)."""
    hard_estimator: Literal["reinforce", "straight_through"] = option(
        "reinforce", architecture=RECURRENT_CELLS, attention="hard"
    )
    """Estimator of the gradient: reinforce or straight_through."""
    entropy_weight: float = option(
        0.01, within=WEIGHT, architecture=RECURRENT_CELLS, attention="hard", hard_estimator="reinforce"
    )
    """Weight of the entropy bonus."""
    normalizer: Literal["softmax", "sparsemax", "entmax15", "sigmoid"] = option("softmax", architecture="transformer")
    """Normalizer of the attention weights: softmax, sparsemax, entmax15 or sigmoid."""
    dropout: float = option(0.3, within=RATE)
    """Dropout rate, 0 to below 1."""
    tied: Literal["none", "target"] = "target"
    """Embeddings that share their weights: none, or target (with the output matrix)."""
    max_length: int = from_data(64)
    """Position ``learned``: the longest caption, in tokens."""

    bidirectional: ClassVar[bool] = False
    of_self_attention: ClassVar[tuple[str, ...]] = ("position",)
    models: ClassVar[dict[str, str]] = {
        **dict.fromkeys(RECURRENT_CELLS, "regard.models.vision.recurrent_captioner:RecurrentCaptioner"),
        "transformer": "regard.models.vision.transformer_captioner:TransformerCaptioner",
    }


@dataclass(frozen=True)
class SegmenterConfig(Configuration):
    """The configuration of a `Segmenter`."""

    classes: int = from_data()
    """Classes of pixels."""
    channels: int = option(24, within=Range(1, 4096))
    """Channels of the encoder at half of the image's size; each halving doubles them."""
    levels: int = option(4, within=Range(2, 6))
    """Halvings of the image, 2 to 6."""
    blocks: int = option(2, within=Range(0, 100))
    """Residual blocks at each scale but the first."""
    decoder_channels: int = option(32, within=Range(1, 4096))
    """Channels of the decoder."""
    gate: Gate = "se"
    """Gate of each residual block: none, se (channels: squeeze-and-excitation), eca (near channels), cbam (channels and
    positions), coordinate (rows and columns) or global_context (adds a mean of all positions); or its first convolution
    has branches: sk (selective kernels) or split (split attention)."""
    attention: Literal["none", "non_local", "dual"] = "dual"
    """Attention of the decoder, over the whole image: none, non_local (positions) or dual (positions and channels, as
    in DANet)."""
    fusion: Literal["sum", "aff", "iaff"] = "aff"
    """Fusion of the encoder's maps with the decoder's: sum, aff (attentional feature fusion) or iaff (iterative)."""
    fusion_norm: Literal["batch", "layer"] = "layer"
    """Normalization of the global context of aff and iaff: batch (as in their paper, for large batches) or layer."""
    dropout: float = option(0.1, within=RATE)
    """Dropout rate of the channels before the last convolution, 0 to below 1."""

    models: ClassVar[dict[str, str]] = {"": "regard.models.vision.segmenter:Segmenter"}

    @property
    def attends(self) -> bool:
        """Whether there is attention of any kind."""
        return (self.gate, self.attention, self.fusion) != ("none", "none", "sum")

    @property
    def stride(self) -> int:
        """Side in pixels of a position of the smallest map."""
        return 2**self.levels

    @property
    def attention_level(self) -> int:
        """The level, from 0, whose positions attend to each other: an eighth of the size, or the smallest map."""
        return min(3, self.levels) - 1

    @property
    def cell(self) -> int:
        """Side in pixels of a position that attends."""
        return 2 ** (self.attention_level + 1)
