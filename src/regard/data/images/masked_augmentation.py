"""Random changes of images and their class maps: the same part, scale and mirroring of both, and other colours."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.images.places import pixel_places

IGNORED = -1
"""The class of pixels that neither a loss nor a metric counts."""


class Augmentation(NamedTuple):
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


def augment(images: Tensor, classes: Tensor, options: Augmentation) -> tuple[Tensor, Tensor]:
    """A random part of each image at a random scale, perhaps mirrored, with other colours.

    Images are interpolated bilinearly, class maps take the nearest pixel. A part that is larger than the image has
    black pixels around it, which are `IGNORED`. The random numbers are those of PyTorch's global generator of the
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
    for axis, (wanted, given) in enumerate(((options.size[1], width), (options.size[0], height))):
        part = wanted / (given * zoom)  # as a share of the image
        theta[:, axis, axis] = part
        # The middle of the part, in coordinates from −1 to 1; a part that fits lies inside.
        theta[:, axis, 2] = (2 * _random(images, batch) - 1) * (1 - part).abs()
    theta[:, 0, 0] *= mirror
    grid = pixel_places(theta, options.size)
    pixels = F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    shifted = (classes - IGNORED)[:, None].to(images)  # outside of the image is 0
    found = F.grid_sample(shifted, grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return _recoloured(pixels, options.colour), found[:, 0].round().long() + IGNORED


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
