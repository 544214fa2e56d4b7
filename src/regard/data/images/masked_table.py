"""Many images of one size with the class of each pixel: a memory-mapped table in the cache, written once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.cache import fingerprint
from regard.data.images.cached_pixels import cached_pixels
from regard.data.images.masked_image import MaskedImage
from regard.data.images.resizing import fit_image
from regard.errors import DataError

MOST_CLASSES = 255
IGNORED = 255
"""The number of pixels in a table whose class is not counted."""


def masked_table(images: Sequence[MaskedImage], size: tuple[int, int], ignore: int | None) -> NDArray[np.uint8]:
    """The pixels of all images with their classes: uint8 ``[images, height, width, 4]``, red, green, blue and class.

    Every image is read once; one that cannot be read is an error here, before a training starts. An image of another
    size is resized, its class map by the nearest pixel. The table is a file in the cache folder of Hugging Face
    ``datasets``, and images that have not changed are not read again.

    Args:
        images: where pixels and classes come from; at least one.
        size: height and width of the table.
        ignore: the class in the files that becomes `IGNORED`; None: none.

    Raises:
        DataError: an image cannot be read, a class is above 254, or the cache cannot be written.
        MissingPartError: Pillow or ``datasets`` is not installed.
    """
    states = tuple(image.state() for image in images)
    key = fingerprint("masked", 1, states, size, ignore)
    return cached_pixels(key, (len(images), *size, 4), (_row(image, size, ignore) for image in images))


def known_classes(classes: NDArray[Any], ignore: int | None, name: str) -> NDArray[np.uint8]:
    """A class map with `IGNORED` where its class is not counted.

    Raises:
        DataError: a class is above 254.
    """
    counted = classes if ignore is None else classes[classes != ignore]
    if counted.size and int(counted.max()) >= MOST_CLASSES:
        raise DataError(
            f"{name}: a pixel has the class {int(counted.max())}, and classes go from 0 to {MOST_CLASSES - 1}; "
            "--ignore names the class of pixels that do not count"
        )
    if ignore is None:
        return classes.astype(np.uint8)
    return np.where(classes == ignore, IGNORED, classes).astype(np.uint8)


def resized_classes(classes: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """A class map of another size: each pixel has the class of the nearest one."""
    rows, columns = (
        np.minimum(((np.arange(wanted) + 0.5) * (given / wanted)).astype(np.int64), given - 1)
        for wanted, given in zip(size, classes.shape, strict=True)
    )
    return classes[rows[:, None], columns]


def _row(image: MaskedImage, size: tuple[int, int], ignore: int | None) -> NDArray[np.uint8]:
    found = image.load()
    pixels = fit_image(found.pixels, size, "stretch", image.name).pixels
    classes = resized_classes(known_classes(found.classes, ignore, image.name), size)
    return np.concatenate((pixels, classes[..., None]), axis=2)
