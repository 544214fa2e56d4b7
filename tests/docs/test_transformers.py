"""The code of docs/en/how-to/hugging-face.md runs, and what the page says of it is so."""

import re

import pytest

pytest.importorskip("transformers")
pytest.importorskip("matplotlib")

from book import cells, pages
from regard.watching.head_statistics import statistic_names

PAGE = pages("en")["how-to/hugging-face"]


def test_code_of_the_page_on_transformers_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    named = {}
    for code in cells(PAGE):
        exec(compile(code, "docs/en/how-to/hugging-face.md", "exec"), named)
    assert (tmp_path / "heads.png").stat().st_size > 10_000
    printed = capsys.readouterr().out
    assert "25 texts" in printed
    assert "after − before, the same 40 texts" in printed
    assert {one.layer for one in named["change"].largest(3)} == {1}
    assert (tmp_path / "change.png").stat().st_size > 10_000


def test_every_statistic_is_described():
    table = PAGE[PAGE.index("| statistic | unit |") :]
    described = re.findall(r"^\| `(\w+)` \|", table, re.M)
    assert described == [name for name in statistic_names(0) if not name.startswith("offset")]


def test_families_of_the_page_are_those_that_are_tested():
    from tiny_transformers import FAMILIES

    listed = re.search(r"The tests compare these families.*?: (.*?)\.\n\n", PAGE, re.S)[1]
    assert len(listed.split(",")) == len(FAMILIES)
