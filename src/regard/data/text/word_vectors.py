"""Reads pretrained word vectors in the usual text format, line by line: only the rows of known words are kept.

A line holds a word and its numbers, with spaces or tabs between them (GloVe). The files of word2vec and fastText begin
with a line of two whole numbers, how many words there are and how many numbers each has.

A word may have spaces, and a part of it may be a number (``in 2008 0.1 0.2``), so one line does not show where the word
ends. The first lines together do: most of them have the same number of numbers.
"""

import codecs
import gzip
import logging
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.files.regular import LARGEST_DATA, open_regular
from regard.names.counted import counted

log = logging.getLogger("regard")

LONGEST_LINE = 1 << 20
"""Bytes of a line; 50,000 numbers need less."""

_HEADER = re.compile(rb"\d+[ \t]+\d+\s*")
_FIRST_LINES = 10  # that show how many numbers a vector has


@dataclass(frozen=True)
class WordVectors:
    """The vectors of those words of a vocabulary that a file has.

    Attributes:
        rows: the ids of the words.
        vectors: ``float32 [rows, dim]``: their vectors.
        words: how many different words these are; a word may have several ids.
        bad_lines: lines of the file that hold no vector, and were left out.
    """

    rows: list[int]
    vectors: NDArray[np.float32]
    words: int
    bad_lines: int


class OtherDimensionError(DataError):
    """The vectors of a file have another number of features than the model.

    Attributes:
        dim: features of the vectors.
    """

    def __init__(self, message: str, dim: int):
        super().__init__(message)
        self.dim = dim


def read_word_vectors(
    path: str | os.PathLike[str], ids: Mapping[str, Sequence[int]], dim: int, vocabulary: int
) -> WordVectors:
    """Reads the vectors of the words of a vocabulary. The memory needed is that of the vocabulary, not of the file.

    Of a word that occurs twice in the file, the first vector counts. Lines without a word, with another number of
    numbers, or with numbers that are not finite are left out; the logger ``regard`` warns with how many there are.

    Args:
        path: the file; one that ends with ``.gz`` is decompressed.
        ids: word → its ids.
        dim: features of a vector.
        vocabulary: number of ids.

    Raises:
        OtherDimensionError: the vectors of the file have another number of features.
        DataError: the file cannot be read, is not of this format, or has none of the words.
    """
    vectors = np.zeros((vocabulary, dim), np.float32)
    seen: set[str] = set()
    bad: list[int] = []  # the first ones
    lines = skipped = 0
    for number, line in _vector_lines(path, dim):
        parts = line.rstrip().rsplit(None, dim)
        word, vector = _parsed(parts, dim, ids)
        if word is None:
            skipped += 1
            bad = [*bad, number][:3]
            continue
        lines += 1
        if vector is not None and word not in seen:
            seen.add(word)
            vectors[list(ids[word])] = vector
    if skipped > lines:
        raise DataError(
            f"{path}: line {bad[0]} is not a word and its {dim} numbers, nor are {skipped - 1:,} of the other lines; "
            "give vectors in the text format of word2vec, GloVe or fastText (.vec), not a binary file"
        )
    if not seen:
        raise DataError(
            f"{path}: it has none of the {len(ids):,} words of the vocabulary among its {lines:,} words; check the "
            "language and --lowercase"
        )
    if skipped:
        where = ", ".join(map(str, bad)) + (", ..." if skipped > len(bad) else "")
        lines_left_out = counted(skipped, "line")
        log.warning("%s: left out %s without a vector of %s finite numbers: %s", path, lines_left_out, dim, where)
    rows = sorted(row for word in seen for row in ids[word])
    return WordVectors(rows, vectors[rows], len(seen), skipped)


def _parsed(
    parts: Sequence[bytes], dim: int, ids: Mapping[str, Sequence[int]]
) -> tuple[str | None, NDArray[np.float32] | None]:
    """Returns the word of a line, None if the line is bad; and its vector, None if the word is not wanted."""
    if len(parts) != dim + 1:
        return None, None
    try:
        word = parts[0].decode().strip()
    except UnicodeDecodeError:
        return None, None
    if word not in ids:
        return word, None
    try:
        vector = np.array([_number(part) for part in parts[1:]])
    except ValueError:
        return None, None
    if not np.isfinite(vector).all() or np.abs(vector).max() > np.finfo(np.float32).max:
        return None, None
    return word, vector.astype(np.float32)


def _number(part: bytes) -> float:
    """Returns a part of a line as a number; raises ValueError if it is none. Python would read ``1_0`` as 10."""
    if b"_" in part:
        raise ValueError("a number has no underscore")
    return float(part)


def _count_numbers(line: bytes) -> int:
    """Counts the numbers at the end of a line, behind at least one word."""
    count = 0
    for part in reversed(line.split()[1:]):
        try:
            _number(part)
        except ValueError:
            break
        count += 1
    return count


def _vector_lines(path: str | os.PathLike[str], dim: int) -> Iterator[tuple[int, bytes]]:
    """Yields each line with its number, without the header; raises OtherDimensionError if the vectors have not ``dim``
    features."""
    lines = _lines(path)
    first = list(islice(lines, 1 + _FIRST_LINES))
    if first and _HEADER.fullmatch(first[0][1]):
        stated, following = int(first[0][1].split()[1]), _dimension(first[1:], dim)
        if stated == following or (len(first) == 1 and dim != 1):
            first = first[1:]
            _check_dim(path, stated, dim)
    if dimension := _dimension(first, dim):
        _check_dim(path, dimension, dim)
    return chain(first, lines)


def _dimension(lines: Sequence[tuple[int, bytes]], dim: int) -> int:
    """Returns how many numbers most of the lines have: ``dim`` among equals, 0 if none has a number."""
    counts = Counter(filter(None, (_count_numbers(line) for _, line in lines)))
    return max(counts, key=lambda count: (counts[count], count == dim), default=0)


def _check_dim(path: str | os.PathLike[str], numbers: int, dim: int) -> None:
    if numbers != dim:
        message = f"{path} has vectors of {numbers} numbers, and the model embeds a word in {dim}"
        raise OtherDimensionError(message, numbers)


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes]]:
    """Yields each line with its number, from 1, without a byte order mark; empty lines are left out."""
    name = Path(path)
    try:
        with open_regular(name, LARGEST_DATA) as opened:
            file: Any = gzip.GzipFile(fileobj=opened) if name.suffix.lower() == ".gz" else opened
            number = size = 0
            while line := file.readline(LONGEST_LINE + 1):
                number, size = number + 1, size + len(line)
                if len(line) > LONGEST_LINE or size > LARGEST_DATA:
                    raise DataError(
                        f"{path}: line {number} is longer than {LONGEST_LINE:,} bytes; it is not a text file of vectors"
                        if len(line) > LONGEST_LINE
                        else f"{path}: it has more than {LARGEST_DATA:,} bytes"
                    )
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if line and not line.isspace():
                    yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: it is not a complete gzip file ({error})") from error
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
