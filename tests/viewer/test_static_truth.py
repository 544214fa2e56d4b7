"""Views as matplotlib pictures: titles say what is shown of what, and means leave out queries that see no key."""

import warnings

import numpy as np
import pytest
import torch

import viewer_documents as documents
from regard.pictures import Panel, alignment, calculation, head_grid, position_table, sound_alignment
from regard.pictures.caption import WORDS
from regard.records import AttentionRecord, DenseTiles, Document, GridAxis, HeadGrid, TokenAxis
from regard.viewer import line_picture, static_pictures
from regard.viewer.opening import opening, sentence
from regard.viewer.static_pictures import figure
from regard.viewer.view import View, views_of
from regard.viewer.words import words as viewer_words


def blind():
    """Six queries, two of which see no key; in head 1 a third neither."""
    axis = TokenAxis(tuple("abcdef"))
    visible = np.repeat(np.tril(np.ones((6, 6), np.bool_))[None], 2, 0)
    visible[:, :2] = False
    visible[1, 2] = False
    weights = documents.attention(2, 6, 6, visible=visible)
    return AttentionRecord("x", 0, "causal", axis, axis, weights.numpy(), visible), weights, visible


def words(drawn):
    from matplotlib.text import Text

    return " ".join(text.get_text().replace("\n", " ") for text in drawn.findobj(Text))


def test_means_of_a_picture_leave_out_queries_that_see_no_key():
    record, weights, visible = blind()
    of_heads = weights.sum(0) / torch.from_numpy(visible.any(-1).sum(0)).clamp(min=1)[:, None]
    drawn = figure(Document("x", (record,)), "pattern", head="mean")
    cells = drawn.axes[0].images[0].get_array()
    seen = visible.any(0)
    np.testing.assert_allclose(np.ma.getdata(cells)[seen], of_heads[seen], atol=1e-6)
    assert np.isneginf(np.ma.getdata(cells)[~seen]).all()
    assert "mean of 2 heads" in words(drawn)


def test_a_map_whose_bins_are_single_pairs_is_the_plain_map():
    short, weights = documents.tiled(5, 2)
    for head, expected in (("mean", weights.mean(0)), (1, weights[1])):
        drawn = figure(Document("x", (short,)), "long", 0, head)
        assert "of about" not in words(drawn)
        maps = [image for axes in drawn.axes for image in axes.images]
        assert [image.get_array().shape for image in maps if image.get_array().shape == (5, 5)] == [(5, 5)]
        np.testing.assert_allclose(np.ma.getdata(maps[0].get_array()), expected, rtol=1e-5)
        assert [label.get_text() for label in drawn.axes[0].get_yticklabels()] == list(short.queries.labels)


def test_titles_say_the_statistic_and_what_is_left_out(monkeypatch):
    wide, _ = documents.tiled(600, 2)
    every = documents.everything()
    for head, of_heads in (("mean", "mean of 2 heads"), (1, "head 1")):
        told = words(figure(Document("x", (wide,)), "long", 0, head))
        assert of_heads in told
        assert "attention of about 5 tokens to 5 tokens" in told
    assert "a point is the largest of about 6.2 × 6.2 pairs" in words(figure(Document("x", (wide,)), "grid"))
    assert "a point is one weight" in words(figure(Document("x", (every.records[0],)), "grid"))
    monkeypatch.setattr(static_pictures, "MOST_IMAGES", 2)
    assert "2 of 3 queries" in words(figure(every, "image"))
    monkeypatch.setattr(line_picture, "MOST_LINES", 3)
    assert "the 3 strongest of" in words(figure(every, "lines"))
    assert "from 0.01 on" in words(figure(every, "lines"))


def test_a_long_picture_has_the_shares_the_scale_and_the_words_of_the_viewer():
    rng = np.random.default_rng(0)
    weights = np.tril(rng.random((2, 600, 600)) ** 4)
    weights /= weights.sum(-1, keepdims=True)
    axis = TokenAxis(tuple("x" * 600))
    record = AttentionRecord("x", 0, "causal", axis, axis, None, source=DenseTiles(weights.astype(np.float32)))
    view = View(record, layer=0, head=1)
    drawn = view.figure()
    image = drawn.axes[0].images[0]
    shares = np.ma.getdata(image.get_array())
    edges = np.append((np.arange(0, 512, 4) * 600 + 511) // 512, 600)  # bins of the payload, four in each point
    for row, column in ((100, 3), (127, 0), (60, 60), (5, 5)):
        block = weights[1, edges[row] : edges[row + 1], edges[column] : edges[column + 1]]
        assert shares[row, column] == pytest.approx(block.sum() / len(block), rel=1e-5)
        shade = max(0.0, 1 + np.log10(shares[row, column]) / 3)
        assert float(image.norm(shares[row, column])) == pytest.approx(shade, abs=1e-6)
    assert np.isneginf(shares[3, 5:]).all()
    marks = str.maketrans({"\u2068": "", "\u2069": "", "\xa0": " "})
    told, says = words(drawn).translate(marks), view.payload()["records"][0]["overview"]["says"]["en"][1]
    for text in ("the future: hidden", "share of attention", "≤ 0.1 %", "100 %", *says):
        assert text.translate(marks) in told


@pytest.fixture(scope="module")
def several():
    """Six tokens, three layers of two heads, of which one word clearly looks at another far one."""
    axis = TokenAxis(("The", "cat", "saw", "a", "bird", "."))
    records = []
    for layer in range(3):
        weights = documents.attention(2, 6, 6).numpy().copy()
        if layer == 1:
            weights[1] = 0.04
            weights[1, np.arange(6), [3, 5, 2, 0, 1, 4]] = 0.8
        records.append(AttentionRecord(f"layers.{layer}", layer, "self", axis, axis, weights))
    return Document("a model", tuple(records))


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("view", ["pattern", "lines", "words"])
def test_pictures_open_on_the_head_pair_and_sentence_of_the_opening(several, view, language, tmp_path):
    first = opening(several)
    marks = str.maketrans({"\u2068": "", "\u2069": "", "\xa0": " "})
    said = [text.translate(marks) for text in sentence(several, first, language, view)]
    titled = {"en": f"layer {first.record} · head {first.head}", "zh": f"第 {first.record} 层 · 第 {first.head} 头"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a machine without Chinese letters
        shown = View(several, view=view, language=language)
        told = words(shown.figure())
        assert shown.save(tmp_path / "x.svg").read_bytes() == shown.save(tmp_path / "y.svg").read_bytes()
    if "□" in told:
        pytest.skip("no Chinese letters here")
    for part in (f"a model · {titled[language]}", *said):
        assert "".join(part.split()) in "".join(told.split())
    if view != "words":
        arrows = (" ↓", " →") if view == "pattern" else ("", "")
        assert {"en": "asks", "zh": "发问"}[language] + arrows[0] in told
        assert {"en": "looked at", "zh": "被看"}[language] + arrows[1] in told
        assert ("each row" in told or "每行" in told) == (view == "pattern")


def test_layer_head_and_the_mean_are_chosen_where_they_are_asked_for(several):
    assert "layer 2 · head 0" in words(View(several, layer=2, head=0).figure())
    assert "layer 2 · head" in words(View(several, layer=2).figure())
    assert "mean of 2 heads" in words(View(several, head="mean").figure())


def test_words_of_pictures_are_those_of_the_viewer():
    table = viewer_words()
    shared = {name: pair for name, pair in WORDS.items() if name in table}
    assert len(shared) >= 8
    assert shared == {name: table[name] for name in shared}


def test_a_difference_names_both_heads_and_marks_where_they_differ_most(several):
    drawn = View(several, view="difference", layer=1, head=1).figure()
    told = words(drawn)
    assert "a model · layer 1 · head 1 − head 0" in told
    assert "more than head" in told
    assert "difference of weights" in told
    cells = np.ma.getdata(drawn.axes[0].images[0].get_array())
    np.testing.assert_allclose(cells, np.subtract(*several.records[1].weights[::-1].astype(float)), atol=1e-6)


def tick_number(text):
    part = float(text.replace("−", "-").removeprefix("≤ ").removesuffix("\xa0%"))
    return part / 100 if text.endswith("%") else part


@pytest.mark.parametrize(
    "name", ["alignment", "head grid", "calculation", "sound", "positions", "long", "view of a sound"]
)
def test_every_tick_of_a_colour_bar_stands_at_its_colour(name):
    """The number of a tick, put through the scale of the cells, is the tick's place on the bar."""
    generator = np.random.default_rng(0)
    wide = AttentionRecord(
        "x", 0, "self", *[TokenAxis(tuple("x" * 300))] * 2, None, source=DenseTiles(generator.random((2, 300, 300)))
    )
    matrix, large = 0.37 * generator.random((5, 7)), generator.random((60, 60))
    maps = [HeadGrid("a", 3 * matrix, unit="nats"), HeadGrid("b", matrix, unit="share", high=1.0)]
    drawn = {
        "alignment": lambda: alignment(matrix, "abcdefg", "abcde", maximum=None),
        "head grid": lambda: head_grid(maps, "x"),
        "calculation": lambda: calculation([Panel("w", large, kind="weights"), Panel("s", large - 0.4)]),
        "sound": lambda: sound_alignment(matrix, np.ones((3, 14)), "abcde", 0.1),
        "positions": lambda: position_table(generator.normal(size=(40, 20))),
        "long": lambda: figure(Document("x", (wide,)), "long"),
        "view of a sound": lambda: figure(Document("x", (documents.sound()[0],)), "sound"),
    }[name]()  # fmt: skip
    drawn.canvas.draw()
    images = [image for axes in drawn.axes for image in axes.images]
    bars = [image.colorbar for image in images if image.colorbar is not None]
    assert bars
    for bar in bars:
        flat = bar.orientation == "horizontal"
        low, high = bar.ax.get_xlim() if flat else bar.ax.get_ylim()
        ticks = bar.ax.get_xticklabels() if flat else bar.ax.get_yticklabels()
        labels = [(label.get_text().removeprefix("≥ "), label.get_position()[not flat]) for label in ticks]
        shown = [(tick_number(text), place) for text, place in labels if text and low <= place <= high]
        assert len(shown) >= 2
        for value, place in shown:
            # A bar of logarithms is no line of its numbers.
            along = (bar.ax.transData - bar.ax.transAxes).transform((place, 0.5) if flat else (0.5, place))
            at = along[0 if flat else 1]
            assert np.abs(np.subtract(bar.mappable.to_rgba(value), bar.cmap(at))).max() < 0.03


def test_one_query_is_the_words_with_their_weights():
    view = View([[0.1, 0.6, 0.3]], rows=["bad"], columns=["a", "dull", "film"])
    assert views_of(view.document)[0] == "words"
    told = words(figure(view.document, "words"))
    assert all(part in told for part in ("dull", ".60"))
    assert "mean" not in told


@pytest.mark.parametrize("kind", ["self", "cross"])
def test_the_axes_say_who_asks_and_who_is_looked_at(kind):
    axis = TokenAxis(("a", "b"))
    record = AttentionRecord("x", 0, kind, axis, axis, np.full((1, 2, 2), 0.5, np.float32))
    told = [text.get_text() for text in figure(Document("x", (record,)), "pattern").texts]
    assert told[:2] == ["each row asks ↓", "each column is looked at →"]


@pytest.mark.parametrize("heads", [1, 2, 4, 12])
def test_the_title_of_a_model_is_never_cut(heads):
    axis = TokenAxis(("a", "b"))
    record = AttentionRecord("x", 0, "self", axis, axis, np.full((heads, 2, 2), 0.5, np.float32))
    drawn = figure(Document("TransformerEncoder", (record,)), "grid")
    drawn.canvas.draw()
    assert "a point is one weight" in words(drawn)
    for text in drawn.texts:
        box = text.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= drawn.bbox.width


def test_patches_of_an_image_that_are_masked_or_missing_are_marked():
    image = np.full((12, 18, 3), 200, np.uint8)
    weights, visible = np.full((1, 1, 6), 0.2, np.float32), np.ones((1, 6), np.bool_)
    weights[0, 0, 2], weights[0, 0, 4], visible[0, 4] = np.nan, 0, False
    record = AttentionRecord("x", 0, "cross", TokenAxis(("dog",)), GridAxis(2, 3, image), weights, visible)
    drawn = figure(Document("x", (record,)), "image")
    assert [one.get_hatch()[0] for one in drawn.axes[1].collections] == ["/", "x"]
    assert "masked NaN" in words(drawn)


def test_words_that_are_masked_or_missing_are_marked():
    weights = np.array([[[0.5, np.nan, 0.0]]], np.float32)
    visible = np.array([[True, True, False]])
    record = AttentionRecord("x", 0, "cross", TokenAxis(("dog",)), TokenAxis(("ein", "Hund", ".")), weights, visible)
    drawn = figure(Document("x", (record,)), "words")
    assert sorted(one.get_hatch()[0] for one in drawn.axes[0].collections) == ["/", "x"]
    assert [text.get_text() for text in drawn.axes[0].texts if text.get_text()] == ["0.50"]
    assert "masked NaN" in words(drawn)
