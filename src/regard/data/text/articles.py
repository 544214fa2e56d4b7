"""The bundled articles: short reports with true summaries, and the spans that a summary must copy.

They need no download, and there are as many as wanted. The summary is a function of the article, so a perfect model
reaches ROUGE 100. Names and numbers are invented for each article, so that no vocabulary has them: a model that writes
them has copied them. An article also has names and numbers that its summary does not need.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import TextIO

from regard.data.text.corpus_files import check_range, write_parts
from regard.data.text.events import CHOICES, KINDS, EventKind
from regard.data.text.grammar.phrases import RandomDraws

COLUMNS = ("article", "summary", "copied")
"""The columns of a written file; ``copied`` is a JSON list of the spans."""

_ONSETS = ("b", "br", "d", "dr", "f", "g", "gr", "h", "j", "k", "kl", "l", "m", "n", "p", "pl", "r", "s", "sk", "st",
           "t", "tr", "v", "z")  # fmt: skip
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ou")
_CODAS = ("n", "r", "l", "s", "m", "k", "t", "x")
NUMBERS = {"NUMBER": range(500_000, 1_000_000), "COUNT": range(10_000, 500_000), "PAST": range(10_000, 1_000_000)}
"""Slot → its values; in an election NUMBER wins."""

_SLOT = re.compile(r"\{(\w+)(?::(\w+))?\}")


@dataclass(frozen=True, slots=True)
class Article:
    """An article with its summary.

    Attributes:
        text: the article.
        summary: its summary.
        copied: the spans of the summary that must be copied, in their order; each is in the article.
    """

    text: str
    summary: str
    copied: tuple[str, ...]


def generate_articles(size: int, seed: int, *, start: int = 0) -> Iterator[Article]:
    """Articles of the corpus.

    Args:
        size: number of articles.
        seed: seed of the corpus; each seed gives another, infinite corpus.
        start: index of the first article. Article ``n`` does not depend on ``start``.

    Raises:
        ArgumentError: ``size`` or ``start`` is negative.
    """
    check_range(size, start)
    return (_article(RandomDraws(f"articles/{seed}/{number}")) for number in range(start, start + size))


def write_articles(folder: str | os.PathLike[str], sizes: Mapping[str, int], seed: int) -> dict[str, Path]:
    """Write the corpus as raw TSV files with the columns `COLUMNS`; no article of one split occurs in another.

    Args:
        folder: the folder; created if it does not exist.
        sizes: number of articles of each split. The splits other than ``train`` do not depend on its size.
        seed: as in `generate_articles`.

    Returns:
        the file of each split, ``<folder>/<split>.tsv``; each is written atomically.

    Raises:
        ArgumentError: a size is negative.
        DataError: the folder cannot be written.
    """
    articles = (article for number in count() for article in generate_articles(1, seed, start=number))

    def write(file: TextIO, split: str, size: int) -> None:
        file.write("\t".join(COLUMNS) + "\n")
        for article in islice(articles, size):
            file.write(f"{article.text}\t{article.summary}\t{json.dumps(article.copied)}\n")

    return write_parts(folder, sizes, ".tsv", write)


def _article(draws: RandomDraws) -> Article:
    used: set[str] = set()
    reports = []
    kinds = list(KINDS)
    for _ in range(2 if draws.chance(0.4) else 1):
        kind = draws.choice(kinds)
        kinds.remove(kind)
        reports.append(_report(draws, kind, used))
    texts, summaries, copied = zip(*reports, strict=True)
    return Article(" ".join(texts), " ".join(summaries), tuple(span for spans in copied for span in spans))


def _report(draws: RandomDraws, kind: EventKind, used: set[str]) -> tuple[str, str, list[str]]:
    """The text of a report, its summary, and the spans that are copied."""
    values: dict[str, str] = {}
    rest = [draws.choice(versions) for versions in kind.facts]
    asides = list(kind.asides)
    for _ in range(draws.choice((0, 1, 1, 2))):
        aside = draws.choice(asides)
        asides.remove(aside)
        rest.append(aside)
    first = draws.choice(kind.first)
    templates = [first]
    while rest:
        templates.append(draws.choice(rest))
        rest.remove(templates[-1])
    text = " ".join(_filled(draws, template, values, used)[0] for template in templates)
    return text, *_filled(draws, kind.summary, values, used)


def _filled(draws: RandomDraws, template: str, values: dict[str, str], used: set[str]) -> tuple[str, list[str]]:
    """A template with values for its slots, and those that are invented; new values are added to ``values``."""
    invented = []

    def fill(match: re.Match[str]) -> str:
        slot, part = match[1], match[2]
        if slot not in values:
            values[slot] = draws.choice(CHOICES[slot]) if slot in CHOICES else _invented(draws, slot, used)
        value = values[slot]
        if slot not in CHOICES:
            invented.append(value)
        if part == "last":
            return value.split()[-1]
        return value.capitalize() if part == "upper" else value

    return _SLOT.sub(fill, template), invented


def _invented(draws: RandomDraws, slot: str, used: set[str]) -> str:
    """A value that no other slot of the article has."""
    while True:
        if slot in NUMBERS:
            value = str(draws.choice(NUMBERS[slot]))
        elif slot in ("PERSON", "SECOND", "WITNESS"):
            value = f"{_name(draws)} {_name(draws)}"
        else:
            value = _name(draws)
        if used.isdisjoint(value.split()):
            used.update(value.split())
            return value


def _name(draws: RandomDraws) -> str:
    syllables = "".join(draws.choice(_ONSETS) + draws.choice(_VOWELS) for _ in range(3))
    return (syllables + (draws.choice(_CODAS) if draws.chance(0.6) else "")).capitalize()
