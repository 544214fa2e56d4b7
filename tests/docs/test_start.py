"""The tables of the section "Start": each line of Python in a last column is in a cell, which is executed."""

import re

import pytest

from book import cells, pages

PAGES = [page for page in pages("en") if re.match(r"start/(03|from-)", page)]


def table_lines(page):
    """The code in the last column of all tables of a page."""
    rows = re.findall(r"\| `([^`]*)` \|$", page, re.MULTILINE)
    return [row.replace("\\|", "|") for row in rows]


def compact(code):
    """Code without spaces, line breaks, trailing commas and what only hides a bar of progress on the site."""
    return re.sub(r",(?:progress=False)?(?=[)\]}])", "", re.sub(r"\s", "", code))


@pytest.mark.parametrize("name", PAGES)
def test_the_lines_of_a_table_are_executed(name):
    page = pages("en")[name]
    executed = compact("\n".join(cells(page)))
    lines = [line for line in table_lines(page) if not line.startswith("regard ")]
    assert len(lines) > 5
    assert [line for line in lines if compact(line) not in executed] == []


@pytest.mark.parametrize("name", PAGES)
def test_both_languages_have_the_same_lines(name):
    assert table_lines(pages("en")[name]) == table_lines(pages("zh")[name])
