"""Weights with signs, as those of linear recurrences: colours with 0 in the middle, and no word of shares."""

import numpy as np
import pytest
import torch

import regard
from regard.errors import ArgumentError
from regard.records import AttentionRecord, Document, TokenAxis
from regard.scores import DeltaRule
from regard.viewer import payload, tile_payload
from regard.viewer.encoding import NAN_CODE, SIGNED_STEPS, signed_codes
from regard.viewer.static_pictures import figure
from regard.viewer.view import View
from viewer_decoding import unpacked, unpacked_numbers

AXIS = TokenAxis(tuple("abcde"))
WEIGHTS = np.tril(np.random.default_rng(0).normal(0, 0.1, (2, 5, 5))).astype(np.float32)
WEIGHTS[1, 3, 1] = -0.7  # the largest in size


def signed(**options):
    visible = np.tril(np.ones((5, 5), np.bool_))
    return AttentionRecord("linear", 0, "causal", AXIS, AXIS, WEIGHTS, visible, signed=True, **options)


def test_codes_of_weights_with_signs_are_near_and_keep_zero_and_nan():
    weights = np.append(np.linspace(-3, 3, 1001), [0.0, np.nan])
    codes = signed_codes(weights, 3.0).astype(int)
    parts = (
        np.where(codes > SIGNED_STEPS + 1, -1, 1)
        * ((np.maximum(codes - 1, 0) % (SIGNED_STEPS + 1)) / SIGNED_STEPS) ** 2
    )
    assert (np.abs(3 * parts - weights)[:-1] <= 0.008 * 3).all()
    assert ((codes == 0) == (weights == 0)).all()
    assert codes[-1] == NAN_CODE
    assert not (codes[:-1] == NAN_CODE).any()


def test_negative_weights_need_the_word_signed():
    with pytest.raises(ArgumentError, match="signed=True"):
        AttentionRecord("x", 0, "causal", AXIS, AXIS, WEIGHTS)
    with pytest.raises(ArgumentError, match="finite, or NaN"):
        AttentionRecord("x", 0, "causal", AXIS, AXIS, np.full((1, 5, 5), -np.inf), signed=True)
    with pytest.raises(ArgumentError, match="weights must be at least 0"):
        View(WEIGHTS, list("abcde"))


def test_a_result_with_signs_is_shown_as_such():
    x = torch.randn(5, 4)
    attended = regard.attend_with_weights(
        x, x, x, score=DeltaRule("dot", torch.full((1, 1, 5), 0.5)), normalizer="identity"
    )
    record = View(attended, list("abcde")).document.records[0]
    assert record.signed
    np.testing.assert_array_equal(record.weights[0], attended.weights.numpy())


def test_exact_numbers_and_masked_pairs_of_a_record_with_signs():
    entry = payload(Document("x", (signed(),)))["records"][0]
    assert entry["signed"]
    np.testing.assert_array_equal(unpacked_numbers(entry["exact"]), WEIGHTS)
    codes = np.frombuffer(unpacked(entry["codes"]["data"]), np.uint8)
    assert entry["codes"]["maximum"] == pytest.approx(0.7)
    assert ((codes.reshape(2, 5, 5) > SIGNED_STEPS + 1) == (WEIGHTS < 0)).all()
    tile = unpacked_numbers(tile_payload(signed(), (2, 4), (1, 4)))
    np.testing.assert_array_equal(np.isneginf(tile[0]), ~np.tril(np.ones((5, 5), np.bool_))[2:4, 1:4])


def test_a_pooled_map_with_signs_has_the_largest_size():
    mean, extreme = regard.records.DenseTiles(WEIGHTS).pooled(2, 2)
    assert extreme[1, 1, 0] == np.float32(-0.7)
    np.testing.assert_allclose(mean[1, 1, 0], WEIGHTS[1, 3:, :3].mean(), rtol=1e-5)
    record = AttentionRecord("x", 0, "causal", AXIS, AXIS, None, source=regard.records.DenseTiles(WEIGHTS), signed=True)
    overview = payload(Document("x", (record,)))["records"][0]["overview"]
    assert overview["findings"] == {"sinks": [], "diagonals": [], "spikes": []}
    assert overview["maximum"]["maximum"] == pytest.approx(0.7)


@pytest.mark.parametrize("view", ["pattern", "grid", "words", "long"])
def test_pictures_with_signs_have_zero_in_the_middle(view):
    drawn = figure(Document("x", (signed(),)), view, 0, 1)
    images = [image for axes in drawn.axes for image in axes.images if image.get_array().ndim == 2]
    assert view == "words" or images
    for image in images:
        assert image.norm.vmin == -image.norm.vmax
        assert image.cmap.name == "sign"
    bars = " ".join(axes.get_ylabel() + axes.get_xlabel() for axes in drawn.axes)
    assert "share" not in bars


@pytest.mark.parametrize(("language", "title"), [("en", "weight with a sign"), ("zh", "带正负号的权重")])
def test_the_viewer_says_no_share_of_a_row_with_signs(show, language, title):
    shown = show(View(signed(), view="pattern", head=1, language=language))
    assert title in shown.words
    assert "−1 0 +1" in shown.words
    readout, sentence = shown.hover(row=3, column=1), shown.page.locator(".sentence").text_content()
    assert "−0.7" in readout
    assert "%" not in readout + sentence
    for view in ("grid", "lines", "words"):
        shown.show(view)
        assert shown.words
        assert "%" not in shown.page.locator(".sentence").text_content()


def test_the_walk_through_weights_with_signs_says_no_percent(show):
    x = torch.tensor([[1.0, 0.0], [-0.6, 0.8], [0.8, 0.6]])
    score = DeltaRule("dot", torch.full((1, 1, 3), 0.5))
    explanation = regard.explain(x, x, x, score=score, normalizer="identity", mask="causal")
    shown = show(View(explanation, rows=list("abc"), columns=list("abc"), view="walk"))
    assert "The row has any sum" in shown.station("weights").text_content()
    assert "%" not in shown.page.locator(".walk").first.text_content()
