"""The words of the viewer in the browser, for what Python says of the same picture."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence

from regard.viewer.html_file import module_text

LANGUAGES = ("en", "zh")

ENTRY = re.compile(r'^\s*(\w+): (\["(?:[^"\\]|\\.)*",\s*"(?:[^"\\]|\\.)*"\]),$', re.MULTILINE)
PLACE = re.compile(r"\{(\w+)(?::([^|}]*)\|([^}]*))?\}")


@functools.cache
def words() -> dict[str, tuple[str, str]]:
    """Returns every word of the viewer's table, in English and Chinese."""
    table = module_text().partition("const WORDS = {")[2].partition("\n};")[0]
    return {name: tuple(json.loads(pair)) for name, pair in ENTRY.findall(table)}


def say(name: str, language: str, /, **values: str | int) -> str:
    """Returns a text of the table with its places filled in; in ``{count:line|lines}`` a number chooses the word."""

    def filled(match: re.Match[str]) -> str:
        key, one, many = match.groups()
        return str(values[key]) if many is None else one if values[key] == 1 else many

    template = words()[name][LANGUAGES.index(language)]
    text = PLACE.sub(filled, template)
    return re.sub(r"^the (?=\d)", "The ", text) if template.startswith("{") else text


def which_one(texts: Sequence[str], number: int, name: str, language: str) -> str:
    """Returns the name of a word, and which one of several it is, as `whichOne` of the viewer does."""
    count = texts[: number + 1].count(texts[number])
    suffix = "th" if 11 <= count % 100 <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    several = texts.count(texts[number]) > 1
    return (
        say("whichOne", language, nth=count if language == "zh" else f"{count}{suffix}", word=name) if several else name
    )
