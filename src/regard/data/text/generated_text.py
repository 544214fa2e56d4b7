"""The bundled text: paragraphs of English sentences from a grammar."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

from regard.data.text.corpus_files import DistinctParts, write_parts
from regard.data.text.generated import generate
from regard.data.text.grammar.phrases import RandomDraws

SHORTEST, LONGEST = 3, 8
"""Sentences of a paragraph."""


def sentences(seed: int) -> Iterator[str]:
    """The English sentences of the bundled corpus (`regard.data.text.generated.generate`), without an end."""
    number = 0
    while True:
        for pair in generate(1000, seed, start=number):
            yield pair.source
        number += 1000


def write_text(folder: str | os.PathLike[str], sizes: Mapping[str, int], seed: int) -> dict[str, Path]:
    """Write running text as UTF-8 files: sentences with spaces between them, paragraphs with an empty line between.

    No sentence of one part occurs in another; none occurs twice in a part other than ``train``. Only the sentences of
    those other parts are stored in memory, so ``train`` may have any size, and the others do not depend on it.

    Args:
        folder: the folder; created if it does not exist.
        sizes: sentences of each part, e.g. ``{"train": 20000, "validation": 1000, "test": 1000}``.
        seed: seed of the text.

    Returns:
        the file of each part, ``<folder>/<part>.txt``; each is written atomically.

    Raises:
        ArgumentError: a size is negative.
        DataError: the folder cannot be written.
    """
    distinct = DistinctParts(sentences(seed), str)

    def write(file: TextIO, part: str, size: int) -> None:
        _write(file, distinct.of(part), size, RandomDraws(f"{seed}/{part}"))

    return write_parts(folder, sizes, ".txt", write)


def _write(file: TextIO, source: Iterator[str], size: int, draws: RandomDraws) -> None:
    while size:
        count = min(size, draws.choice(range(SHORTEST, LONGEST + 1)))
        size -= count
        file.write(" ".join(next(source) for _ in range(count)) + ("\n\n" if size else "\n"))
