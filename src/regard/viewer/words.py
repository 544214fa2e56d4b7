"""The words of the viewer in the browser, for what Python says of the same picture."""

from __future__ import annotations

import functools
import json
import re

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

    return PLACE.sub(filled, words()[name][LANGUAGES.index(language)])
