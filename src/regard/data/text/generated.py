"""The bundled corpus: English sentences, their Spanish translations and the true word alignments, from a grammar.

It needs no download and has any size. The Spanish sentence is a function of the English one, so a perfect model reaches
BLEU 100. The corpus has the usual difficulties of translation: agreement, reordering, clitics, dropped words. The
grammar records which word translates which, so that alignment error rates are exact.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import TextIO

from regard.data.text.alignment import Alignment, Link
from regard.data.text.corpus_files import DistinctParts, check_range, write_parts
from regard.data.text.grammar.phrases import RandomDraws, finished, joined
from regard.data.text.grammar.sentences import sentence

SHORTEST, LONGEST = 4, 16
"""Words of an English sentence, without the punctuation mark at its end."""


@dataclass(frozen=True)
class AlignedPair:
    """A sentence in two languages with the true alignment of its words.

    Attributes:
        source: the English sentence.
        target: the Spanish sentence.
        source_words: the words of the source, as `regard.data.text.words.split_words` gives them.
        target_words: the words of the target, likewise.
        sure: links ``(source word, target word)`` between words that translate each other.
        possible: the sure links, and links to related words: a dropped pronoun and the verb, *does* and the verb, a
            personal *a* and its noun. Every target word has at least one link.
    """

    source: str
    target: str
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    sure: frozenset[Link]
    possible: frozenset[Link]

    @cached_property
    def alignment(self) -> list[Link]:
        """Every link, sure or possible, ordered by target word."""
        return sorted(self.possible, key=lambda link: (link[1], link[0]))


def generate(size: int, seed: int, *, start: int = 0) -> Iterator[AlignedPair]:
    """Pairs of the corpus.

    Args:
        size: number of pairs.
        seed: seed of the corpus; each seed gives another, infinite corpus.
        start: index of the first pair. Pair ``n`` does not depend on ``start``.

    Yields:
        pairs; short sentences may occur several times.

    Raises:
        ArgumentError: ``size`` or ``start`` is negative.
    """
    check_range(size, start)
    return (_pair(RandomDraws(f"{seed}/{number}")) for number in range(start, start + size))


def write_corpus(folder: str | os.PathLike[str], sizes: Mapping[str, int], seed: int) -> dict[str, Path]:
    """Write the corpus as raw TSV files with the columns ``english``, ``spanish`` and ``alignment``.

    The alignment is in Pharaoh format, ``0-0 1-2 1p3``, where ``p`` marks a link that is only possible. No English
    sentence of one split occurs in another; none occurs twice in a split other than ``train``. Only the sentences of
    those other splits are stored in memory, so ``train`` may have any size.

    Args:
        folder: the folder; created if it does not exist.
        sizes: number of pairs of each split, e.g. ``{"train": 60000, "val": 1000, "test": 1000}``.
        seed: as in `generate`.

    Returns:
        the file of each split, ``<folder>/<split>.tsv``; each is written atomically.

    Raises:
        ArgumentError: a size is negative.
        DataError: the folder cannot be written.
    """
    pairs = (pair for number in count() for pair in generate(1, seed, start=number))
    distinct = DistinctParts(pairs, lambda pair: pair.source)

    def write(file: TextIO, split: str, size: int) -> None:
        file.write("english\tspanish\talignment\n")
        for pair in islice(distinct.of(split), size):
            file.write(f"{pair.source}\t{pair.target}\t{Alignment(pair.sure, pair.possible)}\n")

    return write_parts(folder, sizes, ".tsv", write)


def _pair(draws: RandomDraws) -> AlignedPair:
    while True:
        source, target, question = sentence(draws)
        if SHORTEST <= len(source) <= LONGEST:
            break
    english, spanish, sure, possible = finished(source, target, question=question)
    return AlignedPair(joined(english), joined(spanish), tuple(english), tuple(spanish), sure, possible)
