"""A difference of two heads says which gives more, and never calls the difference what a word looks at."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from regard.records import AttentionRecord, TokenAxis
from regard.viewer import View

WORDS = ("the", "animal", "was", "tired", "because", "it")
AXIS = TokenAxis(WORDS)


def pointing(key, share=0.75):
    weights = np.full((6, 6), (1 - share) / 5, np.float32)
    weights[:, key] = share
    return weights


def record(*heads):
    return AttentionRecord("a", 0, "self", AXIS, AXIS, np.stack(heads))


def drawn(shown):
    """Texts and rectangles of the picture, each with its place."""
    tree = ET.fromstring(shown.call("svg"))
    elements = {tag: tree.iter(f"{{http://www.w3.org/2000/svg}}{tag}") for tag in ("text", "rect")}
    return {tag: [(one.text or "", dict(one.attrib)) for one in each] for tag, each in elements.items()}


def told(shown):
    told = shown.page.locator(".told").text_content().replace("\u2068", "").replace("\u2069", "")
    return told.replace("\u00a0", " ")


def test_the_sentence_says_which_head_gives_more(show):
    shown = show(View(record(pointing(1), pointing(3), pointing(1, 0.7))), size=(1500, 800))
    shown.show("difference", head=0)
    assert shown.page.locator("select[aria-label=minus] option:checked").text_content() == "head 1"  # not head 2
    assert shown.page.locator(".bar label:has(select[aria-label=minus])").text_content().startswith("minus")
    assert ", head 0 gives “animal” 0.70 more than head 1." in told(shown)
    assert "Over all rows, head 0 looks more at “animal”, head 1 at “tired”." in told(shown)
    assert "On average, 70 % of a row’s attention would have to move to make them alike." in told(shown)
    shown.hover(row=5, column=3)
    assert "For “it”, head 1 gives “tired” 0.70 more than head 0." in told(shown)
    assert "0.75 − 0.05 = 0.70" in told(shown)
    shown.hover(row=5, column=2)
    assert "Where “it” asks, head 0 and head 1 give “was” the same." in told(shown)
    assert "“it”: head 0 minus head 1" in shown.words.replace("\u2068", "").replace("\u2069", "")
    assert "looks at" not in told(shown) + shown.words
    assert {"more in head 1", "more in head 0"} <= {text for text, _ in drawn(shown)["text"]}
    assert "red: head 1 gives more, blue: head 0 gives more" in shown.words


def test_bars_of_a_difference_stand_on_both_sides_of_zero_and_clear_of_names(show):
    shown = show(View(record(pointing(1), pointing(3))), size=(1500, 800))
    shown.show("difference", head=0)
    parts = drawn(shown)
    bars = [one for _, one in parts["rect"] if one["height"] == "16"]
    (left, right) = sorted(bars, key=lambda bar: float(bar["x"]))
    zero = float(right["x"])
    assert float(left["x"]) + float(left["width"]) == pytest.approx(zero, abs=0.1)
    assert float(left["width"]) == pytest.approx(float(right["width"]), abs=0.1)
    places = {text: float(attributes["x"]) for text, attributes in reversed(parts["text"])}  # the legend comes last
    assert max(places["animal"], places["tired"]) < places["−0.70"] < float(left["x"])
    assert places["+0.70"] > zero + float(right["width"])


def test_equal_maps_are_said_in_words(show):
    shown = show(View(record(pointing(1), pointing(1))))
    shown.show("difference", head=0)
    assert told(shown) == "Nothing differs: head 0 and head 1 give the same weights."


def test_records_have_their_names_in_a_difference(show):
    other = AttentionRecord("b", 1, "self", AXIS, AXIS, pointing(3)[None])
    shown = show(View([record(pointing(1)), other]))
    shown.show("difference", record=0)
    assert ", layer 0 gives “animal” 0.70 more than layer 1." in told(shown)
