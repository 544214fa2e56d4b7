"""Numbers of things in messages."""

import pytest

from regard.names.counted import counted


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "batch", "1 batch"),
        (2, "batch", "2 batches"),
        (0, "record", "0 records"),
        (1200, "pair", "1,200 pairs"),
        (2, "entry", "2 entries"),
    ],
)
def test_a_noun_follows_its_number(number, noun, text):
    assert counted(number, noun) == text
    assert counted(number, noun, " an epoch") == f"{text} an epoch"
