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
    assert "looks at" not in told(shown)
    assert "red: head 1 gives more, blue: head 0 gives more" in shown.words


def test_both_sides_of_the_cell_are_bars_on_one_scale(show):
    shown = show(View(record(pointing(1), pointing(3))), size=(1500, 800))
    shown.show("difference", head=0)
    for column, share, other in ((1, 0.75, 0.05), (3, 0.05, 0.75), (2, 0.05, 0.05)):
        shown.call("point", {"row": 5, "column": column})
        shown.settle()
        parts = drawn(shown)
        number = {name: [float(one[name]) for _, one in parts["rect"]] for name in ("x", "y", "width", "height")}
        (frame,) = (at for at, high in enumerate(number["height"]) if high == 36 and number["width"][at] >= 280)
        top = number["y"][frame]
        pair = [at for at, high in enumerate(number["height"]) if high == 12 and top < number["y"][at] < top + 36]
        wide = [number["width"][at] for at in pair]
        assert len({number["x"][at] for at in pair}) == 1
        assert wide[0] / wide[1] == pytest.approx(share / other, rel=1e-3)
        texts = [(text, float(at["x"]), float(at["y"])) for text, at in parts["text"]]
        framed = [text for text, x, y in texts if top < y < top + 36 and x > number["x"][frame]]
        assert framed[:3] == [WORDS[column], f"{share:.2f}", f"{other:.2f}"]
        if column != 2:
            assert framed[3:] == ["0.75 − 0.05 = 0.70"][: len(framed[3:])]
            assert framed[3:] or number["width"][frame] < 400
            assert "0.75 − 0.05 = 0.70" in told(shown)
        for side in ("head 0", "head 1"):
            assert len([text for text, *_ in texts if text == side]) == 1
        rings = [one for _, one in parts["rect"] if one.get("stroke-width") == "4"]
        assert len(rings) == 1


def test_small_maps_of_both_sides_point_at_the_cells_of_the_map(show):
    shown = show(View(record(pointing(1), pointing(3))), size=(1440, 800))
    shown.show("difference", head=0)
    box = shown.page.locator("canvas").bounding_box()
    said = []
    for x in range(int(box["width"] / 2) - 100, int(box["width"]) - 40, 12):
        shown.page.mouse.move(x, box["y"] + 90)
        shown.settle()
        if not said or said[-1] != shown.readout:
            said.append(shown.readout)
    cells = [text.partition(":")[0].partition(" → ")[2].strip("“”\u2068\u2069") for text in said if " → " in text]
    assert cells[-12:] == [*WORDS] * 2


def test_equal_maps_are_said_in_words(show):
    shown = show(View(record(pointing(1), pointing(1))))
    shown.show("difference", head=0)
    assert told(shown) == "Nothing differs: head 0 and head 1 give the same weights."


def test_records_have_their_names_in_a_difference(show):
    other = AttentionRecord("b", 1, "self", AXIS, AXIS, pointing(3)[None])
    shown = show(View([record(pointing(1)), other]))
    shown.show("difference", record=0)
    assert ", layer 0 gives “animal” 0.70 more than layer 1." in told(shown)
