"""The tables of the section "Start": each line of Python in a last column is in a cell, which is executed."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(page.name for page in (DOCS / "en/start").glob("*.md") if re.match(r"03|from-", page.name))
CELL = re.compile(r"```\{code-cell\} python\n(.*?)```", re.DOTALL)


def table_lines(page):
    """The code in the last column of all tables of a page."""
    rows = re.findall(r"\| `([^`]*)` \|$", page, re.MULTILINE)
    return [row.replace("\\|", "|") for row in rows]


def compact(code):
    """Code without spaces, line breaks and trailing commas, so that a formatter's breaks do not matter."""
    return re.sub(r",(?=[)\]}])", "", re.sub(r"\s", "", code))


@pytest.mark.parametrize("name", PAGES)
def test_the_lines_of_a_table_are_executed(name):
    page = (DOCS / "en/start" / name).read_text(encoding="utf-8")
    cells = compact("\n".join(CELL.findall(page)))
    lines = [line for line in table_lines(page) if not line.startswith("regard ")]
    assert len(lines) > 5
    assert [line for line in lines if compact(line) not in cells] == []


@pytest.mark.parametrize("name", PAGES)
def test_both_languages_have_the_same_lines(name):
    english, chinese = ((DOCS / language / "start" / name).read_text(encoding="utf-8") for language in ("en", "zh"))
    assert table_lines(english) == table_lines(chinese)
