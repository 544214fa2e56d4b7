"""Running text: UTF-8 files of any size, the memory-mapped table of their ids, and batches of windows of it.

Files are read block by block, and no character is changed. The table may be larger than memory.
"""

import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Batches
from regard.data.cache import cached_table, file_state, fingerprint, require_datasets
from regard.data.class_folders import warn_of_left_out
from regard.data.records import decoded, file_errors
from regard.data.text.tokenizers import TextTokenizer
from regard.errors import ArgumentError, DataError

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX = ".txt"
"""Files of a folder that are read."""

_BLOCK = 1 << 16  # characters, about
_LONGEST_PIECE = 1 << 16  # bytes of a line that are read at once

TextSource = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def text_files(source: TextSource) -> tuple[Path, ...]:
    """Returns the files that a source of text names.

    Args:
        source: a file; a folder, which stands for all files below it that end in ``.txt``; a pattern such as
            ``"books/**/*.md"``; several of these in a list, or in one text with commas between them. The files of a
            folder and of a pattern are sorted by name.

    Raises:
        DataError: there is no such file, a folder or pattern has no file, or a file is named twice.
    """
    if isinstance(source, (str, os.PathLike)):
        # The name of a file may have a comma.
        parts = source.split(",") if isinstance(source, str) and not os.path.exists(source) else [source]
    else:
        parts = list(source)
    files = [path for part in parts for path in _files_of(part)]
    if not files:
        raise DataError("no text file is named; give one, a folder or a pattern")
    counts = Counter(path.resolve() for path in files)
    if len(counts) < len(files):
        twice = next(path for path in files if counts[path.resolve()] > 1)
        raise DataError(f"{twice}: the file is named twice; name each file once")
    return tuple(files)


def _files_of(part: str | os.PathLike[str]) -> list[Path]:
    text = os.fspath(part).strip()
    if "://" in text:
        raise DataError(f"{text}: web addresses are not read; download the file and give its path")
    if not text or "\0" in text:
        raise DataError(f"{text!r} is not the name of a file; check the path")
    path = Path(text)
    with file_errors(text, "check the path"):
        if path.is_dir():
            files, left_out = [], []
            for file in sorted(file for file in path.rglob("*") if file.suffix.lower() == SUFFIX):
                (files if file.is_file() and not file.name.startswith(".") else left_out).append(file)
            warn_of_left_out(path, left_out, "text files")
            if not files:
                raise DataError(f"{path}: the folder has no {SUFFIX} files; give a pattern, such as '{path}/*.md'")
            return files
        if path.exists():
            return [path]
        if glob.has_magic(text):
            files = sorted(file for file in map(Path, glob.glob(text, recursive=True)) if file.is_file())
            if not files:
                raise DataError(f"{text}: no file fits this pattern; check it")
            return files
    raise DataError(f"{text}: no such file; check the path")


def text_blocks(path: Path) -> Iterator[str]:
    """Yields the text of a UTF-8 file in blocks of some 65,536 characters, which end after line ends if they can.

    Every character is kept, line ends included; only a byte order mark at the start is left out. Where the blocks end
    depends only on the content of the file.

    Raises:
        DataError: the file cannot be read, or is not UTF-8.
    """
    block: list[str] = []
    size = 0
    with file_errors(path):
        for part in decoded(path, _LONGEST_PIECE, by_line=True):
            block.append(part)
            size += len(part)
            if size >= _BLOCK:
                yield "".join(block)
                block, size = [], 0
    if block:
        yield "".join(block)


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
        """Returns the ids ``start`` to ``stop - 1``, without copying them."""
        return TokenTable(self._arrays, self._start + start, self._start + min(stop, len(self)))

    def windows(self, starts: np.ndarray, length: int) -> np.ndarray:
        """Returns int64 ``[windows, length]``: the ids from each start on; every window must be inside the sequence."""
        windows = np.empty((len(starts), length), np.int64)
        for row, start in enumerate((starts + self._start).tolist()):
            number = int(np.searchsorted(self._first, start, side="right")) - 1
            done = 0
            while done < length:
                first = start + done - int(self._first[number])
                part = self._arrays[number][first : first + length - done]
                windows[row, done : done + len(part)] = part
                done += len(part)
                number += 1
        return windows

    def ids(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Returns int64: a copy of the ids ``start`` to ``stop - 1``."""
        stop = len(self) if stop is None else min(stop, len(self))
        return self.windows(np.array([start]), max(0, stop - start))[0] if stop > start else np.empty(0, np.int64)

    def __getstate__(self) -> dict[str, Any]:
        # Another process gets a copy: the arrays are views of a memory-mapped file.
        arrays = [np.array(array) for array in self._arrays]
        return {**self.__dict__, "_arrays": arrays}


def encode_text(files: Sequence[Path], tokenizer: TextTokenizer) -> TokenTable:
    """Encodes text files; the ids are memory-mapped in the cache folder of Hugging Face ``datasets``.

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

    state = tuple(map(file_state, files))
    table, _ = cached_table(fingerprint("running text", state, tokenizer.fingerprint), schema, batches)
    column: pa.ChunkedArray = table.data.column("id")
    return TokenTable([chunk.to_numpy() for chunk in column.chunks])


def read_text(files: Sequence[Path]) -> Iterator[str]:
    """Yields the text of files, one after the other, in blocks."""
    for file in files:
        yield from text_blocks(file)


def names_of(files: Sequence[Path]) -> str:
    """Returns the first files by name, and how many more there are, for messages."""
    return ", ".join(map(str, files[:3])) + (f" and {len(files) - 3} more" if len(files) > 3 else "")


def window_batches(
    table: TokenTable,
    batch_size: int,
    length: int,
    *,
    order: Literal["random", "consecutive"] = "random",
    steps: int = 0,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> Batches[int, Tensor]:
    """Returns batches of windows of a text, as ``int64 [batch, length + 1]``.

    A window has the token after it, so that every token of a window has one to predict. With ``"random"`` each window
    begins at any token, with equal probabilities. With ``"consecutive"`` the windows of an epoch follow one another
    without overlap, in a random order; where the first one begins is drawn for each epoch.

    Args:
        table: the ids of the text.
        batch_size: windows of a batch.
        length: tokens of a window.
        order: how windows are chosen.
        steps: batches of an epoch, of each process; 0: as many as the text has windows for.
        seed: seed of the order.
        rank: number of this process; it gets every ``world_size``-th batch. A text with fewer consecutive windows than
            the processes need gives some of them twice.
        world_size: number of processes.

    Raises:
        ArgumentError: a number is out of its range, or the text has fewer consecutive windows than ``steps`` need.
        DataError: the text is shorter than a window.
    """
    for name, value, least in (("batch_size", batch_size, 1), ("length", length, 1), ("steps", steps, 0)):
        if value < least:
            raise ArgumentError(f"{name} must be at least {least}; it is {value}")
    if len(table) <= length:
        raise DataError(
            f"the training text has {len(table)} tokens, too few for a window of {length} tokens and the token "
            "after it; give more text or a smaller --context"
        )
    # The last window needs a token after it. One consecutive window fewer leaves room for another start each epoch.
    windows = (len(table) - 1) // length
    if order == "consecutive":
        windows = max(1, windows - 1)
    available = max(1, windows // (batch_size * world_size))
    if order == "consecutive" and steps > available:
        raise ArgumentError(
            f"steps_per_epoch must be at most {available}, the text's consecutive windows, or 0; it is {steps}"
        )
    count = (steps or available) * batch_size * world_size
    whole_batches = max(1, windows // batch_size) * batch_size

    def starts(random: np.random.Generator) -> Any:
        if order == "random":
            return random.integers(0, len(table) - length, count)
        offset = int(random.integers(0, len(table) - windows * length))
        return offset + length * random.permutation(windows)[: min(count, whole_batches)]

    def collate(chosen: list[int]) -> Tensor:
        return torch.from_numpy(table.windows(np.asarray(chosen), length + 1))

    return Batches(starts, batch_size, collate, shuffle=False, seed=seed, rank=rank, world_size=world_size)
