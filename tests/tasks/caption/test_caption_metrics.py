"""Metrics of captions against hand-made values, and pointing accuracy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.images.image_rows import NamedObject
from regard.errors import ArgumentError
from regard.tasks.outputs.text_metrics import caption_scores, cider_limit, plain_words
from regard.tasks.pointing import AttendedCaption, names_said, pointing


def test_bleu_of_orders_by_hand():
    # 1-grams: 4 of 5 (one "the" too many); 2-grams: 2 of 4; the nearest length of a true caption is 5.
    found = caption_scores(["the dog the dog runs", "x y"], [["The dog runs the race.", "a"], ["x y"]])
    one, two = (4 + 2) / 7, (2 + 1) / 5
    assert found.bleu[0] == pytest.approx(100 * one)
    assert found.bleu[1] == pytest.approx(100 * math.sqrt(one * two))
    # "the dog runs" is the one 3-gram of three, and no 4-gram is right.
    assert found.bleu[2] == pytest.approx(100 * (one * two / 3) ** (1 / 3))
    assert found.bleu[3] == 0


def test_a_true_caption_is_perfect_and_several_are_allowed():
    references = [
        ["a red dog runs on the grass", "a dog"],
        ["two men sit on a long bench"],
        ["the sea", "a blue sea at night"],
    ]
    found = caption_scores([texts[-1] for texts in references], references)
    assert found.bleu[0] == pytest.approx(100)
    captions = ["A red dog runs on the grass!", "two men sit on a long bench", "a blue sea at night"]
    found = caption_scores(captions, references)
    assert found.bleu == pytest.approx((100, 100, 100, 100))
    worse = caption_scores(["a red sea", *captions[1:]], references)
    assert worse.cider < found.cider
    assert worse.bleu[3] < 100


def test_short_captions_pay_the_brevity_penalty():
    found = caption_scores(["a dog"], [["a dog runs here"]])
    assert found.bleu[0] == pytest.approx(100 * math.exp(1 - 4 / 2))


@pytest.mark.parametrize(
    ("captions", "limit", "order"),
    [
        (["a dog", "two men"], 5, 2),
        (["dog", "sea"], 2.5, 1),
        (["a dog runs here", "two men"], 7.5, 4),
        (["a dog runs", "two men sit"], 7.5, 3),
        (["a dog runs", "a cat sits"], 7.5, 3),
        (["a dog", "a dog"], 0, 2),  # n-grams of every image count nothing
        (["a dog runs on the grass"], 0, 4),  # as those of one image do
        (["a dog runs on the grass", "two men sit on a bench"], 10, 4),
        (["a", "a dog"], 2.5, 2),  # all images have "a"; half of them have a 1-gram and a 2-gram of their own
    ],
)
def test_the_limits_of_captions_that_are_short_or_alike(captions, limit, order):
    """The right captions have the largest CIDEr-D that pycocoevalcap 1.2 can give, which is less than 10."""
    references = [[text] for text in captions]
    found = caption_scores(captions, references)
    assert found.cider == pytest.approx(found.cider_limit)
    assert found.cider_limit == pytest.approx(limit)
    assert found.bleu == pytest.approx((100, 100, 100, 100))
    assert found.bleu_order == order
    assert ("ngram" in found.signature) == (order < 4)


WORDS = st.lists(st.sampled_from("abc"), min_size=1, max_size=5).map(" ".join)


@given(st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=3)), min_size=1, max_size=4))
def test_no_caption_exceeds_the_limit_of_cider(images):
    captions, references = [one for one, _ in images], [texts for _, texts in images]
    found = caption_scores(captions, references)
    assert found.cider <= found.cider_limit + 1e-9
    assert found.cider_limit == cider_limit(references) <= 10
    own = caption_scores([texts[0] for texts in references], [texts[:1] for texts in references])
    assert own.cider == pytest.approx(own.cider_limit)


def test_bad_input_and_nothing():
    assert caption_scores([], []).bleu == (0, 0, 0, 0)
    with pytest.raises(ArgumentError, match="1 captions and true captions of 2 images"):
        caption_scores(["a"], [["a"], ["b"]])
    with pytest.raises(ArgumentError, match="each image must have a true caption"):
        caption_scores(["a"], [[]])
    assert plain_words("It's A well-known  dog, , 3rd.") == "it's a well-known dog 3rd"


def test_the_longest_name_counts_and_once():
    known = {("red", "circle"), ("circle",), ("sky",)}
    words = ["a", "Red", "circle", ",", "circle", "red", ",", "circle", "sky"]
    assert list(names_said(words, known)) == [(("red", "circle"), 2), (("circle",), 4), (("circle",), 7), (("sky",), 8)]


def caption(words, weights):
    return AttendedCaption(words, np.array(weights, float), (2, 2), (0, 0, 40, 40))


def test_pointing_by_hand():
    """Four names: one hit, one miss, one of something that is not there, one hit through the second box."""
    left_top, right_bottom = (0, 0, 20, 20), (20, 20, 40, 40)
    captions = [
        caption(
            ["a", "red", "circle", "blue", "ring"],
            [[0] * 4, [0] * 4, [0.5, 0.2, 0.2, 0.1], [0] * 4, [0.7, 0.1, 0.1, 0.1]],
        ),
        caption(["red", "circle", "ring"], [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0.4, 0.6]]),
    ]
    objects = [
        [NamedObject("red circle", left_top), NamedObject("blue ring", right_bottom)],
        [NamedObject("ring", left_top), NamedObject("ring", right_bottom)],
    ]
    found = pointing(captions, objects)
    assert found.names == 4
    assert found.shown == 3 / 4
    assert found.accuracy == 2 / 4
    assert found.chance == pytest.approx((0.25 + 0.25 + 0.5) / 3)
    assert found.weight == pytest.approx((0.5 + 0.1 + 0.6) / 3)
    assert pointing(captions[:0], []) is None
    assert pointing([caption(["no"], [[1, 0, 0, 0]])], [objects[0]]) is None
