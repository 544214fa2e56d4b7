"""A sound plays from its own samples: cursor, marked column, clicks, keys; and there is no button without a sound."""

import re

import numpy as np
import pytest

import viewer_documents as documents
from regard.records import AttentionRecord, FrameAxis, TokenAxis
from regard.viewer import View, payload
from viewer_decoding import unpacked

RATE = 8000


def record(*, seconds=4.0, positions=10, rate=RATE, visible=None):
    """Ten positions of 0.4 s over a sound of a slow tone."""
    time = np.arange(int(seconds * rate)) / rate
    samples = np.rint(9000 * np.sin(2 * np.pi * 50 * time)).astype(np.int16)
    axis = FrameAxis(np.ones((3, positions), np.float32), 0.4, positions, samples, rate)
    weights = documents.attention(2, 3, positions, visible=visible)
    return AttentionRecord("x", 0, "cross", TokenAxis(("one", "two", "three")), axis, weights.numpy(), visible)


@pytest.mark.parametrize(("rate", "step"), [(8000, 1), (16_000, 1), (22_050, 2), (48_000, 3)])
def test_the_samples_travel_at_16_khz_or_less(rate, step):
    one = record(rate=rate, seconds=0.5)
    entry = payload(View(one).document)["axes"][1]["sound"]
    low, high = np.frombuffer(unpacked(entry["data"]), np.uint8).reshape(2, -1).astype(np.uint16)
    samples = np.cumsum((low | high << 8).astype(np.int16), dtype=np.int16)
    assert entry["rate"] == pytest.approx(rate / step)
    assert entry["samples"] == samples.size == -(-one.keys.sound.size // step)
    whole = one.keys.sound[: one.keys.sound.size // step * step].reshape(-1, step).mean(1)
    assert np.abs(samples[: whole.size] - whole).max() <= 0.5


FAKE_CLOCK = """() => {
  window.clock = 0;
  window.started = [];
  AudioContext = class {
    get currentTime() { return window.clock; }
    resume() {}
    close() {}
    createBuffer(channels, length, rate) { return { duration: length / rate, copyToChannel() {} }; }
    createBufferSource() {
      return { connect() {}, start(_, offset) { window.started.push([offset, this.buffer.duration]); }, stop() {} };
    }
  };
}"""


def marked(shown):
    """The accent-coloured frame of a column of the map: its left edge and width; None without one."""
    frame = r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="[\d.]+" fill="none" stroke="#c2410c"'
    boxes = re.findall(frame, shown.call("svg"))
    return tuple(map(float, boxes[0])) if boxes else None


def drawn_column(shown, column):
    """The left edge and the width of one of the ten columns, on paper."""
    frame = r'<rect x="([\d.]+)" y="12" width="([\d.]+)" height="[\d.]+" fill="none"'
    left, width = map(float, re.search(frame, shown.call("svg")).groups())
    return left + column * width / 10, width / 10


def test_the_cursor_is_where_the_sound_is(show):
    shown = show(View(record()))
    shown.page.evaluate(FAKE_CLOCK)
    assert marked(shown) is None
    shown.page.get_by_role("button", name="Play").click()
    for time in (0.1, 1.3, 3.95):
        shown.page.evaluate(f"window.clock = {time}")
        shown.settle()
        assert marked(shown) == pytest.approx(drawn_column(shown, int(time / 0.4)), abs=0.02)
    shown.page.locator("canvas").focus()
    shown.press(" ")
    assert marked(shown) is None
    shown.page.evaluate("window.clock = 100")
    shown.click(side="time", column=6)
    assert shown.page.evaluate("started") == [[0, 4], [pytest.approx(2.4), 4]]
    shown.page.evaluate("window.clock = 100.5")
    shown.settle()
    assert marked(shown)[0] == pytest.approx(drawn_column(shown, 7)[0], abs=0.02)
    shown.show("pattern")
    shown.show("sound")
    assert marked(shown) is None


def test_silence_and_padding_are_no_sound(show):
    """Without samples there is no button; what no query sees at the end, or has no samples, is hatched."""
    shown = show(View(documents.sound()[0]))
    assert shown.page.get_by_role("button", name="Play").count() == 0
    assert "url(#hatch)" not in shown.call("svg")
    visible = np.ones((3, 10), np.bool_)
    visible[:, 7:] = False
    for one in (record(visible=visible), record(seconds=2.8)):
        shown = show(View(one))
        edge, _ = drawn_column(shown, 7)
        assert f'<rect x="{edge:g}" y="12"' in shown.call("svg")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_spectrogram_is_grey_and_colour_means_attention(show, theme):
    from regard.palette import AMOUNT, points
    from regard.viewer.static_pictures import figure

    shown = show(View(record(), theme=theme))
    inks = set(re.findall(r'<rect [^>]*fill="(rgb[^"]*)" (?:fill-)?opacity', shown.call("svg")))
    assert inks
    amounts = np.array(
        [[int(color[place : place + 2], 16) for place in (1, 3, 5)] for color in points(AMOUNT["light"])]
    )
    for ink in inks:
        distance = np.abs(amounts - np.array(re.findall(r"\d+", ink), int)).sum(1).min()
        assert distance < 40, ink
    above, below = figure(View(record()).document, "sound", 0).axes[:2]
    assert (above.images[0].get_cmap().name, below.images[0].get_cmap().name.startswith("gray")) == ("gray_r", False)
