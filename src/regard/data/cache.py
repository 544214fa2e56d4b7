"""Memory-mapped tables: Arrow files in the cache of Hugging Face datasets, written once.

A file is written under another name and renamed: an interrupted process leaves no partial table, and several processes
can write the same table at the same time.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError, MissingPartError, WriteError
from regard.files.atomic import AtomicFile, write_atomically
from regard.files.regular import LARGEST_DATA, LARGEST_RECORD, read_text, require_regular

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

# Increased when the content of a table changes for the same key.
_LAYOUT = 4


def require_datasets() -> None:
    """Raises MissingPartError unless Hugging Face datasets (and with it pyarrow) is installed."""
    with MissingPartError.instead("datasets", "train"):
        import datasets  # noqa: F401


def fingerprint(*parts: object) -> str:
    """Returns the key of a table: a function of these parts (numbers, texts, tuples of them)."""
    return hashlib.sha256(repr((_LAYOUT, parts)).encode()).hexdigest()[:32]


def file_state(path: str | os.PathLike[str], name: str | None = None) -> tuple[str, int, int]:
    """Returns the absolute path, the size and the time of the last change of a file, which differ if it changed.

    Args:
        name: names the file in messages. Default: the path.

    Raises:
        DataError: there is no such file, or it cannot be looked at.
    """
    try:
        status = os.stat(path)
        return str(Path(path).resolve()), status.st_size, status.st_mtime_ns
    except FileNotFoundError as error:
        raise DataError(f"{name or path}: no such file; check the path") from error
    except OSError as error:
        raise DataError(f"{name or path}: cannot be read ({error.strerror}); check the path") from error
    except ValueError as error:  # a null character
        raise DataError(f"{name or path}: is not a path ({error}); correct it") from error


def cache_folder() -> Path:
    """Returns the folder of regard in the cache of Hugging Face datasets.

    Raises:
        MissingPartError: ``datasets`` is not installed.
    """
    require_datasets()
    from datasets import config

    return Path(config.HF_DATASETS_CACHE) / "regard"


@contextmanager
def writing_cache(folder: Path) -> Iterator[None]:
    """Makes the folder, and turns an error of writing there into a single `DataError` that says what to do.

    Raises:
        DataError: the folder or a file in it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except (OSError, WriteError) as error:
        raise DataError(
            f"{folder}: the cache cannot be written ({getattr(error, 'strerror', None) or error}); "
            "free some space there, or set HF_DATASETS_CACHE to another folder"
        ) from error


@contextmanager
def written_by_any(*files: Path) -> Iterator[None]:
    """Ignores an error of writing tables if another process has written them meanwhile.

    Windows replaces no file that is mapped: of two processes that write one table, the second cannot.
    """
    try:
        yield
    except DataError:
        if not all(file.is_file() for file in files):
            raise


def cached_table(
    key: str, schema: "pa.Schema", batches: Callable[[dict[str, Any]], Iterator["pa.RecordBatch"]]
) -> tuple["datasets.Dataset", dict[str, Any]]:
    """Returns the memory-mapped table of the rows of ``batches``, and writes it first if the cache does not have it.

    Args:
        key: key of the content; equal keys mean equal tables.
        schema: the columns of every batch.
        batches: yields the rows, one batch in memory at a time. It writes counts and lines into its argument,
            which are saved with the table.

    Returns:
        the table, which is backed by an Arrow file and has the fingerprint ``key``, and the counts.

    Raises:
        DataError: the cache cannot be written.
    """
    import datasets
    import pyarrow as pa

    folder = cache_folder()
    path, counts = folder / f"{key}.arrow", folder / f"{key}.json"
    if not (path.is_file() and counts.is_file()):
        with written_by_any(path, counts), writing_cache(folder):
            counted: dict[str, Any] = {}
            with AtomicFile(path) as part, pa.OSFile(str(part), "wb") as sink, pa.ipc.new_stream(sink, schema) as file:
                for batch in batches(counted):
                    file.write_batch(batch)
            write_atomically(counts, json.dumps(counted).encode())
    table = datasets.Dataset.from_file(str(path))
    return datasets.Dataset(table.data, info=table.info, fingerprint=key), json.loads(read_text(counts, LARGEST_RECORD))


def cached_pixels(key: str, shape: tuple[int, ...], rows: Iterable[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Returns a memory-mapped table of pixels, and writes it first if the cache does not have it.

    Args:
        key: key of the content, see `fingerprint`.
        shape: of the table: ``(images, height, width, channels)``; at least one image.
        rows: uint8 ``[height, width, channels]`` of each image; they are computed only if the table is written.

    Raises:
        DataError: the cache cannot be written, or the table in it is damaged.
        MissingPartError: ``datasets`` is not installed.
    """
    path = cache_folder() / f"{key}.npy"
    if not path.is_file():
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        with written_by_any(path), writing_cache(path.parent), AtomicFile(path) as part, part.open("wb") as file:
            np.lib.format.write_array_header_2_0(file, header)
            for row in rows:
                file.write(np.ascontiguousarray(row).tobytes())
    try:
        require_regular(path, LARGEST_DATA)
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: this file of the cache is damaged; delete it") from error
