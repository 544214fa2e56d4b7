"""Entmax's weights solve its equation, for rows of every kind and length and every alpha, however they are computed."""

import sys

import numpy as np
import pytest
import torch

import entmax_oracle
from regard.kernels.availability import why_missing
from regard.normalizers import entmax
from regard.shapes.grid import upcast

LENGTHS = (1, 2, 3, 5, 17, 129, 600)
LONG = {2053: (1.25, 1.99), 8192: (1.01, 1.5, 1.75, 2.0, 3.0)}
WAYS = [
    "plain",
    "root",
    pytest.param("compiled", marks=pytest.mark.skipif(why_missing() is not None, reason="kernels need Numba")),
]


@pytest.fixture(params=WAYS)
def weigh(request, monkeypatch):
    """``(scores, alpha) -> weights`` by sorting or root finding in PyTorch, by root finding alone, or by kernels."""
    if request.param == "root":
        return lambda scores, alpha: entmax(torch.tensor(alpha, dtype=upcast(scores).dtype))(scores)
    smallest = 1 if request.param == "compiled" else sys.maxsize
    monkeypatch.setattr("regard.normalizers.compiled_rows.KERNEL_NUMBERS", smallest)
    return lambda scores, alpha: entmax(alpha)(scores)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_rows_sum_to_one_and_each_weight_is_the_one_at_the_threshold(weigh, dtype):
    for keys, alphas in {**dict.fromkeys(LENGTHS, entmax_oracle.ALPHAS), **LONG}.items():
        scores = torch.from_numpy(entmax_oracle.rows(keys)).to(dtype)
        exact = scores.double().numpy()
        for alpha in alphas:
            weights = weigh(scores, alpha).double().numpy()
            entmax_oracle.assert_solves(exact, weights, alpha, torch.finfo(dtype).eps, f"alpha {alpha}, {keys} keys")


def test_every_alpha_between_1_01_and_4(weigh):
    scores = torch.from_numpy(entmax_oracle.rows(61))
    for alpha in np.linspace(1.01, 4.0, 100).tolist():
        weights = weigh(scores, alpha).numpy()
        entmax_oracle.assert_solves(scores.numpy(), weights, alpha, torch.finfo(torch.float64).eps, f"alpha {alpha}")


def test_rows_that_are_nearly_flat(weigh):
    """The example of the fault, where the search for the threshold stepped between the ends of its bracket."""
    scores = 0.1 * torch.randn(64, 600, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for alpha in (1.6, 1.75, 1.99, 2.0, 3.0):
        expected = entmax_oracle.weights(scores.numpy(), alpha)
        np.testing.assert_allclose(weigh(scores, alpha).numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_rounded_once(weigh, dtype):
    scores = torch.from_numpy(entmax_oracle.rows(257)).to(dtype)
    for alpha in (1.01, 1.333, 1.5, 1.9, 2.0, 3.0):
        expected = entmax_oracle.weights(scores.double().numpy(), alpha)
        weights = weigh(scores, alpha).double().numpy()
        np.testing.assert_allclose(weights, expected, rtol=0, atol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("learned", [False, True])
def test_gradients_are_those_of_the_equation(weigh, learned):
    """To the scores by the published formula, to alpha by differences of the oracle."""
    keys = 129
    scores = torch.from_numpy(entmax_oracle.rows(keys)).requires_grad_()
    target = torch.randn(scores.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for number in entmax_oracle.ALPHAS:
        alpha = torch.tensor(number, dtype=torch.float64, requires_grad=True) if learned else number
        leaves = [scores, alpha] if isinstance(alpha, torch.Tensor) else [scores]
        got = torch.autograd.grad((entmax(alpha)(scores) * target).sum(), leaves)
        weights = entmax_oracle.weights(scores.detach().numpy(), number)
        expected = entmax_oracle.gradient(weights, number, target.numpy())
        # A weight that just leaves 0 has one of two slopes; above 2 a small one's has as few digits as the weight.
        least = np.where(weights > 0, weights, 1.0).min(-1)
        sure = least > (1e-3 if number > 2 else 1e-9)
        assert sure.sum() > 5
        scale = np.abs(expected).max(-1, keepdims=True) + 1e-9
        assert (np.abs(got[0].numpy() - expected) / scale)[sure].max() < 1e-6, number
        if learned and number < 2:
            step = 1e-5
            # Of the sum over all rows: where a weight leaves 0, it changes little.
            above, below = (entmax_oracle.weights(scores.detach().numpy(), number + sign * step) for sign in (1, -1))
            slope = ((above - below) / (2 * step) * target.numpy()).sum()
            assert got[1].item() == pytest.approx(slope, rel=1e-3, abs=1e-3)
