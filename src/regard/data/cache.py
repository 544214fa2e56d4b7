"""Memory-mapped tables: rows streamed once into an Arrow file, in the cache of Hugging Face datasets."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import DataError, MissingPartError

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

# One more when what is written for the same key changes.
_LAYOUT = 1


def require_datasets() -> None:
    """Raise MissingPartError unless Hugging Face datasets (and with it pyarrow) is installed."""
    try:
        import datasets  # noqa: F401
    except ImportError as error:
        raise MissingPartError("datasets", "train") from error


def fingerprint(*parts: object) -> str:
    """A key for what these parts (numbers, texts, tuples of them) make."""
    return hashlib.sha256(repr((_LAYOUT, parts)).encode()).hexdigest()[:32]


def cached_table(
    key: str, schema: "pa.Schema", batches: Callable[[dict[str, int]], Iterator["pa.RecordBatch"]]
) -> tuple["datasets.Dataset", dict[str, int]]:
    """The table that ``batches`` makes, memory-mapped; made only when the cache does not hold it.

    Args:
        key: names the content; equal keys mean equal tables.
        schema: the columns of every batch.
        batches: makes the rows, a batch at a time (only one is ever in memory), and counts into the dictionary that it
            is given whatever should be known about the rows when they are opened again.

    Returns:
        the table, backed by an Arrow file and with ``key`` for its fingerprint, and what was counted.

    Raises:
        DataError: the cache cannot be written.
    """
    import datasets
    from datasets import config

    folder = Path(config.HF_DATASETS_CACHE) / "regard"
    path, counts = folder / f"{key}.arrow", folder / f"{key}.json"
    if not (path.is_file() and counts.is_file()):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write(path, counts, schema, batches)
        except OSError as error:
            raise DataError(
                f"{folder}: the cache cannot be written ({error.strerror or error}); "
                "free some space there, or set HF_DATASETS_CACHE to another folder"
            ) from error
    table = datasets.Dataset.from_file(str(path))
    return datasets.Dataset(table.data, info=table.info, fingerprint=key), json.loads(counts.read_text())


def _write(
    path: Path, counts: Path, schema: "pa.Schema", batches: Callable[[dict[str, int]], Iterator["pa.RecordBatch"]]
) -> None:
    # Under another name first: whoever is interrupted leaves no half table behind, and several processes that make
    # the same table at the same time do not meet.
    import pyarrow as pa

    handle, part = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    os.close(handle)
    try:
        counted: dict[str, int] = {}
        with pa.OSFile(part, "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for batch in batches(counted):
                writer.write_batch(batch)
        os.replace(part, path)
        Path(part).write_text(json.dumps(counted))
        os.replace(part, counts)
    finally:
        Path(part).unlink(missing_ok=True)
