"""Masks of few runs of keys in each row and of many, on problems of several blocks and tiles: as the reference."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import regard
from kernels.oracle import assert_as_exact, outcome, tensors
from regard import masks, normalizers

QUERIES, KEYS = (1, 17, 67, 131), (1, 15, 128, 131, 263, 419)
few = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def _thin_slices(monkeypatch):
    """Dense masks are made for a few rows at a time."""
    monkeypatch.setattr("regard.attention.backends.cpu.dense_rows.SLICE_PAIRS", 37 * 131)


@st.composite
def restrictions(draw, batch, queries, keys):
    """One mask, or two that are combined."""

    def ids(length):
        return torch.tensor(draw(st.lists(st.integers(-1, 4), min_size=length, max_size=length).map(sorted)))

    kinds = {
        "causal": lambda: masks.causal(offset=draw(st.integers(-queries, keys))),
        "aligned": lambda: masks.causal(align=draw(st.sampled_from(["start", "end"]))),
        "window": lambda: masks.window(
            draw(st.none() | st.integers(0, 140)), draw(st.none() | st.integers(0, 140)),
            align=draw(st.sampled_from(["start", "end"])),
        ),
        "lengths": lambda: masks.lengths(
            torch.tensor(draw(st.lists(st.integers(0, keys), min_size=batch, max_size=batch)))
        ),
        "both": lambda: masks.lengths(
            torch.tensor(draw(st.lists(st.integers(0, keys), min_size=batch, max_size=batch))),
            torch.tensor(draw(st.lists(st.integers(0, queries), min_size=batch, max_size=batch))),
        ),
        "documents": lambda: masks.documents(ids(queries), ids(keys)),
        "prefix": lambda: masks.causal(align="start") | masks.prefix(draw(st.integers(0, keys))),
        "sinks": lambda: masks.window(draw(st.integers(0, 20)), 3) | masks.prefix(draw(st.integers(0, 20))),
        "both ends": lambda: (
            masks.prefix(draw(st.integers(0, 9))) | ~masks.prefix(draw(st.integers(max(keys - 9, 0), keys)))
        ),
        "global": lambda: masks.window(2, 2, align="start") | masks.lengths(keys, queries=min(queries, 2)),
        "hole": lambda: ~masks.window(draw(st.integers(0, 90)), draw(st.integers(0, 90))),
        "pieces": lambda: masks.documents(
            torch.arange(queries) % 3, torch.arange(keys) // max(draw(st.integers(40, 90)), keys // 16) % 3
        ),
        "keep": lambda: masks.keep(
            torch.rand(queries, keys, generator=torch.Generator().manual_seed(draw(st.integers(0, 9))))
            < draw(st.sampled_from([0.02, 0.5, 0.98]))
        ),
        "where": lambda: masks.where(lambda batch, head, query, key: (query + 2 * key + head + batch) % 5 != 0),
    }  # fmt: skip
    mask = kinds[draw(st.sampled_from(sorted(kinds)))]()
    if draw(st.booleans()):
        other = kinds[draw(st.sampled_from(sorted(kinds)))]()
        mask = mask & other if draw(st.booleans()) else mask | other
    return mask if draw(st.integers(0, 3)) else ~mask


def check(data, additive):
    batch, heads, queries, keys = 2, 2, data.draw(st.sampled_from(QUERIES)), data.draw(st.sampled_from(KEYS))
    shared = data.draw(st.sampled_from([1, 2]))
    shapes = {
        "query": (batch, heads, queries, 5),
        "key": (batch, shared, keys, 5),
        "value": (batch, shared, keys, 3),
    } | ({"weight": (heads, 5)} if additive else {})
    inputs = tensors(seed=data.draw(st.integers(0, 99)), dtype=torch.float64, **shapes)
    scale = data.draw(st.sampled_from([0.01, 1.0, 4.0, 100.0]))
    inputs["query"] *= scale
    inputs["key"] *= scale if additive else 1.0
    normalizer = data.draw(
        st.sampled_from([normalizers.softmax, normalizers.sparsemax, normalizers.entmax(1.5), normalizers.sigmoid])
    )
    mask = data.draw(restrictions(batch, queries, keys))
    arguments = {"mask": mask, "normalizer": normalizer}
    assert_as_exact(inputs, roundings=1e5 * max(scale, 1), **arguments)
    unseen = ~mask.dense(regard.shapes.grid.Grid.whole(batch, heads, queries, keys)).any(-1)
    got = outcome("cpu", inputs, **arguments)
    assert not got["output"][unseen].any()
    assert not got["query"][unseen].any()


@few
@given(st.data())
def test_inner_products_under_any_mask(data):
    check(data, additive=False)


@few
@given(st.data())
def test_additive_scores_under_any_mask(data):
    check(data, additive=True)


@pytest.mark.parametrize("additive", [False, True])
def test_a_masked_key_is_a_key_that_is_not_there(additive):
    shapes = {"query": (1, 2, 131, 7), "key": (1, 2, 263, 7), "value": (1, 2, 263, 3)}
    inputs = tensors(**shapes, **({"weight": (7,)} if additive else {}))
    shorter = inputs | {name: inputs[name][:, :, :137] for name in ("key", "value")}
    whole, part = outcome("cpu", inputs, mask=masks.lengths([137])), outcome("cpu", shorter)
    for name, expected in part.items():
        got = whole[name][:, :, :137] if name in ("key", "value") else whole[name]
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    assert not whole["key"][:, :, 137:].any()
    assert not whole["value"][:, :, 137:].any()


def test_a_dense_mask_and_its_runs_agree():
    inputs = tensors(query=(2, 3, 131, 7), key=(2, 1, 263, 7), value=(2, 1, 263, 3), bias=(3, 131, 263))
    window = masks.window(50, 3)
    dense = masks.keep(window.dense(regard.shapes.grid.Grid.whole(2, 3, 131, 263)) & (torch.arange(263) != 100))
    runs = outcome("cpu", inputs, mask=window)
    again = outcome("cpu", inputs, mask=window & masks.keep(torch.ones(131, 263, dtype=torch.bool)))
    for name, expected in runs.items():
        torch.testing.assert_close(again[name], expected, rtol=1e-5, atol=1e-5)
    assert_as_exact(inputs, roundings=100, mask=dense)
    shared = inputs | {"bias": inputs["bias"][:1, :1]}
    assert_as_exact(shared, roundings=300, mask=dense)
