"""Output and weights in one call: the output is `attend`'s bit for bit, the weights are those that were used."""

import pytest
import torch

import regard
from backends import EVERY, accepts
from cases import MASKS, NORMALIZERS, B, H, K, Q, problem
from covering import covering
from regard import masks, nn, normalizers

everywhere = pytest.mark.parametrize("backend", EVERY)


@covering(normalizer=NORMALIZERS, mask=MASKS, dropout=[0.0, 0.4])
def test_the_output_is_that_of_attend(normalizer, mask, dropout):
    inputs = problem(torch.float32, kv_heads=1)
    arguments = {"normalizer": NORMALIZERS[normalizer](), "mask": MASKS[mask](), "dropout": dropout}
    expected = regard.explain(*inputs, **{**arguments, "dropout": 0.0}).weights
    for backend in EVERY:
        if accepts(backend, inputs, **arguments):
            torch.manual_seed(3)
            attended = regard.attend_with_weights(*inputs, backend=backend, **arguments)
            torch.manual_seed(3)
            assert torch.equal(attended.output, regard.attend(*inputs, backend=backend, **arguments)), backend
            assert attended.weights.shape == (B, H, Q, K)
            torch.testing.assert_close(
                attended.weights, expected, rtol=1e-4, atol=1e-5, msg=lambda m, backend=backend: f"{backend}: {m}"
            )


@everywhere
@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax", "entmax13", "sink", "sigmoid"])
def test_weights_are_differentiable(backend, normalizer):
    inputs = problem(requires_grad=True)
    arguments = {"normalizer": NORMALIZERS[normalizer](), "mask": masks.causal()}
    if accepts(backend, inputs, **arguments):
        grads = []
        for name in (backend, "reference"):
            output, weights = regard.attend_with_weights(*inputs, backend=name, **arguments)
            grads.append(torch.autograd.grad(output.sin().sum() + weights.square().sum(), inputs))
        for one, other in zip(*grads, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


@everywhere
def test_attend_with_weights_returns_the_drawn_weights(backend):
    inputs = problem()
    if accepts(backend, inputs, normalizer=normalizers.hard("gumbel")):
        output, weights = regard.attend_with_weights(*inputs, normalizer=normalizers.hard("gumbel"), backend=backend)
        torch.testing.assert_close(output, weights @ inputs[2])


def test_leading_axes_of_weights_may_be_missing():
    query, key, value = problem()
    whole = regard.attend_with_weights(query, key, value)
    one = regard.attend_with_weights(query[1, 2], key[1, 2], value[1, 2])
    assert one.weights.shape == (Q, K)
    torch.testing.assert_close(one.output, whole.output[1, 2])
    torch.testing.assert_close(one.weights, whole.weights[1, 2])


@pytest.mark.parametrize(("normalizer", "backend"), [("softmax", "cpu"), (normalizers.softmax_with_sink(0.0), None)])
def test_a_plan_describes_a_cached_memory(normalizer, backend):
    pytest.importorskip("numba", reason="a memory is cached for the compiled kernels")
    attention = nn.Attention.create("additive", 11, 11, 7, normalizer=normalizer)
    memory = attention.remember(torch.randn(2, 5, 11), torch.tensor([5, 3]))
    plan = attention.plan(torch.randn(2, 11), memory)
    described = plan.reasons["cpu"] == "it prepared the memory that is attended to"
    assert described == (backend == "cpu")
    assert backend is None or plan.backend == backend
