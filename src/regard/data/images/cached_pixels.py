"""Pixels of many images of one size: a memory-mapped table in the cache of Hugging Face ``datasets``, written once."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.atomic_file import AtomicFile
from regard.data.cache import cache_folder, writing_cache, written_by_any
from regard.errors import DataError
from regard.regular_file import LARGEST_DATA, require_regular


def cached_pixels(key: str, shape: tuple[int, ...], rows: Iterable[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """A table, memory-mapped; it is written first if the cache does not have it.

    Args:
        key: names the table; of `regard.data.cache.fingerprint`.
        shape: of the table: ``(images, height, width, channels)``; at least one image.
        rows: uint8 ``[height, width, channels]`` of each image; asked for only if the table is written.

    Raises:
        DataError: the cache cannot be written, or the table in it is damaged.
        MissingPartError: ``datasets`` is not installed.
    """
    path = cache_folder() / f"{key}.npy"
    if not path.is_file():
        with written_by_any(path), writing_cache(path.parent):
            _write(path, shape, rows)
    try:
        require_regular(path, LARGEST_DATA)
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: this file of the cache is damaged; delete it") from error


def _write(path: Path, shape: tuple[int, ...], rows: Iterable[NDArray[np.uint8]]) -> None:
    # Under another name first, so that an interrupted process leaves no partial table.
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    with AtomicFile(path) as part, part.open("wb") as file:
        np.lib.format.write_array_header_2_0(file, header)
        for row in rows:
            file.write(np.ascontiguousarray(row).tobytes())
