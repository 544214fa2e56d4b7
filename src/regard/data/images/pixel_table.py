"""The pixels of many pictures of one size: a memory-mapped table in the cache, written once."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.data.cache import fingerprint
from regard.data.images.cached_pixels import cached_pixels
from regard.data.images.picture import Picture
from regard.data.images.resizing import Fit, fit_image

_VERSION = 1
"""Increased when the pixels of the same pictures change."""


def pixel_table(pictures: Sequence[Picture], size: tuple[int, int], fit: Fit = "crop") -> NDArray[np.uint8]:
    """The pixels of all pictures, memory-mapped: uint8 ``[pictures, height, width, 3]``.

    Every picture is read once; one that cannot be read is an error here, before a training starts. The table is a file
    in the cache folder of Hugging Face ``datasets``, and pictures that have not changed are not read again.

    Args:
        pictures: where the pixels come from.
        size: height and width of the table.
        fit: as in `regard.data.images.resizing.fit_image`.

    Raises:
        DataError: a picture cannot be read, or the cache cannot be written.
        MissingPartError: Pillow or ``datasets`` is not installed.
    """
    states = tuple(picture.state() for picture in pictures)
    if not pictures:
        return np.zeros((0, *size, 3), np.uint8)
    rows = (fit_image(picture.pixels(), size, fit, picture.name).pixels for picture in pictures)
    return cached_pixels(fingerprint("pixels", _VERSION, states, size, fit), (len(pictures), *size, 3), rows)
