"""Readings gathered tile by tile are what the whole matrix of weights says."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from cases import MASKS, NORMALIZERS, B, H, K, Q, problem
from regard import masks
from regard.attention.planner import BACKENDS
from regard.errors import ArgumentError, BackendError


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr("regard.attention.blocks.BLOCK_ELEMENTS", 2 * H * K)
    monkeypatch.setattr("regard.attention.blocks.KEY_BLOCK", 2)


def every_reading(**changes):
    chosen = {
        "entropy": True,
        "peak": True,
        "top_k": 3,
        "received": True,
        "distance": True,
        "pooled": (2, 3),
        "rows": [0, 3, -1],
        "tile": ((1, 4), (2, 6)),
        "weights": True,
    }
    return regard.Readings(**(chosen | changes))


def from_weights(weights, readings, queries=Q, keys=K):
    """The readings, literally, from the whole matrix."""
    found = {"entropy": -(weights * weights.clamp_min(1e-300).log()).sum(-1), "peak": weights.amax(-1)}
    top = weights.topk(min(readings.top_k, keys), -1)
    found["top_weights"] = top.values
    found["received"] = weights.sum(-2)
    gap = (torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)).abs()
    found["distance"] = (weights * gap).sum(-1)
    rows, columns = min(readings.pooled[0], queries), min(readings.pooled[1], keys)
    row, column = torch.arange(queries) * rows // queries, torch.arange(keys) * columns // keys
    cells = [[weights[:, :, row == r][:, :, :, column == c] for c in range(columns)] for r in range(rows)]
    found["pooled_mean"] = torch.stack([torch.stack([cell.mean((-1, -2)) for cell in line], -1) for line in cells], -2)
    found["pooled_max"] = torch.stack([torch.stack([cell.amax((-1, -2)) for cell in line], -1) for line in cells], -2)
    found["rows"] = weights[:, :, list(readings.rows)]
    (q0, q1), (k0, k1) = readings.tile
    found["tile"] = weights[:, :, q0:q1, k0:k1]
    found["weights"] = weights
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_readings_are_those_of_the_matrix(backend, mask, normalizer):
    inputs = problem(kv_heads=1)
    arguments = {"normalizer": NORMALIZERS[normalizer](), "mask": MASKS[mask]()}
    if regard.plan(*inputs, **arguments).reasons[backend].startswith("cannot"):
        with pytest.raises(BackendError):
            regard.observe(*inputs, backend=backend, **arguments)
        return
    read = every_reading()
    observed = regard.observe(*inputs, read=read, backend=backend, **arguments)
    explained = regard.explain(*inputs, **arguments)
    for name, expected in from_weights(explained.weights, read).items():
        torch.testing.assert_close(
            getattr(observed, name), expected, rtol=1e-9, atol=1e-9, msg=lambda m, name=name: f"{name}: {m}"
        )
    filled = observed.top_indices.clamp_min(0)
    at_indices = explained.weights.gather(-1, filled) * (observed.top_indices >= 0)
    torch.testing.assert_close(at_indices, observed.top_weights)


def test_softmax_weights_come_back_from_the_log_sum_exp():
    inputs = problem()
    explained = regard.explain(*inputs, mask=masks.causal())
    observed = regard.observe(*inputs, mask=masks.causal(), backend="tiled")
    torch.testing.assert_close((explained.masked - observed.lse[..., None]).exp(), explained.weights)


@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    queries=st.integers(1, 9),
    keys=st.integers(1, 9),
    top_k=st.integers(1, 9),
)
def test_any_sizes(rows, columns, queries, keys, top_k):
    inputs = problem(queries=queries, keys=keys)
    read = every_reading(pooled=(rows, columns), top_k=top_k, rows=[0], tile=((0, queries), (0, keys)))
    observed = regard.observe(*inputs, read=read, backend="tiled")
    weights = regard.explain(*inputs).weights
    for name, expected in from_weights(weights, read, queries, keys).items():
        got = getattr(observed, name)
        if name == "top_weights":
            assert got.shape[-1] == top_k
            assert not got[..., keys:].any()
            got = got[..., :keys]
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


def test_only_what_was_asked_for():
    observed = regard.observe(*problem(), read=regard.Readings(peak=True))
    assert observed.peak.shape == (B, H, Q)
    given = {name for name, field in zip(observed._fields, observed, strict=True) if field is not None}
    assert given == {"output", "lse", "peak"}


def test_readings_carry_no_gradient():
    observed = regard.observe(*problem(requires_grad=True), read=every_reading())
    assert observed.output.requires_grad
    assert not any(field.requires_grad for field in observed[1:] if field is not None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"top_k": -1}, "top_k must be 0 or more"),
        ({"pooled": (0, 2)}, "pooled must be"),
        ({"rows": [Q]}, f"rows must be indices of the {Q} queries; got {Q}"),
        ({"tile": ((0, Q + 1), (0, 1))}, "tile must be"),
    ],
)
def test_readings_that_the_problem_does_not_have(change, message):
    with pytest.raises(ArgumentError, match=message):
        regard.observe(*problem(), read=every_reading(**change))
