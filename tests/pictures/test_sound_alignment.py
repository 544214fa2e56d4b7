"""Weights and spectrogram are drawn over the same seconds."""

import math

import numpy as np
import pytest

from regard.errors import ArgumentError, ShapeError
from regard.pictures import sound_alignment

WEIGHTS = np.array([[0.7, 0.2, 0.1, 0.0, 0.0], [0.0, 0.0, 0.1, 0.1, 0.8]])
SPECTROGRAM = np.arange(60.0).reshape(3, 20)


def panels(figure):
    return {axes.get_label(): axes for axes in figure.axes}


def test_columns_are_at_their_seconds_and_rows_from_the_top():
    figure = sound_alignment(
        WEIGHTS, SPECTROGRAM, ["ba", "do"], 0.08, title="a.wav: ba do", segments=[(0, 0.1), (0.3, 0.4)]
    )
    drawn = panels(figure)
    above, below = (drawn[name].images[0] for name in ("spectrogram", "alignment"))
    assert below.get_extent() == pytest.approx([0, 0.4, 1.5, -0.5])
    assert above.get_extent()[:2] == pytest.approx([0, 0.4])
    assert drawn["spectrogram"].get_xlim() == drawn["alignment"].get_xlim() == pytest.approx((0, 0.4))
    np.testing.assert_allclose(below.get_array(), WEIGHTS)
    np.testing.assert_allclose(above.get_array(), SPECTROGRAM)
    assert above.origin == "lower"  # low frequencies are below
    assert [label.get_text() for label in drawn["alignment"].get_yticklabels()] == ["ba", "do"]
    boxes = [line.get_xydata() for line in drawn["alignment"].lines]
    assert [(box[:, 0].min(), box[:, 0].max()) for box in boxes] == [(0, 0.1), (0.3, 0.4)]
    assert all(abs(box[:, 1].mean() - row) < 0.2 for row, box in enumerate(boxes))
    assert drawn["alignment"].get_xlabel() == "seconds"


def test_longer_sounds_are_wider_up_to_a_limit():
    widths = [
        sound_alignment(np.ones((1, n)), np.ones((2, n)), ["a"], 0.1).get_size_inches()[0] for n in (5, 100, 100_000)
    ]
    assert widths == sorted(widths)
    assert widths[-1] == 40


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        ({"tokens": ["a"]}, ShapeError, "one row for each token"),
        ({"spectrogram": SPECTROGRAM + math.inf}, ShapeError, "spectrogram must be finite"),
        ({"spectrogram": SPECTROGRAM[:0]}, ShapeError, "at least one"),
        ({"seconds": 0.0}, ArgumentError, "seconds"),
        ({"segments": [(0, 1)]}, ShapeError, "segments"),
        ({"color_map": "none"}, ArgumentError, "color_map"),
    ],
)
def test_sound_alignments_refuse_wrong_arguments(change, error, reason):
    options = {"weights": WEIGHTS, "spectrogram": SPECTROGRAM, "tokens": ["a", "b"], "seconds": 0.1} | change
    with pytest.raises(error, match=reason):
        sound_alignment(**options)


def test_no_tokens_is_an_empty_picture():
    figure = sound_alignment(np.zeros((0, 5)), SPECTROGRAM, [], 0.1)
    assert panels(figure)["alignment"].get_yticklabels() == []


def test_the_picture_ends_where_the_sound_ends():
    figure = sound_alignment(WEIGHTS, SPECTROGRAM, ["ba", "do"], 0.08, duration=0.35)
    for panel in ("spectrogram", "alignment"):
        assert panels(figure)[panel].get_xlim() == pytest.approx((0, 0.35))
    for duration in (0.0, 0.41, math.nan):
        with pytest.raises(ArgumentError, match=r"duration must be above 0 and at most 0\.4"):
            sound_alignment(WEIGHTS, SPECTROGRAM, ["ba", "do"], 0.08, duration=duration)
