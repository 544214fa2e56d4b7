"""Texts flow as they are read, a picture stands beside where a word looks, and grids are shown by their patches."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import viewer_documents as documents
from regard.records import AttentionRecord, TokenAxis, word_ranges
from regard.viewer import View


def self_attention(tokens, words=()):
    axis = TokenAxis(tuple(tokens), words=words)
    count = len(axis)
    weights = documents.attention(2, count, count)
    return AttentionRecord("x", 0, "self", axis, axis, weights.numpy())


def places(shown, count):
    return [shown.call("locate", {"side": "query", "row": number}) for number in range(count)]


@pytest.mark.parametrize(
    ("tokens", "rtl"),
    [
        (["שלום", "עולם", "גדול", "ויפה"], True),
        (["ذهب", "إلى", "BERT", "المدرسة"], True),
        (["a", "b", "שלום", "c"], False),
    ],
)
def test_a_text_flows_in_its_direction_and_arrows_follow_it(show, tokens, rtl):
    shown = show(View(self_attention(tokens), view="words"))
    lefts = [place["x"] for place in places(shown, len(tokens))]
    assert lefts == sorted(lefts, reverse=rtl)
    shown.page.locator("canvas").focus()
    shown.press("ArrowLeft" if rtl else "ArrowRight")
    assert tokens[1] in shown.readout.split("looks at")[0]


def test_pieces_join_their_word_without_marks(show):
    tokens = ("un", "##want", "##ed", "noise")
    shown = show(View(self_attention(tokens, word_ranges(tokens)), view="words"))
    shown.call("set", {"words": False})
    first, second, third, word = places(shown, 4)
    assert second["x"] - (first["x"] + first["width"]) < 2 < word["x"] - (third["x"] + third["width"])
    words = {element.text for element in ET.fromstring(shown.call("svg")).iter("{http://www.w3.org/2000/svg}text")}
    assert {"un", "want", "ed", "noise"} <= words
    assert "##want" in shown.hover(side="query", row=1)


def test_a_picture_stands_beside_where_a_word_looks(show):
    """The original keeps its colours, the veil is thinnest at the largest weight, and each word has a small picture."""
    record, weights = documents.patches(rows=4, columns=6)
    for size in ((1100, 800), (320, 900)):
        shown = show(View(record, head="mean"), size=size)
        shown.click(side="query", row=1)
        patches = weights[:, 1, 1:].mean(0).numpy()
        svg = ET.fromstring(shown.call("svg"))
        images = [element.attrib for element in svg.iter("{http://www.w3.org/2000/svg}image")]
        boxes = [tuple(float(one[name]) for name in ("x", "y", "width", "height")) for one in images]
        whole = sorted({box for box in boxes if box[2] == max(width for _, _, width, _ in boxes)})
        assert len(whole) == 2
        narrow = size[0] == 320
        small = [box for box in boxes if box[2] < whole[0][2]]
        assert len(small) == 2 * 3  # a picture and a veil for each word
        if narrow:
            continue
        shown.page.mouse.move(2, 2)
        shown.settle()
        # On paper the pictures have another size, and the same gap.
        gap = whole[1][0] - whole[0][0] - whole[0][2]
        offset = 6 * shown.call("locate", {"side": "key", "column": 1})["width"] + gap
        for patch in (int(patches.argmax()), int(patches.argmin())):
            x, y = shown.middle({"side": "key", "column": 1 + patch})
            original, veiled = (np.array(shown.pixel(at, y), float) for at in (x - offset, x))
            row, column = divmod(patch, 6)
            assert np.abs(original - record.keys.image[8 * row + 4, 8 * column + 4]).max() <= 12
            shade = 0.82 * (1 - patches[patch] / max(patches.max(), 4 / 25))  # four even shares are white
            assert np.abs(veiled - original * (1 - shade)).max() <= 4


def test_patches_are_labels(show):
    """Lines of a grid show a patch beside each key, and the tooltip says which it is of how many."""
    record, _ = documents.patches(rows=3, columns=4)
    shown = show(View(record, view="lines"))
    svg = ET.fromstring(shown.call("svg"))
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}image"))) == 12
    assert "patch 5 (row 1, column 1) gets" in shown.hover(side="key", column=6).replace("\u2068", "").replace(
        "\u2069", ""
    )


def test_generated_tokens_are_marked_apart_from_the_prompt(show):
    """A mark stands before the first token that was written; a query's later tokens are hatched."""
    axis = TokenAxis(("▁A", "▁cat", "▁sat", "▁down"), words=tuple(range(one, one + 1) for one in range(4)), generated=2)
    visible = np.tril(np.ones((4, 4), np.bool_))
    weights = documents.attention(2, 4, 4, visible=visible)
    shown = show(View(AttentionRecord("x", 0, "causal", axis, axis, weights.numpy(), visible), view="words"))
    shown.click(side="query", row=2)
    svg = shown.call("svg")
    left = {}
    for one in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        left.setdefault(one.text, float(one.get("x")))
    assert left["cat"] < left["written by the model"] < left["sat"]
    assert any("sat" in text and "of its attention to" in text for text in left if text)
    hatched = [float(x) for x in re.findall(r'<rect x="([\d.]+)"[^>]*url\(#hatch\)', svg)]
    assert any(left["sat"] < x < left["down"] for x in hatched)
