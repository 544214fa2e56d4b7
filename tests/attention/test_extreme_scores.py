"""Rows whose scores all lie far from zero, as additive masks make them: the digits of the weights survive."""

import itertools

import pytest
import torch

import regard
from backends import EVERY, ROW_READINGS, accepts, assert_same, measure
from cases import NORMALIZERS, B, D, H, K, Q, V
from covering import covering
from regard import masks, normalizers

everywhere = pytest.mark.parametrize("backend", EVERY)

LEVELS = {"1e4": -1e4, "1e9": -1e9, "finfo_min": torch.finfo(torch.float32).min, "plus_1e9": 1e9}


def inputs_of(dtype, queries=Q, keys=K):
    generator = torch.Generator().manual_seed(11)
    lengths = (queries, D), (keys, D), (keys, V)
    return tuple(torch.randn(B, H, *shape, generator=generator).to(dtype) for shape in lengths)


def oracle(inputs, bias, normalizer, grad_output):
    """The same in float64, with the scores rounded to float32 once, as every backend must round them.

    Where a bias of 1e9 is added in float32, what is left of the scores is their rounding: rows become uniform or get
    steps of 64, and the oracle must start from the same rounded scores.
    """
    query, key, value = (tensor.float() for tensor in inputs)
    leaves = [tensor.double().requires_grad_() for tensor in (query, key, value)]
    exact = leaves[0] @ leaves[1].mT / D**0.5
    rounded = ((query @ key.mT) * torch.tensor(D**-0.5) + bias).double()
    scores = exact + (rounded - exact).detach()
    weights = normalizer(scores)
    output = weights @ leaves[2]
    gradients = torch.autograd.grad(output, leaves, grad_output.double())
    return {
        "output": output,
        "weights": weights,
        "entropy": -torch.special.xlogy(weights, weights).sum(-1),
        "peak": weights.amax(-1),
        "received": weights.sum(-2),
        **dict(zip(("grad_query", "grad_key", "grad_value"), gradients, strict=True)),
    }


@covering(level=LEVELS, size=[(Q, K), (67, 131)], dtype=[torch.float32, torch.bfloat16])
def test_a_fully_padded_row_of_an_additive_mask(level, size, dtype):
    """Every score of some rows is near −1e4, −1e9 or the lowest float: weights, readings and gradients stay exact."""
    inputs = inputs_of(dtype, *size)
    bias = torch.zeros(B, 1, *size)
    bias[0, 0, 1], bias[1] = LEVELS[level], LEVELS[level]
    grad_output = torch.randn(B, H, size[0], V, generator=torch.Generator().manual_seed(13)).to(dtype)
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-4
    expected = oracle(inputs, bias, normalizers.softmax, grad_output)
    for backend, needs_gradient in itertools.product(EVERY, (False, True)):
        added = bias.clone().requires_grad_(needs_gradient)
        if not accepts(backend, inputs, bias=added):
            continue
        parameters = {"bias": added} if needs_gradient else {}
        got = measure(backend, inputs, parameters, grad_output, bias=added)
        # The rows of 1e4 keep digits of their scores, of which backends round the last: they are told by `lse`.
        loose = {"1e4": 2e-2, "finfo_min": tolerance}.get(level, tolerance)
        assert_same({name: got[name].double() for name in expected}, expected, loose, loose, backend)
        weights = got["weights"].double()
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), rtol=0, atol=1e-5)


@everywhere
@pytest.mark.parametrize("level", ["1e9", "finfo_min"])
@pytest.mark.parametrize("normalizer", ["softmax", "sink", "sparsemax", "entmax15", "entmax13"])
def test_equal_scores_far_from_zero_share_alike(backend, level, normalizer):
    """Keys that are all alike get the same weight, however low their scores lie."""
    query, key, value = inputs_of(torch.float32)
    key = key[:, :, :1].expand(-1, -1, K, -1).contiguous()
    bias = torch.full((Q, K), LEVELS[level])
    sinks = normalizers.softmax_with_sink(LEVELS[level])
    arguments = {"normalizer": sinks if normalizer == "sink" else NORMALIZERS[normalizer]()}
    if accepts(backend, (query, key, value), bias=bias, **arguments):
        got = measure(backend, (query, key, value), bias=bias, **arguments)
        share = 1 / (K + 1) if normalizer == "sink" else 1 / K
        torch.testing.assert_close(got["weights"], torch.full((B, H, Q, K), share), rtol=1e-5, atol=0)
        assert got["grad_query"].isfinite().all()
        torch.testing.assert_close(got["grad_value"], torch.full_like(value, Q * share), rtol=1e-5, atol=0)
        bound = (Q / K) * value.sum(-1).abs().max() * query.abs().max() * 4
        assert (got["grad_key"].abs() <= bound).all()


@everywhere
@pytest.mark.parametrize("size", [1e4, 1e8, 1e20, 1e29])
@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax", "entmax15", "entmax13", "local"])
def test_the_only_key_of_a_row_has_the_gradient_of_its_value(backend, size, normalizer):
    """However large its score is: its weight is 1, also where the backward pass makes it again."""
    query, key, value = inputs_of(torch.float32)
    arguments = {"normalizer": NORMALIZERS[normalizer](), "mask": masks.lengths(torch.ones(B, dtype=torch.int64))}
    if accepts(backend, (query, key, value), **arguments):
        got = measure(backend, (size * query, key, value), **arguments)
        wanted = torch.zeros_like(value)
        wanted[:, :, 0] = Q if normalizer != "local" else got["weights"][..., 0].sum(-1, keepdim=True)
        torch.testing.assert_close(got["grad_value"], wanted, rtol=1e-5, atol=0)


@everywhere
@pytest.mark.parametrize("sink", [-30.0, 0.0, 110.0, 250.0])
@pytest.mark.parametrize("learned", [False, True])
def test_lse_is_that_of_the_keys_wherever_the_sink_lies(backend, sink, learned):
    inputs = [20 * tensor for tensor in inputs_of(torch.float32)]
    sinks = torch.nn.Parameter(torch.full((H,), sink)) if learned else sink
    arguments = {"normalizer": normalizers.softmax_with_sink(sinks)}
    if accepts(backend, inputs, **arguments):
        got = regard.observe(*inputs, backend=backend, read=regard.Readings(entropy=True), **arguments)
        query, key, _ = (tensor.double() for tensor in inputs)
        expected = (query @ key.mT / D**0.5).logsumexp(-1)
        torch.testing.assert_close(got.lse.double(), expected, rtol=1e-5, atol=1e-4)
        lower = regard.observe(
            *inputs, backend=backend, bias=torch.full((Q, K), -300.0), read=regard.Readings(), **arguments
        )
        torch.testing.assert_close(lower.lse.double(), expected - 300, rtol=1e-5, atol=1e-3)


@everywhere
def test_readings_of_many_keys_far_below_zero(backend):
    """exp(score − lse) would lose log K: each of 257 equal keys has weight 1/257 and the row entropy log 257."""
    query, key, value = torch.zeros(1, 1, 5, D), torch.zeros(1, 1, 257, D), torch.randn(1, 1, 257, V)
    bias = torch.full((5, 257), -1e9)
    got = measure(backend, (query, key, value), bias=bias)
    torch.testing.assert_close(got["entropy"], torch.full((1, 1, 5), 257.0).log(), rtol=1e-5, atol=0)
    torch.testing.assert_close(got["peak"], torch.full((1, 1, 5), 1 / 257), rtol=1e-5, atol=0)
    torch.testing.assert_close(got["received"], torch.full((1, 1, 257), 5 / 257), rtol=1e-5, atol=0)
    torch.testing.assert_close(got["grad_value"], torch.full((1, 1, 257, V), 5 / 257), rtol=1e-5, atol=0)
    assert set(ROW_READINGS) <= got.keys()
