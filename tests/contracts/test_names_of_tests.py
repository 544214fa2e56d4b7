"""Tests are found by their names: a name says its subject and its law, and occurs once."""

import re
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]


def names_of_tests():
    return [
        name
        for file in sorted(TESTS.rglob("test_*.py"))
        for name in re.findall(r"^ *def (test_\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE)
    ]


def test_names_of_tests_begin_with_their_subject():
    assert not [name for name in names_of_tests() if re.match("test_(what|it|its|they|such)_", name)]


def test_names_of_tests_have_three_words():
    assert not [name for name in names_of_tests() if name.count("_") < 3]


def test_no_two_tests_have_one_name():
    assert not [name for name, count in Counter(names_of_tests()).items() if count > 1]
