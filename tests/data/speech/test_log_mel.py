"""The log-mel front end is its equations, and frame t belongs to the time from t · hop to (t + 1) · hop."""

import math

import numpy as np
import pytest

from regard.data.speech.log_mel import LogMel, hertz, mel
from regard.errors import ArgumentError


def plain(front_end, samples):
    """The equations of the docstring, in loops."""
    length, size = front_end.length, front_end.size

    def y(n):
        return float(samples[n]) if 0 <= n < len(samples) else 0.0

    def emphasized(n):
        return y(n) - (front_end.preemphasis * y(n - 1) if 0 < n < len(samples) else 0.0) if n < len(samples) else 0.0

    low, high = mel(np.array(front_end.lowest)), mel(np.array(front_end.top))
    edges = [float(hertz(np.array(low + (high - low) * b / (front_end.bands + 1)))) for b in range(front_end.bands + 2)]
    found = []
    for t in range(math.ceil(len(samples) / front_end.hop)):
        start = math.floor((t + 0.5) * front_end.hop + 0.5) - length // 2
        windowed = [emphasized(start + n) * (0.5 - 0.5 * math.cos(2 * math.pi * n / length)) for n in range(length)]
        row = []
        power = []
        for k in range(size // 2 + 1):
            angle = -2j * math.pi * k / size
            power.append(abs(sum(x * np.exp(angle * n) for n, x in enumerate(windowed))) ** 2)
        for b in range(front_end.bands):
            lower, peak, upper = edges[b : b + 3]
            energy = 0.0
            for k, p in enumerate(power):
                f = k * front_end.rate / size
                if lower <= f <= upper:
                    energy += p * ((f - lower) / (peak - lower) if f <= peak else (upper - f) / (upper - peak))
            row.append(math.log(max(energy, 1e-10)))
        found.append(row)
    return np.array(found)


def test_features_equal_the_equations():
    samples = np.random.default_rng(2).normal(size=211)
    front_end = LogMel(1000, bands=5, window_seconds=0.031, hop_seconds=0.017, lowest=30, highest=450)
    np.testing.assert_allclose(front_end(samples), plain(front_end, samples), rtol=1e-5, atol=1e-5)


def test_a_click_is_in_the_frame_of_its_time():
    front_end = LogMel(8000, bands=20)
    for place in (7, 1000, 3999):
        samples = np.zeros(4001)
        samples[place] = 1.0
        found = front_end(samples)
        assert found.shape == (math.ceil(4001 / 80), 20)
        assert found.sum(1).argmax() == place // 80


def test_a_tone_is_in_the_band_of_its_frequency():
    front_end = LogMel(16000, bands=40)
    edges = hertz(np.linspace(mel(np.array(20.0)), mel(np.array(8000.0)), 42))
    for band in (5, 17, 33):
        tone = np.sin(2 * np.pi * edges[band + 1] * np.arange(8000) / 16000)
        assert (front_end(tone)[5:-5].argmax(1) == band).all()


def test_silence_is_finite_and_short_sounds_have_a_frame():
    front_end = LogMel(8000)
    np.testing.assert_allclose(front_end(np.zeros(200)), math.log(1e-10), rtol=1e-6)
    assert front_end(np.ones(1)).shape == (1, 40)
    assert front_end(np.zeros(0)).shape == (0, 40)


def test_long_sounds_are_computed_in_blocks_of_equal_result(monkeypatch):
    samples, front_end = np.random.default_rng(3).normal(size=5003), LogMel(8000, bands=7)
    whole = front_end(samples)
    monkeypatch.setattr("regard.data.speech.log_mel._BLOCK", 11)
    np.testing.assert_allclose(front_end(samples), whole, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"bands": 0}, "at least 1"),
        ({"lowest": 5000.0}, "half the rate"),
        ({"highest": 9000.0}, "half the rate"),
        ({"bands": 400}, "must be fewer"),
        ({"hop_seconds": 0.00001}, "at least a sample"),
        ({"window_seconds": 0.0001}, "at least a sample"),
        ({"preemphasis": 1.0}, "preemphasis"),
    ],
)
def test_impossible_options_are_refused(options, reason):
    with pytest.raises(ArgumentError, match=reason):
        LogMel(8000, **options)
