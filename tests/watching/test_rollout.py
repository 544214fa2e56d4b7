"""Rollout and flow across layers: by hand, by brute force, and the laws that bind them."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.records import AttentionRecord, DenseTiles, GridAxis, TokenAxis
from regard.watching import flow, rollout
from regard.watching.layer_graph import Network


def record(layer, weights, kind="self", axis=None, source=False, visible=None):
    weights = np.asarray(weights, np.float32)
    axis = axis or TokenAxis(tuple(f"t{place}" for place in range(weights.shape[1])))
    stored = None if source else weights
    tiles = DenseTiles(weights) if source else None
    return AttentionRecord(f"layer.{layer}", layer, kind, axis, axis, stored, visible, tiles)


def random_layers(seed, layers, heads, length, causal=False):
    generator = np.random.default_rng(seed)
    weights = generator.gamma(0.5, size=(layers, heads, length, length)) + 1e-3
    if causal:
        weights *= np.tri(length)
    return weights / weights.sum(-1, keepdims=True)


def records_of(weights, **options):
    return [record(layer, of_layer, **options) for layer, of_layer in enumerate(weights)]


def test_rollout_by_hand():
    """Two layers of two positions: A = I/2 + W/2, and the product of both."""
    first, second = [[[0.0, 1.0], [0.5, 0.5]]], [[[1.0, 0.0], [1.0, 0.0]]]
    got = rollout([record(0, first), record(1, second)])
    # A1 = [[.5, .5], [.25, .75]], A2 = [[1, 0], [.5, .5]]
    assert np.allclose(got.weights[0], [[0.5, 0.5], [0.375, 0.625]])
    assert got.heads == 1
    assert got.layer == 1
    assert got.kind == "self"
    assert got.keys.tokens == ("t0", "t1")


def test_heads_are_fused():
    heads = [[[0.9, 0.1], [0.0, 1.0]], [[0.3, 0.7], [0.8, 0.2]]]
    assert np.allclose(rollout([record(0, heads)], residual=0.0).weights[0], [[0.6, 0.4], [0.4, 0.6]])
    greatest = rollout([record(0, heads)], residual=0.0, fuse="max").weights[0]
    assert np.allclose(greatest, [[0.9 / 1.6, 0.7 / 1.6], [0.8 / 1.8, 1 / 1.8]])
    least = rollout([record(0, heads)], residual=0.0, fuse="min").weights[0]
    assert np.allclose(least, [[0.75, 0.25], [0.0, 1.0]])


@given(st.integers(0, 99), st.integers(1, 4), st.integers(1, 3), st.integers(1, 7), st.floats(0, 1), st.booleans())
def test_rollout_is_the_product_of_the_layers(seed, layers, heads, length, residual, causal):
    weights = random_layers(seed, layers, heads, length, causal)
    want = np.eye(length)
    for of_layer in weights:
        want = (residual * np.eye(length) + (1 - residual) * of_layer.mean(0)) @ want
    stored = rollout(records_of(weights), residual=residual)
    assert np.allclose(stored.weights[0], want, atol=1e-6)
    assert np.allclose(stored.weights.sum(-1), 1, atol=1e-5)
    tiles = rollout(records_of(weights, source=True)[::-1], residual=residual, queries=[-1, 0])
    assert np.allclose(tiles.weights[0], want[[-1, 0]], atol=1e-6)
    assert tiles.queries.tokens == (f"t{length - 1}", "t0")


def test_blocks_of_rows_give_the_same(monkeypatch):
    weights = random_layers(1, 3, 2, 11)
    whole = rollout(records_of(weights))
    monkeypatch.setattr("regard.watching.layer_graph.BLOCK_WEIGHTS", 3 * 2 * 11)
    assert np.allclose(rollout(records_of(weights)).weights, whole.weights, atol=1e-7)


def test_rollout_hides_positions_that_cannot_be_reached():
    weights = random_layers(2, 3, 2, 5, causal=True)
    seen = np.tri(5, dtype=bool) & ~np.tri(5, k=-3, dtype=bool)
    windows = weights * seen
    windows /= windows.sum(-1, keepdims=True)
    got = rollout(records_of(windows, visible=seen))
    assert np.array_equal(got.visible, got.weights[0] > 0)
    assert np.array_equal(got.visible, np.tri(5, dtype=bool))  # three windows of three positions reach everything
    assert rollout(records_of(windows, visible=np.stack([seen, seen]))).visible.sum() == 15


def test_patches_keep_their_grid():
    axis = GridAxis(2, 3, np.zeros((4, 6, 3), np.uint8), leading=1)
    records = records_of(random_layers(3, 2, 2, 7), axis=axis)
    assert rollout(records).keys is axis
    assert rollout(records).queries is axis
    chosen = rollout(records, queries=[0, 5])
    assert chosen.keys is axis
    assert chosen.queries.tokens == ("leading 0", "row 1, column 1")
    assert flow(records, queries=[0]).weights.shape == (1, 1, 7)


def test_flow_by_hand():
    """Two layers of two positions; the direct way and the way over the other position add up."""
    first, second = [[[0.0, 1.0], [0.5, 0.5]]], [[[0.6, 0.4], [1.0, 0.0]]]
    # A1 = [[.5, .5], [.25, .75]], A2 = [[.8, .2], [.5, .5]]: from 0 to 0 min(.8, .5) + min(.2, .25) = .7
    got = flow([record(0, first), record(1, second)])
    assert np.allclose(got.weights[0], [[0.7, 0.5 + 0.2], [0.5 + 0.25, 0.5 + 0.5]])


def test_flow_sends_back_what_it_sent_along_a_wrong_path():
    """The first path, 0 1 3 5, takes the only way on of node 2, and must be led over node 4 instead."""
    network = Network(6)
    for start, end in ((0, 1), (0, 2), (1, 3), (1, 4), (2, 3), (3, 5), (4, 5)):
        network.add(start, end, 1.0)
    assert network.maximum_flow(0, 5) == 2
    assert network.maximum_flow(0, 5) == 2  # each flow begins with all capacities
    assert network.maximum_flow(5, 0) == 0


def least_cut(capacities, source, sink):
    """The least capacity of edges that separate two nodes, over every set of nodes (Ford & Fulkerson)."""
    nodes = len(capacities)
    others = [node for node in range(nodes) if node not in (source, sink)]
    best = np.inf
    for chosen in itertools.product([False, True], repeat=len(others)):
        inside = np.zeros(nodes, bool)
        inside[source], inside[others] = True, chosen
        best = min(best, capacities[np.ix_(inside, ~inside)].sum())
    return best


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("layers", "length", "causal"), [(1, 3, False), (2, 3, False), (3, 3, True), (2, 4, False)])
def test_flow_is_the_least_cut(seed, layers, length, causal):
    weights = random_layers(seed, layers, 2, length, causal)
    got = flow(records_of(weights)).weights[0]
    nodes = (layers + 1) * length
    capacities = np.zeros((nodes, nodes))
    for layer, of_layer in enumerate(weights):
        above, below = (layer + 1) * length, layer * length
        block = 0.5 * np.eye(length) + 0.5 * of_layer.mean(0)
        capacities[above : above + length, below : below + length] = block
    want = [[least_cut(capacities, layers * length + i, j) for j in range(length)] for i in range(length)]
    assert np.allclose(got, want, atol=1e-6)


def test_flow_of_one_layer_is_rollout_and_never_less():
    weights = random_layers(5, 3, 2, 6)
    assert np.allclose(flow(records_of(weights[:1])).weights, rollout(records_of(weights[:1])).weights, atol=1e-6)
    assert (flow(records_of(weights)).weights >= rollout(records_of(weights)).weights - 1e-6).all()


GOOD = records_of(random_layers(0, 2, 2, 3))
REFUSED = [
    (GOOD[0], KindError, "records must be a sequence"),
    ([1], KindError, "one is an int"),
    ([], ArgumentError, "at least one layer"),
    ([GOOD[0], GOOD[0]], ArgumentError, r"layers are \[0, 0\]"),
    ([GOOD[0], record(2, np.ones((1, 3, 3)))], ArgumentError, r"layers are \[0, 2\]"),
    ([GOOD[0], record(1, np.ones((1, 4, 4)))], ShapeError, "same 3 positions"),
    ([record(0, np.ones((1, 3, 3)), kind="cross")], ArgumentError, "cross-attention"),
    ([record(0, np.full((1, 3, 3), np.nan))], ArgumentError, "'layer.0' does"),
]


@pytest.mark.parametrize("reading", [rollout, flow])
@pytest.mark.parametrize(("records", "error", "message"), REFUSED)
def test_records_that_make_no_graph_are_refused(reading, records, error, message):
    with pytest.raises(error, match=message):
        reading(records)


@pytest.mark.parametrize("reading", [rollout, flow])
def test_weights_with_signs_have_no_share_that_is_followed(reading):
    signed = dataclasses.replace(record(1, [[[1.0, 0.0], [0.5, 0.5]]]), signed=True)
    with pytest.raises(ArgumentError, match=r"layer\.1.* have signs"):
        reading([record(0, [[[1.0, 0.0], [0.5, 0.5]]]), signed])


@pytest.mark.parametrize("reading", [rollout, flow])
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"residual": 1.5}, ArgumentError, "residual must be from 0 to 1"),
        ({"residual": float("nan")}, ArgumentError, "residual must be"),
        ({"residual": "half"}, KindError, "residual must be a number"),
        ({"fuse": "sum"}, UnknownNameError, "mean"),
        ({"queries": [3]}, ArgumentError, r"queries\[0\]"),
        ({"queries": "0"}, KindError, "queries must be a sequence"),
    ],
)
def test_bad_options_are_refused(reading, options, error, message):
    with pytest.raises(error, match=message):
        reading(GOOD, **options)
