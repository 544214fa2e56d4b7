"""Views as matplotlib pictures: titles say what is shown of what, and means leave out queries that see no key."""

import numpy as np
import pytest
import torch

import viewer_documents as documents
from regard.pictures import Panel, alignment, calculation, head_grid, position_table, sound_alignment
from regard.records import AttentionRecord, DenseTiles, Document, GridAxis, HeadGrid, TokenAxis
from regard.viewer import static_pictures
from regard.viewer.static_pictures import figure
from regard.viewer.view import View, views_of


def blind():
    """Six queries, two of which see no key; in head 1 a third neither."""
    axis = TokenAxis(tuple("abcdef"))
    visible = np.repeat(np.tril(np.ones((6, 6), np.bool_))[None], 2, 0)
    visible[:, :2] = False
    visible[1, 2] = False
    weights = documents.attention(2, 6, 6, visible=visible)
    return AttentionRecord("x", 0, "causal", axis, axis, weights.numpy(), visible), weights, visible


def words(drawn):
    texts = [*drawn.texts, *(text for axes in drawn.axes for text in (*axes.texts, axes.title))]
    if drawn._suptitle is not None:
        texts.append(drawn._suptitle)
    return " ".join(text.get_text().replace("\n", " ") for text in texts)


def test_means_of_a_picture_leave_out_queries_that_see_no_key():
    record, weights, visible = blind()
    of_heads = weights.sum(0) / torch.from_numpy(visible.any(-1).sum(0)).clamp(min=1)[:, None]
    matrix, hidden = static_pictures._matrix(record, None)
    np.testing.assert_allclose(matrix, of_heads, atol=1e-6)
    np.testing.assert_array_equal(hidden, ~visible.any(0))
    told = words(figure(Document("x", (record,)), "words"))
    assert "mean of 2 heads; mean over 4 queries (2 more see no key)" in told
    for key in range(6):
        assert f"{of_heads.sum(0)[key].item() / 4:.2f}".removeprefix("0") in told


def test_a_map_whose_bins_are_single_pairs_is_the_plain_map():
    short, weights = documents.tiled(5, 2)
    for head, expected in ((None, weights.mean(0)), (1, weights[1])):
        drawn = figure(Document("x", (short,)), "long", 0, head)
        assert "of about" not in words(drawn)
        maps = [image for axes in drawn.axes for image in axes.images]
        assert [image.get_array().shape for image in maps if image.get_array().shape == (5, 5)] == [(5, 5)]
        np.testing.assert_allclose(np.ma.getdata(maps[0].get_array()), expected, rtol=1e-5)
        assert [label.get_text() for label in drawn.axes[0].get_yticklabels()] == list(short.queries.labels)


def test_titles_say_the_statistic_and_what_is_left_out(monkeypatch):
    wide, _ = documents.tiled(600, 2)
    every = documents.everything()
    for head, of_heads in ((None, "mean of 2 heads"), (1, "head 1")):
        told = words(figure(Document("x", (wide,)), "long", 0, head))
        assert of_heads in told
        assert "largest of about 2.3 × 2.3 pairs" in told
        assert "mean of about 2.3 × 2.3 pairs" in told
    drawn = figure(Document("x", (wide,)), "long")
    mean, maximum = wide.source.pooled(256, 256)
    for axes, expected in zip(drawn.axes, (maximum.mean(0), mean.mean(0)), strict=False):
        np.testing.assert_allclose(np.ma.getdata(axes.images[0].get_array()), expected, rtol=1e-5)
    assert "a point is the largest of about 6.2 × 6.2 pairs" in words(figure(Document("x", (wide,)), "grid"))
    assert "a point is one weight" in words(figure(Document("x", (every.records[0],)), "grid"))
    assert "up to" in words(figure(every, "grid"))
    monkeypatch.setattr(static_pictures, "MOST_IMAGES", 2)
    assert "the first 2 of 3 queries" in words(figure(every, "image"))
    monkeypatch.setattr(static_pictures, "MOST_LINES", 3)
    assert "the 3 largest of" in words(figure(every, "lines"))
    assert "weights of at least 0.02" in words(figure(every, "lines"))


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
        low, high = bar.ax.get_ylim()
        labels = [(label.get_text(), label.get_position()[1]) for label in bar.ax.get_yticklabels()]
        shown = [(float(text.replace("−", "-")), place) for text, place in labels if text and low <= place <= high]
        assert len(shown) >= 2
        for value, place in shown:
            at = (place - low) / (high - low)
            assert np.abs(np.subtract(bar.mappable.to_rgba(value), bar.cmap(at))).max() < 0.03


def test_one_query_is_the_words_with_their_weights():
    view = View([[0.1, 0.6, 0.3]], rows=["bad"], columns=["a", "dull", "film"])
    assert views_of(view.document)[0] == "words"
    told = words(figure(view.document, "words"))
    assert all(part in told for part in ("dull", ".60", "one head"))
    assert "mean over" not in told


@pytest.mark.parametrize(("kind", "names"), [("self", {"query", "key"}), ("cross", {"target", "source"})])
def test_the_axes_of_self_attention_are_queries_and_keys(kind, names):
    axis = TokenAxis(("a", "b"))
    record = AttentionRecord("x", 0, kind, axis, axis, np.full((1, 2, 2), 0.5, np.float32))
    told = {text.get_text() for text in figure(Document("x", (record,)), "pattern").texts}
    assert told & {"query", "key", "target", "source"} == names


@pytest.mark.parametrize("heads", [1, 2, 4, 12])
def test_the_title_of_a_model_is_never_cut(heads):
    axis = TokenAxis(("a", "b"))
    record = AttentionRecord("x", 0, "self", axis, axis, np.full((heads, 2, 2), 0.5, np.float32))
    drawn = figure(Document("TransformerEncoder", (record,)), "grid")
    drawn.canvas.draw()
    assert words(drawn).endswith("a point is one weight")
    box = drawn._suptitle.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= drawn.bbox.width


def test_patches_of_an_image_that_are_masked_or_missing_are_marked():
    image = np.full((12, 18, 3), 200, np.uint8)
    weights, visible = np.full((1, 1, 6), 0.2, np.float32), np.ones((1, 6), np.bool_)
    weights[0, 0, 2], weights[0, 0, 4], visible[0, 4] = np.nan, 0, False
    record = AttentionRecord("x", 0, "cross", TokenAxis(("dog",)), GridAxis(2, 3, image), weights, visible)
    drawn = figure(Document("x", (record,)), "image")
    assert [one.get_hatch()[0] for one in drawn.axes[1].collections] == ["/", "x"]
    assert "hatched: masked, crossed: NaN" in words(drawn)


def test_words_that_are_masked_or_missing_are_marked():
    weights = np.array([[[0.5, np.nan, 0.0]]], np.float32)
    visible = np.array([[True, True, False]])
    record = AttentionRecord("x", 0, "cross", TokenAxis(("dog",)), TokenAxis(("ein", "Hund", ".")), weights, visible)
    drawn = figure(Document("x", (record,)), "words")
    assert sorted(one.get_hatch()[0] for one in drawn.axes[0].collections) == ["/", "x"]
    assert [text.get_text() for text in drawn.axes[0].texts] == [".50"]
    assert "hatched: masked, crossed: NaN" in words(drawn)
