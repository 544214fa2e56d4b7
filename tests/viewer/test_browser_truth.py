"""What the screen says is so: numbers under colours, names of statistics, means, tables, and tokens without ink."""

import itertools
import re
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch

import regard
import viewer_documents as documents
from regard.pictures.fonts import visible_token
from regard.records import AttentionRecord, DenseTiles, Document, FrameAxis, TokenAxis
from regard.viewer import View, payload, steps_record

SCALES = {
    "linear": lambda part: part,
    "root": lambda part: part**0.5,
    "log": lambda part: max(0.0, 1 + np.log10(part) / 4) if part else 0.0,
    "row": lambda part: part,
}
SAME = 7
"""How far two channels of one colour may be apart: a label has three digits, a palette 256 steps."""


def texts(svg):
    """Every text of an SVG file as (text, x, y)."""
    found = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return [(element.text or "", float(element.get("x")), float(element.get("y"))) for element in found]


def legend(svg):
    """The ticks of the legend as (label, colour at the label), and its words."""
    part = svg.rpartition('<g transform="translate(0 ')[2]
    cells = re.findall(
        r'<rect x="([\d.]+)" y="13" width="([\d.]+)" height="10" fill="rgb\((\d+),(\d+),(\d+)\)"/>', part
    )
    left = float(cells[0][0])
    step = (float(cells[-1][0]) - left) / (len(cells) - 1)
    labels = re.findall(r'<text x="([\d.]+)" y="32"[^>]*>([^<]*)</text>', part)
    assert len(labels) in (3, 4)
    ticks = []
    for x, label in labels:
        cell = cells[min(len(cells) - 1, int((float(x) - left) / step))]
        ticks.append((label, tuple(map(int, cell[2:]))))
    return ticks, " ".join(re.findall(r'<text x="[\d.]+" y="(?:18|52|66|80|94|108)"[^>]*>([^<]*)</text>', part))


def number(label):
    """The weight that a tick names, and whether it is a part of the largest."""
    value = float(re.sub("[≤≥%× ]", "", label).replace("−", "-"))
    return (value / 100, True) if "%" in label else (value, False)


LARGEST = 1.0
PARTS = (1.0, 0.5, 0.25, 0.01, 1e-4)
"""Of the largest weight: what stands at the ends and in the middle of the scales."""


def graded():
    """A document whose weights are those of the ticks, shown by every view with a scale."""
    count = len(PARTS)
    tokens = TokenAxis(tuple("abcde"))
    weights = np.tile(np.float32(LARGEST) * np.array(PARTS, np.float32), (1, count, 1))
    frames = FrameAxis(np.ones((3, count), np.float32), 0.1)
    return Document(
        "graded",
        (
            AttentionRecord("short", 0, "self", tokens, tokens, weights),
            AttentionRecord("heard", 1, "cross", tokens, frames, weights),
        ),
    )


def test_every_tick_stands_below_the_colour_of_its_weight(show):
    """On every scale of every view, a cell with the weight of a tick has the colour of the legend above the tick."""
    shown = show(View(graded(), budget_bytes=0))
    places = {
        "pattern": ({"record": 0}, lambda k: ({"row": 2, "column": k}, -0.3)),
        "grid": ({"record": 0}, None),
        "words": ({"record": 0}, lambda k: ({"side": "key", "column": k}, -0.42)),
        "sound": ({"record": 1}, lambda k: ({"row": 2, "column": k}, -0.3)),
    }
    for (view, (selection, item)), scale in itertools.product(places.items(), SCALES):
        shown.show(view, scale=scale, head=None, overall=True, **selection)
        shown.page.mouse.move(2, 2)
        shown.settle()
        ticks, _ = legend(shown.call("svg"))
        colors = {}
        for column, part in enumerate(PARTS):
            if view == "grid":
                box = shown.call("locate", {"row": 0, "column": 0})
                side = min(box["width"], box["height"])
                colors[part] = shown.pixel(box["x"] + (column + 0.5) * side / 5, box["y"] + 0.5 * side)
                continue
            where, across = item(column)
            box = shown.call("locate", where)
            x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
            colors[part] = shown.pixel(
                x + across * box["width"], y + (across * box["height"] if view != "words" else 0)
            )
        used = "linear" if scale == "row" and view in ("grid", "words") else scale
        for label, color in ticks:
            value, is_part = number(label)
            part = value if is_part else value / LARGEST
            if part == 0:
                continue  # zero has a colour of its own
            (nearest,) = (one for one in PARTS if abs(one / part - 1) < 0.01)
            # Codes of 8 bits have steps of half of so small a weight.
            slack = SAME if nearest > 0.001 else 3 * SAME
            assert np.abs(np.subtract(color, colors[nearest])).max() <= slack, (view, scale, label)
        shades = [SCALES[used](number(label)[0] / number(ticks[-1][0])[0]) for label, _ in ticks]
        assert shades == pytest.approx([0, 0.5, 1], abs=0.01), (view, scale, ticks)


def test_ticks_of_a_long_map_stand_below_the_colours_of_their_shares(show):
    weights = np.zeros((1, 10, 10), np.float32)
    weights[:, ::2, ::2] = np.array([0.01, 0.1, 1, 0.01, 0.1], np.float32)
    axis = TokenAxis(tuple(f"t{number}" for number in range(10)))
    shown = show(View(AttentionRecord("long", 0, "self", axis, axis, None, source=DenseTiles(weights)), budget_bytes=0))
    shown.page.mouse.move(2, 2)
    shown.settle()
    ticks, _ = legend(shown.call("svg"))
    colors = {label.replace("\u00a0", " ").replace("\u202f", " "): color for label, color in ticks}
    for column, label in enumerate(("1 %", "10 %", "100 %")):
        box = shown.call("locate", {"row": 4, "column": 2 * column})
        color = shown.pixel(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
        assert np.abs(np.subtract(color, colors[label])).max() <= SAME, (label, color, colors)


def words(text):
    return text.replace("\u2068", "").replace("\u2069", "")


def test_heading_legend_and_readout_name_one_statistic(show):
    """Over all views, heads, poolings and scales."""
    wide, _ = documents.tiled(300, 3)
    shown = show(View(Document("all", (documents.causal(3)[0], documents.patches()[0], documents.sound()[0], wide))))
    cases = {
        "pattern": (0, {"row": 3, "column": 2}), "words": (0, {"side": "key", "column": 2}),
        "image": (1, {"side": "key", "column": 7}), "sound": (2, {"row": 1, "column": 3}),
        "long": (3, {"row": 9, "column": 9}),
    }  # fmt: skip
    names = {
        "linear": "attention weight",
        "root": "square-root scale",
        "log": "log scale",
        "row": "(?:part of the largest in its|per) row",
    }
    for (view, (record, item)), head, scale in itertools.product(cases.items(), (None, 1), names):
        for pooling in ("maximum", "mean") if view == "long" else ("maximum",):
            shown.show(view, record=record, head=head, scale=scale, pooling=pooling)
            readout = words(shown.hover(**item))
            svg = shown.call("svg")
            heading = " ".join(text for text, *_ in texts(svg))  # its lines are wrapped
            _, told = legend(svg)
            heads = {0: 3, 1: 2, 2: 2, 3: 3}[record]
            of_heads = f"mean of {heads} heads" if head is None else "head 1"
            for text in (heading, readout):
                assert of_heads in text, (view, head, scale, text)
            used = "linear" if scale == "row" and view in ("words", "image") else scale
            if view == "long":
                assert "a point: " + {"maximum": "the strongest", "mean": "attention of"}[pooling] in told
            else:
                assert re.search(names[used], told)
            if view == "image":
                assert "mean over all queries" in readout
                assert "mean over all queries" in told
            if view == "words":
                assert "sum" not in told  # the word under the mouse is the query
                assert "mean over" not in told


def test_a_map_of_large_bins_says_largest_or_mean_everywhere(show):
    wide, _ = documents.tiled(1100, 2)
    shown = show(View(wide, budget_bytes=200_000))
    told_of = {"maximum": r"the strongest of about \d+ × \d+ pairs", "mean": r"attention of about \d+"}
    for pooling, other in (("maximum", "mean"), ("mean", "maximum")):
        name = {"maximum": "largest", "mean": "mean"}[pooling]
        for head in (None, 0):
            shown.show("long", pooling=pooling, head=head)
            readout = shown.hover(row=300, column=300)
            svg = shown.call("svg")
            heading = " ".join(text for text, *_ in texts(svg))  # its lines are wrapped
            _, told = legend(svg)
            assert re.search(told_of[pooling], told)
            assert not re.search(told_of[other], heading)
            assert f": {name} " in readout
            option = shown.page.get_by_label("A point shows").locator("option:checked").text_content()
            assert ("strongest" in option) == (pooling == "maximum")


def test_tokens_without_ink_are_told_apart_as_in_pictures(show):
    """Labels differ for different tokens, are those of matplotlib's pictures, and tooltips name what cannot be seen."""
    odd = [
        *[
            " ",
            "  ",
            "\t",
            "\n",
            "\r",
            "\r\n",
            "",
            "\0",
            "\x7f",
            "\x85",
            "\xa0",
            "\u2003",
            "\u3000",
            "\u200b",
            "\u200c",
        ],
        *["\u200d", "\u200e", "\u200f", "\u202e", "\u2028", "\u2060", "\ufeff", "\xad", "\u0301", "\u034f", "\u3164"],
        *["\u2800", "\ud800", "a", " a", "a ", "\ta", "a\n", "a b", "a  b", "a\u200b", "a\u200d", "\u200ea", "a\ufe0f"],
        *["a\u0301", "\u2764\ufe0f", "می\u200cخ", "👩\u200d👧"],
    ]
    axis = TokenAxis(tuple(odd))
    weights = np.full((1, len(odd), len(odd)), 1 / len(odd), np.float32)
    shown = show(View(AttentionRecord("x", 0, "self", axis, axis, weights)), size=(1500, 1500))
    expected = [visible_token(token, 28) for token in odd]
    assert len(set(expected)) == len(odd)
    for view in ("lines", "words"):
        shown.show(view)
        labels = [text for text, _, _ in texts(shown.call("svg"))]
        assert [text for text in expected if text not in labels] == []
    shown.show("pattern")
    names = {
        " ": "(space)",
        "  ": "(2 × space)",
        "\t": "(tab)",
        "\n": "(newline)",
        "": "(empty token)",
        "\u200b": "zero-width space",
    }
    for token, name in names.items():
        assert name in shown.hover(row=odd.index(token), column=odd.index("a"))


def test_the_table_of_a_row_has_its_largest_weights_and_adds_up(show, numbers):
    """Sixteen keys: what is listed and the rest are the whole, whichever cell is chosen."""
    generator = torch.Generator().manual_seed(1)
    query, key, value = (2 * torch.randn(1, 1, 16, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    names = [f"w{number}" for number in range(16)]
    explanation = regard.explain(query, key, value).labelled(names, names)
    shown = show(View(steps_record(explanation, name="sixteen")), size=(1300, 1100))
    weights = explanation.weights[0, 0].numpy()
    for row, column in ((9, 3), (0, 15), (4, int(weights[4].argmin()))):
        shown.click(row=row, column=column)
        table = shown.station("weights").locator("table")
        # The last cell of a line is its bar.
        lines = [line.locator("th, td").all_inner_texts()[:4] for line in table.locator("tr").all()]
        assert [text.removeprefix("≈\u2009") for text in lines[0]] == ["token", "score", "exp", "weight"]
        listed = {line[0]: numbers(line[-1])[0] for line in lines if re.fullmatch(r"w\d+", line[0])}
        rest, whole = lines[-2], lines[-1]
        assert (rest[0], whole[0], len(listed)) == ("9 more", "sum of all 16", 7)
        assert f"w{column}" in listed
        assert {f"w{k}" for k in np.argsort(-weights[row])[:6]} <= set(listed)
        assert sum(listed.values()) + numbers(rest[-1])[0] == pytest.approx(1, abs=1e-3)
        *exponentials, total = (float(line[2].strip("≈\u2009").replace("−", "-")) for line in lines[1:])
        assert sum(exponentials) == pytest.approx(total, rel=1e-3)


def blind(heads=2):
    """A causal record of six tokens whose first two queries see no key; in head 1 the third neither."""
    axis = TokenAxis(tuple("abcdef"))
    visible = np.repeat(np.tril(np.ones((6, 6), np.bool_))[None], heads, 0)
    visible[:, :2] = False
    visible[1:, 2] = False
    weights = documents.attention(heads, 6, 6, visible=visible)
    return AttentionRecord("x", 0, "causal", axis, axis, weights.numpy(), visible), weights, visible


def test_means_in_the_browser_leave_out_queries_that_see_no_key(show, numbers):
    record, weights, visible = blind()
    sees = torch.from_numpy(visible.any(-1))
    shown = show(View(record, head="mean"))
    of_heads = weights.sum(0) / sees.sum(0).clamp(min=1)[:, None]
    assert numbers(shown.hover(row=2, column=1))[0] == pytest.approx(weights[0, 2, 1].item(), abs=6e-5)
    assert "row sum 1.0000" in shown.readout
    shown.show("lines")
    for key in (0, 3):
        readout = shown.hover(side="key", column=key)
        assert "mean over 4 queries (2 more see no key)" in readout
        assert numbers(readout)[0] == pytest.approx((weights[..., key].sum() / sees.sum()).item(), abs=6e-5)
    shown.show("grid")
    entropy = -(weights * weights.clamp(min=1e-300).log()).sum(-1)
    for head in (0, 1):
        readout = shown.hover(row=0, column=head)
        expected = (entropy[head].sum() / sees[head].sum()).item()
        assert f"mean entropy {expected:.2f} nats" in readout
        assert f"over {int(sees[head].sum())} queries" in readout
    received = of_heads.sum(0) / 4
    shown.show("words", head=None, overall=True)
    shown.page.mouse.move(2, 2)
    shown.settle()
    ticks, told = legend(shown.call("svg"))
    assert "mean over 4 queries (2 more see no key)" in told
    assert received.max() < 4 / len(received) < number(ticks[-1][0])[0] == 1  # a round number


def test_layers_of_one_size_are_reduced_alike(show, monkeypatch):
    """Above the limit of a document, each layer is pooled, into as many bins; small ones of other sizes stay whole."""
    monkeypatch.setattr(sys.modules["regard.viewer.overview"], "MOST_CELLS_TOGETHER", 2 * 200 * 200 * 3)
    axis = TokenAxis(tuple(f"t{number}" for number in range(200)))
    layers = [
        AttentionRecord(f"l{layer}", layer, "self", axis, axis, documents.attention(2, 200, 200, seed=layer).numpy())
        for layer in range(5)
    ]
    document = Document("five", (*layers, documents.alignment()[0]))
    entries = payload(document, budget_bytes=100_000)["records"]
    assert [entry["overview"] is None for entry in entries] == [False] * 5 + [True]
    assert len({(entry["overview"]["rows"], entry["overview"]["columns"]) for entry in entries[:5]}) == 1
    shown = show(View(document, view="grid", budget_bytes=100_000))
    _, told = legend(shown.call("svg"))
    assert "a point is the largest of up to" in told
    assert "a point is the largest of about" in shown.hover(row=3, column=1)
