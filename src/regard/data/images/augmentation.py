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
        """Changes images, uint8 ``[batch, height, width, 3]``, and returns them as float32 from 0 to 1, or as they are
        where nothing is to be changed; raises ShapeError for another shape or dtype."""
        if images.dim() != 4 or images.shape[-1] != 3 or images.dtype != torch.uint8:
            raise ShapeError(
                f"images must be uint8 [batch, height, width, 3]; they are {images.dtype} {list(images.shape)}"
            )
        if not (self.zoom or self.flip or self.jitter) or not len(images):
            return images
        changed = images.permute(0, 3, 1, 2).float() / 255
        if self.zoom:
            scale = 1 - self.zoom * _random(changed, len(changed), 1).expand(-1, 2)
            grid = _random_parts(scale, (images.shape[1], images.shape[2]), self.flip)
            changed = F.grid_sample(changed, grid, padding_mode="reflection", align_corners=False)
        elif self.flip:
            mirrored = _random(changed, len(changed), 1, 1, 1) < 0.5
            changed = torch.where(mirrored, changed.flip(3), changed)
        return _recoloured(changed, self.jitter).permute(0, 2, 3, 1)


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
    """Returns a random part of each image at a random scale, perhaps mirrored, with other colours.

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
    zoom = torch.exp((2 * _random(images, batch, 1) - 1) * math.log(options.zoom))
    sides = options.size[1] / width, options.size[0] / height
    share = torch.cat([side / zoom for side in sides], dim=1)
    grid = _random_parts(share, options.size, options.mirror)
    pixels = F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    shifted = (classes - IGNORED_CLASS)[:, None].to(images)  # outside of the image is 0
    sampled = F.grid_sample(shifted, grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return _recoloured(pixels, options.colour, saturation=True), sampled[:, 0].round().long() + IGNORED_CLASS


def _random_parts(share: Tensor, size: tuple[int, int], mirror: bool) -> Tensor:
    """Returns random parts of images, for `torch.nn.functional.grid_sample` with ``align_corners=False``: the position
    of each pixel of the results, of this ``size``, in the images, ``[batch, height, width, 2]``.

    ``share [batch, 2]`` has width and height of the parts, as shares of those of the images; a part that fits is inside
    its image. With ``mirror``, half of the parts are mirrored, left to right. Under autocast too the result has the
    dtype of ``share``: 16 bits would move pixels.
    """
    batch = len(share)
    # A position p of the result, from −1 to 1, is the position share · p + middle of the image.
    change = share.new_zeros(batch, 2, 3)
    change[:, :, 2] = (2 * _random(share, batch, 2) - 1) * (1 - share).abs()
    change[:, 0, 0], change[:, 1, 1] = share[:, 0], share[:, 1]
    if mirror:
        change[:, 0, 0] *= 1 - 2 * (_random(share, batch) < 0.5).to(share)
    with torch.autocast(share.device.type, enabled=False):
        return F.affine_grid(change, [batch, 1, *size], align_corners=False)


def _recoloured(images: Tensor, amount: float, *, saturation: bool = False) -> Tensor:
    """Multiplies brightness, contrast and perhaps saturation of images, from 0 to 1, by 1 ± ``amount``: brightness
    multiplies the mean, and with ``saturation`` the deviations from it, too."""
    if not amount:
        return images
    factors = 1 + amount * (2 * _random(images, 3, len(images), 1, 1, 1) - 1)
    mean, contrast = images.mean((1, 2, 3), keepdim=True), factors[1]
    if saturation:
        contrast = contrast * factors[0]
    images = (images - mean) * contrast + mean * factors[0]
    if saturation:
        images = images.mean(1, keepdim=True).lerp(images, factors[2])
    return images.clamp(0, 1)


def _random(like: Tensor, *shape: int) -> Tensor:
    return torch.rand(shape, dtype=like.dtype, device=like.device)
