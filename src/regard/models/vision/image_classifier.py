"""A classifier of images: a Vision Transformer on patches, or a residual network with SE or CBAM."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.errors import ShapeError
from regard.models.vision.configs import ImageClassifierConfig
from regard.models.vision.grid_encoder import GridEncoder
from regard.models.vision.pixels import PixelInput
from regard.nn import AttentionPooling, LayerConfig, TransformerEncoder
from regard.shapes.checks import Requested
from regard.summaries import summarized
from regard.tracing.module_calls import Module


@summarized
class ClassifiedImages(NamedTuple):
    """The output of an `ImageClassifier`.

    Attributes:
        logits: ``[batch, labels]``, float32 or float64.
        weights: weights of the attention pooling, ``[batch, heads, cells]``, with cells in row-major order; None unless
            they were requested, and for other poolings.

    Example:
        >>> import torch
        >>> from regard import models
        >>> sizes = {"image_height": 32, "image_width": 32, "grid": 16, "stages": 2, "patch": 4}
        >>> config = models.ImageClassifierConfig(labels=10, architecture="cnn", pooling="attention", **sizes)
        >>> model = models.ImageClassifier(config)
        >>> logits, weights = model(torch.rand(2, 32, 32, 3), need_weights=True)
        >>> logits.shape, weights.unflatten(-1, model.grid).shape
        (torch.Size([2, 10]), torch.Size([2, 1, 4, 4]))
    """

    logits: Tensor
    weights: Requested[Tensor]


class VisionTransformer(Module):
    """Encodes patches as tokens of a Transformer (Dosovitskiy et al. 2021, section 3.1, eq. 1 to 4).

    .. math::

        z_0 = [class token; E p_1; …; E p_N] + positions
        z = encoder(z_0)    pre-norm, normalized at the end

    Args:
        config: the configuration.

    Attributes:
        dim: features of an annotation.
        rows: rows of the grid of patches.
        columns: columns of the grid of patches.
        leading: number of tokens before the patches: 1 with a class token, otherwise 0.

    Example:
        >>> import torch
        >>> from regard import models
        >>> sizes = {"image_height": 16, "image_width": 24, "patch": 4, "hidden": 16, "layers": 1}
        >>> encoder = models.VisionTransformer(models.ImageClassifierConfig(labels=10, **sizes))
        >>> encoder.rows, encoder.columns, encoder.leading
        (4, 6, 1)
        >>> encoder(torch.rand(2, 16, 24, 3)).shape
        torch.Size([2, 25, 16])
    """

    def __init__(self, config: ImageClassifierConfig):
        super().__init__()
        self.size = config.image_height, config.image_width
        self.dim, self.patch = config.hidden, config.patch
        self.rows, self.columns = (side // config.patch for side in self.size)
        self.leading = int(config.pooling == "cls")
        self.pixels = PixelInput()
        self.embedding = nn.Linear(3 * config.patch**2, config.hidden)
        self.class_token = nn.Parameter(torch.zeros(config.hidden)) if self.leading else None
        self.position = nn.Parameter(torch.randn(self.leading + self.rows * self.columns, config.hidden) * 0.02)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = TransformerEncoder.create(config.layers, _layer(config))

    def forward(self, images: Tensor) -> Tensor:
        """Maps ``[batch, height, width, 3]`` to ``[batch, leading + rows · columns, dim]``.

        Raises:
            ShapeError: the images do not have the configured size.
        """
        if images.dim() != 4 or tuple(images.shape[1:3]) != self.size:
            raise ShapeError(
                f"images must be [batch, height, width, 3] with height and width {list(self.size)}; they have shape "
                f"{list(images.shape)}"
            )
        tokens = self.embedding(patches(self.pixels(images), self.patch))
        if self.class_token is not None:
            tokens = torch.cat([self.class_token.to(tokens.dtype).expand(tokens.shape[0], 1, -1), tokens], dim=1)
        return self.encoder(self.dropout(tokens + self.position))


class ImageClassifier(Module):
    """Predicts the label of an image.

    .. math::

        annotations = encoder(image)
        logits = W pool(annotations) + b

    The encoder is a `VisionTransformer` (Dosovitskiy et al. 2021, section 3.1); with the architecture ``"cnn"`` it is a
    `GridEncoder`. ``pool`` is the annotation of the class token, the mean, or `regard.nn.AttentionPooling`.

    Args:
        config: the configuration.

    Raises:
        ArgumentError: the size of the images or the number of labels is missing; or as `Backbone`.
        UnknownNameError, MissingPartError: as `Backbone`.

    Example:
        >>> import torch
        >>> from regard import models
        >>> sizes = {"image_height": 16, "image_width": 24, "patch": 4, "hidden": 16, "layers": 1}
        >>> model = models.ImageClassifier(models.ImageClassifierConfig(labels=10, **sizes))
        >>> images = torch.randint(256, (2, 16, 24, 3), dtype=torch.uint8)
        >>> model(images).logits.shape
        torch.Size([2, 10])
    """

    def __init__(self, config: ImageClassifierConfig):
        super().__init__()
        self.config = config = config.complete()
        self.encoder: VisionTransformer | GridEncoder
        if config.architecture == "vit":
            self.encoder = VisionTransformer(config)
        else:
            self.encoder = GridEncoder(config)
        dim = self.encoder.dim
        self.pooling: AttentionPooling | None = None
        if config.pooling == "attention":
            self.pooling = AttentionPooling(dim, config.pooling_heads)
            dim *= config.pooling_heads
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(dim, config.labels)
        nn.init.normal_(self.output.weight, std=1 / math.sqrt(dim))
        nn.init.zeros_(self.output.bias)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the annotations."""
        return self.encoder.rows, self.encoder.columns

    @property
    def attends(self) -> bool:
        """Whether there are attention weights to read, in a Transformer or in attention pooling."""
        return self.pooling is not None or isinstance(self.encoder, VisionTransformer)

    def forward(self, images: Tensor, *, need_weights: bool = False) -> ClassifiedImages:
        """Classifies a batch of images.

        Args:
            images: ``[batch, height, width, 3]``, uint8 or floating-point from 0 to 1.
            need_weights: whether to return the weights of the pooling; the logits are the same, bit for bit.
        """
        weights = None
        if isinstance(self.encoder, VisionTransformer):
            annotations = self.encoder(images)
        else:
            annotations = self.encoder(images).annotations
        if self.pooling is not None:
            pooled, weights = self.pooling(annotations, need_weights=need_weights)
        else:
            pooled = annotations[:, 0] if self.config.pooling == "cls" else annotations.mean(1)
        logits = self.output(self.dropout(pooled))
        return ClassifiedImages(logits if logits.dtype == torch.float64 else logits.float(), weights)


def _layer(config: ImageClassifierConfig) -> LayerConfig:
    return LayerConfig(
        dim=config.hidden,
        heads=config.heads,
        feedforward=config.feedforward or 4 * config.hidden,
        dropout=config.dropout,
        activation="gelu",
        norm_first=True,
    )


def patches(images: Tensor, side: int) -> Tensor:
    """Cuts images ``[batch, 3, height, width]`` into patches, ``[batch, rows · columns, 3 · side²]``.

    Patches are in row-major order; inside a patch the order is color, row, column.
    """
    B, C, H, W = images.shape
    cut = images.reshape(B, C, H // side, side, W // side, side).permute(0, 2, 4, 1, 3, 5)
    return cut.reshape(B, (H // side) * (W // side), C * side * side)
