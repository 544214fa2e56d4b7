"""Sigmoid attention."""

import math

import pytest
import torch

from regard.errors import ArgumentError
from regard.normalizers import Sigmoid, SquaredReLU, sigmoid, squared_relu

INF = float("inf")


def test_sigmoid_is_its_formula():
    scores = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    torch.testing.assert_close(sigmoid(scores), 1 / (1 + (-scores).exp()))
    torch.testing.assert_close(Sigmoid(-math.log(7))(scores), 1 / (1 + 7 * (-scores).exp()))


def test_keys_do_not_compete():
    scores = torch.randn(3, 5, dtype=torch.float64)
    changed = scores.clone()
    changed[:, 1:] = 9.0
    assert torch.equal(sigmoid(scores)[:, 0], sigmoid(changed)[:, 0])


def test_bias_for_each_head():
    scores, bias = torch.randn(2, 3, 5, 7, dtype=torch.float64), torch.tensor([0.0, 1.0, -3.0], dtype=torch.float64)
    torch.testing.assert_close(Sigmoid(bias)(scores), (scores + bias[:, None, None]).sigmoid())


@pytest.mark.parametrize("bias", [torch.tensor(0.3), torch.tensor([0.3, -2.0, 4.0])])
def test_gradient_to_the_bias(bias):
    scores = torch.randn(2, 3, 2, 5, dtype=torch.float64)
    scores[..., 0, :] = -INF
    assert torch.autograd.gradcheck(lambda b: Sigmoid(b)(scores), bias.double().requires_grad_())


def test_bias_out_of_range():
    with pytest.raises(ArgumentError, match="bias must be finite"):
        Sigmoid(math.nan)


def test_squared_relu_is_its_formula():
    scores = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    scores[..., 1, 3:] = -INF
    expected = scores.clamp(min=0) ** 2
    torch.testing.assert_close(squared_relu(scores), expected)
    seen = torch.tensor([7, 3, 7, 7, 7])[:, None]
    torch.testing.assert_close(SquaredReLU(mean=True)(scores), expected / seen)
    special = squared_relu(torch.tensor([math.nan, INF, -2.0]))
    assert special[0].isnan()
    assert special[1] == INF
    assert special[2].signbit().item() is False
