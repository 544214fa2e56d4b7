"""The bundled reviews: the deciding words decide, and nothing else does."""

from collections import Counter, defaultdict

import pytest

from regard.data.text.reviews import BAD_ADJECTIVES, GOOD_ADJECTIVES, LABELS, NEGATIONS, generate_reviews, write_reviews
from regard.data.text.sources import open_labelled
from regard.data.text.words import split_words
from regard.errors import ArgumentError

REVIEWS = list(generate_reviews(2000, 5))


def test_the_deciding_words_decide():
    negations = {" ".join(negation) for negation in NEGATIONS}
    for review in REVIEWS:
        words = split_words(review.text)
        *negation, adjective = [words[position] for position in review.deciding]
        assert adjective in GOOD_ADJECTIVES + BAD_ADJECTIVES
        assert not negation or " ".join(negation) in negations
        assert review.label == LABELS[(adjective in GOOD_ADJECTIVES) != bool(negation)]


def test_no_word_alone_tells_the_label():
    labels = defaultdict(Counter)
    for review in REVIEWS:
        for word in set(split_words(review.text.lower())):
            labels[word][review.label] += 1
    for word, counts in labels.items():
        if counts.total() > 40:
            assert max(counts.values()) / counts.total() < 0.9, word


def test_both_labels_are_equally_frequent():
    counts = Counter(review.label for review in REVIEWS)
    assert abs(counts["positive"] - counts["negative"]) < 200


def test_a_review_does_not_depend_on_the_first_one():
    assert list(generate_reviews(5, 5, start=100)) == REVIEWS[100:105]
    assert list(generate_reviews(5, 6)) != REVIEWS[:5]
    with pytest.raises(ArgumentError, match="size and start"):
        generate_reviews(-1, 5)


def test_no_text_is_in_two_parts(tmp_path):
    files = write_reviews(tmp_path, {"train": 3000, "validation": 200, "test": 200}, 1)
    texts = {part: open_labelled(path)["source"][:] for part, path in files.items()}
    assert [len(texts[part]) for part in ("train", "validation", "test")] == [3000, 200, 200]
    assert len(set(texts["validation"]) | set(texts["test"])) == 400
    assert not set(texts["train"]) & (set(texts["validation"]) | set(texts["test"]))
    again = write_reviews(tmp_path / "again", {"test": 200, "validation": 200}, 1)
    assert again["test"].read_bytes() == files["test"].read_bytes()
