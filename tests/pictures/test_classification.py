"""Pictures of classifiers: every number and every word is drawn, at its place."""

import pytest

from regard.errors import ShapeError
from regard.pictures import confusion_matrix, save, word_weights


def texts_of(figure):
    return [text.get_text() for text in [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]]


def test_a_confusion_matrix_has_true_rows_and_found_columns(tmp_path):
    figure = confusion_matrix([[5, 1200], [0, 7]], ["no", "yes"], title="test")
    (axes,) = figure.axes
    cells = {text.get_text(): text.get_position() for text in axes.texts}
    assert cells["1,200"] == (1, 0)  # x: found, y: true
    assert cells["7"] == (1, 1)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["no", "yes"]
    assert {"true", "found", "test"} <= set(texts_of(figure))
    assert save(figure, tmp_path / "matrix.png").stat().st_size > 1000


def test_many_classes_and_none(tmp_path):
    size = 60
    figure = confusion_matrix([[1] * size] * size, [f"class {number}" for number in range(size)])
    assert not figure.axes[0].texts
    save(figure, tmp_path / "large.png")
    for counts, labels in (([[1]], ["a", "b"]), ([[1, 2]], ["a"]), ([], [])):
        with pytest.raises(ShapeError):
            confusion_matrix(counts, labels)


def test_each_weight_stands_below_its_word(tmp_path):
    words = ["This", "is", "bad"] * 30
    weights = [[0.0] * 89 + [0.25], [0.5] + [0.0] * 89]
    figure = word_weights(words, weights, title="negative 0.900")
    drawn = texts_of(figure)
    assert drawn.count("bad") == 30
    assert {"negative 0.900", ".25", ".50", "head 0", "head 1"} <= set(drawn)
    width, height = figure.get_size_inches()
    assert width <= 9.2
    assert height > 2  # several lines
    axes = figure.axes[0]
    (last,) = [text for text in axes.texts if text.get_text() == ".25"]
    word = [text for text in figure.texts if text.get_text() == "bad"][-1]
    assert last.get_position()[0] == pytest.approx(word.get_position()[0] * width, abs=1e-6)
    assert last.get_position()[1] > (1 - word.get_position()[1]) * height
    save(figure, tmp_path / "words.png")


@pytest.mark.parametrize("weights", [[[0.1]], [[0.1, float("nan"), 0.2]]])
def test_word_weights_refuse_weights_that_do_not_fit(weights):
    with pytest.raises(ShapeError):
        word_weights(["a", "b"], weights)
