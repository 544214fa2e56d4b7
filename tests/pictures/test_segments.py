"""Overlays of classes and of a pixel's attention: what is drawn lies exactly on the pixels that it belongs to."""

import numpy as np
import pytest

from regard.errors import ArgumentError, KindError, ShapeError
from regard.pictures import MissingGlyphWarning, PixelAttention, save, segments
from regard.pictures.segments import class_colors, overlay

H, W, NAMES = 30, 40, ("road", "sky", "car")


def drawn(figure, name):
    """The pixels of a panel as they are drawn, with ten of them for each pixel of the image; uint8 [10 H, 10 W, 3]."""
    axes = next(one for one in figure.axes if one.get_title() == name)
    box = axes.get_position()
    width, height = figure.get_size_inches()
    figure.set_dpi(10 * W / (box.width * width))
    figure.canvas.draw()
    sheet = np.asarray(figure.canvas.buffer_rgba())[..., :3]
    top = round((1 - box.y1) * height * figure.dpi)
    left = round(box.x0 * width * figure.dpi)
    return sheet[top : top + 10 * H, left : left + 10 * W]


def middle_of(panel, x, y):
    return panel[10 * y + 5, 10 * x + 5].astype(int)


def test_classes_lie_on_their_pixels():
    image = np.full((H, W, 3), 128, np.uint8)
    classes = np.zeros((H, W), np.uint8)
    classes[4:9, 31:37] = 2
    panel = drawn(segments(image, classes, NAMES), "classes found")
    colors = {number: overlay(image, classes)[where].astype(int) for number, where in ((0, (0, 0)), (2, (5, 33)))}
    assert (colors[0] != colors[2]).any()
    for y in range(1, H - 1):
        for x in range(1, W - 1):
            expected = colors[int(classes[y, x])]
            assert np.abs(middle_of(panel, x, y) - expected).max() <= 3, (x, y)


def test_attention_lies_on_its_cells():
    """A cell of 8 × 8 pixels with all the weight, in a grid whose last row reaches beyond the image."""
    image = np.full((H, W, 3), 90, np.uint8)
    weights = np.zeros((4, 5))
    weights[2, 3] = 1.0
    figure = segments(image, np.zeros((H, W), int), NAMES, attention=PixelAttention(weights, (8, 8), (1, 2)))
    panel = drawn(figure, "attention of pixel 1, 2")
    bright = np.array([[middle_of(panel, x, y).sum() > 150 for x in range(W)] for y in range(H)])
    expected = np.zeros((H, W), bool)
    expected[16:24, 24:32] = True
    bright[2, 1] = False  # the cross
    bright[1:4, 0:3] = False
    assert (bright == expected).all()


def test_a_pixel_without_a_class_is_grey():
    image = np.full((H, W, 3), 200, np.uint8)
    image[..., 0] = 20
    true = np.full((H, W), -1)
    true[:, :10] = 1
    found = overlay(image, true)
    assert (found[0, 20] == 140).all()
    assert len(set(found[0, 0].tolist())) > 1
    assert drawn(segments(image, np.zeros((H, W), int), NAMES, true=true), "true classes").shape == (10 * H, 10 * W, 3)


def test_colours_of_classes_differ():
    colors = class_colors(24).astype(int)
    distances = np.abs(colors[:, None] - colors[None]).sum(-1) + 1000 * np.eye(24, dtype=int)
    assert distances.min() > 20


def test_pictures_of_segments_are_saved(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (W, H, 3), np.uint8)
    with pytest.warns(MissingGlyphWarning, match=r"U\+8DEF"):  # Matplotlib's fonts have no Chinese
        figure = segments(
            image,
            np.zeros((W, H), int),
            ("a name " * 9,) * 3,
            title="道路 a very long title of a picture that is wider than the picture",
            attention=PixelAttention(np.zeros((7, 5)), (6, 6), (29, 39)),
        )
    assert save(figure, tmp_path / "a.png").stat().st_size > 1000


def test_pictures_of_segments_refuse_wrong_arguments():
    image, classes = np.zeros((H, W, 3), np.uint8), np.zeros((H, W), int)
    with pytest.raises(ShapeError, match=r"classes must be \[height, width\] = \[30, 40\]; it has shape \[40, 30\]"):
        segments(image, classes.T, NAMES)
    with pytest.raises(ShapeError, match="image must be"):
        segments(image[..., 0], classes, NAMES)
    with pytest.raises(KindError, match="uint8"):
        segments(image.astype(float), classes, NAMES)
    with pytest.raises(ArgumentError, match="classes has the class 3, and there are 3 names"):
        segments(image, classes + 3, NAMES)
    with pytest.raises(ArgumentError, match="pixel 40,0 is not in the image of 40 × 30 pixels"):
        segments(image, classes, NAMES, attention=PixelAttention(np.ones((4, 5)), (8, 8), (40, 0)))
    with pytest.raises(ShapeError, match="do not cover the image"):
        segments(image, classes, NAMES, attention=PixelAttention(np.ones((3, 5)), (8, 8), (0, 0)))
