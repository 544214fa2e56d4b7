"""The two statistics of a row, its maximum and the logarithm of its sum, lose no digit of each other."""

import math

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import regard
from kernels.oracle import tensors
from regard import normalizers
from regard.kernels.cpu import operators, step_operators
from regard.kernels.cpu.kernel_arguments import KernelInputs, ReadingOptions
from regard.scores import Dot

Q, K, D, V = 5, 131, 7, 3
LARGE = [-1e9, -3e4, 3e4, 1e9, torch.finfo(torch.float32).min]


def exactly(inputs: KernelInputs):
    """Output, weights, entropy and gradients of query, key and value in float64, from the rounded scores."""
    query, key, value = (tensor.double().requires_grad_() for tensor in inputs[:3])
    product = query @ key.mT * inputs.scale
    # What the kernel scores: the sum with the bias rounded to float32.
    rounded = product.detach().float() + inputs.bias
    scores = (product - product.detach() + rounded.double()) / inputs.temperature
    if inputs.sink is not None:
        scores = torch.cat([inputs.sink.double()[:, None, None].expand(*scores.shape[:-1], 1), scores], dim=-1)
    weights = scores.softmax(-1)
    if inputs.sink is not None:
        weights = weights[..., 1:]
    output = weights @ value
    gradients = torch.autograd.grad(output, (query, key, value), torch.ones_like(output).cumsum(-1))
    entropy = torch.special.entr(weights).sum(-1)
    return [output, weights, entropy, *gradients]


def by_kernel(inputs: KernelInputs):
    output, statistics, weights = operators.attend(*inputs._replace(return_weights=True))
    gradients = operators.attend_backward(torch.ones_like(output).cumsum(-1), None, statistics, None, *inputs)
    every = ReadingOptions(
        entropy=True, row_slots=torch.arange(Q), stored_rows=Q, stored_keys=inputs.key.shape[2], all_rows=Q
    )
    readings = operators.read(*inputs, *every)
    torch.testing.assert_close(readings[-1], weights, rtol=1e-5, atol=1e-7)
    return [output, weights, readings[1], *gradients[:3]]


def assert_exact(inputs):
    for name, got, expected in zip(
        ("output", "weights", "entropy", "query", "key", "value"), by_kernel(inputs), exactly(inputs), strict=True
    ):
        bound = 3e-5 * max(1.0, float(expected.detach().abs().max()))
        torch.testing.assert_close(
            got.double(), expected.detach(), rtol=0, atol=bound, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("large", LARGE)
@pytest.mark.parametrize("sink", [None, 0.0])
def test_rows_of_scores_that_are_all_large(large, sink):
    """A float mask over all of a row: its weights are equal, and log K is a part in 10⁸ of its log-sum-exp."""
    inputs = tensors(query=(2, 2, Q, D), key=(2, 2, K, D), value=(2, 2, K, V))
    bias = torch.full((1, 1, Q, K), large)
    given = None if sink is None else torch.full((2,), sink)
    assert_exact(KernelInputs(**inputs, bias=bias, scale=0.3, sink=given))


@pytest.mark.parametrize("large", [-1e9, 1e9])
@pytest.mark.parametrize("queries", [Q, 67])
def test_a_temperature_that_tells_large_scores_apart(large, queries):
    """Steps of 64, which float32 has near 10⁹, are steps of 1 at a temperature of 64."""
    generator = torch.Generator().manual_seed(3)
    steps = torch.randint(0, 7, (2, 2, queries, K), generator=generator) * 64.0
    inputs = tensors(query=(2, 2, queries, D), key=(2, 2, K, D), value=(2, 2, K, V))
    inputs["query"] = torch.zeros_like(inputs["query"])
    call = KernelInputs(**inputs, bias=large + steps, temperature=64.0)
    output, statistics, *_ = operators.attend(*call)
    gradients = operators.attend_backward(torch.ones_like(output).cumsum(-1), None, statistics, None, *call)
    exact = exactly(call)
    torch.testing.assert_close(output.double(), exact[0].detach(), rtol=0, atol=1e-5)
    for got, expected in zip(gradients[:3], exact[3:], strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("large", [-1e15, -1e9, 1e9])
def test_steps_over_a_memory_whose_scores_are_large(large, dtype):
    """Equal keys: equal weights, and no gradient of the query, though each score's own is large."""
    inputs = tensors(dtype=dtype, query=(3, 1, 1, D), key=(3, 1, K, D), value=(3, 1, K, V))
    inputs["key"][..., :] = 0
    inputs["key"][..., 0], inputs["query"][..., 0] = large, 1
    call = KernelInputs(**inputs)
    output, weights = step_operators.step(call)
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / K))
    torch.testing.assert_close(output, inputs["value"].mean(2, keepdim=True))
    _, grad_score, _ = step_operators.step_gradients(call, weights, torch.ones_like(output), None)
    expected = (inputs["value"].sum(-1) - inputs["value"].mean(2, keepdim=True).sum(-1))[:, :, None] / K
    torch.testing.assert_close(grad_score, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("gap", [-1e4, -50.0, -1.0, 0.0, 1.0, 20.0, 80.0, 87.0, 110.0, 1e3, 1e4])
def test_a_sink_far_above_the_scores_leaves_them_their_sum(gap, dtype):
    query, key = torch.ones(1, 1, 1, 1, dtype=dtype), torch.linspace(-3, 0, K, dtype=dtype).reshape(1, 1, K, 1)
    read = regard.Readings(entropy=True, weights=True)
    normalizer = normalizers.softmax_with_sink(gap)
    got = regard.observe(query, key, key, score=Dot(), normalizer=normalizer, read=read, backend="cpu")
    scores = key.double().flatten()
    eps = torch.finfo(dtype).eps
    assert got.lse.item() == pytest.approx(scores.logsumexp(0).item(), rel=4 * eps, abs=4 * eps)
    total = torch.cat([scores, torch.tensor([gap], dtype=torch.float64)]).logsumexp(0)
    tiny = torch.finfo(dtype).tiny * K * 100
    weights = (scores - total).exp()
    torch.testing.assert_close(got.weights.flatten().double(), weights, rtol=1e3 * eps, atol=tiny)
    entropy = -(weights * (scores - total)).sum()
    assert got.entropy.item() == pytest.approx(entropy.item(), rel=1e3 * eps, abs=tiny * (abs(gap) + 1))
    assert math.isfinite(got.entropy.item())


@pytest.mark.parametrize("shape", [(1, 4, Q, K), (2, 1, Q, K), (1, 1, Q, K), (1, 1, 1, K), (2, 4, Q, 1), (1, 4, 1, 1)])
def test_a_shared_bias_gets_the_sum_of_all_gradients(shape):
    inputs = tensors(query=(2, 4, Q, D), key=(2, 2, K, D), value=(2, 2, K, V), bias=shape)
    call = KernelInputs(**inputs, scale=0.3)
    output, statistics, *_ = operators.attend(*call)
    target = torch.randint(-3, 4, output.shape).float()
    got = operators.attend_backward(target, None, statistics, None, *call)[operators.GRADIENTS.index("bias")]
    bias = inputs["bias"].double().requires_grad_()
    scores = inputs["query"].double() @ inputs["key"].double().repeat_interleave(2, 1).mT * 0.3 + bias
    exact = scores.softmax(-1) @ inputs["value"].double().repeat_interleave(2, 1)
    (expected,) = torch.autograd.grad(exact, bias, target.double())
    assert got.shape == bias.shape
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("heads", [1, 4])
def test_shared_diagonals_get_the_sum_of_all_gradients(heads):
    inputs = tensors(query=(2, 4, Q, D), key=(2, 2, K, D), value=(2, 2, K, V), bias=(heads, Q + K - 1))
    call = KernelInputs(**inputs, diagonal=True)
    output, statistics, *_ = operators.attend(*call)
    target = torch.randint(-3, 4, output.shape).float()
    got = operators.attend_backward(target, None, statistics, None, *call)[operators.GRADIENTS.index("bias")]
    bias = inputs["bias"].double().requires_grad_()
    place = torch.arange(K) - torch.arange(Q)[:, None] + Q - 1
    scores = inputs["query"].double() @ inputs["key"].double().repeat_interleave(2, 1).mT + bias[:, place]
    exact = scores.softmax(-1) @ inputs["value"].double().repeat_interleave(2, 1)
    (expected,) = torch.autograd.grad(exact, bias, target.double())
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=2e-5)
