"""ROUGE and the shares of words: cases computed by hand."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ArgumentError
from regard.tasks.outputs.text_metrics import novel_share, repeated_share, rouge_scores, rouge_words, spans_exact


@pytest.mark.parametrize(
    ("summary", "reference", "expected"),
    [
        ("the cat sat", "the cat sat", (100, 100, 100)),
        ("", "the cat sat", (0, 0, 0)),
        ("a b", "c d", (0, 0, 0)),
        # Lin 2004, section 3.1: S1 is the reference, S2 and S3 are candidates, with the subsequences of 3 and 2 words.
        ("police kill the gunman", "police killed the gunman", (75, 100 / 3, 75)),
        ("the gunman kill police", "police killed the gunman", (75, 100 / 3, 50)),
        # Words of 4 and 8: precision 3/4, recall 3/8; a word counts as often as both have it.
        ("a a b c", "a b d e f g h c", (50, 20, 50)),
    ],
)
def test_cases_by_hand(summary, reference, expected):
    assert rouge_scores([summary], [reference]) == pytest.approx(expected, abs=1e-3)


def test_rouge_is_the_mean_of_all_texts():
    found = rouge_scores(["a b", "x"], ["a b", "y"])
    assert found == pytest.approx((50, 50, 50))
    assert rouge_scores([], []) == (0, 0, 0)
    with pytest.raises(ArgumentError, match="2 summaries and 1"):
        rouge_scores(["a", "b"], ["a"])


def test_words_are_letters_and_digits_of_every_script():
    assert rouge_words("The U.S. didn't pay 1,234.5 _x_!") == [
        "the",
        "u",
        "s",
        "didn",
        "t",
        "pay",
        "1",
        "234",
        "5",
        "x",
    ]
    assert rouge_words("Älter als Ωmega") == ["älter", "als", "ωmega"]
    assert rouge_words("猫は好き") == ["猫", "は", "好", "き"]
    assert rouge_scores(["ÄLTER"], ["älter"]).rouge_1 == 100


@given(st.text(st.characters(max_codepoint=127), max_size=40))
def test_the_words_of_ascii_texts_are_those_of_rouge_score(text):
    """rouge-score 0.1.2 lower-cases a text, takes all but a–z and 0–9 for spaces, and splits at them."""
    assert rouge_words(text) == re.findall("[a-z0-9]+", text.lower())


def test_letters_that_are_not_ascii_are_letters():
    """rouge-score 0.1.2 has the words na and ve for the first, mega for the second, and none for the last."""
    for word in ("naïve", "ωmega", "ночь"):
        assert rouge_words(word) == [word]


def test_new_runs_of_words():
    assert novel_share(["a b c", "d"], ["a b x c", "d"], 1) == 0
    assert novel_share(["a b c", "d"], ["a b x c", "e"], 1) == 1 / 4
    assert novel_share(["a b c"], ["a b x c"], 2) == 1 / 2
    assert novel_share(["a"], ["a"], 3) == 0


def test_repeated_runs_of_words():
    assert repeated_share(["a b c a b c"], 3) == 1 / 4  # abc bca cab abc
    assert repeated_share(["a b c", "a b c"], 3) == 0
    assert repeated_share([""], 3) == 0


def test_spans_are_found_whole_with_their_case_and_in_order():
    spans = [["Ada Byron", "42"]]
    assert spans_exact(["Ada Byron wins 42."], spans) == (2, 2)
    assert spans_exact(["42 for Ada Byron"], spans) == (1, 2)
    assert spans_exact(["Ada wins 42"], spans) == (1, 2)
    assert spans_exact(["ada byron wins 421"], spans) == (0, 2)
    assert spans_exact(["x", "42 42"], [[], ["42", "42", "42"]]) == (2, 3)
