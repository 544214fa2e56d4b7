"""The heat map of any matrix: what it accepts, and that each number is in its cell."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.pictures import Panel, alignment, calculation, confusion_matrix, heatmap, image_overlays, segments
from regard.pictures.numbers import cell_number, short_number

STATES = [[3, 59, 1, 4], [12, 2, 43, 3], [45, 5, 1, 45.3]]


def cells(axes):
    """The texts in the cells, by (column, row)."""
    return {(round(text.get_position()[0]), round(text.get_position()[1])): text.get_text() for text in axes.texts}


@pytest.mark.parametrize(
    "convert",
    [
        lambda matrix: matrix,
        np.array,
        torch.tensor,
        lambda matrix: torch.tensor(matrix, requires_grad=True),
        lambda matrix: torch.tensor(matrix).double(),
        lambda matrix: [torch.tensor(row) for row in matrix],
        lambda matrix: tuple(torch.tensor(row).float().requires_grad_() for row in matrix),
    ],
)
def test_each_number_is_in_its_cell(convert):
    axes = heatmap(convert(STATES), columns=["I", "am", "a", "student"]).axes[0]
    assert cells(axes) == {(x, y): f"{number:g}" for y, row in enumerate(STATES) for x, number in enumerate(row)}
    assert [label.get_text() for label in axes.get_xticklabels()] == ["I", "am", "a", "student"]
    assert axes.images[0].get_array().shape == (3, 4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool])
def test_every_dtype_is_drawn(dtype):
    assert cells(heatmap(torch.tensor([[1, 0]]).to(dtype)).axes[0]) == {(0, 0): "1", (1, 0): "0"}


@pytest.mark.parametrize(
    ("labels", "shape"),
    [({}, (1, 3)), ({"columns": "abc"}, (1, 3)), ({"rows": ["x"], "columns": list("abc")}, (1, 3)),
     ({"rows": list("abc")}, (3, 1))],
)  # fmt: skip
def test_a_vector_is_a_row_or_a_column(labels, shape):
    labels = {name: list(label) for name, label in labels.items()}
    assert heatmap([5, 1, 20], **labels).axes[0].images[0].get_array().shape == shape


def test_numbers_are_written_as_in_the_viewer():
    """Its tests read the same file."""
    cases = json.loads((Path(__file__).parents[1] / "written_numbers.json").read_text(encoding="utf-8"))
    for write, named in ((short_number, cases["short"]), (cell_number, cases["cell"])):
        assert [write(number) for number, _ in named] == [text for _, text in named]
    assert [short_number(number) for number in (-np.inf, np.nan)] == ["−∞", "NaN"]


@pytest.mark.parametrize(
    ("row", "texts"),
    [([0.2, 0.16, 0.175], ["0.200", "0.160", "0.175"]), ([0.5, 0, 1], ["0.5", "0.0", "1.0"]),
     ([0.5, -0.25], ["0.50", "−0.25"]), ([1, 0], ["1", "0"]), ([0.5, 0.00012], ["0.5", "0.00012"])],
)  # fmt: skip
def test_numbers_up_to_one_have_equal_decimals(row, texts):
    assert list(cells(heatmap([row]).axes[0]).values()) == texts


def test_a_small_map_is_no_stamp_and_a_short_title_is_one_line():
    figure = heatmap([[0.9, 0.1], [0.25, 0.75]], title="layer 0, causal, mean of 4 heads")
    box = figure.axes[0].get_window_extent()
    assert min(box.width, 1.5 * box.height) >= 1.6 * figure.dpi
    assert [text.get_text() for text in figure.texts] == ["layer 0, causal, mean of 4 heads"]


def test_where_numbers_do_not_fit_there_is_a_scale():
    assert [axes.get_label() for axes in heatmap(np.eye(60)).axes] == ["heatmap", "scale"]
    assert [axes.get_label() for axes in heatmap(np.eye(3)).axes] == ["heatmap"]
    assert not heatmap(np.eye(3), values=False).axes[0].texts
    assert len(heatmap(np.eye(30), values=True).axes[0].texts) == 900


def test_the_scale_begins_at_zero_or_is_symmetric():
    def ends(*arguments, **options):
        norm = heatmap(*arguments, **options).axes[0].images[0].norm
        return norm.vmin, norm.vmax

    assert ends([[0.2, 0.8]]) == (0, 0.8)
    assert ends([[-3.0, 1.0]]) == (-3, 3)
    assert ends([[0.2, 0.8]], high=1) == (0, 1)
    assert ends([[0.2, 0.8]], low=0.1, high=1) == (0.1, 1)
    assert ends([[0.0]]) == (0, 1)


def test_axes_of_another_figure():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3))
    left, right = figure.subplots(1, 2)
    assert heatmap([[1, 2]], ax=left, title="left") is figure
    heatmap(np.eye(90), ax=right)
    assert left.get_title() == "left"
    assert len(left.texts) == 2
    assert not right.texts


def test_heatmaps_refuse_wrong_weights_and_labels():
    for weights, labels, error, message in (
        ([["a"]], {}, ArgumentError, "weights must hold real numbers"),
        ([[1], [2, 3]], {}, ShapeError, "different lengths"),
        (None, {}, ArgumentError, "weights is None; if these are readings"),
        (np.zeros((2, 2, 2)), {}, ShapeError, "1 or 2 axes"),
        (np.zeros((0, 2)), {}, ShapeError, "at least one number"),
        (np.eye(2), {"rows": ["a"]}, ShapeError, "rows must have 2 labels"),
        (np.eye(2), {"columns": "ab"}, KindError, "columns must be a list"),
        (np.eye(2), {"low": 1, "high": 0}, ArgumentError, "low < high"),
        (np.eye(2), {"color_map": "Purple"}, UnknownNameError, "Purples"),
    ):
        with pytest.raises(error, match=message):
            heatmap(weights, **labels)


def test_hostile_labels_and_integers_as_labels():
    axes = heatmap([[1, 2]], rows=[0], columns=["$x$", "a\nb"]).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0"]
    assert "\n" not in axes.get_xticklabels()[1].get_text()


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor, np.ndarray.tolist])
def test_other_pictures_take_tensors_arrays_and_lists(convert):
    matrix, image = np.eye(2), np.full((4, 6, 3), 7, np.uint8)
    for figure in (
        alignment(convert(matrix), "ab", "xy"),
        calculation([Panel("scores", convert(matrix))]),
        confusion_matrix(convert(matrix.astype(int)), ["a", "b"]),
        image_overlays(convert(image), convert(np.ones((1, 6))), ["a"], (2, 3)),
        segments(convert(image), convert(np.zeros((4, 6), int)), ["a"]),
    ):
        assert figure.axes
