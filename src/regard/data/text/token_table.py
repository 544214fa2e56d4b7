"""The ids of a long text: a memory-mapped table that is written once, and may be larger than memory."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.data.cache import cached_table, fingerprint, require_datasets
from regard.data.text.running_text import text_blocks
from regard.data.text.text_tokenizer import TextTokenizer
from regard.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa


class TokenTable:
    """A sequence of ids in one or more arrays, of which any part can be read.

    Args:
        arrays: the ids, one array after the other; they are not copied.
        start: the first id of this sequence in them.
        stop: the id after the last one; None: all ids.
    """

    def __init__(self, arrays: Sequence[np.ndarray], start: int = 0, stop: int | None = None):
        self._arrays = [array for array in arrays if len(array)]
        self._first = np.cumsum([0, *map(len, self._arrays)])
        self._start = start
        self._stop = int(self._first[-1]) if stop is None else stop

    def __len__(self) -> int:
        return self._stop - self._start

    def part(self, start: int, stop: int) -> "TokenTable":
        """The ids ``start`` to ``stop - 1``, without copying them."""
        return TokenTable(self._arrays, self._start + start, self._start + min(stop, len(self)))

    def windows(self, starts: np.ndarray, length: int) -> np.ndarray:
        """int64 ``[windows, length]``: the ids from each start on; every window must be inside the sequence."""
        found = np.empty((len(starts), length), np.int64)
        for row, start in enumerate((starts + self._start).tolist()):
            number = int(np.searchsorted(self._first, start, side="right")) - 1
            done = 0
            while done < length:
                first = start + done - int(self._first[number])
                taken = self._arrays[number][first : first + length - done]
                found[row, done : done + len(taken)] = taken
                done += len(taken)
                number += 1
        return found

    def ids(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """int64: a copy of the ids ``start`` to ``stop - 1``."""
        stop = len(self) if stop is None else min(stop, len(self))
        return self.windows(np.array([start]), max(0, stop - start))[0] if stop > start else np.empty(0, np.int64)

    def __getstate__(self) -> dict[str, Any]:
        # Another process gets a copy: the arrays are views of a memory-mapped file.
        arrays = [np.array(array) for array in self._arrays]
        return {**self.__dict__, "_arrays": arrays}


def encode_text(files: Sequence[Path], tokenizer: TextTokenizer) -> TokenTable:
    """Encode text files; the ids are memory-mapped in the cache folder of Hugging Face ``datasets``.

    Each file is a document. The id of the end of a document is before each one, so that every token of the text, the
    first one as well, has a token before it.

    Args:
        files: the files, in their order.
        tokenizer: encodes the text.

    Raises:
        DataError: a file cannot be read or is not UTF-8, or all are empty.
    """
    require_datasets()
    import pyarrow as pa

    kind = pa.uint16() if len(tokenizer) <= 1 << 16 else pa.int32()
    schema = pa.schema([("id", kind)])

    def batches(counted: dict[str, int]) -> Iterator["pa.RecordBatch"]:
        counted["tokens"] = 0
        for file in files:
            yield pa.record_batch([pa.array([TextTokenizer.END], kind)], schema=schema)
            for block in text_blocks(file):
                ids = tokenizer.encode_array(block)
                counted["tokens"] += len(ids)
                yield pa.record_batch([pa.array(ids, kind)], schema=schema)
        if not counted["tokens"]:
            raise DataError(f"{names_of(files)}: there is no text in it")

    state = _state(files)
    table, _ = cached_table(fingerprint("running text", state, tokenizer.fingerprint), schema, batches)
    column: pa.ChunkedArray = table.data.column("id")  # pyright: ignore
    return TokenTable([chunk.to_numpy() for chunk in column.chunks])


def read_text(files: Sequence[Path]) -> Iterator[str]:
    """The text of files, one after the other, in blocks."""
    for file in files:
        yield from text_blocks(file)


def _state(files: Sequence[Path]) -> tuple[tuple[str, int, int], ...]:
    try:
        return tuple((str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror}); check the path") from error


def names_of(files: Sequence[Path]) -> str:
    """The first files by name, and how many more there are, for messages."""
    return ", ".join(map(str, files[:3])) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
