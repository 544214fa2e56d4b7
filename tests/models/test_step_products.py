"""A linear map of each step's input gives what `nn.Linear` gives, and its gradients."""

import pytest
import torch
from torch import nn

from regard.models.step_products import StepLinear
from regard.nn import Attention

STEPS = 4


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("reached", [(0, 1, 2, 3), (1, 3), (2,)])
def test_steps_have_the_gradients_of_single_products(bias, reached):
    linear, given = nn.Linear(5, 3, bias).double(), torch.randn(STEPS, 7, 5).double().requires_grad_()
    factors = torch.randn(STEPS, 7, 3).double()
    steps = StepLinear(linear, STEPS, torch.float64)
    found = [steps.step(time, given[time]) for time in range(STEPS)]
    wanted = [linear(given[time]) for time in range(STEPS)]
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    leaves = [given, *linear.parameters()]
    grads = [
        torch.autograd.grad(sum((made[t] * factors[t]).sum() for t in reached), leaves) for made in (found, wanted)
    ]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def test_a_step_is_of_the_dtype_of_the_loop():
    linear, given = nn.Linear(5, 3), torch.randn(7, 5, requires_grad=True)
    steps = StepLinear(linear, 1, torch.bfloat16)
    found = steps.step(0, given)
    assert found.dtype == torch.bfloat16
    found.float().sum().backward()
    assert given.grad.dtype == linear.weight.grad.dtype == torch.float32
    torch.testing.assert_close(linear.bias.grad, torch.full((3,), 7.0))


@pytest.mark.parametrize("score", ["additive", "general", "dot", "mlp"])
def test_attention_takes_a_query_that_is_projected_already(score):
    attention = Attention.create(score, 6, 6, None if score in ("general", "dot") else 8)
    memory, query = attention.remember(torch.randn(2, 5, 6)), torch.randn(2, 6)
    given = attention.score.project_query(query[:, None, None])[:, 0, 0]
    for one, other in zip(attention(query, memory), attention(given, memory, projected=True), strict=True):
        torch.testing.assert_close(one, other)
