"""Overlays: exactly where the cell is, for any grid, box and size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ArgumentError, KindError, ShapeError
from regard.pictures import image_overlays, overlay
from regard.pictures.image_overlay import DARKEST_FACTOR, spread


def test_a_planted_object_is_bright_and_the_rest_dark():
    """A grid of 3 × 5 over an image of 42 × 70: cell (2, 1) covers the rows 28 to 41 and the columns 14 to 27."""
    image = np.full((42, 70, 3), 200, np.uint8)
    weights = np.zeros(15)
    weights[2 * 5 + 1] = 0.7
    found = overlay(image, weights, 3, 5)[:, :, 0]
    rows, columns = np.nonzero(found > 200 * (DARKEST_FACTOR + 0.5 * (1 - DARKEST_FACTOR)) - 1)
    assert (rows.min(), rows.max()) == (28, 41)
    assert (columns.min(), columns.max()) == (14, 27)
    assert found[:14].max() == round(200 * DARKEST_FACTOR)
    assert found[:, 35:].max() == round(200 * DARKEST_FACTOR)
    assert found.max() >= 200 * 0.9


@given(
    rows=st.integers(1, 7),
    columns=st.integers(1, 7),
    cell=st.tuples(st.sampled_from([3, 5, 7]), st.sampled_from([3, 5, 7])),
    corner=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    data=st.data(),
)
def test_the_middle_pixel_of_a_cell_has_its_weight(rows, columns, cell, corner, data):
    """Cells of odd sides have a middle pixel; the grid may cover any part of the image."""
    weights = np.array(data.draw(st.lists(st.floats(0, 1), min_size=rows * columns, max_size=rows * columns)))
    box = (corner[1], corner[0], corner[1] + columns * cell[1], corner[0] + rows * cell[0])
    size = (int(box[3]) + 4, int(box[2]) + 6)
    found = spread(weights, rows, columns, size, box)
    down = corner[0] + cell[0] // 2 + cell[0] * np.arange(rows)
    across = corner[1] + cell[1] // 2 + cell[1] * np.arange(columns)
    np.testing.assert_allclose(found[np.ix_(down, across)], weights.reshape(rows, columns), atol=1e-12)
    outside = np.ones(size, bool)
    outside[int(box[1]) : int(box[3]), int(box[0]) : int(box[2])] = False
    assert not found[outside].any()
    assert found.min() >= 0
    assert found.max() <= weights.max(initial=0) + 1e-12


def test_equal_weights_leave_the_image_as_it_is_and_none_make_it_dark():
    image = np.random.default_rng(0).integers(0, 256, (11, 13, 3), dtype=np.uint8)
    assert np.array_equal(overlay(image, np.full(6, 0.3), 2, 3), image)
    assert np.array_equal(overlay(image, np.zeros(6), 2, 3), np.rint(image * DARKEST_FACTOR).astype(np.uint8))


def test_one_panel_for_each_word():
    image = np.random.default_rng(0).integers(0, 256, (20, 31, 3), dtype=np.uint8)
    weights = np.random.default_rng(1).random((7, 6))
    figure = image_overlays(image, weights, ["a", "$x$", "\n", "ring", "é", "6", "7"], (2, 3), title="said <b>")
    shown = [axes for axes in figure.axes if axes.images]
    assert len(shown) == 8
    assert np.array_equal(shown[0].images[0].get_array(), image)
    for row in range(7):
        expected = overlay(image, weights[row], 2, 3, maximum=weights.max())
        assert np.array_equal(shown[row + 1].images[0].get_array(), expected)
    assert shown[2].get_title() == "$x$"
    figure.canvas.draw()


def test_overlays_refuse_weights_and_images_that_do_not_fit():
    image = np.zeros((5, 7, 3), np.uint8)
    with pytest.raises(ShapeError, match=r"rows · columns = 2 · 3 numbers; they have 5"):
        overlay(image, np.zeros(5), 2, 3)
    with pytest.raises(KindError, match="image must be uint8"):
        overlay(image.astype(float), np.zeros(6), 2, 3)
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ArgumentError, match="finite and at least 0"):
            overlay(image, np.array([0, 0, 0, 0, 0, bad]), 2, 3)
    with pytest.raises(ShapeError, match="box must be"):
        overlay(image, np.zeros(6), 2, 3, (3, 0, 3, 5))
    with pytest.raises(ShapeError, match="a row for each of"):
        image_overlays(image, np.zeros((2, 6)), ["one"], (2, 3))


@pytest.mark.parametrize("box", [None, (7.0, 5.0, 31.0, 23.0)])
def test_masked_and_missing_cells_differ_in_form(box):
    """Hatched and crossed exactly over their cells, and said above; they have no part in the scale."""
    image = np.full((30, 42, 3), 200, np.uint8)
    weights = np.full((2, 6), 0.25)
    weights[1, 1], weights[1, 5] = -np.inf, np.nan
    figure = image_overlays(image, weights, ["one", "two"], (2, 3), box=box)
    _, plain, marked = figure.axes[:3]
    assert not plain.collections
    shapes = {one.get_hatch()[0]: one.get_paths()[0].get_extents().extents for one in marked.collections}
    x0, y0, x1, y1 = box or (0, 0, 42, 30)
    wide, tall = (x1 - x0) / 3, (y1 - y0) / 2
    for hatch, row, column in (("/", 0, 1), ("x", 1, 2)):
        left, top = x0 + column * wide - 0.5, y0 + row * tall - 0.5
        np.testing.assert_allclose(shapes.pop(hatch), [left, top, left + wide, top + tall])
    assert not shapes
    assert [text.get_text() for text in figure.axes[-1].get_legend().get_texts()] == ["masked", "NaN"]
    with pytest.raises(ArgumentError, match="at least 0"):
        image_overlays(image, -np.ones((1, 6)), ["one"], (2, 3))
