"""Where the pixels of an example come from: a file, or the description of a generated scene."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from regard.data.images.reading import read_image
from regard.errors import DataError


class Picture(Protocol):
    """Something that has pixels."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    def state(self) -> tuple[object, ...]:
        """What the pixels are a function of: numbers and texts.

        Raises:
            DataError: there are no pixels.
        """
        ...

    def pixels(self) -> NDArray[np.uint8]:
        """uint8 ``[height, width, 3]``.

        Raises:
            DataError: they cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class PictureFile:
    """An image in a file.

    Attributes:
        path: the file.
        place: where it is named, for messages: ``"train.jsonl: line 7"``; None: nowhere.
    """

    path: str
    place: str | None = None

    @property
    def name(self) -> str:
        return self.path

    def state(self) -> tuple[object, ...]:
        try:
            found = os.stat(self.path)
        except OSError as error:
            where = self.path if self.place is None else f"{self.place}: {self.path}"
            reason = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
            raise DataError(f"{where}: {reason}; check the path") from error
        except ValueError as error:  # a null character
            raise DataError(f"{self.place or 'an image'}: {self.path!r} is not a path ({error})") from error
        return str(Path(self.path).resolve()), found.st_size, found.st_mtime_ns

    def pixels(self) -> NDArray[np.uint8]:
        return read_image(self.path, self.place)
