"""A picture → a file, written completely or not at all."""

from __future__ import annotations

import math
import os
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import ArgumentError
from regard.files.atomic import AtomicFile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PIXELS = 100_000_000
"""The most pixels of a picture, which take 400 MB while it is drawn."""

MOST_SIDE = 2**16 - 1
"""The most pixels of a side that matplotlib can draw."""

# Without a date, the same picture gives the same file.
SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "regard"}
"""The letters of an SVG are text, and its ids are the same each time."""

METADATA: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def save(figure: Figure, path: str | os.PathLike[str], *, dpi: float = 150.0) -> Path:
    """Writes a picture as PNG, SVG or PDF, according to the suffix.

    The file is written under another name in the same folder and then renamed: a reader sees the old file or the new
    one, and a full disk leaves no incomplete picture.

    Args:
        figure: the picture.
        path: a name that ends in ``.png``, ``.svg`` or ``.pdf``; its folder must exist. An older file is replaced.
        dpi: pixels per inch of a PNG, and of the parts of a PDF or SVG that are pixels; at most `MOST_PIXELS` in all.

    Returns:
        The path.

    Raises:
        ArgumentError: the suffix is another one, or ``dpi`` is not positive or too large.
        WriteError: the file cannot be written.

    Example:
        >>> from regard import pictures
        >>> figure = pictures.heatmap([[0.9, 0.1], [0.25, 0.75]])
        >>> pictures.save(figure, "weights.png", dpi=200).stat().st_size > 1000
        True
        >>> pictures.save(figure, "weights.gif")
        Traceback (most recent call last):
            ...
        regard.errors.ArgumentError: path must end in .png, .svg, .pdf; it is 'weights.gif'
    """
    target = Path(path)
    suffix = target.suffix.lower().lstrip(".")
    if suffix not in METADATA:
        raise ArgumentError(f"path must end in {', '.join(f'.{kind}' for kind in METADATA)}; it is {_cut(path)}")
    _check_dpi(figure, dpi)
    from matplotlib import rc_context

    with AtomicFile(target) as part, rc_context(SETTINGS):  # pyright: ignore[reportArgumentType]
        figure.savefig(part, format=suffix, dpi=dpi, metadata=METADATA[suffix])
    return target


def _check_dpi(figure: Figure, dpi: float) -> None:
    if isinstance(dpi, bool) or not isinstance(dpi, Real) or not dpi > 0 or not math.isfinite(dpi):
        raise ArgumentError(f"dpi must be a positive number of pixels per inch; it is {dpi!r}")
    width, height = figure.get_size_inches().tolist()
    most = min(MOST_SIDE / max(width, height), math.sqrt(MOST_PIXELS / (width * height)))
    least = 1 / min(width, height)
    if not least <= dpi <= most:
        raise ArgumentError(
            f"dpi must be from {max(1, math.ceil(least))} to {math.floor(most)} for this picture of {width:.1f} by "
            f"{height:.1f} inches; it is {dpi:g}"
        )


def _cut(path: str | os.PathLike[str]) -> str:
    """Returns a path for a message: quoted, the middle of a long one left out."""
    text = str(path)
    return repr(text if len(text) <= 200 else f"{text[:100]}…{text[-60:]}")
