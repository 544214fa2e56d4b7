"""A backend that is registered from outside is like all others: planned, named, read and held to the contracts."""

import pytest
import torch

import regard
from attention import test_contracts as contracts
from cases import MASKS, D, H, problem
from regard import masks
from regard.attention import Backend, Problem, register_backend, unregister_backend
from regard.attention.execution import BACKENDS
from regard.attention.problem import Capabilities
from regard.errors import ArgumentError, BackendError, KindError, UnknownNameError
from regard.scores import InnerProduct
from regard.shapes.grid import spread_heads, upcast

CAPABILITIES = Capabilities(primitives=(InnerProduct,), rows=frozenset({"softmax"}))


class Einsum(Backend):
    """Softmax attention in three lines, as a user might write it."""

    name = "einsum"
    why = "it is short"

    def declines(self, problem: Problem) -> str | None:
        if problem.dropout:
            return "it has no dropout"
        if (
            problem.lowered.row is None
            or problem.lowered.row.sink is not None
            or problem.lowered.row.center is not None
        ):
            return "its softmax is plain"
        return CAPABILITIES.obstacle(problem.lowered)

    def run(self, problem, gatherer=None):
        score, grid = problem.lowered.score, problem.grid
        key, value = spread_heads(upcast(score.key), grid.heads), spread_heads(upcast(problem.value), grid.heads)
        scores = torch.einsum("bhqd,bhkd->bhqk", upcast(score.query), key) * score.scale
        bias = problem.lowered.dense_bias()
        scores = scores if bias is None else scores + bias
        allowed = torch.ones_like(scores, dtype=torch.bool) if problem.mask is None else problem.mask.dense(grid)
        scores = (scores / problem.lowered.row.temperature).masked_fill(~allowed, -1e30)
        weights = scores.softmax(-1).masked_fill(~allowed, 0.0)
        return torch.einsum("bhqk,bhkv->bhqv", weights, value).to(problem.value.dtype)


@pytest.fixture(autouse=True)
def _registered():
    register_backend(Einsum(), before="tiled", rule=lambda problem, candidates: "it is never the fastest")
    yield
    unregister_backend("einsum")
    assert "einsum" not in BACKENDS


_small_blocks = contracts._small_blocks


def test_a_registered_backend_is_planned_and_named():
    inputs = problem()
    plan = regard.plan(*inputs)
    assert list(plan.reasons) == ["sdpa", "flex", "triton", "reference", "linear", "cpu", "einsum", "tiled"]
    assert plan.reasons["einsum"] == "could, but it is never the fastest"
    assert regard.plan(*inputs, backend="einsum").reasons["einsum"] == "named"
    assert regard.plan(*inputs, normalizer="sparsemax").reasons["einsum"].startswith("cannot")
    with pytest.raises(BackendError, match="backend 'einsum' cannot run this: it has no dropout"):
        regard.attend(*inputs, dropout=0.1, backend="einsum")


@pytest.mark.parametrize("score", ["scaled_dot", "cosine", "additive", "location", "soft_cap", "general_heads"])
@pytest.mark.parametrize("mask", ["none", "causal", "where"])
def test_a_registered_backend_computes_the_equation(score, mask):
    contracts.test_every_backend_computes_the_equation(score, "softmax", 1, mask)


@pytest.mark.parametrize("bias", ["tensor", "alibi"])
def test_a_registered_backend_adds_the_bias(bias):
    contracts.test_every_backend_adds_the_bias("softmax", bias)


@pytest.mark.parametrize("mask", MASKS)
def test_gradients_of_a_registered_backend_are_those_of_the_reference(mask, monkeypatch):
    monkeypatch.setattr(contracts, "FAST", ["einsum"])
    for score in ("dot", "cosine"):
        contracts.test_gradients_of_every_backend_are_those_of_the_reference(score, "softmax", mask, monkeypatch)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_contracts_hold(dtype, is_full):
    contracts.test_gradients_of_attend_are_exact("einsum", "scaled_dot", "softmax", is_full)
    contracts.test_a_query_that_sees_no_key_gets_nothing("einsum", dtype)
    contracts.test_every_backend_aligns_the_ends_of_causal("einsum")
    contracts.test_leading_axes_of_a_call_may_be_missing("einsum")
    contracts.test_half_precision_is_calculated_in_float32("einsum", torch.bfloat16, "cosine")
    for mask in ("none", "causal", "lengths", "where"):
        contracts.test_observing_never_changes_the_output("einsum", 0.0, dtype, mask, "softmax")


def test_masked_keys_do_not_reach_a_registered_backend():
    query, key, value = problem(torch.float32, requires_grad=True)
    expected = regard.attend(query, key, value, mask=masks.lengths([4, 0]), backend="reference")
    with torch.no_grad():
        spoilt_key, spoilt_value = key.clone(), value.clone()
        for tensor in (spoilt_key, spoilt_value):
            tensor[:, :, 4:] = torch.nan
    got = regard.attend(query, spoilt_key, spoilt_value, mask=masks.lengths([4, 0]), backend="einsum")
    torch.testing.assert_close(got, expected)
    (grad,) = torch.autograd.grad(got.sum(), query)
    torch.testing.assert_close(grad, torch.autograd.grad(expected.sum(), query)[0])


def test_a_registered_backend_gives_weights_and_readings():
    inputs = problem()
    attended = regard.attention.attend_with_weights(*inputs, mask=masks.causal(), backend="einsum")
    assert torch.equal(attended.output, regard.attend(*inputs, mask=masks.causal(), backend="einsum"))
    observed = regard.observe(*inputs, mask=masks.causal(), backend="einsum", read=regard.Readings(weights=True))
    torch.testing.assert_close(observed.weights, attended.weights)


def test_a_layer_takes_its_name():
    layer = regard.nn.MultiheadAttention(H * D, H, batch_first=True, backend="einsum")
    inputs = torch.randn(2, 5, H * D)
    expected = regard.nn.MultiheadAttention(H * D, H, batch_first=True, backend="reference")
    expected.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(inputs, inputs, inputs)[0], expected(inputs, inputs, inputs)[0])


def test_invalid_backends_cannot_be_registered():
    with pytest.raises(KindError, match="must be an instance"):
        register_backend(Einsum)
    with pytest.raises(ArgumentError, match="there is a backend 'einsum' already"):
        register_backend(Einsum())
    nameless = Einsum()
    nameless.name = "auto"
    with pytest.raises(ArgumentError, match="must have a name"):
        register_backend(nameless)
    nameless.name = "other"
    with pytest.raises(UnknownNameError, match="unknown backend 'nobody'"):
        register_backend(nameless, before="nobody")
    with pytest.raises(UnknownNameError, match="unknown backend 'other'"):
        unregister_backend("other")
    with pytest.raises(ArgumentError, match="'reference' is one of regard's own"):
        unregister_backend("reference")
