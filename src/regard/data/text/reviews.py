"""The bundled corpus of labelled texts: short reviews, of which it is known which words decide the label.

It needs no download and has any size. A review has one judgement, which may be negated (``not bad``), and may have
clauses that decide nothing: facts, judgements of others, and concessions, which hold opinions of either kind. So
neither a list of good and bad words nor the position of a word tells the label; a model must find the judgement.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

from regard.data.corpus_files import DistinctParts, RandomDraws, generated, write_parts

LABELS = ("negative", "positive")

GOOD_ADJECTIVES = (
    "good", "great", "lovely", "pleasant", "clever", "charming", "brilliant", "delightful", "superb", "excellent",
    "funny", "moving", "beautiful", "impressive", "enjoyable", "wonderful", "fresh", "elegant", "honest", "exciting",
)  # fmt: skip
BAD_ADJECTIVES = (
    "bad", "awful", "dull", "boring", "clumsy", "dreadful", "poor", "tedious", "ugly", "disappointing",
    "silly", "weak", "terrible", "bland", "lazy", "annoying", "stale", "shallow", "messy", "forgettable",
)  # fmt: skip
ADJECTIVES = (*GOOD_ADJECTIVES, *BAD_ADJECTIVES)
THINGS = (
    "film", "novel", "play", "concert", "exhibition", "restaurant", "hotel", "museum", "album", "game", "series",
    "lecture", "opera", "podcast", "recipe", "garden", "tour", "magazine", "comedy", "documentary",
)  # fmt: skip
PARTS = (
    "beginning", "ending", "music", "staff", "design", "plot", "light", "price", "title", "cover", "poster",
    "first part", "view", "advertisement", "trailer", "entrance",
)  # fmt: skip
PEOPLE = (
    "my sister", "our neighbour", "the critic", "my colleague", "a newspaper", "her teacher", "my father", "the guide",
)  # fmt: skip
DEGREES = ("very", "really", "quite", "rather", "truly", "surprisingly")
NEGATIONS = (("not",), ("never",), ("hardly",), ("by", "no", "means"), ("anything", "but"))
FACTS: tuple[str, ...] = (
    "I went there on {day} with {person}",
    "it took {number} hours",
    "{person} had paid for the tickets",
    "I had waited {number} weeks for it",
    "it rained the whole {day}",
    "we were {number} people",
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Review:
    """A labelled text.

    Attributes:
        text: the review.
        label: one of `LABELS`.
        deciding: positions of the words that decide the label, among those of `regard.data.text.words.split_words`: the
            adjective of the judgement, and its negation.
    """

    text: str
    label: str
    deciding: tuple[int, ...]


def generate_reviews(size: int, seed: int, *, start: int = 0) -> Iterator[Review]:
    """Yields reviews of the corpus; arguments as for `regard.data.corpus_files.generated`."""
    return generated(_review, seed, size, start)


def write_reviews(folder: str | os.PathLike[str], sizes: Mapping[str, int], seed: int) -> dict[str, Path]:
    """Writes the corpus as raw TSV files with the columns ``text``, ``label`` and ``deciding``.

    No text of one part occurs in another (`DistinctParts`). Arguments, result and errors are those of `write_parts`.
    """
    distinct = DistinctParts(generated(_review, seed, None), lambda review: review.text)

    def write(file: TextIO, part: str, size: int) -> None:
        file.write("text\tlabel\tdeciding\n")
        for review in islice(distinct.of(part), size):
            file.write(f"{review.text}\t{review.label}\t{' '.join(map(str, review.deciding))}\n")

    return write_parts(folder, sizes, ".tsv", write)


def _review(draws: RandomDraws) -> Review:
    label = draws.choice(LABELS)
    negation = draws.choice(NEGATIONS) if draws.chance(0.4) else ()
    degree = [draws.choice(DEGREES)] if draws.chance(0.4) else []
    adjective = draws.choice(GOOD_ADJECTIVES if (label == "positive") != bool(negation) else BAD_ADJECTIVES)
    judgement = ["the", draws.choice(THINGS), draws.choice(("is", "was")), *negation, *degree, adjective]
    last = len(judgement)
    deciding = [*range(3, 3 + len(negation)), last - 1]
    before = _before(draws) if draws.chance(0.7) else []
    after = _after(draws) if draws.chance(0.5) else []
    words = [*before, *judgement, *after, "."]
    words[0] = words[0][0].upper() + words[0][1:]
    text = " ".join(words).replace(" ,", ",").replace(" .", ".")
    return Review(text, label, tuple(len(before) + position for position in deciding))


def _before(draws: RandomDraws) -> list[str]:
    """Draws a clause before the judgement, with the comma or the word that joins them."""
    kind = draws.choice(("fact", "concession", "report"))
    if kind == "fact":
        return [*_fact(draws), ",", "and"]
    if kind == "concession":
        return [draws.choice(("although", "though")), *_opinion(draws), ","]
    return [*draws.choice(PEOPLE).split(), "found", "it", draws.choice(ADJECTIVES), ",", "but"]


def _after(draws: RandomDraws) -> list[str]:
    """Draws a clause after the judgement."""
    kind = draws.choice(("fact", "concession", "report"))
    if kind == "fact":
        return [",", "and", *_fact(draws)]
    if kind == "concession":
        return [",", "even", "if", *_opinion(draws)]
    return [",", "whatever", *draws.choice(PEOPLE).split(), "says", "about", "the", draws.choice(ADJECTIVES),
            *draws.choice(PARTS).split()]  # fmt: skip


def _opinion(draws: RandomDraws) -> list[str]:
    negation: Sequence[str] = draws.choice(NEGATIONS) if draws.chance(0.3) else ()
    return ["the", *draws.choice(PARTS).split(), draws.choice(("is", "was")), *negation, draws.choice(ADJECTIVES)]


def _fact(draws: RandomDraws) -> list[str]:
    fact = draws.choice(FACTS)
    text: str = fact.format(day=draws.choice(DAYS), person=draws.choice(PEOPLE), number=draws.choice(NUMBERS))
    return text.split()
