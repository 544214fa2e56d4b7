"""Pictures: where pixels come from (a file, a generated scene), tables of them, and the inputs of a trained model."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.cache import cached_pixels, file_state, fingerprint
from regard.data.images.reading import MOST_PIXELS, Fit, fit_image, pillow_pixels, read_image
from regard.data.images.scenes import Scene
from regard.data.records import StoredFile
from regard.errors import KindError, ShapeError

_VERSION = 1
"""Increased when the pixels of the same pictures change."""

LARGEST_SHOWN_SIDE = 640
"""Pixels of the longer side of an image that is shown; larger ones are made smaller."""


@dataclass(frozen=True)
class PictureFile:
    """An image in a file.

    Attributes:
        path: the file, or a cell of a table that holds it.
        origin: where it is named, for messages: ``"train.jsonl: line 7"``; None: nowhere.
    """

    path: str | StoredFile
    origin: str | None = None

    @property
    def name(self) -> str:
        return str(self.path)

    def state(self) -> tuple[object, ...]:
        """Returns the values on which the pixels depend; raises DataError if there is no such file."""
        if isinstance(self.path, StoredFile):
            return self.path.state()
        return file_state(self.path, self.path if self.origin is None else f"{self.origin}: {self.path}")

    def pixels(self) -> NDArray[np.uint8]:
        return read_image(self.path, self.origin)


Picture = PictureFile | Scene
"""A source of pixels."""


def pixel_table(pictures: Sequence[Picture], size: tuple[int, int], fit: Fit = "crop") -> NDArray[np.uint8]:
    """Returns the pixels of all pictures, memory-mapped: uint8 ``[pictures, height, width, 3]``.

    Every picture is read once; one that cannot be read is an error here, before a training starts. The table is a file
    in the cache folder of Hugging Face ``datasets``, and pictures that have not changed are not read again.

    Args:
        pictures: where the pixels come from.
        size: height and width of the table.
        fit: as in `regard.data.images.reading.fit_image`.

    Raises:
        DataError: a picture cannot be read, or the cache cannot be written.
        MissingPartError: Pillow or ``datasets`` is not installed.
    """
    states = tuple(picture.state() for picture in pictures)
    if not pictures:
        return np.zeros((0, *size, 3), np.uint8)
    rows = (fit_image(picture.pixels(), size, fit, picture.name).pixels for picture in pictures)
    return cached_pixels(fingerprint("pixels", _VERSION, states, size, fit), (len(pictures), *size, 3), rows)


@dataclass(frozen=True, eq=False)
class InputImage:
    """An image as a model sees it, and as a person sees it.

    Attributes:
        name: for people.
        pixels: uint8 ``[height, width, 3]`` of the size of the model.
        shown: uint8 ``[height, width, 3]``: the whole image, its longer side at most `LARGEST_SHOWN_SIDE` pixels.
        box: x0, y0, x1, y1: the part of ``shown`` that the model sees.
        scale: pixels of ``shown`` for each pixel of the image.
        source: what the image was read from; for a file that data name, its path.
    """

    name: str
    pixels: NDArray[np.uint8]
    shown: NDArray[np.uint8]
    box: tuple[float, float, float, float]
    scale: float
    source: Any = field(default=None, repr=False)

    @classmethod
    def open(cls, source: Any, size: tuple[int, int], fit: Fit, origin: str = "inputs[0]") -> "InputImage":
        """Reads an image.

        Args:
            source: a path, the bytes of a file, a cell of a table that holds one, pixels uint8 ``[height, width, 3]``,
                a `Scene` or another picture.
            size: height and width that the model reads.
            fit: how the image is brought to this size.
            origin: where the source is named, for messages.

        Raises:
            KindError: the source is something else.
            ShapeError: pixels of another shape or dtype.
            DataError: the image cannot be read.
        """
        name, pixels = input_pixels(source, origin)
        fitted = fit_image(pixels, size, fit, name)
        height, width = pixels.shape[:2]
        scale = min(1.0, LARGEST_SHOWN_SIDE / max(height, width))
        shown = pixels
        if scale < 1:
            to = max(1, round(height * scale)), max(1, round(width * scale))
            shown = fit_image(pixels, to, "stretch", name).pixels
        # Rounding may give each axis a scale of its own.
        across, down = shown.shape[1] / width, shown.shape[0] / height
        x0, y0, x1, y1 = fitted.box
        box = max(0.0, x0 * across), max(0.0, y0 * down), x1 * across, y1 * down
        box = (*box[:2], min(float(shown.shape[1]), box[2]), min(float(shown.shape[0]), box[3]))
        passed = source.path if isinstance(source, PictureFile) else source
        return cls(name, fitted.pixels, shown, box, across, passed)


def input_pixels(source: Any, origin: str) -> tuple[str, NDArray[np.uint8]]:
    """Returns the name and the pixels of an image; arguments and errors are those of `InputImage.open`."""
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source), read_image(source)
    if isinstance(source, StoredFile):
        return source.name, read_image(source)
    if isinstance(source, (bytes, bytearray)):
        return "image", read_image(bytes(source), origin)
    if isinstance(source, (PictureFile, Scene)):
        return source.name, source.pixels()
    if isinstance(source, np.ndarray):
        if source.ndim != 3 or source.shape[2] != 3 or source.dtype != np.uint8 or not source.size:
            raise ShapeError(f"{origin} must be uint8 [height, width, 3]; it is {source.dtype} {list(source.shape)}")
        if source.shape[0] * source.shape[1] > MOST_PIXELS:
            raise ShapeError(f"{origin} has more than {MOST_PIXELS:,} pixels; make it smaller")
        return "image", source
    if hasattr(source, "getexif") and hasattr(source, "convert"):
        return "image", pillow_pixels(source, origin)
    raise KindError(
        f"{origin} must be the path of an image, its bytes, an image of Pillow, or pixels uint8 [height, width, 3]; it "
        f"is a {type(source).__name__}"
    )
