"""Sums of rectified units, fused: output, gradients and readings are those of the oracle in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import regard
from covering import covering
from kernels.oracle import target_of, tensors
from regard import masks
from regard.scores import Prepared, ReluSum, Score

NORMALIZERS = ["softmax", "sparsemax", "entmax15", "sigmoid"]


class Rectified(Score):
    """``weight · max(query + key, 0)``, with a weight vector for all heads or for each."""

    def __init__(self, weight: Tensor):
        super().__init__()
        self.weight = weight

    def prepare(self, query: Tensor, key: Tensor) -> Prepared:
        return Prepared(query, key, ReluSum(self.weight))


def outcome(backend, inputs, dtype, **options):
    leaves = {name: tensor.detach().to(dtype).requires_grad_() for name, tensor in inputs.items()}
    options["bias"] = leaves.get("bias")
    score = Rectified(leaves["weight"])
    output = regard.attend(leaves["query"], leaves["key"], leaves["value"], score=score, backend=backend, **options)
    return [output.detach(), *torch.autograd.grad(output, list(leaves.values()), target_of(output))]


def assert_as_exact(inputs, roundings=300.0, **options):
    dtype = inputs["query"].dtype
    got, exact = (
        outcome(backend, inputs, kind, **options) for backend, kind in (("cpu", dtype), ("reference", torch.float64))
    )
    for name, ours, true in zip(("output", *inputs), got, exact, strict=True):
        bound = roundings * torch.finfo(dtype).eps * max(1.0, float(true.abs().max()))
        assert ours.shape == true.shape
        assert float((ours.double() - true).abs().max()) <= bound, name


def inputs_of(batch, heads, kv_heads, queries, keys, dim, value_dim, *weight_heads, dtype=torch.float32):
    return tensors(
        dtype=dtype,
        query=(batch, heads, queries, dim),
        key=(batch, kv_heads, keys, dim),
        value=(batch, kv_heads, keys, value_dim),
        weight=(*weight_heads, dim),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "size",
    [(1, 1, 1, 1, 1, 1, 1), (2, 4, 4, 37, 41, 7, 5), (1, 4, 2, 130, 300, 8, 16), (2, 2, 1, 5, 129, 64, 3)],
    ids=str,
)
def test_rectified_scores_match_the_reference(size, dtype):
    assert_as_exact(inputs_of(*size, dtype=dtype))


# What is compiled for rectified units without ``--full``: tests/support/backends.py.
@covering(normalizer=NORMALIZERS, sample_where=lambda normalizer: normalizer != "sparsemax")
def test_rectified_scores_match_the_reference_under_every_normalizer(normalizer):
    assert_as_exact(inputs_of(2, 2, 2, 20, 70, 9, 6, dtype=torch.float64), normalizer=normalizer)


@pytest.mark.parametrize(
    "mask",
    [
        masks.causal(),
        masks.window(5),
        masks.lengths([3, 70]),
        masks.window(4) | masks.prefix(2),
        masks.keep(torch.rand(2, 1, 20, 70, generator=torch.Generator().manual_seed(0)) > 0.5),
    ],
    ids=["causal", "window", "lengths", "two runs", "dense"],
)
def test_rectified_scores_match_the_reference_under_masks(mask):
    assert_as_exact(inputs_of(2, 2, 1, 20, 70, 9, 6), mask=mask)


def test_a_weight_for_each_head_and_a_bias():
    inputs = inputs_of(2, 4, 2, 33, 20, 6, 5, 4)
    inputs["bias"] = torch.randn(4, 33, 20)
    assert_as_exact(inputs)


@given(
    st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.integers(1, 40), st.integers(1, 150), st.integers(1, 17)
)
def test_rectified_scores_match_the_reference_at_any_size(batch, kv_heads, group, queries, keys, dim):
    assert_as_exact(inputs_of(batch, kv_heads * group, kv_heads, queries, keys, dim, 3), roundings=1000.0)


def test_numbers_of_any_size():
    """No exponentials: nothing is out of reach."""
    inputs = inputs_of(1, 2, 2, 8, 30, 4, 3, dtype=torch.float64)
    inputs["query"] *= 1e6
    inputs["key"] *= 1e6
    inputs["weight"] *= 1e-6
    assert_as_exact(inputs, roundings=1e4)


def test_masked_keys_never_affect_rectified_scores():
    inputs = inputs_of(1, 2, 2, 6, 40, 5, 3)
    plain = {name: tensor.clone() for name, tensor in inputs.items()}
    inputs["key"][..., 30:, :], inputs["value"][..., 30:, :] = torch.nan, torch.inf
    got, wanted = (outcome("cpu", each, torch.float32, mask=masks.lengths(30)) for each in (inputs, plain))
    for ours, true in zip(got, wanted, strict=True):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, true)


def test_nan_that_is_seen_stays():
    inputs = inputs_of(1, 1, 1, 6, 40, 5, 3)
    inputs["query"][0, 0, 2, 1] = torch.nan
    output = outcome("cpu", inputs, torch.float32)[0]
    assert output[0, 0, 2].isnan().all()
    assert output[0, 0, :2].isfinite().all()


def test_readings_and_weights():
    inputs = inputs_of(2, 4, 2, 33, 70, 6, 5)
    given = [inputs[name] for name in ("query", "key", "value")]
    score = Rectified(inputs["weight"])
    read = regard.Readings(entropy=True, peak=True, received=True, weights=True, top_k=3)
    ours = regard.observe(*given, score=score, read=read, backend="cpu")
    true = regard.observe(*given, score=score, read=read, backend="reference")
    assert torch.equal(ours.output, regard.attend(*given, score=score, backend="cpu"))
    for name in ("lse", "entropy", "peak", "received", "weights", "top_weights"):
        torch.testing.assert_close(getattr(ours, name), getattr(true, name), rtol=1e-4, atol=1e-5)
    attended = regard.attend_with_weights(*given, score=score, backend="cpu")
    torch.testing.assert_close(attended.weights, true.weights, rtol=1e-4, atol=1e-5)


def test_dropout_drops_the_same_forward_and_backward():
    inputs = inputs_of(1, 2, 2, 16, 60, 6, 5, dtype=torch.float64)
    leaves = {name: tensor.requires_grad_() for name, tensor in inputs.items()}

    def function(query, key, value, weight):
        torch.manual_seed(3)
        return regard.attend(query, key, value, score=Rectified(weight), dropout=0.3, backend="cpu")

    assert torch.autograd.gradcheck(function, tuple(leaves.values()), fast_mode=True)


def test_the_planner_runs_large_problems_fused():
    inputs = inputs_of(1, 4, 4, 256, 256, 32, 32)
    score = Rectified(inputs["weight"])
    assert regard.plan(inputs["query"], inputs["key"], inputs["value"], score=score).backend == "cpu"
