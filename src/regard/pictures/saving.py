"""A picture → a file, whole or not at all."""

from __future__ import annotations

import contextlib
import math
import os
import uuid
from collections.abc import Iterator
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from regard.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PIXELS = 100_000_000
"""Pixels of a picture: 400 MB while it is drawn."""

MOST_SIDE = 2**16 - 1
"""Pixels of a side, as far as matplotlib draws."""

# Without a date, the same picture gives the same file (SVG still draws random ids, as its salt is a global setting).
METADATA: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def save(figure: Figure, path: str | os.PathLike[str], *, dpi: float = 150.0) -> Path:
    """Write a picture as PNG, SVG or PDF, as the suffix says.

    The file is written beside its place under another name and then renamed: a reader sees the old file or the
    new one, and a full disk leaves no half picture.

    Args:
        figure: what to write.
        path: a name that ends in ``.png``, ``.svg`` or ``.pdf``; its folder must exist. An older file is replaced.
        dpi: pixels an inch of a PNG, and of what PDF and SVG draw as pixels; at most `MOST_PIXELS` in all.

    Returns:
        The path.

    Raises:
        ArgumentError: another suffix, or a ``dpi`` that is no number of pixels an inch, or makes too large a picture.
        DataError: the file cannot be written; says why.
    """
    place = Path(path)
    suffix = place.suffix.lower().lstrip(".")
    if suffix not in METADATA:
        raise ArgumentError(f"path must end in {', '.join(f'.{kind}' for kind in METADATA)}; it is {_cut(path)}")
    _check_dpi(figure, dpi)
    with whole_file(place, "the picture") as file:
        figure.savefig(file, format=suffix, dpi=dpi, metadata=METADATA[suffix])
    return place


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], what: str) -> Iterator[BinaryIO]:
    """A file to write that replaces ``path`` when the block ends without an error; its mode follows the umask.

    Args:
        path: its folder must exist. Through a link, the file it points to is replaced and not the link.
        what: is written, for messages.

    Raises:
        DataError: the file cannot be written; says why.
    """
    place = Path(path)
    try:
        target = Path(os.path.realpath(place))
        if target.exists() and not target.is_file() and not target.is_dir():
            # A device or a pipe (/dev/stdout, /dev/null) is written to, and never replaced.
            with open(target, "wb") as file:
                yield file
            return
        draft = target.with_name(f".{uuid.uuid4().hex}.part")
        try:
            with open(draft, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
    # A NUL in the path is a ValueError.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, ValueError) and "\0" not in str(place):
            raise
        if isinstance(error, FileNotFoundError) and not place.absolute().parent.is_dir():
            reason = f"the folder {_cut(place.parent)} does not exist"
        raise DataError(f"cannot write {what} {_cut(path)}: {reason}") from error


def _check_dpi(figure: Figure, dpi: float) -> None:
    if isinstance(dpi, bool) or not isinstance(dpi, Real) or not dpi > 0 or not math.isfinite(dpi):
        raise ArgumentError(f"dpi must be a positive number of pixels an inch; it is {dpi!r}")
    width, height = figure.get_size_inches().tolist()
    most = min(MOST_SIDE / max(width, height), math.sqrt(MOST_PIXELS / (width * height)))
    least = 1 / min(width, height)
    if not least <= dpi <= most:
        raise ArgumentError(
            f"dpi must be from {max(1, math.ceil(least))} to {math.floor(most)} for this picture of {width:.1f} by "
            f"{height:.1f} inches; it is {dpi:g}"
        )


def _cut(path: str | os.PathLike[str]) -> str:
    """A path for a message: quoted, the middle of a long one left out."""
    text = str(path)
    return repr(text if len(text) <= 200 else f"{text[:100]}…{text[-60:]}")
