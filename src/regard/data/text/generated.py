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
from regard.data.text.grammar import lexicon
from regard.data.text.grammar.clauses import (
    CLAUSES,
    Clause,
    intransitive,
    predicate,
    subject_of,
    transitive,
    when,
    where,
)
from regard.data.text.grammar.morphology import english_plural, spanish_verb
from regard.data.text.grammar.phrases import Phrase, SourceWord, TargetWord, finished, joined, name, noun_phrase

FEWEST_WORDS, MOST_WORDS = 4, 16
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
    """Yields pairs of the corpus.

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
    """Writes pairs as raw TSV files with the columns ``english``, ``spanish`` and ``alignment``.

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
    """Writes English sentences as running text: spaces between them, and an empty line between paragraphs.

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
    """Yields the English sentences of the corpus, without an end."""
    return (pair.source for pair in generated(_pair, seed, None))


def _pair(draws: RandomDraws) -> AlignedPair:
    while True:
        source, target, question = sentence(draws)
        if FEWEST_WORDS <= len(source) <= MOST_WORDS:
            break
    english, spanish, sure, possible = finished(source, target, question=question)
    return AlignedPair(joined(english), joined(spanish), tuple(english), tuple(spanish), sure, possible)


Words = tuple[list[SourceWord], list[TargetWord]]

_CONNECTIVES = (("and", "y"), ("but", "pero"), ("because", "porque"))
_SAYING_VERBS = (("think", "pensar"), ("know", "saber"), ("say", "decir"), ("believe", "creer"))
_QUESTION_WORDS = (("where", ("dónde",)), ("when", ("cuándo",)), ("why", ("por", "qué")))


def sentence(draws: RandomDraws) -> tuple[list[SourceWord], list[TargetWord], bool]:
    """Draws a sentence of any length, without its mark.

    Returns:
        its English words, its Spanish words, and whether it is a question.
    """
    form, question = draws.weighted(_FORMS)
    source, target = form(draws)
    return source, target, question


def statement(draws: RandomDraws) -> Words:
    """Draws a statement, e.g. *The girl eats the apple in the kitchen today.*"""
    many = draws.weighted(((None, 8.0), (_relative, 1.0), (_and, 1.0)))
    if many is None:
        clause = draws.weighted(CLAUSES)(draws)
    else:
        clause = draws.choice((transitive, intransitive))(draws, subject=many(draws))
    return _situated(draws, clause, *clause.statement(), place=clause.accepts_place)


def yes_or_no(draws: RandomDraws) -> Words:
    """Draws a question, e.g. *Does the girl eat the apple?*"""
    clause = draws.weighted(CLAUSES)(draws, question=True)
    return _situated(draws, clause, *clause.question(), place=False)


def where_when_why(draws: RandomDraws) -> Words:
    """Draws a question, e.g. *Why does the girl eat the apple?*"""
    clause = draws.choice((transitive, intransitive))(draws, question=True, plain=True)
    source, target = clause.question()
    english, spanish = draws.choice(_QUESTION_WORDS)
    word = SourceWord(english)
    *before, last = spanish
    asking = [*(TargetWord(text, (), (word,)) for text in before), TargetWord(last, (word,))]
    return [word, *source], [*asking, *target]


def who(draws: RandomDraws) -> Words:
    """Draws a question, e.g. *Who eats the apple?*"""
    word = SourceWord("who")
    subject = Phrase([word], [TargetWord("quién", (word,))], "3s", "m", True)
    clause = draws.choice((transitive, intransitive))(draws, subject=subject)
    return _situated(draws, clause, *clause.statement(), place=False)


def what(draws: RandomDraws) -> Words:
    """Draws a question, e.g. *What does the girl eat?*"""
    verbs = [verb for verb in lexicon.TRANSITIVE if "person" not in verb.objects]
    _, subject, tense, group = predicate(draws, verbs, question=True)
    word = SourceWord("what")
    clause = Clause(subject, group.helper, group.rest, [*group.before, *group.finite], [], tense)
    source, target = clause.question()
    return _situated(draws, clause, [word, *source], [TargetWord("qué", (word,)), *target], place=False)


def there_is(draws: RandomDraws) -> Words:
    """Draws e.g. *There are two books on the table*: *hay dos libros sobre la mesa*."""
    kinds = ["person", "animal", "food", "text", "thing", "clothes", "vehicle"]
    thing = noun_phrase(draws, kinds, indefinite=True)
    english, spanish = draws.choice(((("is", "are"), "hay"), (("was", "were"), "había")))
    source = [SourceWord("there"), SourceWord(english[thing.plural])]
    place, lugar = where(draws)
    return [*source, *thing.source, *place], [TargetWord(spanish, (source[1],), (source[0],)), *thing.target, *lugar]


def two(draws: RandomDraws) -> Words:
    """Joins two clauses, e.g. *The girl eats the apple and the dog sleeps.*"""
    clauses = [draws.weighted(CLAUSES)(draws) for _ in range(2)]
    (source, target), (further, mas) = (clause.statement() for clause in clauses)
    english, spanish = draws.choice(_CONNECTIVES)
    word = SourceWord(english)
    return [*source, word, *further], [*target, TargetWord(spanish, (word,)), *mas]


def saying(draws: RandomDraws) -> Words:
    """Draws reported speech, e.g. *She thinks that the girl eats the apple.*"""
    english, spanish = draws.choice(_SAYING_VERBS)
    subject = subject_of(draws)
    verb = SourceWord(english_plural(english) if subject.person == "3s" else english)
    that = SourceWord("that")
    said = TargetWord(spanish_verb(spanish).conjugate("present", subject.person), (verb,), subject.dropped)
    source, target = draws.weighted(CLAUSES)(draws).statement()
    return [*subject.source, verb, that, *source], [*subject.target, said, TargetWord("que", (that,)), *target]


_FORMS = (
    ((statement, False), 10.0),
    ((yes_or_no, True), 1.5),
    ((where_when_why, True), 0.7),
    ((who, True), 0.4),
    ((what, True), 0.5),
    ((there_is, False), 0.8),
    ((two, False), 1.5),
    ((saying, False), 1.0),
)


def _situated(
    draws: RandomDraws, clause: Clause, source: list[SourceWord], target: list[TargetWord], *, place: bool
) -> Words:
    """Perhaps adds where and when it happens."""
    if place and draws.chance(0.2):
        english, spanish = where(draws)
        source, target = [*source, *english], [*target, *spanish]
    if draws.chance(0.2):
        english, spanish = when(draws, clause.tense)
        source, target = [*source, *english], [*target, *spanish]
    return source, target


def _relative(draws: RandomDraws) -> Phrase:
    """Draws a person with a relative clause: *the boy who sleeps*: *el niño que duerme*."""
    head = noun_phrase(draws, ["person"], plain=True, names=0.0)
    word = SourceWord("who")
    inner = Phrase([word], [TargetWord("que", (word,))], head.person, head.gender, True)
    source, target = draws.choice((transitive, intransitive))(draws, subject=inner, plain=True).statement()
    return Phrase([*head.source, *source], [*head.target, *target], head.person, head.gender, True)


def _and(draws: RandomDraws) -> Phrase:
    """Joins two persons: *Ana and my brother*: *Ana y mi hermano*."""
    first, second = name(draws), noun_phrase(draws, ["person"], plain=True, names=0.0)
    word = SourceWord("and")
    gender = "f" if first.gender == second.gender == "f" else "m"
    target = [*first.target, TargetWord("y", (word,)), *second.target]
    return Phrase([*first.source, word, *second.source], target, "3p", gender, True)
