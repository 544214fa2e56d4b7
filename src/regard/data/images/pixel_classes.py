"""The classes of pixels that a model tells apart, and the size of the images that it was trained on; their file."""

import json
from dataclasses import dataclass
from pathlib import Path

from regard.atomic_file import write_atomically
from regard.errors import DataError, RunError
from regard.regular_file import LARGEST_TEXT, read_text

MOST_SIDE = 8192


@dataclass(frozen=True, slots=True)
class PixelClasses:
    """The names of classes, in the order of their numbers, and the size of images.

    Attributes:
        names: two or more different texts.
        height: of an image, in pixels.
        width: of an image, in pixels.

    Raises:
        DataError: the names are too few or not different, or the size is out of its range.
    """

    names: tuple[str, ...]
    height: int
    width: int

    def __post_init__(self) -> None:
        if len(self.names) < 2:
            raise DataError(f"there must be two or more classes; there is {len(self.names)}: nothing to tell apart")
        for number, name in enumerate(self.names):
            if name in self.names[:number]:
                raise DataError(f"classes must have different names; {name!r} occurs twice")
        for side in ("height", "width"):
            if not 1 <= getattr(self, side) <= MOST_SIDE:
                raise DataError(f"{side} must be from 1 to {MOST_SIDE:,}; it is {getattr(self, side)}")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width

    def __len__(self) -> int:
        return len(self.names)

    def save(self, path: Path) -> None:
        """Write them as JSON."""
        content = {"classes": self.names, "height": self.height, "width": self.width}
        write_atomically(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> "PixelClasses":
        """Read a file that `save` wrote.

        Raises:
            RunError: the file is missing or damaged.
        """
        try:
            content = json.loads(read_text(path, LARGEST_TEXT))
            names, height, width = content["classes"], content["height"], content["width"]
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise ValueError("classes must be texts")
            "".join(names).encode()  # ValueError for half a surrogate pair
            if not all(type(side) is int and abs(side) < 1 << 63 for side in (height, width)):
                raise ValueError("height and width must be whole numbers below 2⁶³")
            return cls(tuple(names), height, width)
        except OSError as error:
            raise RunError(f"{path}: the classes cannot be read ({error.strerror}); is this a run folder?") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise RunError(f"{path}: is not a list of classes, or is damaged ({error}); train it again") from error
