"""The pixels of many pictures of one size: a memory-mapped table in the cache, written once."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.atomic_file import AtomicFile
from regard.data.cache import cache_folder, fingerprint, writing_cache
from regard.data.images.picture import Picture
from regard.data.images.resizing import Fit, fit_image
from regard.errors import DataError

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
    path = cache_folder() / f"{fingerprint('pixels', _VERSION, states, size, fit)}.npy"
    if not path.is_file():
        with writing_cache(path.parent):
            _write(path, pictures, size, fit)
    if not pictures:
        return np.zeros((0, *size, 3), np.uint8)
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: this file of the cache is damaged; delete it") from error


def _write(path: Path, pictures: Sequence[Picture], size: tuple[int, int], fit: Fit) -> None:
    # Under another name first, so that an interrupted process leaves no partial table.
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(pictures), *size, 3)}
    with AtomicFile(path) as part, part.open("wb") as file:
        np.lib.format.write_array_header_2_0(file, header)
        for picture in pictures:
            file.write(np.ascontiguousarray(fit_image(picture.pixels(), size, fit, picture.name).pixels).tobytes())
