import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.text.words import split_words, word_spans


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \t\n", []),
        ("The boy's dog.", ["The", "boy's", "dog", "."]),
        ("¿Dónde está?", ["¿", "Dónde", "está", "?"]),
        ("'quoted' l’homme", ["'", "quoted", "'", "l’homme"]),
        ("the boys' dog", ["the", "boys", "'", "dog"]),
        ("12 apples, 3.5 kg", ["12", "apples", ",", "3", ".", "5", "kg"]),
        ("我喜欢 茶。", ["我", "喜", "欢", "茶", "。"]),
        ("كيف حالك؟", ["كيف", "حالك", "؟"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
        ("ที่นี่", ["ที่", "นี่"]),
    ],
)
def test_words_of_a_text(text, words):
    assert split_words(text) == words


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_words_cover_everything_but_spaces_in_order(text):
    spans = word_spans(text)
    covered = [position for span in spans for position in span]
    assert covered == sorted(covered)
    left_out = set(range(len(text))) - set(covered)
    assert all(text[position].isspace() for position in left_out)
    assert all(not character.isspace() for word in split_words(text) for character in word)
