"""The bundled text: paragraphs of English sentences from a grammar."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from regard.atomic_file import AtomicFile
from regard.data.text.generated import generate
from regard.data.text.grammar.phrases import RandomDraws
from regard.errors import ArgumentError, DataError

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
    folder = Path(folder)
    for part, size in sizes.items():
        if size < 0:
            raise ArgumentError(f"the size of {part!r} must be at least 0; got {size}")
    held_out: set[str] = set()
    source = sentences(seed)
    written = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in sorted(sizes, key=lambda part: (part == "train", part)):
            written[part] = folder / f"{part}.txt"
            new = _others(source, held_out, keep=part != "train")
            _write(written[part], new, sizes[part], RandomDraws(f"{seed}/{part}"))
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror or error}); choose another folder") from error
    return {part: written[part] for part in sizes}


def _others(source: Iterator[str], held_out: set[str], *, keep: bool) -> Iterator[str]:
    for sentence in source:
        if sentence not in held_out:
            if keep:
                held_out.add(sentence)
            yield sentence


def _write(path: Path, source: Iterator[str], size: int, draws: RandomDraws) -> None:
    with AtomicFile(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        while size:
            count = min(size, draws.choice(range(SHORTEST, LONGEST + 1)))
            size -= count
            file.write(" ".join(next(source) for _ in range(count)) + ("\n\n" if size else "\n"))
