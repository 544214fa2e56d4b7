"""Brings images to one size, and says which part of the original the result covers."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, DataError, MissingPartError, ShapeError

Fit = Literal["crop", "stretch"]
FITS = ("crop", "stretch")

MOST_STRETCHED = 100
"""Largest ratio of the sides of an image: a longer one is a strip, of which nothing would be left."""


class FittedImage(NamedTuple):
    """An image of the wanted size.

    Attributes:
        pixels: uint8 ``[height, width, 3]``.
        box: x0, y0, x1, y1: the part of the original that it covers, in pixels of the original.
    """

    pixels: NDArray[np.uint8]
    box: tuple[float, float, float, float]


def covered_box(height: int, width: int, to: tuple[int, int], fit: Fit = "crop") -> tuple[float, float, float, float]:
    """The part of an image of ``height × width`` pixels that `fit_image` keeps: x0, y0, x1, y1.

    Args:
        height: of the image.
        width: of the image.
        to: the wanted height and width.
        fit: ``"crop"``: the largest part in the middle with the wanted ratio; ``"stretch"``: everything.
    """
    if fit == "stretch":
        return 0.0, 0.0, float(width), float(height)
    scale = min(height / to[0], width / to[1])
    across, down = to[1] * scale, to[0] * scale
    left, top = (width - across) / 2, (height - down) / 2
    return left, top, left + across, top + down


def fit_image(image: NDArray[np.uint8], to: tuple[int, int], fit: Fit = "crop", name: str = "the image") -> FittedImage:
    """Bring an image to a size, with an antialiased cubic filter.

    Args:
        image: uint8 ``[height, width, 3]``.
        to: the wanted height and width, each at least 1.
        fit: ``"crop"``: cut the longer side, in the middle, so that nothing is distorted; ``"stretch"``: keep all.
        name: names the image in a message.

    Raises:
        ShapeError: the image has another shape.
        ArgumentError: ``to`` or ``fit`` is out of its range.
        DataError: one side is more than 100 times as long as the other.
        MissingPartError: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingPartError("Pillow", "images") from error
    if image.ndim != 3 or image.shape[2] != 3 or not image.size or image.dtype != np.uint8:
        raise ShapeError(f"image must be uint8 [height, width, 3]; it is {image.dtype} {list(image.shape)}")
    if fit not in FITS:
        raise ArgumentError(f"fit must be of {', '.join(FITS)}; it is {fit!r}")
    if len(to) != 2 or min(to) < 1:
        raise ArgumentError(f"to must be a height and a width of at least 1; it is {to}")
    height, width = image.shape[:2]
    if max(height, width) > MOST_STRETCHED * min(height, width):
        raise DataError(
            f"{name}: has {width} × {height} pixels; one side is more than {MOST_STRETCHED} times the other"
        )
    box = covered_box(height, width, to, fit)
    if (height, width) == tuple(to):
        return FittedImage(image, box)
    # Rounding must not move an edge out of the image, which Pillow refuses.
    left, top, right, bottom = box
    inside = max(0.0, left), max(0.0, top), min(float(width), right), min(float(height), bottom)
    pixels = Image.fromarray(image).resize((to[1], to[0]), Image.Resampling.BICUBIC, box=inside)
    return FittedImage(np.array(pixels), box)
