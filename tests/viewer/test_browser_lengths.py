"""Lengths and widths are those of the numbers: of bars that add up others, and of lines on the scale of the legend."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from regard.records import AttentionRecord, Document, TokenAxis
from regard.viewer import View

COUNT = 12
AXIS = TokenAxis(tuple(f"t{number}" for number in range(COUNT)))


def record(*heads):
    """Heads whose every query has the same weights."""
    weights = np.stack([np.tile(np.float32(row), (COUNT, 1)) for row in heads])
    return AttentionRecord("a", 0, "self", AXIS, AXIS, weights)


def parts(svg, tag):
    """The attributes and texts of all elements of a kind."""
    return [(one.attrib, one.text or "") for one in ET.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{tag}")]


def test_the_bar_of_all_others_is_as_long_as_their_sum(show):
    row = [0.2, 0.1, 0.08, 0.08, *[0.54 / 8] * 8]
    shown = show(View(record(row), head=0), size=(1500, 800))
    svg = shown.call("svg")
    numbers = {text: attributes for attributes, text in parts(svg, "text")}
    bars = [a for a, _ in parts(svg, "rect") if a["height"] == "16"]
    assert len(bars) == 5
    lengths = [float(bar["width"]) for bar in bars]
    assert np.divide(lengths, max(lengths)) == pytest.approx(np.divide([0.2, 0.1, 0.08, 0.08, 0.54], 0.54), abs=0.01)
    assert "0.54" in numbers
    assert "8 more" in numbers


def strokes(svg):
    """The widths of the curves of a picture."""
    return [float(a["stroke-width"]) for a, _ in parts(svg, "path") if "C" in a["d"]]


def test_lines_and_bars_of_a_uniform_head_are_those_of_small_weights(show):
    """On one scale for what is shown and what is pointed at, which the legend names."""
    sharp = [0.91, *[0.09 / 11] * 11]
    widths, bars = {}, {}
    for name, row in (("uniform", [1 / COUNT] * COUNT), ("sharp", sharp)):
        shown = show(View(record(row), view="lines"))
        svg = shown.call("svg")
        widths[name] = max(strokes(svg))
        bars[name] = max(float(a["width"]) for a, _ in parts(svg, "rect") if a["height"] == "15")
        shown.hover(side="query", row=3)
        assert max(strokes(shown.call("svg"))) == pytest.approx(widths[name], abs=0.02)
        assert re.search(r"attention weight", shown.words)
        assert ("0.5" if name == "uniform" else "1") in shown.words.split()
    assert widths["uniform"] < 0.75 * widths["sharp"]
    assert bars["uniform"] < 0.5 * bars["sharp"]


def test_small_weights_with_signs_have_numbers_lines_and_a_legend_of_both_signs(show):
    weights = np.random.default_rng(0).normal(0, 3e-6, (1, COUNT, COUNT)).astype(np.float32)
    small = AttentionRecord("a", 0, "self", AXIS, AXIS, weights, signed=True)
    plain = AttentionRecord("b", 1, "self", AXIS, AXIS, np.full((1, COUNT, COUNT), 1 / COUNT, np.float32))
    shown = show(View(Document("x", (small, plain)), view="pattern", layer=0))
    shown.hover(row=2, column=3)
    written = shown.page.locator(".readout").text_content() + shown.page.locator(".sentence").text_content()
    assert "0.0001" not in written
    exponent = int(np.floor(np.log10(abs(weights[0, 2, 3]))))
    assert f"{weights[0, 2, 3] / 10**exponent:.2f}".rstrip("0").replace("-", "−") + f"e−{-exponent}" in written
    shown.show("lines", record=0)
    assert len(strokes(shown.call("svg"))) > COUNT
    shown.show("grid")
    assert {"0\xa0%", "100\xa0%", "−100\xa0%", "+100\xa0%"} <= {text for _, text in parts(shown.call("svg"), "text")}
