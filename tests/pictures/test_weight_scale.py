"""Weights of every picture: one scale, a titled bar, and near-uniform weights that look and are called so."""

import numpy as np
import pytest

from regard.pictures import PixelAttention, alignment, image_overlays, segments, sound_alignment, word_weights
from regard.pictures.caption import equal_share
from regard.pictures.weight_scale import scale_end

KEYS = 12


def by_alignment(weights):
    return alignment(weights, [f"k{key}" for key in range(KEYS)], ["q"] * len(weights), maximum=None)


def by_sound(weights):
    return sound_alignment(weights, np.ones((4, 24)), ["q"] * len(weights), 0.1)


def by_words(weights):
    return word_weights([f"k{key}" for key in range(KEYS)], weights)


def by_image(weights):
    return image_overlays(np.full((30, 40, 3), 200, np.uint8), weights, ["q"] * len(weights), (3, 4))


def by_pixel(weights):
    attention = PixelAttention(weights[:1].reshape(3, 4), (10, 10), (1, 2))
    return segments(np.zeros((30, 40, 3), np.uint8), np.zeros((30, 40), int), ["a"], attention=attention)


PICTURES = [by_alignment, by_sound, by_words, by_image, by_pixel]

NEARLY = 1 / KEYS + np.linspace(-0.01, 0.01, KEYS)[None].repeat(2, 0)
SHARP = np.full((2, KEYS), 0.03)
SHARP[:, 4] = 1 - 0.03 * (KEYS - 1)


def bar_of(figure):
    """The title of the bar, and the ends of its scale."""
    figure.canvas.draw()
    titled = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) if "weight" in axis.label.get_text()]
    assert len(titled) == 1, "one bar with a title"
    return titled[0].label.get_text(), titled[0].get_view_interval()


def texts(figure):
    from matplotlib.text import Text

    return " ".join(text.get_text() for text in figure.findobj(Text))


@pytest.mark.parametrize("draw", PICTURES)
def test_nearly_uniform_weights_look_and_are_called_so(draw):
    figure = draw(NEARLY)
    label, (low, high) = bar_of(figure)
    assert "attention weight" in label
    assert low == 0
    assert high == pytest.approx(scale_end(NEARLY.max(), KEYS, rounded=draw not in (by_image, by_pixel)))
    assert high >= 4 / KEYS - 1e-9
    assert "equal share 0.08 (1 ÷ 12 " in texts(figure)
    assert "nearly uniform" in texts(figure)


@pytest.mark.parametrize("draw", PICTURES)
def test_the_scale_of_sharp_weights_ends_at_a_round_number_or_at_the_brightest(draw):
    figure = draw(SHARP)
    assert bar_of(figure)[1] == pytest.approx([0, SHARP.max() if draw in (by_image, by_pixel) else 1.0])
    assert "nearly uniform" not in texts(figure)


def test_ends_of_scales_are_those_of_the_viewer():
    given = {
        (0.98, 16): 1,
        (0.5, 16): 0.5,
        (0.51, 16): 1,
        (0.003, 4000): 0.005,
        (0.0003, 4000): 0.001,
        (0.1, 2): 1,
        (3, 0): 5,
    }
    assert {pair: scale_end(*pair) for pair in given} == pytest.approx(given)


def test_the_equal_share_is_one_number_only_where_all_rows_see_as_many_keys():
    causal = np.where(np.tri(3, dtype=bool), [[1, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5]], -np.inf)
    assert equal_share(causal) is None
    assert equal_share(causal[2:]) == pytest.approx(1 / 3)
    assert equal_share(np.full((2, 4), 0.25)) == 0.25
    assert equal_share(np.array([[0.5, -0.5, 1.0]])) is None


@pytest.mark.parametrize("draw", PICTURES)
def test_half_of_a_scale_is_half_of_its_weights(draw):
    faint = np.full((2, KEYS), 1 / KEYS)
    faint[0], faint[0, 0] = 0.0, 1.0
    figure = draw(faint)
    low, high = bar_of(figure)[1]
    norms = {id(image.norm): image.norm for axes in figure.axes for image in axes.images if image.colorbar is not None}
    assert all(norm((low + high) / 2) == pytest.approx(0.5) for norm in norms.values())
    assert "root" not in texts(figure)


@pytest.mark.parametrize("hard", [np.eye(1, KEYS, 3), np.zeros((1, KEYS))])
@pytest.mark.parametrize("draw", PICTURES)
def test_one_chosen_key_and_no_weight_at_all_are_not_uniform(draw, hard):
    figure = draw(hard)
    assert bar_of(figure)[1] == pytest.approx([0, 1])
    assert "nearly uniform" not in texts(figure)


def test_labels_that_have_no_room_are_thinned_out_and_said_to_be():
    tokens = [f"token {number}" for number in range(2000)]
    figure = alignment(np.full((2, 2000), 1 / 2000), tokens, ["a", "b"])
    first, second, *_ = figure.axes[0].get_xticks()
    assert second - first == 4
    assert "every 4th token has a label" in texts(figure)


@pytest.mark.parametrize("word", ["Donaudampfschifffahrtsgesellschaft", "antidisestablishmentarianism"])
def test_words_of_an_axis_are_whole(word):
    assert word in texts(alignment([[1.0]], [word], [word]))
    assert word in texts(sound_alignment([[1.0]], np.ones((2, 2)), [word], 0.1))
    assert word in texts(word_weights([word], [[1.0]]))
    assert word in texts(image_overlays(np.zeros((9, 9, 3), np.uint8), [[1.0]], [word], (1, 1)))
