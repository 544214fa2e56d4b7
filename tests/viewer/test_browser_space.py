"""Views use their page: large text, bars beside the row that asks, and a long document's sentence, scale and words."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from regard.records import AttentionRecord, DenseTiles, TokenAxis
from regard.viewer import View
from regard.viewer.patterns import NEAR, Chance, nearness, peaks, stripes

SENTENCE = (
    "the old lighthouse keeper climbed the stairs every evening , because the lamp would not light itself . " * 3
).split()
LENGTH = 600
CAUSAL = np.tril(np.ones((LENGTH, LENGTH), bool))


WATCHED = """() => {
  window.titles = [];
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function watched(text, x, y) {
    const [{ a, e, f }, box] = [this.getTransform(), this.canvas.getBoundingClientRect()];
    if (text.includes('looks at')) window.titles.push([box.left + x + e / a, box.top + y + f / a]);
    fillText.call(this, text, x, y);
  };
}"""
"""Notes where the titles of bars are drawn on the screen."""


def softmax(scores, visible):
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def texts(svg):
    """The texts of a picture: (text, attributes)."""
    return [(one.text or "", one.attrib) for one in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def sentence_record(tokens):
    axis = TokenAxis(tuple(tokens))
    weights = softmax(np.random.default_rng(0).normal(0, 2, (1, len(tokens), len(tokens))), True)
    return AttentionRecord("a", 0, "self", axis, axis, weights)


def long_record():
    """Heads with a window of four tokens, an induction-like distance, a sink, a single pair, and no pattern."""
    scores = np.random.default_rng(1).normal(0, 0.2, (5, LENGTH, LENGTH))
    rows = np.arange(LENGTH)
    for distance in range(4):
        scores[0, rows[distance:], rows[: LENGTH - distance]] += 6
    scores[1, rows[200:], rows[:-200]] += 8
    scores[2, :, 0] += 7
    scores[3, 500, 100] += 9
    axis = TokenAxis(tuple(f"w{number}" for number in range(LENGTH)))
    return AttentionRecord("a", 0, "causal", axis, axis, None, source=DenseTiles(softmax(scores, CAUSAL)))


@pytest.mark.parametrize(
    ("count", "size", "least"),
    [(18, (1440, 900), 32), (54, (1440, 900), 32), (54, (1920, 1080), 32), (54, (400, 860), 16)],
)
def test_text_is_as_large_as_its_page_has_room(show, count, size, least):
    shown = show(View(sentence_record(SENTENCE[:count]), view="words"), size=size)
    ends = [shown.call("locate", {"side": "key", "column": column}) for column in range(count)]
    stage = shown.page.locator(".stage").bounding_box()
    assert max(one["height"] for one in ends) / 1.32 >= least - 0.5  # a box is a third higher than its letters
    across = max(one["x"] + one["width"] for one in ends) - min(one["x"] for one in ends)
    assert across >= (0.6 if size[0] < 1900 else 0.5) * size[0]
    left = min(one["x"] for one in ends)
    assert abs(left - (size[0] - left - across)) < 0.12 * size[0]  # in the middle
    assert ends[0]["y"] - stage["y"] < 0.45 * stage["height"]


def test_the_three_strongest_words_have_their_percent(show):
    record = sentence_record(SENTENCE[:18])
    shown = show(View(record, view="words", head=0), size=(1440, 900))
    shown.hover(side="query", row=4)
    row = np.sort(record.weights[0, 4])[::-1]
    labels = [text for text, one in texts(shown.call("svg")) if re.fullmatch(r"\d+\s%", text)]
    assert sorted(labels, reverse=True) == sorted((f"{100 * one:.0f}\xa0%" for one in row[:3]), reverse=True)


def test_marks_stand_at_their_words(show):
    shown = show(View(sentence_record(SENTENCE[:18]), view="words"), size=(1440, 900))
    places = [shown.call("locate", {"side": "key", "column": column}) for column in range(18)]
    comma = SENTENCE.index(",")
    assert places[comma]["x"] - (places[comma - 1]["x"] + places[comma - 1]["width"]) < 2
    assert places[comma]["y"] == places[comma - 1]["y"]
    assert places[2]["x"] - (places[1]["x"] + places[1]["width"]) >= 2


@pytest.mark.parametrize("size", [(1440, 900), (1920, 1080)])
def test_bars_stand_beside_the_row_that_asks(show, size):
    tokens = SENTENCE[:12]
    shown = show(View(sentence_record(tokens), view="pattern"), size=size)
    cell = shown.call("locate", {"row": 0, "column": 0})
    assert cell["width"] >= 44  # the map takes the height of the page
    shown.page.evaluate(WATCHED)
    for row in (1, 5):
        shown.hover(row=row, column=2)
        x, y = shown.page.evaluate("() => window.titles.at(-1)")
        last, asking = (shown.call("locate", {"row": row, "column": column}) for column in (11, 2))
        assert 0 < x - (last["x"] + last["width"]) <= 26
        assert y == pytest.approx(asking["y"] + asking["height"] / 2, abs=8)


def test_a_long_head_is_told_in_a_sentence(show):
    record = long_record()
    weights = record.source.weights.astype(np.float64)
    counts = np.arange(1, LENGTH + 1)
    shown = show(View(record, budget_bytes=500_000), size=(1440, 900))
    told = {}
    for head in range(5):
        shown.show("long", head=head)
        told[head] = re.sub("[\u2068\u2069]", "", shown.page.locator(".sentence").text_content()).replace("\xa0", " ")
    window = sum(np.diagonal(weights[0], -distance).sum() for distance in range(4)) / LENGTH
    assert (
        told[0]
        == f"Each token gives {100 * window:.0f} % of its attention to itself and the 3 tokens before it, on average."
    )
    share = np.diagonal(weights[1], -200).mean()
    assert told[1].startswith(f"Each token gives {100 * share:.0f} % of its attention to the one 200 places before it")
    assert "400 of 600 tokens have one" in told[1]
    assert (
        told[2]
        == f"The tokens give “w0” (token 0) {100 * weights[2, :, 0].mean():.0f} % of their attention, on average."
    )
    rows = np.arange(LENGTH)
    near = weights[3][np.abs(rows - rows[:, None]) <= 64].sum() / LENGTH
    assert told[3] == f"Most attention goes far: only {100 * near:.0f} % stays within 64 tokens."
    bound = float(re.search(r"no token gets more than ([\d.]+) times", told[4])[1])
    assert 0 <= bound - (weights[4] * counts[:, None]).max() < 0.5 * bound


def test_a_long_map_has_a_scale_that_shows_it_and_the_words_around(show):
    shown = show(View(long_record(), budget_bytes=500_000), size=(1440, 900))
    shown.show("long", head=4)
    assert "equal share" in shown.words
    shown.show("long", head=3)
    words = shown.words
    assert {"100\xa0%", "≤ 0.1\xa0%"} <= {text for text, _ in texts(shown.call("svg"))}
    assert "the future: hidden" in words
    pair = long_record().source.weights[3, 500, 100]
    assert f"“w500” (500) gives {100 * pair:.0f}\xa0% to “w100” (100), 400 tokens away" in re.sub(
        "[\u2068\u2069]", "", words
    )
    assert {f"w{number}" for number in (97, 99, 100, 103, 497, 500, 502)} <= set(words.split())
    shown.hover(row=300, column=40)
    assert {"w38", "w40", "w43", "w298", "w300", "w301"} <= set(shown.words.split())


@pytest.mark.parametrize("budget", [0, 5_000_000])
def test_single_weights_are_promised_only_where_they_are(show, budget):
    shown = show(View(long_record(), budget_bytes=budget), size=(1440, 900))
    shown.show("long", head=3)
    assert ("Enter" in shown.page.locator(".help").text_content()) == (budget > 0)
    assert not re.search(
        r"tile|pooled|received|8-bit|record|float", shown.words + shown.page.locator(".help").text_content()
    )


@pytest.mark.parametrize("mask", ["none", "causal", "random"])
def test_peaks_are_exact_and_their_bound_holds(mask):
    generator = np.random.default_rng(2)
    visible = {"none": np.ones((97, 97), bool), "causal": CAUSAL[:97, :97], "random": generator.random((97, 97)) < 0.6}[
        mask
    ]
    weights = softmax(generator.normal(0, 1.5, (3, 97, 97)), visible)
    axis = TokenAxis(tuple(map(str, range(97))))
    record = AttentionRecord(
        "a", 0, "causal" if mask == "causal" else "self", axis, axis, weights, visible if mask == "random" else None
    )
    source = DenseTiles(weights)
    multiples = weights * visible.sum(-1)[:, None]
    for head, one in enumerate(peaks(source, source.pooled(32, 32)[1], Chance(record), 0)):
        assert multiples[head].max() <= one["times"] * 1.001
        assert one["times"] <= 1.5 * multiples[head].max()
        assert one["pairs"]
        for pair in one["pairs"]:
            assert pair["weight"] == weights[head, pair["query"], pair["key"]]
            assert pair["times"] == pytest.approx(multiples[head, pair["query"], pair["key"]], rel=1e-3)
            assert abs(pair["query"] - pair["key"]) > 97 // 8
        far = np.abs(np.subtract.outer(np.arange(97), np.arange(97))) > 97 // 8 + 4
        assert one["pairs"][0]["weight"] >= (weights[head] * far)[20:].max()
        assert len({pair["key"] for pair in one["pairs"]}) == len(one["pairs"])


@pytest.mark.parametrize("shift", [0, 30])
def test_nearness_is_the_exact_attention_within_each_distance(shift):
    queries, keys = 300 - shift, 300
    away = np.abs(np.subtract.outer(np.arange(queries) + shift, np.arange(keys)))
    weights = softmax(np.random.default_rng(3).normal(0, 1, (2, queries, keys)) - away / 40, True)
    axes = [TokenAxis(tuple(map(str, range(length)))) for length in (queries, keys)]
    record = AttentionRecord("a", 0, "causal" if shift else "self", *axes, weights)
    expected = [[(one * (away <= most)).sum() / queries for most in NEAR] for one in weights.astype(np.float64)]
    assert np.allclose(nearness(DenseTiles(weights), Chance(record), shift), expected, atol=1e-6)


def test_points_of_a_long_map_are_the_same_on_all_screens(show):
    for size in ((1440, 900), (400, 860)):
        shown = show(View(long_record(), budget_bytes=500_000), size=size)
        shown.show("long", head=1)
        assert "attention of about 5 tokens to 5 tokens" in shown.words
        shown.hover(row=452, column=252)
        told = re.search(r"Tokens (\d+)–(\d+) give ([\d.]+)\s% of their attention to tokens (\d+)–(\d+)", shown.words)
        share, (q0, q1, k0, k1) = told[3], (int(told[one]) for one in (1, 2, 4, 5))
        assert q0 <= 452 <= q1
        assert k0 <= 252 <= k1
        weights = long_record().source.weights[1, q0 : q1 + 1, k0 : k1 + 1].astype(np.float64)
        assert float(share) == pytest.approx(100 * weights.sum() / len(weights), rel=0.03)


def test_a_key_that_few_queries_look_at_is_no_sink():
    from regard.viewer.patterns import sinks

    weights = np.full((1, 100, 100), 0.01, np.float32)
    weights[0, :40, 7] = 0.9
    weights[0, :40] /= weights[0, :40].sum(-1, keepdims=True)
    axis = TokenAxis(tuple(map(str, range(100))))
    for rows, found in ((40, []), (60, [7])):
        weights[0, :rows, 7] = 0.9
        record = AttentionRecord("a", 0, "self", axis, axis, weights)
        assert [one["key"] for one in sinks(DenseTiles(weights), Chance(record))] == found


def striped_record(tokens):
    """A head whose attention decays with the distance, and has stripes at 300 and 120 tokens."""
    rows = np.arange(LENGTH)
    scores = np.random.default_rng(5).normal(0, 0.3, (1, LENGTH, LENGTH)) - np.abs(np.subtract.outer(rows, rows)) / 30
    for distance, above in ((120, 5.0), (300, 13.0)):
        scores[0, rows[distance:], rows[:-distance]] += above
    axis = TokenAxis(tuple(tokens))
    return AttentionRecord("a", 0, "causal", axis, axis, None, source=DenseTiles(softmax(scores, CAUSAL)))


def test_stripes_are_fixed_distances_above_their_surroundings():
    record = striped_record(map(str, range(LENGTH)))
    assert stripes(record.source, 0) == [[-300, -120]] * 2
    generator = np.random.default_rng(0)
    for sharpness, visible in ((0.1, CAUSAL), (3, CAUSAL), (20, CAUSAL), (20, np.ones_like(CAUSAL))):
        weights = softmax(generator.normal(0, sharpness, (4, LENGTH, LENGTH)), visible)
        assert stripes(DenseTiles(weights), 0) == [[]] * 5


@pytest.mark.parametrize("unit", ["character", "token"])
def test_a_long_head_names_its_stripes_in_its_own_units(show, unit):
    tokens = "ab cd efg " * (LENGTH // 10) if unit == "character" else [f"w{number}" for number in range(LENGTH)]
    shown = show(View(striped_record(tokens), budget_bytes=0), size=(1440, 900))
    shown.show("long", head=0)
    words = re.sub("[\u2068\u2069]", "", shown.words)
    assert f"Stripes: {unit}s look a fixed distance back, most often about 300 and 120." in words
    assert {"300 back", "120 back"} <= {text for text, _ in texts(shown.call("svg"))}
    assert f"how much each {unit} is looked at" in words
    shown = show(View(striped_record(tokens), budget_bytes=0, language="zh", head=0))
    assert f"条纹：{'字符' if unit == 'character' else '词元'}看固定距离之前" in shown.words


def test_every_stripe_of_the_sentence_is_named_apart_and_a_page_says_what_shows_single_weights(show):
    record = striped_record(map(str, range(LENGTH)))
    figure = View(record, head=0).figure()
    figure.canvas.draw()
    names = [text for text in figure.axes[0].texts if text.get_text().endswith(" back")]
    assert {name.get_text() for name in names} == {"300 back", "120 back"}
    assert not names[0].get_window_extent().overlaps(names[1].get_window_extent())
    for width in (1440, 400, 320):
        shown = show(View(record, budget_bytes=0, head=0), size=(width, 900))
        places = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>(?:300|120) back<', shown.call("svg"))[:2]
        assert abs(float(places[0][1]) - float(places[1][1])) >= 20
        assert 'write regard.watch(model, read="view")' in shown.page.locator(".help").text_content()


def test_a_pair_is_told_apart_from_its_block(show):
    shown = show(View(long_record(), budget_bytes=0), size=(1440, 900))
    shown.show("long", head=3)
    pair = long_record().source.weights[3, 500, 100]
    told = re.search(
        r"this pair: (\d+)\s%; its 9 × 9 neighbours, one point of the map: (\d+)\s% on average", shown.words
    )
    assert int(told[1]) == round(100 * pair)
    assert 0 < int(told[2]) < 0.5 * int(told[1])
    assert "Stripes" not in shown.words
    shown.show("long", head=2)
    assert re.search(r"head 2: most look at the first token, .*w0.*, \d+\s% on average", shown.words)
