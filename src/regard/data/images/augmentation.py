"""Random changes of images in training, a batch at a time; all random numbers are PyTorch's."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.images.places import pixel_places
from regard.errors import ArgumentError, ShapeError


@dataclass(frozen=True, slots=True)
class Augmentation:
    """Draws a part, a mirror image and a brightness for each image of a batch.

    Attributes:
        zoom: the side of the part is from ``1 − zoom`` to 1 of that of the image; in [0, 1).
        flip: whether half of the images are mirrored, left to right.
        jitter: brightness and contrast are multiplied by a number from ``1 − jitter`` to ``1 + jitter``; in [0, 1).

    Raises:
        ArgumentError: a number is out of its range.
    """

    zoom: float = 0.0
    flip: bool = False
    jitter: float = 0.0

    def __post_init__(self) -> None:
        for name in ("zoom", "jitter"):
            if not 0 <= getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be in [0, 1); it is {getattr(self, name)}")

    def __call__(self, images: Tensor) -> Tensor:
        """Change a batch.

        Args:
            images: uint8 ``[batch, height, width, 3]``.

        Returns:
            float32 from 0 to 1 of the same shape, or the images as they are where nothing is to be changed.

        Raises:
            ShapeError: another shape or dtype.
        """
        if images.dim() != 4 or images.shape[-1] != 3 or images.dtype != torch.uint8:
            raise ShapeError(
                f"images must be uint8 [batch, height, width, 3]; they are {images.dtype} {list(images.shape)}"
            )
        if not (self.zoom or self.flip or self.jitter) or not len(images):
            return images
        found = images.permute(0, 3, 1, 2).float() / 255
        if self.zoom:
            found = self._part(found)
        elif self.flip:
            mirrored = torch.rand(len(found), 1, 1, 1, device=found.device) < 0.5
            found = torch.where(mirrored, found.flip(3), found)
        if self.jitter:
            found = self._brightness(found)
        return found.permute(0, 2, 3, 1)

    def _part(self, images: Tensor) -> Tensor:
        # A position p of the result, from −1 to 1, is position scale · p + shift of the image.
        batch, device = len(images), images.device
        scale = 1 - self.zoom * torch.rand(batch, device=device)
        room = (1 - scale)[:, None] * (2 * torch.rand(batch, 2, device=device) - 1)
        mirror = 1 - 2 * (torch.rand(batch, device=device) < 0.5).float() if self.flip else torch.ones_like(scale)
        zero = torch.zeros_like(scale)
        rows = [torch.stack([scale * mirror, zero, room[:, 0]], 1), torch.stack([zero, scale, room[:, 1]], 1)]
        height, width = images.shape[2:]
        grid = pixel_places(torch.stack(rows, 1), (height, width))
        return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)

    def _brightness(self, images: Tensor) -> Tensor:
        shape = len(images), 1, 1, 1
        contrast, brightness = (1 + self.jitter * (2 * torch.rand(shape, device=images.device) - 1) for _ in range(2))
        mean = images.mean((1, 2, 3), keepdim=True)
        return ((images - mean) * contrast + mean * brightness).clamp(0, 1)
