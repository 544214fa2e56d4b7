"""The encoder of images: a grid of annotations, by an own network or by one of another package."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, ShapeError, UnknownNameError
from regard.models.encoders import Encoded
from regard.models.vision.backbones import Backbone, backbone_name
from regard.models.vision.convolutional_grid import WEIGHINGS, ConvolutionalGrid, weighing
from regard.models.vision.pixels import PixelInput


@dataclass(frozen=True)
class GridConfig:
    """The configuration of a `GridEncoder`."""

    image_height: int = 128
    """Height of the images in pixels; without a backbone a multiple of the stride, ``patch · 2 ** (stages − 1)``."""
    image_width: int = 128
    grid_dim: int = 256
    """Features of an annotation without a backbone; each stage has twice as many as the previous one."""
    stages: int = 3
    """Number of stages; each halves the grid of the previous one."""
    blocks: int = 1
    """Residual blocks in a stage."""
    patch: int = 4
    """Side in pixels of the patches that the first stage reads."""
    weigh: str = "none"
    """What each block weighs: ``none``, ``se`` (channels) or ``cbam`` (channels and positions)."""
    backbone: str = ""
    """A network of another package instead: ``torchvision:NAME`` or ``timm:NAME``."""

    def __post_init__(self) -> None:
        for name in ("image_height", "image_width", "grid_dim", "stages", "patch"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be at least 1; it is {getattr(self, name)}")
        if self.blocks < 0:
            raise ArgumentError(f"blocks must be at least 0; it is {self.blocks}")
        if self.weigh not in WEIGHINGS:
            raise UnknownNameError("weigh", self.weigh, WEIGHINGS)
        if self.backbone:
            backbone_name(self.backbone)
            return
        if self.stages > 8 or self.grid_dim % 2 ** (self.stages - 1):
            raise ArgumentError(
                f"grid_dim must be a multiple of 2 ** (stages − 1), with 8 stages at most; it is {self.grid_dim} with "
                f"{self.stages} stages"
            )
        stride = self.patch * 2 ** (self.stages - 1)
        for name in ("image_height", "image_width"):
            if getattr(self, name) % stride:
                raise ArgumentError(
                    f"{name} must be a multiple of patch · 2 ** (stages − 1) = {stride}; it is {getattr(self, name)}"
                )

    @property
    def channels(self) -> list[int]:
        """Features of each stage."""
        return [self.grid_dim // 2 ** (self.stages - 1 - stage) for stage in range(self.stages)]


class GridEncoder(nn.Module):
    """Turns images into annotations, one for each cell of a grid, in row-major order.

    The summary of an image is the mean of its annotations (Xu et al. 2015, §3.1.2).

    Args:
        config: the configuration.
        dropout: dropout rate of annotations.

    Attributes:
        dim: features of an annotation.
        rows: rows of the grid.
        columns: columns of the grid.
    """

    def __init__(self, config: GridConfig, dropout: float = 0.0):
        super().__init__()
        self.size = config.image_height, config.image_width
        self.pixels = PixelInput()
        self.network: ConvolutionalGrid | Backbone
        if config.backbone:
            self.network = Backbone(config.backbone, self.size)
            self.rows, self.columns = self.network.rows, self.network.columns
        else:
            self.network = ConvolutionalGrid(config.channels, config.blocks, config.patch, weighing(config.weigh))
            self.rows, self.columns = (side // self.network.stride for side in self.size)
        self.dim = self.network.dim
        self.dropout = nn.Dropout(dropout)

    def load_backbone(self, path: str | Path) -> None:
        """Loads the weights of the backbone from a file; see `Backbone.load`.

        Raises:
            ArgumentError: there is no backbone.
            DataError: the weights do not fit.
        """
        self._backbone.load(path)

    def freeze_backbone(self) -> None:
        """Freezes the weights of the backbone.

        Raises:
            ArgumentError: there is no backbone.
        """
        self._backbone.freeze()

    @property
    def _backbone(self) -> Backbone:
        if not isinstance(self.network, Backbone):
            raise ArgumentError("there is no backbone; the network is regard's own")
        return self.network

    def forward(self, images: Tensor) -> Encoded:
        """Encodes a batch of images.

        Args:
            images: ``[batch, height, width, 3]`` of the configured size, as `PixelInput` accepts them.

        Returns:
            Annotations ``[batch, rows · columns, dim]`` and their mean.

        Raises:
            ShapeError: the images have another size.
        """
        if images.dim() != 4 or tuple(images.shape[1:3]) != self.size:
            raise ShapeError(
                f"images must be [batch, height, width, 3] with height and width {list(self.size)}; they have shape "
                f"{list(images.shape)}"
            )
        features = self.network(self.pixels(images))  # batch dim rows columns
        annotations = self.dropout(features.flatten(2).transpose(1, 2))
        cells = torch.full((images.shape[0],), annotations.shape[1], device=images.device)
        return Encoded(annotations, cells, annotations.mean(1))
