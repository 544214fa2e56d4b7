import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from image_files import colours
from regard.data.images.reading import covered_box, fit_image
from regard.errors import ArgumentError, DataError, ShapeError


def test_an_image_of_the_size_is_unchanged():
    image = colours()
    assert np.array_equal(fit_image(image, (5, 7)).pixels, image)
    assert fit_image(image, (5, 7)).box == (0, 0, 7, 5)


def test_crop_keeps_the_middle_and_stretch_everything():
    image = np.zeros((30, 90, 3), np.uint8)
    image[:, 30:60] = 200  # the square in the middle
    cropped, box = fit_image(image, (10, 10))
    assert box == (30, 0, 60, 30)
    assert cropped[:, 2:8].min() == 200
    assert cropped.min() > 150  # the filter reaches a little over the edge
    stretched, box = fit_image(image, (10, 9), "stretch")
    assert box == (0, 0, 90, 30)
    assert stretched[:, 0].max() < 30
    assert stretched[:, 4].min() > 190


def test_position_and_scale_are_exact():
    """A planted square comes to the place that the box says, at another scale for each axis."""
    image = np.zeros((40, 60, 3), np.uint8)
    image[8:16, 42:48] = 255
    pixels, box = fit_image(image, (20, 10), "stretch")
    assert box == (0, 0, 60, 40)
    rows, columns = np.nonzero(pixels[:, :, 0] > 127)
    assert (rows.min(), rows.max() + 1) == (4, 8)
    assert (columns.min(), columns.max() + 1) == (7, 8)


@given(height=st.integers(1, 60), width=st.integers(1, 60), to=st.tuples(st.integers(1, 20), st.integers(1, 20)))
def test_a_crop_has_the_wanted_ratio_and_touches_two_edges(height, width, to):
    left, top, right, bottom = covered_box(height, width, to)
    assert (right - left) / (bottom - top) == pytest.approx(to[1] / to[0])
    assert left == pytest.approx(width - right)
    assert top == pytest.approx(height - bottom)
    assert min(left, top) == pytest.approx(0)
    if max(height, width) <= 100 * min(height, width):
        assert fit_image(colours(height, width), to).pixels.shape == (*to, 3)


def test_images_that_cannot_be_resized_are_refused():
    with pytest.raises(ShapeError, match=r"image must be uint8 \[height, width, 3\]"):
        fit_image(colours().astype(np.float32), (5, 7))
    with pytest.raises(ArgumentError, match="to must be"):
        fit_image(colours(), (0, 7))
    with pytest.raises(ArgumentError, match="fit must be of crop, stretch"):
        fit_image(colours(), (3, 3), "squeeze")
    with pytest.raises(DataError, match="row 3: has 201 × 1 pixels"):
        fit_image(colours(1, 201), (3, 3), name="row 3")
