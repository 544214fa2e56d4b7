"""Readings gathered tile by tile are what the whole matrix of weights says."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from backends import ON_CPU
from cases import MASKS, NORMALIZERS, B, H, K, Q, problem
from covering import covering
from regard import masks
from regard.errors import ArgumentError, BackendError, KindError
from regard.shapes.grid import Grid

FLAGS = ("entropy", "peak", "received", "distance", "weights")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr("regard.attention.backends.tiled.BLOCK_ELEMENTS", 2 * H * K)
    monkeypatch.setattr("regard.attention.backends.tiled.KEY_BLOCK", 2)


SHARES = (masks.causal(), masks.where(lambda b, h, i, j: j == i - 1), ~masks.dilated(2), masks.prefix(3))


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
        "shares": SHARES,
    }
    return regard.Readings(**(chosen | changes))


def from_weights(weights, readings, queries=Q, keys=K):
    """The readings, literally, from the whole matrix."""
    found = {
        "entropy": -(weights * weights.masked_fill(weights == 0, 1.0).log()).sum(-1),
        "peak": weights.amax(-1).clamp_min(0),
    }
    top = weights.topk(min(readings.top_k, keys), -1)
    found["top_weights"] = top.values.clamp_min(0)
    found["received"] = weights.sum(-2)
    gap = (torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)).abs()
    found["distance"] = (weights * gap).sum(-1)
    rows, columns = min(readings.pooled[0], queries), min(readings.pooled[1], keys)
    row, column = torch.arange(queries) * rows // queries, torch.arange(keys) * columns // keys
    cells = [[weights[:, :, row == r][:, :, :, column == c] for c in range(columns)] for r in range(rows)]
    found["pooled_mean"] = torch.stack([torch.stack([cell.mean((-1, -2)) for cell in line], -1) for line in cells], -2)
    found["pooled_max"] = torch.stack(
        [torch.stack([cell.amax((-1, -2)).clamp_min(0) for cell in line], -1) for line in cells], -2
    )
    found["rows"] = weights[:, :, list(readings.rows)]
    (q0, q1), (k0, k1) = readings.tile
    found["tile"] = weights[:, :, q0:q1, k0:k1]
    found["weights"] = weights
    grid = Grid.whole(*weights.shape, weights.device)
    found["shares"] = torch.stack([(weights * mask.dense(grid)).sum(-1) for mask in readings.shares], -1)
    return found


@covering(mask=MASKS, normalizer=NORMALIZERS)
def test_readings_are_those_of_the_matrix(mask, normalizer):
    inputs = problem(kv_heads=1)
    arguments = {"normalizer": NORMALIZERS[normalizer](), "mask": MASKS[mask]()}
    reasons = regard.plan(*inputs, **arguments).reasons
    read = every_reading()
    weights = regard.explain(*inputs, **arguments).weights
    readings = from_weights(weights, read)
    for backend in ON_CPU:
        if reasons[backend].startswith("cannot"):
            with pytest.raises(BackendError):
                regard.observe(*inputs, backend=backend, **arguments)
            continue
        observed = regard.observe(*inputs, read=read, backend=backend, **arguments)
        for name, expected in readings.items():
            torch.testing.assert_close(
                getattr(observed, name),
                expected,
                rtol=1e-9,
                atol=1e-9,
                equal_nan=True,
                msg=lambda m, backend=backend, name=name: f"{backend} {name}: {m}",
            )
        filled = observed.top_indices.clamp_min(0)
        at_indices = weights.gather(-1, filled) * (observed.top_indices >= 0)
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
def test_readings_of_any_size_are_those_of_the_matrix(rows, columns, queries, keys, top_k):
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
        *(
            ({name: wrong}, f"{name} must be True or False; it is ")
            for name in FLAGS
            for wrong in (1, "yes", None, 0.0)
        ),
        ({"top_k": 2.5}, r"top_k must be an integer; it is 2\.5"),
        ({"top_k": True}, "top_k must be an integer; it is True"),
        ({"top_k": torch.tensor(2)}, "top_k must be an integer; it is a Tensor"),
        ({"pooled": 3}, r"pooled must be \(rows, columns\); it is an int"),
        ({"pooled": (2.5, 3)}, r"each entry of pooled must be an integer; it is 2\.5"),
        ({"pooled": (2, math.nan)}, "each entry of pooled must be an integer; it is nan"),
        ({"pooled": "23"}, r"pooled must be \(rows, columns\); it is a str"),
        ({"rows": 3}, "rows must be a sequence of integers or an integer tensor; it is an int"),
        ({"rows": "01"}, "rows must be a sequence of integers"),
        ({"rows": {0: 1}}, "rows must be a sequence of integers or an integer tensor; it is a dict"),
        ({"rows": [0, 0.5]}, r"rows\[1\] must be an integer; it is 0\.5"),
        ({"rows": [True]}, r"rows\[0\] must be an integer; it is True"),
        ({"rows": np.zeros((2, 2), dtype=int)}, r"rows\[0\] must be an integer; it is a list"),
        ({"rows": np.zeros(2)}, r"rows\[0\] must be an integer; it is 0\.0"),
        ({"rows": torch.zeros(2)}, "rows must hold integers; it holds torch.float32"),
        ({"rows": torch.ones(2).bool()}, "rows must hold integers; it holds torch.bool"),
        ({"rows": torch.ones(2).long().to_sparse()}, "rows must be a dense tensor"),
        ({"rows": torch.ones(2, device="meta").long()}, "rows must hold integers that can be read"),
        ({"shares": masks.causal()}, "shares must be a list or a tuple of masks; it is a Band"),
        ({"shares": [masks.causal(), torch.ones(2)]}, r"shares\[1\] must be a Mask; it is a Tensor"),
        ({"tile": 3}, r"tile must be \(\(first query, end\), \(first key, end\)\); it is an int"),
        ({"tile": ((0, 1.5), (0, 1))}, r"each entry of tile must be an integer; it is 1\.5"),
        ({"tile": (0, 1)}, "tile must be .*; it is an int"),
        ({"tile": ((0, 1), (0, torch.tensor(1)))}, "each entry of tile must be an integer; it is a Tensor"),
    ],
)
def test_readings_of_another_kind(change, message):
    with pytest.raises(KindError, match=message):
        regard.observe(*problem(), read=every_reading(**change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"top_k": 2**70}, "top_k must be at most 65536; it is an integer of 71 bits"),
        ({"top_k": 2**16 + 1}, "top_k must be at most 65536; it is 65537"),
        ({"top_k": -(2**70)}, "top_k must be 0 or more"),
        ({"pooled": (2, -(2**70))}, r"pooled must be \(rows, columns\), each 1 or more"),
        ({"pooled": (2, 3, 5)}, r"pooled must be \(rows, columns\); it has 3 entries"),
        ({"rows": [2**70]}, f"rows must be indices of the {Q} queries"),
        ({"rows": torch.tensor([0, 2**62])}, f"rows must be indices of the {Q} queries; got {2**62}"),
        ({"rows": torch.zeros(2, 2).long()}, r"rows must have one axis; it has shape \[2, 2\]"),
        ({"rows": torch.tensor(0)}, r"rows must have one axis; it has shape \[\]"),
        ({"tile": ((0, 2**70), (0, 1))}, "tile must be .* within 5 queries and 7 keys"),
        ({"tile": ((-1, 1), (0, 1))}, "tile must be .* within 5 queries and 7 keys"),
        ({"tile": ((2, 1), (0, 1))}, "tile must be .* within 5 queries and 7 keys"),
        ({"tile": ((0, 1),)}, "tile must be .*; it has 1 entries"),
        ({"tile": ((0, 1), (0, 1, 2))}, "tile must be .*; it has 3 entries"),
        ({"top_k": -1}, "top_k must be 0 or more"),
        ({"pooled": (0, 2)}, "pooled must be"),
        ({"rows": [Q]}, f"rows must be indices of the {Q} queries; got {Q}"),
        ({"tile": ((0, Q + 1), (0, 1))}, "tile must be"),
    ],
)
def test_readings_that_a_problem_does_not_have_are_refused(change, message):
    with pytest.raises(ArgumentError, match=message):
        regard.observe(*problem(), read=every_reading(**change))


def test_readings_must_be_readings():
    with pytest.raises(KindError, match='read must be a Readings or "view"; it is a dict'):
        regard.observe(*problem(), read={"entropy": True})


def test_integers_of_numpy_and_huge_maps_are_taken():
    inputs = problem()
    expected = regard.observe(*inputs, read=every_reading(pooled=(Q, K)))
    read = every_reading(
        top_k=np.int64(3),
        pooled=[2**70, np.int8(127)],
        rows=np.array([0, 3, -1]),
        tile=[(np.int32(1), 4), [2, np.uint8(6)]],
    )
    for name, reading in regard.observe(*inputs, read=read)._asdict().items():
        assert name == "recall" or torch.equal(reading, getattr(expected, name)), name
    for rows in (torch.tensor([0, 3, -1]), torch.tensor([0, 3, -1], dtype=torch.int8), range(3), ()):
        observed = regard.observe(*inputs, read=regard.Readings(rows=rows))
        assert observed.rows.shape == (B, H, len(rows), K)
