"""Generated corpora: their random choices, and their files, one for each part, written whole or not at all."""

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Generic, TextIO, TypeVar

from regard.errors import ArgumentError, DataError
from regard.files.atomic import AtomicFile

T = TypeVar("T")

WritePart = Callable[[TextIO, str, int], None]
"""``(file, name of the part, its size)``: writes the content of a part."""


class RandomDraws:
    """Random choices by ``random()`` alone, which gives the same numbers for a seed in every version of Python."""

    def __init__(self, seed: int | str):
        self._random = random.Random(seed)

    def chance(self, probability: float) -> bool:
        """Returns true with this probability."""
        return self._random.random() < probability

    def choice(self, options: Sequence[T]) -> T:
        """Draws one of the options, with equal probabilities."""
        return options[int(self._random.random() * len(options))]

    def weighted(self, options: Sequence[tuple[T, float]]) -> T:
        """Draws one of the options, with probabilities in proportion to their weights."""
        point = self._random.random() * sum(weight for _, weight in options)
        for option, weight in options:
            point -= weight
            if point < 0:
                return option
        return options[-1][0]


def generated(make: Callable[[RandomDraws], T], seed: int | str, size: int | None, start: int = 0) -> Iterator[T]:
    """Yields the examples of a corpus from the index ``start`` on; each depends only on the seed and its index.

    Args:
        make: makes an example.
        seed: seed of the corpus; each seed gives another, infinite corpus.
        size: number of examples; None: without an end.
        start: index of the first example.

    Raises:
        ArgumentError: ``size`` or ``start`` is negative.
    """
    if start < 0 or (size is not None and size < 0):
        raise ArgumentError(f"size and start must be at least 0; got {size} and {start}")
    numbers = count(start) if size is None else range(start, start + size)
    return (make(RandomDraws(f"{seed}/{number}")) for number in numbers)


def write_parts(
    folder: str | os.PathLike[str], sizes: Mapping[str, int], suffix: str, write: WritePart
) -> dict[str, Path]:
    """Writes the parts of a corpus: ``train`` last and the others by name, so that they do not depend on its size.

    Args:
        folder: the folder; created if it does not exist.
        sizes: size of each part.
        suffix: end of the files' names.
        write: writes the content of a part.

    Returns:
        the file of each part, ``<folder>/<part><suffix>``; each is written atomically.

    Raises:
        ArgumentError: a size is negative.
        DataError: the folder cannot be written.
    """
    folder = Path(folder)
    for part, size in sizes.items():
        if size < 0:
            raise ArgumentError(f"the size of {part!r} must be at least 0; got {size}")
    files = {part: folder / f"{part}{suffix}" for part in sizes}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in sorted(sizes, key=lambda part: (part == "train", part)):
            with AtomicFile(files[part]) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
                write(file, part, sizes[part])
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror or error}); choose another folder") from error
    return files


class DistinctParts(Generic[T]):
    """Divides the examples of a generator among the parts of a corpus, which must be written one after the other.

    No text of one part occurs in another; none occurs twice in a part other than ``train``. Only the texts of those
    other parts are stored in memory, so ``train`` may have any size.

    Args:
        examples: the examples, without an end.
        text: gives the text of an example.
    """

    def __init__(self, examples: Iterator[T], text: Callable[[T], str]):
        self._examples, self._text = examples, text
        self._stored: set[str] = set()

    def of(self, part: str) -> Iterator[T]:
        """Yields the next examples that may be in this part, without an end."""
        for example in self._examples:
            text = self._text(example)
            if text not in self._stored:
                if part != "train":
                    self._stored.add(text)
                yield example
