"""Readings by the kernel are those of the whole matrix of weights, at sizes of several blocks."""

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import regard
from kernels.oracle import tensors
from regard import masks, normalizers
from regard.scores import Additive, Dot, ScaledDot

Q, K = 131, 263
READ_ALL = regard.Readings(
    entropy=True, peak=True, top_k=7, received=True, distance=True, pooled=(10, 17), rows=[130, 0, -1, 64, 64],
    tile=((60, 71), (120, 140)), weights=True,
)  # fmt: skip
NORMALIZERS = {
    "softmax": normalizers.softmax,
    "sink": normalizers.softmax_with_sink(0.3),
    "sparsemax": normalizers.sparsemax,
    "entmax": normalizers.entmax(1.3),
    "sigmoid": normalizers.sigmoid,
    "local": normalizers.local_gaussian("softmax", torch.tensor(100.0), 20.0),
}
MASKS = {
    "none": lambda: None,
    "causal": lambda: masks.causal(),
    "window": lambda: masks.window(3, 0),
    "sinks": lambda: masks.window(10, 3) | masks.prefix([1, 2, 0]) | masks.lengths(K, queries=2),
    "hole": lambda: ~masks.window(60, 70) & masks.lengths([K, K - 1, 5]),
    "lengths": lambda: masks.lengths([K, 5, 0]),
    "dense": lambda: masks.where(lambda batch, head, query, key: (query + key + head) % 3 != 0),
}


def problem(dtype=torch.float64, scale=2.0):
    inputs = tensors(dtype=dtype, query=(3, 2, Q, 7), key=(3, 1, K, 7), value=(3, 1, K, 3))
    return [scale * inputs["query"], inputs["key"], inputs["value"]]


def assert_same(got, expected, tolerance=1e-11):
    """Equal readings; of equally large weights, any may be the one that is named."""
    for name, one, other in zip(got._fields, got, expected, strict=True):
        if name != "top_indices" and other is not None:
            torch.testing.assert_close(
                one, other, rtol=tolerance, atol=tolerance, msg=lambda m, name=name: f"{name}: {m}"
            )
    if got.weights is not None and got.top_indices is not None:
        named = got.weights.gather(-1, got.top_indices.clamp_min(0)) * (got.top_indices >= 0)
        torch.testing.assert_close(named, got.top_weights)
        assert torch.equal(got.top_indices < 0, got.top_weights == 0)
        ordered = got.top_indices.masked_fill(got.top_indices < 0, K).sort(-1).values
        assert not ((ordered.diff(dim=-1) == 0) & (ordered[..., 1:] < K)).any()


@pytest.mark.parametrize("score", ["product", "additive"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_kernels_read_every_reading_as_the_reference(normalizer, mask, score, monkeypatch):
    monkeypatch.setattr("regard.attention.backends.cpu.dense_rows.SLICE_PAIRS", 50 * K)
    scoring = ScaledDot() if score == "product" else Additive(torch.linspace(-2, 3, 7, dtype=torch.float64))
    arguments = {"score": scoring, "normalizer": NORMALIZERS[normalizer], "mask": MASKS[mask](), "read": READ_ALL}
    got, expected = (regard.observe(*problem(), backend=backend, **arguments) for backend in ("cpu", "reference"))
    assert_same(got, expected)


@pytest.mark.parametrize("top_k", [1, 4, 31, 32, 33, 263, 300])
def test_more_keys_are_asked_for_than_are_seen(top_k):
    read = regard.Readings(top_k=top_k, weights=True)
    sinks = masks.window(2, 1) | masks.prefix(9)
    for mask in (masks.window(2, 1), sinks, masks.causal(align="start"), masks.lengths([0, 1, 32])):
        got, expected = (
            regard.observe(*problem(), mask=mask, read=read, backend=backend) for backend in ("cpu", "reference")
        )
        assert_same(got, expected)


def test_of_equal_weights_the_first_keys_are_named():
    query, key, value = problem()
    observed = regard.observe(query, torch.zeros_like(key), value, read=regard.Readings(top_k=40), backend="cpu")
    assert (observed.top_indices == torch.arange(40)).all()
    ends = masks.prefix(3) | ~masks.prefix(K - 100)
    observed = regard.observe(
        query, torch.zeros_like(key), value, mask=ends, read=regard.Readings(top_k=5), backend="cpu"
    )
    assert (observed.top_indices == torch.tensor([0, 1, 2, K - 100, K - 99])).all()
    coarse = (10 * key).round() / 10
    read = regard.Readings(top_k=40, weights=True)
    got, expected = (
        regard.observe(query.round(), coarse, value, score=Dot(), read=read, backend=backend)
        for backend in ("cpu", "reference")
    )
    assert_same(got, expected)


@pytest.mark.parametrize("pooled", [(1, 1), (130, 262), (131, 263), (1000, 1000), (64, 16)])
def test_cells_that_do_not_divide_the_sizes(pooled, monkeypatch):
    monkeypatch.setattr("regard.attention.backends.cpu.dense_rows.SLICE_PAIRS", 50 * K)
    for mask in (None, masks.window(20, 20), ~masks.window(20, 80), masks.keep(torch.rand(Q, K) < 0.3)):
        got, expected = (
            regard.observe(*problem(), mask=mask, read=regard.Readings(pooled=pooled), backend=backend)
            for backend in ("cpu", "reference")
        )
        assert_same(got, expected)


@pytest.mark.parametrize("normalizer", ["softmax", "sink", "sparsemax"])
def test_rows_with_one_weight(normalizer):
    query, key, value = problem(torch.float32, 1e4)
    got = regard.observe(query, key, value, normalizer=NORMALIZERS[normalizer], read=READ_ALL, backend="cpu")
    exact = regard.observe(
        query.double(), key.double(), value.double(), normalizer=NORMALIZERS[normalizer], read=READ_ALL,
        backend="reference",
    )  # fmt: skip
    single = exact.peak == 1
    assert single.float().mean() > 0.9
    assert (got.peak[single] == 1).all()
    assert torch.isfinite(got.entropy).all()
    assert (got.entropy >= 0).all()
    assert float(got.entropy[single].max()) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("gap", [1.0, 5.0, 10.0, 15.0, 25.0, 60.0])
def test_entropy_of_one_peaked_row_loses_no_digits(gap, dtype):
    """Two scores that are far apart: the entropy is a small number, and no difference of large ones."""
    query, key = torch.ones(1, 1, 1, 1, dtype=dtype), torch.tensor([gap, 0.0], dtype=dtype).reshape(1, 1, 2, 1)
    observed = regard.observe(query, key, key, score=Dot(), read=regard.Readings(entropy=True), backend="cpu")
    small = torch.tensor(-gap, dtype=torch.float64).exp()
    exact = small.log1p() + gap * small / (1 + small)
    error = abs(observed.entropy.double().item() / exact.item() - 1)
    assert error < 1e3 * torch.finfo(dtype).eps


def test_the_shape_of_causal_alibi_readings_is_kept_in_slices(monkeypatch):
    """A bias of distance and a causal mask that is not runs, cut into slices of rows."""
    monkeypatch.setattr("regard.attention.backends.cpu.dense_rows.SLICE_PAIRS", 50 * K)
    arguments = {
        "mask": masks.causal() & masks.dilated(3), "bias": regard.biases.alibi(2), "read": READ_ALL,
    }  # fmt: skip
    got, expected = (regard.observe(*problem(), backend=backend, **arguments) for backend in ("cpu", "reference"))
    assert_same(got, expected)
