"""Images with the class of each pixel: what a segmentation learns from, and where it comes from."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from regard.data.images.picture import PictureFile
from regard.data.images.reading import read_class_map, read_image
from regard.errors import DataError


class MaskedPixels(NamedTuple):
    """The pixels of an image and their classes.

    Attributes:
        pixels: uint8 ``[height, width, 3]``.
        classes: uint8 or uint16 ``[height, width]``, as they are in the file.
    """

    pixels: NDArray[np.uint8]
    classes: NDArray[Any]


class MaskedImage(Protocol):
    """Something that has pixels and their classes."""

    @property
    def name(self) -> str:
        """For people, and for messages."""
        ...

    def state(self) -> tuple[object, ...]:
        """What the pixels and classes are a function of: numbers and texts.

        Raises:
            DataError: there are none.
        """
        ...

    def load(self) -> MaskedPixels:
        """The pixels and their classes, of one size.

        Raises:
            DataError: they cannot be read, or have two sizes.
        """
        ...


@dataclass(frozen=True, slots=True)
class MaskedFiles:
    """An image and its class map in two files.

    Attributes:
        image: the file of the image.
        mask: the file of the class map: grey levels or indices of a palette.
        place: where both are named, for messages: ``"train.tsv: row 7"``; None: nowhere.
    """

    image: str
    mask: str
    place: str | None = None

    @property
    def name(self) -> str:
        return self.image

    def state(self) -> tuple[object, ...]:
        return PictureFile(self.image, self.place).state(), PictureFile(self.mask, self.place).state()

    def load(self) -> MaskedPixels:
        pixels, classes = read_image(self.image, self.place), read_class_map(self.mask, self.place)
        if pixels.shape[:2] != classes.shape:
            (height, width), (rows, columns) = pixels.shape[:2], classes.shape
            where = "" if self.place is None else f"{self.place}: "
            raise DataError(
                f"{where}{self.mask}: has {columns} × {rows} pixels, and its image {self.image} has "
                f"{width} × {height}; they must have the same size"
            )
        return MaskedPixels(pixels, classes)
