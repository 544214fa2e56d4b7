"""Memory-mapped tables: Arrow files in the cache of Hugging Face datasets, written once."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from regard.atomic_file import AtomicFile, write_atomically
from regard.errors import DataError, MissingPartError, WriteError
from regard.regular_file import LARGEST_RECORD, read_text

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

# Increased when the content of a table changes for the same key.
_LAYOUT = 2


def require_datasets() -> None:
    """Raise MissingPartError unless Hugging Face datasets (and with it pyarrow) is installed."""
    try:
        import datasets  # noqa: F401
    except ImportError as error:
        raise MissingPartError("datasets", "train") from error


def fingerprint(*parts: object) -> str:
    """A key of a table that is a function of these parts (numbers, texts, tuples of them)."""
    return hashlib.sha256(repr((_LAYOUT, parts)).encode()).hexdigest()[:32]


def cache_folder() -> Path:
    """The folder of regard in the cache of Hugging Face datasets.

    Raises:
        MissingPartError: ``datasets`` is not installed.
    """
    require_datasets()
    from datasets import config

    return Path(config.HF_DATASETS_CACHE) / "regard"


@contextmanager
def writing_cache(folder: Path) -> Iterator[None]:
    """Make the folder; a file that cannot be written there is one error that says what to do.

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
    """A context that writes tables; its error counts for nothing where another process has written them meanwhile.

    Windows replaces no file that is mapped: of two processes that write one table, the second cannot.
    """
    try:
        yield
    except DataError:
        if not all(file.is_file() for file in files):
            raise


def cached_table(
    key: str, schema: "pa.Schema", batches: Callable[[dict[str, int]], Iterator["pa.RecordBatch"]]
) -> tuple["datasets.Dataset", dict[str, int]]:
    """The memory-mapped table of the rows of ``batches``; it is written only if the cache does not have it.

    Args:
        key: key of the content; equal keys mean equal tables.
        schema: the columns of every batch.
        batches: yields the rows, one batch in memory at a time. It writes counts into its argument, which are saved
            with the table.

    Returns:
        the table, which is backed by an Arrow file and has the fingerprint ``key``, and the counts.

    Raises:
        DataError: the cache cannot be written.
    """
    import datasets

    folder = cache_folder()
    path, counts = folder / f"{key}.arrow", folder / f"{key}.json"
    if not (path.is_file() and counts.is_file()):
        with written_by_any(path, counts), writing_cache(folder):
            _write(path, counts, schema, batches)
    table = datasets.Dataset.from_file(str(path))
    return datasets.Dataset(table.data, info=table.info, fingerprint=key), json.loads(read_text(counts, LARGEST_RECORD))


def _write(
    path: Path, counts: Path, schema: "pa.Schema", batches: Callable[[dict[str, int]], Iterator["pa.RecordBatch"]]
) -> None:
    # The file is written under another name and renamed: an interrupted process leaves no partial table, and several
    # processes can write the same table at the same time.
    import pyarrow as pa

    counted: dict[str, int] = {}
    with AtomicFile(path) as part, pa.OSFile(str(part), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches(counted):
            writer.write_batch(batch)
    write_atomically(counts, json.dumps(counted).encode())
