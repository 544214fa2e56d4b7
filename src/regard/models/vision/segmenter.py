"""A small encoder-decoder network that predicts the class of each pixel, with and without attention."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Observed, Readings
from regard.attention.readings import ReadingName
from regard.errors import ArgumentError
from regard.models.vision.configs import SegmenterConfig
from regard.models.vision.pixels import normalized
from regard.models.vision.residual_block import GatedBlock
from regard.nn import AFF, IAFF, BatchNorm2d, DualAttention, NonLocal
from regard.nn.feature_maps import check_feature_map
from regard.tracing.module_calls import Module
from regard.tracing.portable import is_portable


class Segmenter(Module):
    """Predicts the classes of pixels, by an encoder that halves the image several times and a decoder that doubles it.

    .. math::

        encoder: E_1 = stem(image);    E_l = residual blocks(halve(E_{l-1}))
        decoder: D_L = 1 × 1(E_L);    D_l = refine(fuse(1 × 1(E_l), double(D_{l+1})))
        classes: logits = double(3 × 3(D_1))

    Three kinds of attention are optional, each with its own setting: a gate of channels or positions in each residual
    block (`regard.nn.SqueezeExcitation`, `regard.nn.CBAM` and others); attention between positions and channels
    of the decoder's map at an eighth of the size (`regard.nn.NonLocal`, `regard.nn.DualAttention`); and attentional
    feature fusion of the encoder's and the decoder's maps (`regard.nn.AFF`, `regard.nn.IAFF`).

    Each halving joins 2 × 2 positions, and each doubling interpolates between their centers, so position (row, column)
    of level l belongs exactly to the square of 2^l pixels at (row, column) · 2^l. If the height or width of an image is
    not a multiple of the stride, its last row or column is repeated at the bottom or on the right.

    Args:
        config: the sizes.
    """

    context: nn.Identity | NonLocal | DualAttention

    def __init__(self, config: SegmenterConfig):
        super().__init__()
        self.config = config = config.complete()
        widths = [config.channels * 2**level for level in range(config.levels)]
        hidden = config.decoder_channels
        self.stages = nn.ModuleList(
            nn.Sequential(
                _Halving(3 if level == 0 else widths[level - 1], width, 4 if level == 0 else 2),
                *(GatedBlock(width, config.gate) for _ in range(config.blocks if level else 0)),
            )
            for level, width in enumerate(widths)
        )
        self.laterals = nn.ModuleList(_Convolution(width, hidden, 1) for width in widths)
        self.fusions = nn.ModuleList(_fusion(config, hidden) for _ in widths[:-1])
        self.refinements = nn.ModuleList(_Convolution(hidden, hidden, 3) for _ in widths[:-1])
        self.context = _context(config.attention, hidden)
        self.dropout = nn.Dropout2d(config.dropout)
        self.head = nn.Conv2d(hidden, config.classes, 3, padding=1)
        self.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]

    @property
    def attends(self) -> bool:
        """Whether positions attend to each other, with weights that can be shown."""
        return self.config.attention != "none"

    def forward(self, images: Tensor) -> Tensor:
        """Computes the logits of the classes of each pixel.

        Args:
            images: ``[batch, 3, height, width]``, red, green and blue from 0 to 1.

        Returns:
            ``[batch, classes, height, width]``.

        Raises:
            ShapeError, KindError: the images have another shape or dtype.
        """
        maps = self._encoded(images)
        features = self.context(self._before_context(maps))
        for level in range(self.config.attention_level - 1, -1, -1):
            features = self._fused(level, maps[level], features)
        logits = F.interpolate(self.head(self.dropout(features)), scale_factor=2.0, mode="bilinear")
        height, width = images.shape[2:]
        if is_portable():  # an exporter would fix whether a slice is the whole map
            rows, columns = (torch.arange(size, device=logits.device) for size in (height, width))
            return logits.index_select(2, rows).index_select(3, columns)
        return logits[..., :height, :width]

    def observe_context(self, images: Tensor, read: Readings | ReadingName) -> Observed:
        """Reads the weights with which positions attend to each other, in row-major order.

        Args:
            images: as in `forward`.
            read: the readings; a row of the map has ``ceil(width / stride) * stride / cell`` positions.

        Raises:
            ArgumentError: the model has no such attention.
        """
        if isinstance(self.context, nn.Identity):
            raise ArgumentError("the positions of this model do not attend to each other: its attention is 'none'")
        return self.context.observe(self._before_context(self._encoded(images)), read)

    def context_size(self, height: int, width: int) -> tuple[int, int]:
        """Returns the rows and columns of positions that attend to each other in an image of this size."""
        stride, cell = self.config.stride, self.config.cell
        return -(-height // stride) * stride // cell, -(-width // stride) * stride // cell

    def _encoded(self, images: Tensor) -> list[Tensor]:
        """Returns the encoder's maps with the decoder's channels, the largest first."""
        check_feature_map("images", images, 3)
        stride = self.config.stride
        # Convolutions on a CPU are fastest with channels last.
        features = normalized(images).contiguous(memory_format=torch.channels_last)
        features = F.pad(features, (0, -images.shape[3] % stride, 0, -images.shape[2] % stride), mode="replicate")
        maps = []
        for stage, lateral in zip(self.stages, self.laterals, strict=True):
            features = stage(features)
            maps.append(lateral(features))
        return maps

    def _before_context(self, maps: list[Tensor]) -> Tensor:
        features = maps[-1]
        for level in range(self.config.levels - 2, self.config.attention_level - 1, -1):
            features = self._fused(level, maps[level], features)
        return features

    def _fused(self, level: int, encoded: Tensor, decoded: Tensor) -> Tensor:
        doubled = F.interpolate(decoded, scale_factor=2.0, mode="bilinear")
        return self.refinements[level](self.fusions[level](encoded, doubled))


class _Convolution(nn.Sequential):
    """A convolution that keeps the size, batch normalization, ReLU."""

    def __init__(self, channels: int, outputs: int, size: int):
        super().__init__(
            nn.Conv2d(channels, outputs, size, padding=size // 2, bias=False),
            BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class _Halving(nn.Sequential):
    """A convolution that halves the size; the center of its kernel is the center of 2 × 2 positions."""

    def __init__(self, channels: int, outputs: int, size: int):
        super().__init__(
            nn.Conv2d(channels, outputs, size, stride=2, padding=size // 2 - 1, bias=False),
            BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class _Sum(nn.Module):
    """Adds two feature maps."""

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return first + second


def _fusion(config: SegmenterConfig, channels: int) -> nn.Module:
    if config.fusion == "sum":
        return _Sum()
    kind = AFF if config.fusion == "aff" else IAFF
    return kind(channels, global_norm=config.fusion_norm)


def _context(name: str, channels: int) -> nn.Identity | NonLocal | DualAttention:
    if name == "non_local":
        return NonLocal(channels)
    return DualAttention(channels) if name == "dual" else nn.Identity()
