"""A picture → a file, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Without a date, the same picture gives the same file (SVG still draws random ids, as its salt is a global setting).
METADATA: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def save(figure: Figure, path: str | os.PathLike[str], *, dpi: float = 150.0) -> Path:
    """Write a picture as PNG, SVG or PDF, as the suffix says.

    The file is written beside its place under another name and then renamed: a reader sees the old file or the
    new one, and a full disk leaves no half picture.

    Args:
        figure: what to write.
        path: a name that ends in ``.png``, ``.svg`` or ``.pdf``; its folder must exist. An older file is replaced.
        dpi: pixels an inch of a PNG.

    Returns:
        The path.

    Raises:
        ArgumentError: another suffix, or a ``dpi`` that is not positive.
        DataError: the file cannot be written; says why.
    """
    place = Path(path)
    suffix = place.suffix.lower().lstrip(".")
    if suffix not in METADATA:
        raise ArgumentError(f"path must end in {', '.join(f'.{kind}' for kind in METADATA)}; it is {str(path)!r}")
    if not dpi > 0:
        raise ArgumentError(f"dpi must be a positive number of pixels an inch; it is {dpi!r}")
    # Through a link, the file it points to is replaced and not the link.
    target = Path(os.path.realpath(place))
    draft = target.with_name(f".{target.name[:100]}.{uuid.uuid4().hex}.part")
    try:
        try:
            with open(draft, "xb") as file:
                figure.savefig(file, format=suffix, dpi=dpi, metadata=METADATA[suffix])
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        if not target.parent.is_dir():
            reason = f"the folder {str(place.parent)!r} does not exist"
        raise DataError(f"cannot write the picture {str(path)!r}: {reason}") from error
    return place
