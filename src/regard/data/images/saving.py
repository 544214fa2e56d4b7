"""Writes pixels as an image file."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.atomic_file import AtomicFile
from regard.errors import MissingPartError


def save_png(path: Path, pixels: NDArray[np.uint8]) -> None:
    """Write a PNG file, whole or not at all.

    Args:
        path: the file.
        pixels: uint8 ``[height, width, 3]``, or ``[height, width]`` for grey levels.

    Raises:
        WriteError: the file cannot be written.
        MissingPartError: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingPartError("Pillow", "images") from error
    with AtomicFile(path) as temporary:
        Image.fromarray(pixels).save(temporary, "PNG")
