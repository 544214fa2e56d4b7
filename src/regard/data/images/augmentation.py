"""Random changes of images, with or without class maps, a batch at a time; all random numbers are PyTorch's."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.errors import ArgumentError, ShapeError

IGNORED_CLASS = -1
"""The class of pixels that neither a loss nor a metric counts."""


@dataclass(frozen=True)
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
        changed = images.permute(0, 3, 1, 2).float() / 255
        if self.zoom:
            changed = self._part(changed)
        elif self.flip:
            mirrored = torch.rand(len(changed), 1, 1, 1, device=changed.device) < 0.5
            changed = torch.where(mirrored, changed.flip(3), changed)
        if self.jitter:
            changed = self._brightness(changed)
        return changed.permute(0, 2, 3, 1)

    def _part(self, images: Tensor) -> Tensor:
        # A position p of the result, from −1 to 1, is position scale · p + shift of the image.
        batch, device = len(images), images.device
        scale = 1 - self.zoom * torch.rand(batch, device=device)
        room = (1 - scale)[:, None] * (2 * torch.rand(batch, 2, device=device) - 1)
        mirror = 1 - 2 * (torch.rand(batch, device=device) < 0.5).float() if self.flip else torch.ones_like(scale)
        zero = torch.zeros_like(scale)
        rows = [torch.stack([scale * mirror, zero, room[:, 0]], 1), torch.stack([zero, scale, room[:, 1]], 1)]
        height, width = images.shape[2:]
        grid = _sampling_grid(torch.stack(rows, 1), (height, width))
        return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)

    def _brightness(self, images: Tensor) -> Tensor:
        shape = len(images), 1, 1, 1
        contrast, brightness = (1 + self.jitter * (2 * torch.rand(shape, device=images.device) - 1) for _ in range(2))
        mean = images.mean((1, 2, 3), keepdim=True)
        return ((images - mean) * contrast + mean * brightness).clamp(0, 1)


class MaskedAugmentation(NamedTuple):
    """How much images are changed.

    Attributes:
        size: height and width of the result, in pixels.
        zoom: an image is enlarged by up to this factor, or made smaller by up to its inverse; at least 1.
        colour: brightness, contrast and saturation are each changed by a factor from ``1 − colour`` to ``1 + colour``;
            in [0, 1).
        mirror: whether half of the images are mirrored, left to right.
    """

    size: tuple[int, int]
    zoom: float = 1.0
    colour: float = 0.0
    mirror: bool = False


def augment_masked(images: Tensor, classes: Tensor, options: MaskedAugmentation) -> tuple[Tensor, Tensor]:
    """A random part of each image at a random scale, perhaps mirrored, with other colours.

    Images are interpolated bilinearly, class maps take the nearest pixel. A part that is larger than the image has
    black pixels around it, which are `IGNORED_CLASS`. The random numbers are those of PyTorch's global generator of the
    images' device.

    Args:
        images: float ``[batch, 3, height, width]``, from 0 to 1.
        classes: int64 ``[batch, height, width]``.
        options: how much is changed.

    Returns:
        images ``[batch, 3, *options.size]`` and classes ``[batch, *options.size]``.
    """
    batch, height, width = classes.shape
    zoom = torch.exp((2 * _random(images, batch) - 1) * math.log(options.zoom))
    mirror = 1 - 2 * (_random(images, batch) < 0.5).to(images) if options.mirror else torch.ones_like(zoom)
    theta = images.new_zeros(batch, 2, 3)
    for axis, (wanted, original) in enumerate(((options.size[1], width), (options.size[0], height))):
        part = wanted / (original * zoom)  # as a share of the image
        theta[:, axis, axis] = part
        # The middle of the part, in coordinates from −1 to 1; a part that fits lies inside.
        theta[:, axis, 2] = (2 * _random(images, batch) - 1) * (1 - part).abs()
    theta[:, 0, 0] *= mirror
    grid = _sampling_grid(theta, options.size)
    pixels = F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    shifted = (classes - IGNORED_CLASS)[:, None].to(images)  # outside of the image is 0
    sampled = F.grid_sample(shifted, grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return _recoloured(pixels, options.colour), sampled[:, 0].round().long() + IGNORED_CLASS


def _recoloured(images: Tensor, colour: float) -> Tensor:
    if not colour:
        return images
    brightness, contrast, saturation = (
        1 + colour * (2 * _random(images, images.shape[0])[:, None, None, None] - 1) for _ in range(3)
    )
    images = images * brightness
    images = images.mean((1, 2, 3), keepdim=True).lerp(images, contrast)
    return images.mean(1, keepdim=True).lerp(images, saturation).clamp(0, 1)


def _random(like: Tensor, count: int) -> Tensor:
    return torch.rand(count, dtype=like.dtype, device=like.device)


def _sampling_grid(change: Tensor, size: tuple[int, int]) -> Tensor:
    """The position in the images of each pixel of the results, for `torch.nn.functional.grid_sample`.

    Args:
        change: ``[batch, 2, 3]``: an affine map from positions in the result to those in the image, from −1 to 1.
        size: height and width of the results.

    Returns:
        ``[batch, height, width, 2]``, for ``align_corners=False``. Under autocast too it has the dtype of ``change``:
        16 bits would move pixels.
    """
    with torch.autocast(change.device.type, enabled=False):
        return F.affine_grid(change, [len(change), 1, *size], align_corners=False)
