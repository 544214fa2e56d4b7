"""The encoder of images: a grid of annotations, by an own network or by one of another package."""

from pathlib import Path

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, ShapeError
from regard.models.encoders import Encoded
from regard.models.vision.backbones import Backbone, FormerBackbone
from regard.models.vision.configs import GridConfig
from regard.models.vision.convolutional_grid import ConvolutionalGrid
from regard.models.vision.pixels import PixelInput
from regard.models.vision.residual_block import gate_class
from regard.tracing.module_calls import Module


class GridEncoder(Module):
    """Turns images into annotations, one for each cell of a grid, in row-major order.

    The summary of an image is the mean of its annotations (Xu et al. 2015, §3.1.2).

    Args:
        config: the configuration.
        dropout: dropout rate of annotations.

    Attributes:
        dim: features of an annotation.
        rows: rows of the grid.
        columns: columns of the grid.

    Raises:
        ArgumentError: the size of the images is missing; or as `Backbone`.
        UnknownNameError, MissingPartError: as `Backbone`.

    Example:
        >>> import torch
        >>> from regard import models
        >>> config = models.GridConfig(image_height=32, image_width=48, grid=16, stages=2, patch=4)
        >>> encoder = models.GridEncoder(config)
        >>> encoder.rows, encoder.columns
        (4, 6)
        >>> images = torch.randint(256, (2, 32, 48, 3), dtype=torch.uint8)
        >>> encoder(images).annotations.shape
        torch.Size([2, 24, 16])
    """

    def __init__(self, config: GridConfig, dropout: float = 0.0):
        super().__init__()
        config = config.complete()
        self.size = config.image_height, config.image_width
        self.pixels = PixelInput()
        self.network: ConvolutionalGrid | Backbone
        if config.backbone:
            kind = Backbone if config.backbone_map == "pooled" else FormerBackbone
            self.network = kind(config.backbone, self.size)
            self.rows, self.columns = self.network.rows, self.network.columns
        else:
            self.network = ConvolutionalGrid(config.channels, config.blocks, config.patch, gate_class(config.gate))
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
