import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import ArgumentError, ShapeError, UnknownNameError
from regard.pictures import Caption, alignment, merge

SOURCE = ["the", "un", "believ", "able", "house"]
TARGET = ["la", "casa", "increíble"]


def weights(target=3, source=5, seed=0):
    raw = np.random.default_rng(seed).random((target, source)) + 0.01
    return raw / raw.sum(1, keepdims=True)


def labels(figure, axis):
    axes = figure.axes[0]
    ticks = axes.get_xticklabels() if axis == "source" else axes.get_yticklabels()
    return [tick.get_text() for tick in ticks]


@st.composite
def cuts(draw, length):
    inner = draw(st.sets(st.integers(1, length - 1), max_size=length - 1)) if length > 1 else set()
    edges = [0, *sorted(inner), length]
    return [range(a, b) for a, b in itertools.pairwise(edges)]


@settings(deadline=None, max_examples=40)
@given(st.data(), st.integers(1, 7), st.integers(1, 11))
def test_merging_keeps_sums_of_rows_and_equals_the_definition(data, target, source):
    matrix = weights(target, source)
    rows, columns = data.draw(cuts(target)), data.draw(cuts(source))
    merged = merge(matrix, rows, columns)
    np.testing.assert_allclose(merged.sum(1), 1.0, rtol=1e-12)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            expected = np.mean([sum(matrix[t, s] for s in column) for t in row])
            assert merged[i, j] == pytest.approx(expected)
    # Source first, target first: the same.
    np.testing.assert_allclose(merge(merge(matrix, rows), None, columns), merged)


def test_merging_ones_changes_nothing_and_empty_stays_empty():
    matrix = weights()
    ones = [range(i, i + 1) for i in range(5)]
    np.testing.assert_array_equal(merge(matrix, ones[:3], ones), matrix)
    np.testing.assert_array_equal(merge(matrix), matrix)
    assert merge(np.zeros((0, 5)), [], [range(5)]).shape == (0, 1)
    assert merge(np.zeros((3, 0)), [range(3)], []).shape == (1, 0)


@pytest.mark.parametrize(
    "columns",
    [
        [range(2)],
        [range(3), range(2, 5)],
        [range(2), range(3, 5)],
        [range(0), range(5)],
        [range(6)],
        [range(0, 5, 2)],
        [],
    ],
)
def test_groups_that_are_no_partition(columns):
    with pytest.raises(ArgumentError, match="columns must be ranges"):
        merge(weights(), None, columns)


def test_source_on_x_above_target_on_y_downwards_dark_for_more():
    matrix = weights()
    figure = alignment(matrix, SOURCE, TARGET)
    axes, bar = figure.axes
    assert labels(figure, "source") == SOURCE
    assert labels(figure, "target") == TARGET
    figure.canvas.draw()
    assert axes.xaxis.get_ticks_position() == "top"
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    image = axes.images[0]
    np.testing.assert_array_equal(image.get_array(), matrix)
    brightness = [sum(image.cmap(image.norm(share))[:3]) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert brightness == sorted(brightness, reverse=True)
    assert brightness[0] > 2.8
    assert brightness[-1] < 0.6
    assert bar.get_label() == "weight"


def test_cells_are_square_and_labels_do_not_stand_on_each_other():
    for target, source in ((1, 1), (3, 5), (45, 40), (60, 60), (2, 300)):
        figure = alignment(weights(target, source), [f"token{i}" for i in range(source)], ["Wort"] * target)
        figure.canvas.draw()
        box = figure.axes[0].get_window_extent()
        if (target, source) == (2, 300):  # a few rows of many columns stay high enough for their labels
            assert box.height / target > box.width / source
        else:
            assert box.width / source == pytest.approx(box.height / target, rel=0.02)
        above = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
        assert all(a.x1 <= b.x0 + 1 for a, b in itertools.pairwise(above))


def test_tensors_of_any_kind():
    given = torch.tensor([[0.25, 0.75]], dtype=torch.bfloat16, requires_grad=True)
    np.testing.assert_array_equal(alignment(given, "ab", "x").axes[0].images[0].get_array(), [[0.25, 0.75]])


def test_words_from_sub_words():
    groups = [range(1), range(1, 4), range(4, 5)]
    marked = ["▁the", "▁un", "believ", "able", "▁house"]
    for tokens in (["the", "un", "·believ", "·able", "house"], ["the", "␣", "·unbeliev", "·able", "house"]):
        figure = alignment(weights(), tokens, TARGET, source_groups=groups)
        assert labels(figure, "source") == ["the", "unbelievable", "house"]
    for tokens in (marked, ["Ġthe", "Ġun", "believ", "able", "Ġhouse"], ["the", "un@@", "believ@@", "able", "house"]):
        figure = alignment(weights(), tokens, TARGET, source_groups=groups)
        assert labels(figure, "source") == ["the", "unbelievable", "house"]
    figure = alignment(
        weights(), ["A", "B", "C"], ["ca", "##sa", "x"], source_groups=groups, target_groups=[range(2), range(2, 3)]
    )
    assert labels(figure, "source") == ["A", "B", "C"]
    assert labels(figure, "target") == ["casa", "x"]
    expected = merge(weights(), [range(2), range(2, 3)], groups)
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array(), expected)
    with pytest.raises(ShapeError, match="each of the 3 groups; it has 4"):
        alignment(weights(), list("abcd"), TARGET, source_groups=groups)
    with pytest.raises(ArgumentError, match="source_groups"):
        alignment(weights(), marked, TARGET, source_groups=groups[:2])


def test_links_are_marked_where_they_are():
    figure = alignment(weights(), SOURCE, TARGET, links=[(4, 1), (0, 0), (4, 1)])
    (squares,) = figure.axes[0].collections[-1:]
    np.testing.assert_array_equal(squares.get_offsets(), [[0, 0], [4, 1]])
    assert len(squares.get_facecolors()) == 0
    for wrong in ((5, 0), (0, 3), (-1, 0)):
        with pytest.raises(ArgumentError, match=r"source < 5 and target < 3"):
            alignment(weights(), SOURCE, TARGET, links=[wrong])


def test_numbers_on_demand_and_no_bar_on_demand():
    figure = alignment([[0.254, 0.0, -0.746, 1.0]], "abcd", "x", annotate=True, color_bar=False)
    assert [text.get_text() for text in figure.axes[0].texts] == [".25", "", "−.75", "1"]
    assert len(figure.axes) == 1


def test_the_scale_reaches_every_weight():
    def top(matrix, **options):
        return alignment(matrix, "ab", "x", **options).axes[0].images[0].norm.vmax

    assert top([[0.2, 0.4]]) == 1.0
    assert top([[0.2, 0.4]], maximum=None) == 0.5
    assert top([[0.2, 1.6]]) == 2.0
    assert top([[0.0, 0.0]], maximum=None) == 1.0
    signed = alignment([[-0.5, 0.4]], "ab", "x").axes[0].images[0]
    assert (signed.norm.vmin, signed.norm.vmax) == (-1.0, 1.0)  # 0 is in the middle
    assert signed.cmap.name == "sign"


def test_alignments_refuse_wrong_weights():
    with pytest.raises(ShapeError, match=r"one column for each source token; source_tokens has 4 .* 5 columns"):
        alignment(weights(), SOURCE[:4], TARGET)
    with pytest.raises(ShapeError, match="target_tokens has 5"):
        alignment(weights(5, 3).T, SOURCE, SOURCE)
    with pytest.raises(ShapeError, match="must have 2 axes"):
        alignment(weights()[None], SOURCE, TARGET)
    with pytest.raises(ShapeError, match="different lengths"):
        alignment([[0.1], [0.2, 0.3]], SOURCE, TARGET)
    with pytest.raises(ArgumentError, match="weights must hold real numbers"):
        alignment([["a", "b"]], "ab", "x")
    with pytest.raises(UnknownNameError, match="did you mean 'viridis'"):
        alignment(weights(), SOURCE, TARGET, color_map="virids")


def test_masked_and_missing_weights_differ_in_form_and_the_legend_names_them():
    matrix = weights()
    matrix[2, 3], matrix[0, 1] = np.nan, -np.inf
    figure = alignment(matrix, SOURCE, TARGET)
    assert {shape.get_hatch()[0] for shape in figure.axes[0].collections if shape.get_hatch()} == {"/", "x"}
    bar = figure.axes[1]
    assert [text.get_text() for text in bar.get_legend().get_texts()] == ["masked", "NaN"]


def test_a_word_is_masked_where_all_of_its_pieces_are():
    matrix = np.array([[0.5, -np.inf, -np.inf], [0.2, 0.8, -np.inf]])
    figure = alignment(matrix, ["a", "b", "·c"], ["x", "y"], source_groups=[range(1), range(1, 3)], annotate=True)
    assert [text.get_text() for text in figure.axes[0].texts] == [".50", "", ".20", ".80"]


def test_the_row_that_asks_and_its_cell_are_outlined_and_have_bars():
    caption = Caption("a model", "“casa” gives 40 % to “able”.", "casa → able 0.40")
    figure = alignment(weights(), SOURCE, TARGET, title=caption, marked=(1, 3))
    axes, bars, bar = figure.axes
    boxes = {box.get_label(): (box.get_xy(), box.get_width()) for box in axes.patches}
    assert (boxes["row"], boxes["cell"]) == (((-0.5, 0.5), 5), ((2.5, 0.5), 1))
    order = np.argsort(-weights()[1])[:4]
    named = [text.get_text() for text in bars.texts]
    assert [text for text in named if text in SOURCE] == [SOURCE[key] for key in order]
    assert bar.get_label() == "weight"
    written = [text.get_text() for text in figure.texts]
    assert written[:2] == ["each row asks ↓", "each column is looked at →"]
    assert written[2:] == list(caption[:3])
    assert [text.get_fontsize() for text in figure.texts[2:]] == pytest.approx([8, 9 * 16 / 13, 9], rel=0.02)
    assert axes.get_xticklabels()[3].get_fontweight() == axes.get_yticklabels()[1].get_fontweight() == "bold"


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_empty_sentences_are_drawn_as_such(shape):
    figure = alignment(np.zeros(shape), SOURCE[: shape[1]], TARGET[: shape[0]])
    assert [text.get_text() for text in figure.axes[0].texts] == ["no tokens"]
    figure.canvas.draw()


@pytest.mark.parametrize("shape", [(14, 14), (7, 7), (5, 9), (1, 9), (4, 4), (60, 60)])
def test_the_texts_of_a_sheet_stay_on_it_and_a_sentence_is_one_column(shape):
    from matplotlib.text import Text

    rows, columns = shape
    keys = ["internationalization", *(f"word{number}" for number in range(1, columns))]
    said = f"“x” → {' · '.join(f'{key} 0.12' for key in keys[:4])} · 9 more 0.40 \u2003 an equal share is 0.10 (1 of 9)"
    caption = Caption("a model · layer 1", "“x” gives 40 % of its attention to “word1”.", said, "a note " * 12)
    figure = alignment(weights(*shape), keys, ["Wort"] * rows, title=caption, marked=(0, 0))
    figure.canvas.draw()
    sheet = figure.bbox
    for text in figure.findobj(Text):
        box = text.get_window_extent()
        assert not text.get_text() or not text.get_visible() or (sheet.x0 <= box.x0 and box.x1 <= sheet.x1 + 1)
    assert max(shape) > 14 or figure.get_figwidth() <= 5
    title, statements, notes = (
        next(t for t in figure.texts if t.get_text().startswith(s)) for s in ("a mo", "“x” →", "a note")
    )
    assert len({text.get_window_extent().x0.round() for text in (title, statements, notes)}) == 1
    assert statements.get_text().split("\n")[-1].endswith("an equal share is 0.10 (1 of 9)")


def test_bars_of_a_difference_are_those_of_both_sides_and_bars_of_an_even_share_stop_above_the_sum():
    one, other = np.array([0.6, 0.1, 0.2, 0.1, 0, 0]), np.array([0.1, 0.4, -np.inf, 0.2, 0.04, 0.26])
    caption = Caption(bars=(("head a", one), ("head b", other)), even=(None, None))
    values = one - np.where(np.isneginf(other), 0, other)
    bars = alignment(values[None], "abcdef", "x", title=caption, maximum=None, marked=(0, 4)).axes[1]
    texts = [text.get_text() for text in bars.texts]
    assert [text for text in texts if text in [*"abcdef"]] == [*"abfe"]  # the marked one, too
    weights = [0.6, 0.1, 0.1, 0.4, 0, 0.26, 0, 0.04]
    wide = np.array([bar.get_width() for bar in bars.patches if abs(bar.get_height() - 0.48) < 1e-6])
    np.testing.assert_allclose(wide / wide.max(), np.array(weights) / 0.6)
    assert texts.count("0") == 2
    assert {"“x” looks at", "head a", "head b", "0.60", "0.26", "0.04 − 0 = 0.04"} <= {*texts}
    bars = alignment(values[None], "abcdef", "x", title=caption, maximum=None, marked=(0, 2)).axes[1]
    assert {"masked", "0.20 − 0 = 0.20"} <= {text.get_text() for text in bars.texts}
    shares = alignment([[0.4, 0.3, 0.1, 0.1, 0.06, 0.04]], "abcdef", "x", marked=(0, 0)).axes[1]
    assert max(shares.lines[0].get_ydata()) < shares.patches[-1].get_y()
