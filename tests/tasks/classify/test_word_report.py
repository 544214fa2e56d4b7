"""The report of a classified text: every word with its weight below, in any width, with and without colours."""

import dataclasses
import io

import pytest
from rich.console import Console

from regard.tasks.classify import Classification
from regard.tasks.word_report import WordReport

WORDS = ["Although", "the", "日本", "is", "dull", "\x1b[31m", ","]
WEIGHTS = [[0.0, 0.05, 0.2, 0.0, 0.7, 0.05, 0.0]]


def printed(report, width=80, **options):
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, **options)
    console.print(report)
    return console.file.getvalue()


def test_each_number_stands_below_its_word():
    label, words, weights = printed(WordReport({"bad": 0.75, "good": 0.25}, WORDS, WEIGHTS)).splitlines()
    assert label == "bad 0.750 · good 0.250"
    assert weights.split() == ["▁.05", "▃.20", "█.70", "▁.05"]
    assert words.index("dull") == weights.index("█.70") - 2  # two characters before it are two cells wide
    assert "\x1b" not in words


@pytest.mark.parametrize("width", [20, 33])
def test_lines_fit_the_width_and_lose_no_word(width):
    lines = printed(WordReport({"bad": 1.0}, WORDS, WEIGHTS * 2), width).splitlines()
    assert sum(line.startswith("head 0") for line in lines) == sum(line.startswith("head 1") for line in lines) > 1
    words = [word for line in lines[1:] if not line.startswith("head") for word in line.split()]
    assert words[:5] == WORDS[:5]
    assert len(words) == len(WORDS)


def test_a_word_longer_than_a_line_is_cut():
    _, words, _ = printed(WordReport({"bad": 1.0}, ["x" * 50], [[1.0]]), 20).splitlines()
    assert words.strip() == "x" * 19 + "…"


def test_colours_only_in_a_terminal():
    report = WordReport({"bad": 1.0}, WORDS, WEIGHTS)
    coloured = printed(report, force_terminal=True, color_system="truecolor")
    assert "48;2;232;89;12" in coloured  # the word with the largest weight
    assert "\x1b" not in printed(report)


def test_several_answers_are_listed_once():
    best = Classification("a b", "x", {"x": 0.75, "y": 0.25}, ["a", "b"], [range(1), range(2, 3)], None)
    assert "x 0.750 · y 0.250" in printed(best.report())
    assert not printed(best.followed_by([dataclasses.replace(best, label="y")]).report()).strip()


def test_without_attention_there_is_one_line():
    probabilities = {f"label {number}": 0.1 for number in range(9)}
    (line,) = printed(WordReport(probabilities, WORDS, None), 200).splitlines()
    assert line.endswith("label 4 0.100 · and 4 more")
