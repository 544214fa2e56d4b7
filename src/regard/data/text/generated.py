"""The bundled texts: English sentences, their Spanish translations and the true word alignments, from a grammar.

It needs no download and has any size. The Spanish sentence is a function of the English one, so a perfect model reaches
BLEU 100. The corpus has the usual difficulties of translation: agreement, reordering, clitics, dropped words. The
grammar records which word translates which, so that alignment error rates are exact.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TextIO

from regard.data.corpus_files import DistinctParts, RandomDraws, generated, write_parts
from regard.data.text.alignment import Alignment, Link
from regard.data.text.grammar.phrases import finished, joined
from regard.data.text.grammar.sentences import sentence

SHORTEST, LONGEST = 4, 16
"""Words of an English sentence, without the punctuation mark at its end."""

PARAGRAPH = range(3, 9)
"""Possible numbers of sentences in a paragraph of running text."""


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
    return generated(_pair, seed, size, start)


def write_corpus(folder: str | os.PathLike[str], sizes: Mapping[str, int], seed: int) -> dict[str, Path]:
    """Write pairs as raw TSV files with the columns ``english``, ``spanish`` and ``alignment``.

    The alignment is in Pharaoh format, ``0-0 1-2 1p3``, where ``p`` marks a link that is only possible. No English
    sentence of one part occurs in another (`DistinctParts`). Arguments, result and errors are those of `write_parts`.
    """
    distinct = DistinctParts(generated(_pair, seed, None), lambda pair: pair.source)

    def write(file: TextIO, part: str, size: int) -> None:
        file.write("english\tspanish\talignment\n")
        for pair in islice(distinct.of(part), size):
            file.write(f"{pair.source}\t{pair.target}\t{Alignment(pair.sure, pair.possible)}\n")

    return write_parts(folder, sizes, ".tsv", write)


def write_text(folder: str | os.PathLike[str], sizes: Mapping[str, int], seed: int) -> dict[str, Path]:
    """Write English sentences as running text: spaces between them, and an empty line between paragraphs.

    No sentence of one part occurs in another (`DistinctParts`). Arguments, result and errors are those of
    `write_parts`; sizes are numbers of sentences.
    """
    distinct = DistinctParts(english_sentences(seed), str)

    def write(file: TextIO, part: str, size: int) -> None:
        source, draws = distinct.of(part), RandomDraws(f"{seed}/{part}")
        while size:
            count = min(size, draws.choice(PARAGRAPH))
            size -= count
            file.write(" ".join(islice(source, count)) + ("\n\n" if size else "\n"))

    return write_parts(folder, sizes, ".txt", write)


def english_sentences(seed: int) -> Iterator[str]:
    """The English sentences of the corpus, without an end."""
    return (pair.source for pair in generated(_pair, seed, None))


def _pair(draws: RandomDraws) -> AlignedPair:
    while True:
        source, target, question = sentence(draws)
        if SHORTEST <= len(source) <= LONGEST:
            break
    english, spanish, sure, possible = finished(source, target, question=question)
    return AlignedPair(joined(english), joined(spanish), tuple(english), tuple(spanish), sure, possible)
