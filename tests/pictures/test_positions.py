import numpy as np
import pytest

from regard.errors import ShapeError
from regard.pictures import position_table


def test_zero_is_white_and_both_ends_are_as_far():
    table = np.random.default_rng(0).normal(size=(31, 17))
    figure = position_table(table)
    axes = figure.axes[0]
    image = axes.images[0]
    np.testing.assert_array_equal(image.get_array(), table)
    assert image.norm.vmin == -image.norm.vmax == -np.abs(table).max()
    assert min(image.cmap(image.norm(0.0))[:3]) > 0.94
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("dimension", "position")
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert not axes.texts


def test_small_tables_have_their_numbers():
    figure = position_table([[0.0, 1.0], [0.84147, -0.5403]])
    assert [text.get_text() for text in figure.axes[0].texts] == ["0.000", "1.000", "0.841", "−0.540"]
    position_table([[0.0]]).canvas.draw()


def test_pictures_of_positions_refuse_wrong_tables():
    for wrong in (np.zeros((0, 4)), np.zeros((4, 0)), np.zeros(4), [[np.nan]]):
        with pytest.raises(ShapeError, match="table must"):
            position_table(wrong)
