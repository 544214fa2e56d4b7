"""The payload: plain JSON, what it carries whole, its budget, and what it refuses."""

import json

import numpy as np
import pytest

import viewer_documents as documents
from regard.errors import ArgumentError, KindError, ShapeError
from regard.records import AttentionRecord, Document, GridAxis, TokenAxis
from regard.viewer import payload, tile_payload
from viewer_decoding import decoded, unpacked, unpacked_numbers


def test_a_payload_is_json_with_every_part_of_the_document():
    made = payload(documents.everything())
    again = json.loads(json.dumps(made, allow_nan=False))
    assert again == made
    assert set(made) == {"format", "title", "texts", "axes", "masks", "records", "steps", "grids", "budget"}
    assert made["format"] == 1
    for entry, record in zip(made["records"], documents.everything().records, strict=True):
        assert (entry["codes"] is None) == (entry["overview"] is not None)
        assert made["axes"][entry["queries"]]["length"] == len(record.queries)
        assert made["axes"][entry["keys"]]["length"] == len(record.keys)


def test_codes_and_exact_numbers_are_those_of_the_record():
    record, weights = documents.alignment()
    entry = payload(Document("x", (record,)))["records"][0]
    codes = np.frombuffer(unpacked(entry["codes"]["data"]), np.uint8).reshape(entry["codes"]["shape"])
    assert np.abs(decoded(codes, entry["codes"]["maximum"]) - weights.numpy()).max() <= 0.004
    assert np.array_equal(unpacked_numbers(entry["exact"]), record.weights)


@pytest.mark.parametrize("budget", [0, 700, 20_000, 2_000_000])
def test_exact_numbers_stay_within_the_budget(budget):
    records = tuple(documents.alignment(heads=4, queries=13, keys=17, seed=seed)[0] for seed in range(3))
    entries = payload(Document("x", records), budget_bytes=budget)["records"]
    exact = [entry["exact"] for entry in entries if entry["exact"]]
    used = sum(len(entry["codes"]["data"]) for entry in entries) + sum(len(one["data"]) for one in exact)
    assert not exact or used <= budget
    assert len(exact) == {0: 0, 700: 0, 20_000: 3, 2_000_000: 3}[budget]


def test_axes_and_masks_that_are_shared_travel_once():
    record, _ = documents.causal(heads=2)
    made = payload(Document("x", (record, record)))
    assert len(made["axes"]) == 1
    assert len(made["masks"]) == 1


def test_a_visible_mask_of_nothing_is_not_carried():
    record, _ = documents.alignment(visible=np.ones((3, 5), np.bool_))
    assert payload(Document("x", (record,)))["records"][0]["visible"] is None


def test_large_pictures_are_made_smaller_and_keep_their_coordinates():
    image = np.zeros((1500, 3000, 3), np.uint8)
    record = AttentionRecord("x", 0, "cross", TokenAxis(("a",)), GridAxis(2, 4, image), np.full((1, 1, 8), 0.125))
    axis = payload(Document("x", (record,)))["axes"][1]
    assert axis["size"] == [3000, 1500]
    assert axis["box"] == [0, 0, 3000, 1500]
    assert max(axis["image"]["width"], axis["image"]["height"]) <= 1024


@pytest.mark.parametrize("budget", [-1, 1.5, True, "2"])
def test_a_budget_is_a_number_of_bytes(budget):
    with pytest.raises((ArgumentError, KindError), match="budget_bytes"):
        payload(documents.everything(), budget_bytes=budget)


def test_only_documents_have_a_payload():
    with pytest.raises(KindError, match="document"):
        payload([documents.alignment()[0]])


def test_empty_texts_and_lone_surrogates_are_written():
    axis = TokenAxis(documents.HOSTILE)
    count = len(axis)
    record = AttentionRecord("\ud800", 0, "self", axis, axis, np.zeros((1, count, count), np.float32))
    json.dumps(payload(Document("\ud800", (record,)))).encode("ascii")


def test_tiles_mark_masked_pairs():
    record, weights = documents.causal(heads=2)
    tile = unpacked_numbers(tile_payload(record, (1, 4), (0, 3)))
    expected = weights[:, 1:4, :3].float().numpy()
    visible = np.tril(np.ones((6, 6), np.bool_))[1:4, :3]
    assert np.array_equal(tile[:, visible], expected[:, visible])
    assert (tile[:, ~visible] == -1).all()


class Wrong:
    heads, queries, keys = 2, 100, 100

    def pooled(self, rows, columns):
        return np.zeros((2, rows, columns - 1)), np.zeros((2, rows, columns))

    def tile(self, queries, keys):
        return np.zeros((2, 1, 1))


def test_a_source_of_wrong_shapes_is_named():
    axis = TokenAxis(tuple("x" * 100))
    record = AttentionRecord("x", 0, "self", axis, axis, None, source=Wrong())
    with pytest.raises(ShapeError, match="source"):
        payload(Document("x", (record,)))
    with pytest.raises(ShapeError, match="source"):
        tile_payload(record, (0, 2), (0, 2))
