import itertools

import numpy as np
import pytest
import torch

from regard.errors import ArgumentError, ShapeError, UnknownNameError
from regard.pictures import Panel, calculation
from regard.pictures.numbers import number_texts


def cells(axes):
    return [text.get_text() for text in axes.texts]


def names(figure):
    return [text.get_text() for text in figure.texts]


@pytest.mark.parametrize(
    ("row", "texts"),
    [
        ([927, 397, 148, 929], ["927", "397", "148", "929"]),
        ([3, 12, 45.3], ["3.0", "12.0", "45.3"]),
        ([0.1192029, 0.0, 1e-231, 0.880797], ["0.1192", "0.0000", "0.0000", "0.8808"]),
        ([-2.5, 0.0, float("-inf"), float("inf"), float("nan")], ["−2.5", "0.0", "−∞", "∞", "NaN"]),
        ([1.5e-7, 2e-6], ["1.50e−7", "2.00e−6"]),
        ([123.456789, 1.0], ["123.46", "1.00"]),
        ([2.5e12, 1.0], ["2.50e12", "1.00e0"]),
        ([3_000_000.0, 1.0], ["3000000", "1"]),
        ([0.0, -0.0], ["0", "0"]),
        ([0.0, -0.41], ["0.00", "−0.41"]),
        ([-1e-9, 0.5], ["0.0000", "0.5000"]),
        ([2.5e12, 0.0], ["2.50e12", "0.00e0"]),
        ([3.0, 1e-9], ["3.0000", "0.0000"]),
        ([float("-inf")] * 2, ["−∞", "−∞"]),
    ],
)
def test_numbers_are_written_as_short_as_they_are_exact(row, texts):
    assert number_texts(np.array([row], dtype=np.float64)) == [texts]


def test_float32_numbers_are_not_written_with_their_dust():
    assert number_texts(torch.tensor([[0.1, 45.3]]).double().numpy()) == [["0.1", "45.3"]]


def test_panels_stand_in_order_with_numbers_labels_and_notes():
    figure = calculation(
        [
            Panel("query", [5, 1, 20], ["state"]),
            Panel("key", torch.tensor([[3, 12, 45], [59, 2, 5]]), ["h1", "h2"], ["x", "y", "z"], "annotations"),
            Panel("weights", [[0.5, 0.25, 0.25]], kind="weights"),
            Panel("values", [[1, -2.5]], kind="table"),
        ],
        title="A calculation",
    )
    assert names(figure) == [
        *("1  query", "", "2  key", "annotations", "3  weights", "", "4  values", ""),
        "A calculation",
    ]
    assert [axes.get_label() for axes in figure.axes] == ["query", "key", "weights", "values"]
    assert cells(figure.axes[0]) == ["5", "1", "20"]
    assert cells(figure.axes[1]) == ["3", "12", "45", "59", "2", "5"]
    assert cells(figure.axes[3]) == ["1.0", "−2.5"]
    assert [tick.get_text() for tick in figure.axes[1].get_yticklabels()] == ["h1", "h2"]
    assert [tick.get_text() for tick in figure.axes[1].get_xticklabels()] == ["x", "y", "z"]
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array(), [[5, 1, 20]])


def test_panels_flow_to_the_right_and_then_down_without_overlap():
    figure = calculation([Panel(f"step {i}", np.random.default_rng(i).normal(size=(3, 7)), note="n") for i in range(7)])
    figure.canvas.draw()
    boxes = [axes.get_window_extent() for axes in figure.axes]
    assert all(not a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    for one, following in itertools.pairwise(boxes):
        assert following.x0 > one.x1 or following.y1 < one.y0
    assert len({round(box.y1) for box in boxes}) > 1
    names_and_notes = [text.get_window_extent() for text in figure.texts if text.get_text()]
    assert all(not a.overlaps(b) for i, a in enumerate(names_and_notes) for b in (*names_and_notes[:i], *boxes))


def test_text_contrasts_with_its_cell():
    figure = calculation([Panel("w", [[0.0, 0.4, 0.5, 1.0]], kind="weights")])
    assert [text.get_color() for text in figure.axes[0].texts] == ["black", "black", "black", "white"]
    table = calculation([Panel("t", [[-4.0, 9.0]], kind="table")]).axes[0]
    image = table.images[0]
    assert (image.cmap(image.norm(image.get_array()))[..., :3] == 1).all()


def forms(panel):
    """The boxes of cells that are hatched or crossed, by their hatch: (left, top), (right, bottom)."""
    boxes = {}
    for collection in calculation([panel]).axes[0].collections:
        if collection.get_hatch():
            corners = [path.vertices for path in collection.get_paths()]
            boxes[collection.get_hatch()] = [(tuple(each.min(0)), tuple(each.max(0))) for each in corners]
    return boxes


def test_zero_is_blank_what_is_masked_hatched_and_nan_crossed():
    image = calculation([Panel("masked", [[1.0, -np.inf], [-np.inf, -np.inf]])]).axes[0].images[0]
    assert image.get_array().mask.tolist() == [[False, True], [True, True]]
    assert (image.to_rgba(image.get_array())[0, 1] == 1).all()
    hatched, crossed = (forms(Panel("x", [[1.0, hole, 0.0], [hole, hole, 2.0]])) for hole in (-np.inf, np.nan))
    assert hatched.keys() == {"//////"}
    assert crossed.keys() == {"xxxxxx"}
    for found in (*hatched.values(), *crossed.values()):
        assert found == [((0.5, -0.5), (1.5, 0.5)), ((-0.5, 0.5), (1.5, 1.5))]


@pytest.mark.parametrize("shape", [(3, 25), (49, 2)])
def test_large_matrices_say_that_their_numbers_are_not_written(shape):
    matrix = np.linspace(-1, 2, shape[0] * shape[1]).reshape(shape)
    figure = calculation([Panel("big", matrix, note="equation")])
    assert not cells(figure.axes[0])
    assert names(figure)[1] == f"equation\n{shape[0]} × {shape[1]}, too many to write the numbers; from −1 to 2"


@pytest.mark.parametrize(
    ("matrix", "kind", "ends"),
    [
        (np.linspace(-1, 2, 75).reshape(3, 25), "heatmap", (-2, 2)),
        (np.linspace(0, 2, 75).reshape(3, 25), "heatmap", (0, 2)),
        (np.linspace(0, 0.1, 75).reshape(3, 25), "weights", (0, 0.16)),
        (np.linspace(0, 0.9, 75).reshape(3, 25), "weights", (0, 0.9)),
        (np.zeros((3, 25)), "weights", (0, 0.16)),
        (np.where(np.eye(49), 1.0, -np.inf), "heatmap", (0, 1)),
    ],
)
def test_colours_without_numbers_have_a_scale(matrix, kind, ends):
    figure = calculation([Panel("scores", [1, 2]), Panel("big", matrix, kind=kind), Panel("t", matrix, kind="table")])
    labels = [axes.get_label() for axes in figure.axes]
    assert labels == ["scores", "big", "scale of big", "t"]
    panel, scale = figure.axes[1:3]
    image = panel.images[0]
    assert (image.norm.vmin, image.norm.vmax) == pytest.approx(ends)
    assert scale.get_ylim() == pytest.approx(ends)
    figure.canvas.draw()
    cells, bar, table = (axes.get_window_extent() for axes in figure.axes[1:])
    assert cells.x1 < bar.x0
    assert bar.x1 < table.x0 or table.y1 < bar.y0
    assert bar.height >= 0.7 * figure.dpi


def test_nothing_finite_needs_no_scale():
    figure = calculation([Panel("masked", np.full((3, 25), -np.inf))])
    assert len(figure.axes) == 1
    assert names(figure)[1] == "3 × 25, too many to write the numbers; none is finite\nhatched: masked"


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)])
def test_empty_matrices_say_so(shape):
    figure = calculation([Panel("nothing", np.zeros(shape))])
    assert names(figure)[1].startswith("empty: ")
    figure.canvas.draw()


def test_single_and_fully_masked():
    figure = calculation([Panel("one", [7.0]), Panel("masked", [[-np.inf] * 3], ["q"], ["a", "b", "c"])])
    assert cells(figure.axes[0]) == ["7"]
    assert cells(figure.axes[1]) == ["−∞"] * 3
    figure.canvas.draw()


def test_pictures_of_calculations_refuse_wrong_panels():
    with pytest.raises(ArgumentError, match="at least one panel"):
        calculation([])
    with pytest.raises(ShapeError, match=r"panel 2 \('key'\) must have one row label for each of its 2 rows; it has 3"):
        calculation([Panel("query", [1]), Panel("key", [[1], [2]], ["a", "b", "c"])])
    with pytest.raises(ShapeError, match="column label"):
        calculation([Panel("key", [[1, 2]], None, ["a"])])
    with pytest.raises(ShapeError, match=r"panel 1 \('key'\) must have 1 or 2 axes"):
        calculation([Panel("key", np.zeros((2, 3, 5)))])
    with pytest.raises(UnknownNameError, match="did you mean 'heatmap'"):
        calculation([Panel("key", [1], kind="heatmaps")])  # pyright: ignore[reportArgumentType]
