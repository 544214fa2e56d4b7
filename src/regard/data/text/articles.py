"""The bundled articles: short reports with true summaries, and the spans that a summary must copy.

They need no download, and the corpus has any size. The summary is a function of the article, so a perfect model
reaches ROUGE 100. Names and numbers are invented for each article, so that no vocabulary has them: a model that writes
them has copied them. An article also has names and numbers that its summary does not need.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

from regard.data.corpus_files import RandomDraws, generated, write_parts

COLUMNS = ("article", "summary", "copied")
"""The columns of a written file; ``copied`` is a JSON list of the spans."""

_ONSETS = ("b", "br", "d", "dr", "f", "g", "gr", "h", "j", "k", "kl", "l", "m", "n", "p", "pl", "r", "s", "sk", "st",
           "t", "tr", "v", "z")  # fmt: skip
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ou")
_CODAS = ("n", "r", "l", "s", "m", "k", "t", "x")
NUMBERS = {"NUMBER": range(500_000, 1_000_000), "COUNT": range(10_000, 500_000), "PAST": range(10_000, 1_000_000)}
"""Slot → its values; in an election NUMBER wins."""

_SLOT = re.compile(r"\{(\w+)(?::(\w+))?\}")


CHOICES = {
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "building": ("bakery", "cinema", "school", "warehouse", "library", "hotel", "garage", "theatre"),
    "product": ("bicycles", "batteries", "tractors", "pianos", "windows", "shoes", "engines", "lamps"),
    "sport": ("chess", "tennis", "rowing", "fencing", "judo", "handball"),
    "find": ("coins", "bones", "letters", "maps", "tools", "statues"),
    "job": ("teacher", "farmer", "nurse", "baker", "judge", "painter", "engineer", "pilot"),
    "vehicle": ("train", "bus", "ferry", "tram"),
    "work": ("novel", "opera", "film", "symphony", "play"),
}
"""Slot → its values."""


@dataclass(frozen=True)
class EventKind:
    """One kind of event.

    Attributes:
        first: versions of the sentence that begins the report.
        facts: versions of each further sentence that the summary needs; the order of the sentences is free.
        asides: sentences that the summary does not need; names and numbers in them are distractors.
        summary: the summary.
    """

    first: tuple[str, ...]
    facts: tuple[tuple[str, ...], ...]
    asides: tuple[str, ...]
    summary: str


# Each event in lines: versions of the first sentence (>), versions of each fact (1, 2), asides (-), the summary (=).
_EVENTS = """
> A fire destroyed a {building} in {PLACE} on {day}.
> On {day}, a {building} in {PLACE} burned down.
> In {PLACE}, nothing is left of a {building} after a fire on {day}.
1 The smoke drove {COUNT} people out of their homes.
1 Because of the smoke, {COUNT} people had to leave their homes.
2 The owner, {PERSON}, speaks of a loss of {NUMBER} crowns.
2 According to {PERSON}, who owns it, {NUMBER} crowns are lost.
- {WITNESS}, who lives next door, heard a loud noise.
- A fire in {ELSEWHERE} cost {PAST} crowns last year.
- The cause is not known yet.
= Fire destroys {building} in {PLACE}, {COUNT} people leave their homes. Owner {PERSON} loses {NUMBER} crowns.

> The people of {PLACE} elected {PERSON} as their new mayor on {day}.
> {PERSON}, a {job}, is the new mayor of {PLACE}.
> On {day}, the {job} {PERSON} won the election in {PLACE}.
1 {PERSON:last} got {NUMBER} votes.
1 As many as {NUMBER} people voted for {PERSON:last}.
2 {SECOND} came second with {COUNT} votes.
2 With {COUNT} votes, {SECOND} came second.
- The mayor before, {WITNESS}, did not take part.
- In {ELSEWHERE}, only {PAST} people went to vote.
- It rained during the whole day.
= {PERSON} becomes mayor of {PLACE} with {NUMBER} votes, ahead of {SECOND} with {COUNT}.

> {FIRM}, which makes {product}, buys its rival {OTHER}.
> The {product} company {FIRM} takes over {OTHER}, it said on {day}.
> On {day}, {OTHER} was sold to {FIRM}, a maker of {product}.
1 The price is {NUMBER} crowns.
1 The company pays {NUMBER} crowns.
2 {PERSON}, who leads the buyer, promised to keep {COUNT} workers.
2 There will be work for {COUNT} people, said {PERSON}, the head of the buyer.
- The plant in {ELSEWHERE} is not part of the sale.
- {WITNESS} of the union was surprised.
- Ten years ago the company was worth {PAST} crowns.
= {FIRM} buys {OTHER} for {NUMBER} crowns. Head {PERSON} promises to keep {COUNT} workers.

> {PERSON} won the {sport} final in {PLACE} on {day}.
> On {day}, {PERSON} became the {sport} champion in {PLACE}.
> The {sport} champion is called {PERSON} since the final in {PLACE}.
1 {SECOND} lost the final.
1 In the final, {SECOND} had no chance.
2 There were {COUNT} people in the hall.
2 A crowd of {COUNT} saw it.
- The trainer, {WITNESS}, was in tears.
- In {ELSEWHERE}, {PAST} people followed it on a screen.
- The next final is in two years.
= {PERSON} beats {SECOND} in the {sport} final in {PLACE} before {COUNT} people.

> Workers found old {find} under a street in {PLACE} on {day}.
> Old {find} came to light in {PLACE} on {day}.
> On {day}, a digger in {PLACE} hit a box of old {find}.
1 {PERSON} of the museum said they are worth {NUMBER} crowns.
1 They are worth {NUMBER} crowns, said {PERSON} of the museum.
2 They belonged to {SECOND}.
2 Their owner was once {SECOND}.
- The museum of {ELSEWHERE} has {PAST} such things.
- {WITNESS} drove the digger.
- The street stays closed.
= Old {find} of {SECOND} found in {PLACE}. They are worth {NUMBER} crowns, says {PERSON}.

> A storm hit {PLACE} in the night to {day}.
> In the night to {day}, a storm raged over {PLACE}.
> {PLACE} was hit by a storm before {day}.
1 There is no power in {COUNT} homes.
1 The power failed in {COUNT} homes.
2 A tree fell on the car of {PERSON}, a {job}.
2 The car of a {job}, {PERSON}, was crushed by a tree.
- In {ELSEWHERE} there was only rain.
- {WITNESS} of the weather service had warned of it.
- The storm of last year did damage of {PAST} crowns.
= Storm in {PLACE}: {COUNT} homes without power, tree crushes car of {job} {PERSON}.

> The {vehicle} from {PLACE} to {OTHER} will run again on {day}.
> From {day} on, there is a {vehicle} between {PLACE} and {OTHER} again.
> On {day}, the {vehicle} line from {PLACE} to {OTHER} opens.
1 The repair cost {NUMBER} crowns.
1 For the repair {NUMBER} crowns were spent.
2 {PERSON} will drive first.
2 The first driver will be {PERSON}.
- People from {ELSEWHERE} must still walk.
- {WITNESS} planned the line.
- Before, {PAST} people used it in a year.
= {vehicle:upper} from {PLACE} to {OTHER} runs again after repair for {NUMBER} crowns. {PERSON} drives first.

> {PERSON} of {PLACE} received a prize for a new {work} on {day}.
> A {work} by {PERSON} of {PLACE} won a prize on {day}.
> On {day}, a prize went to {PERSON} of {PLACE}, who wrote a {work}.
1 The prize is {NUMBER} crowns.
1 With it come {NUMBER} crowns.
2 {SECOND} gave the speech.
2 The speech was given by {SECOND}.
- It will be shown in {ELSEWHERE} as well.
- {WITNESS} had won it the year before.
- Last time it was {PAST} crowns.
= {PERSON} of {PLACE} wins {NUMBER} crowns for {work}, {SECOND} gives speech.
"""


def _event_kind(block: str) -> EventKind:
    lines = [(line[0], line[2:]) for line in block.strip().splitlines()]
    texts = {mark: tuple(text for own, text in lines if own == mark) for mark in ">12-="}
    return EventKind(texts[">"], (texts["1"], texts["2"]), texts["-"], *texts["="])


KINDS = tuple(map(_event_kind, _EVENTS.strip().split("\n\n")))
"""All kinds of events."""


@dataclass(frozen=True)
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
    """Yields articles of the corpus; arguments as for `regard.data.corpus_files.generated`."""
    return generated(_article, f"articles/{seed}", size, start)


def write_articles(folder: str | os.PathLike[str], sizes: Mapping[str, int], seed: int) -> dict[str, Path]:
    """Writes the corpus as raw TSV files with the columns `COLUMNS`; no article of one part occurs in another.

    Arguments, result and errors are those of `regard.data.corpus_files.write_parts`.
    """
    articles = generated(_article, f"articles/{seed}", None)

    def write(file: TextIO, part: str, size: int) -> None:
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
    """Returns the text of a report, its summary, and the copied spans."""
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
    """Fills the slots of a template, and returns it with the invented values; new values are added to ``values``."""
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
    """Invents a value that no other slot of the article has."""
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
