"""Findings of long maps: exact numbers, none in noise, and queries that see no key are in no mean."""

import numpy as np
import pytest
import torch

import viewer_documents as documents
from regard.records import AttentionRecord, DenseTiles, TokenAxis
from regard.viewer.overview import overview_payloads
from regard.viewer.patterns import Chance

LENGTH, HEADS = 200, 3


def pooled(weights, visible=None, *, kind="self"):
    axis = TokenAxis(tuple(f"t{number}" for number in range(weights.shape[-1])))
    source = DenseTiles(np.asarray(weights, np.float32))
    record = AttentionRecord("x", 0, kind, axis, axis, None, visible, source)
    return overview_payloads([record], 200_000)[0]["findings"]


@pytest.mark.parametrize("sharpness", [0.1, 1.5, 3.0, 6.0])
def test_noise_has_no_findings(sharpness):
    """Random weights, however peaked, full and causal: nothing stands out."""
    lower = np.tril(np.ones((LENGTH, LENGTH), np.bool_))
    for seed in range(3):
        for kind, visible in (("self", None), ("causal", lower), ("self", lower)):
            weights = documents.attention(HEADS, LENGTH, LENGTH, visible=visible, sharpness=sharpness, seed=seed)
            for shown in (visible, None) if kind == "causal" else (visible,):
                found = pooled(weights.numpy(), shown, kind=kind)
                assert found == {"sinks": [], "diagonals": [], "spikes": []}, (seed, kind)


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 3), (2, 2)])
def test_maps_smaller_than_the_list_of_findings(shape):
    queries, keys = shape
    axes = [TokenAxis(tuple(f"t{number}" for number in range(length))) for length in shape]
    source = DenseTiles(np.full((1, queries, keys), 1 / keys, np.float32))
    record = AttentionRecord("x", 0, "cross", *axes, None, None, source)
    assert overview_payloads([record], 200_000)[0]["findings"]["spikes"] == []


def test_planted_patterns_are_found_with_their_exact_numbers():
    """In noise, with two queries that see no key: their rows are in no mean."""
    visible = np.tril(np.ones((LENGTH, LENGTH), np.bool_))
    visible[[0, 50]] = False
    weights = documents.attention(HEADS, LENGTH, LENGTH, visible=visible, sharpness=0.5)
    weights[0] *= 0.7
    weights[0, :, 7] += 0.3 * torch.from_numpy(visible[:, 7])
    rows = torch.arange(3, LENGTH)
    weights[1, rows, rows - 3] += 0.4 * torch.from_numpy(visible.diagonal(-3).copy())
    weights[2, 150, 20] = 0.8
    found = pooled(weights.numpy(), visible, kind="causal")
    seeing = visible.any(-1).sum()
    assert [(one["head"], one["key"]) for one in found["sinks"]] == [(0, 7)]
    assert found["sinks"][0]["share"] == pytest.approx(weights[0, :, 7].sum().item() / seeing, rel=1e-5)
    assert [(one["head"], one["offset"]) for one in found["diagonals"]] == [(1, -3)]
    exact = weights[1].diagonal(-3).sum().item() / visible.diagonal(-3).sum()
    assert found["diagonals"][0]["share"] == pytest.approx(exact, rel=1e-5)
    (spike,) = found["spikes"]
    assert (spike["head"], spike["query"], spike["key"]) == (2, 150, 20)
    assert spike["weight"] == pytest.approx(0.8)


@pytest.mark.parametrize(("back", "count"), [(60, 1), (100, 1), (110, 0), (197, 0)])
def test_a_pattern_of_few_queries_is_not_that_of_a_head(back, count):
    weights = documents.attention(1, LENGTH, LENGTH, sharpness=0.5)
    rows = torch.arange(back, LENGTH)
    weights[0, rows, rows - back] += 0.5
    found = pooled(weights.numpy())["diagonals"]
    assert [(one["offset"], one["queries"], one["all"]) for one in found] == [(-back, LENGTH - back, LENGTH)] * count


def test_patterns_are_compared_with_uniform_weights():
    axis, lower = TokenAxis(tuple("abcdefg")), np.tril(np.ones((7, 7), np.bool_))
    masked = lower & (np.arange(7) != 3)[:, None]
    for kind, visible in (("self", None), ("causal", None), ("self", lower), ("causal", masked)):
        record = AttentionRecord("x", 0, kind, axis, axis, np.zeros((2, 7, 7), np.float32), visible)
        shown = visible if visible is not None else lower if kind == "causal" else np.ones((7, 7), np.bool_)
        uniform = shown / np.maximum(shown.sum(-1, keepdims=True), 1)
        chance = Chance(record)
        np.testing.assert_array_equal(chance.counts[0], shown.sum(-1))
        np.testing.assert_allclose(chance.of_keys[0], uniform.sum(0) / shown.any(-1).sum())
        queries = np.arange(2, 7)
        np.testing.assert_array_equal(chance.visible_on(queries, -2)[0], shown.diagonal(-2))


def test_maps_of_one_size_have_bins_of_one_size():
    """Sharp and flat layers compress differently; their maps are as fine as each other's all the same."""
    axis = TokenAxis(tuple(f"t{number}" for number in range(300)))
    weights = [
        documents.attention(heads, 300, 300, sharpness=sharp).numpy()
        for heads, sharp in ((2, 30.0), (4, 0.1), (3, 3.0))
    ]
    records = [AttentionRecord("x", n, "self", axis, axis, one) for n, one in enumerate(weights)]
    for budget in (0, 100_000, 1_000_000, 10_000_000):
        made = overview_payloads(records, budget)
        assert len({(one["rows"], one["columns"]) for one in made}) == 1, budget
    assert made[0]["rows"] == 300
