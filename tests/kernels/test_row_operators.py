"""Sparse normalizers of plain rows by compiled loops: what sorting and root finding give, along any axis."""

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from torch.library import opcheck

from regard import normalizers
from regard.errors import BackendError
from regard.kernels.cpu import launch as launch_module
from regard.kernels.cpu import row_operators
from regard.normalizers import compiled_rows
from regard.normalizers.thresholds import entmax15_by_sort, entmax_by_root, sparsemax_by_sort

ALPHAS = [2.0, 1.5, 1.2, 3.0]


def by_sort(scores, alpha, dim=-1):
    """Another algorithm, in float64."""
    scores = scores.double()
    if alpha == 2.0:
        return sparsemax_by_sort(scores, dim)
    return entmax15_by_sort(scores, dim) if alpha == 1.5 else entmax_by_root(scores, scores.new_tensor(alpha), dim)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_the_entmax_operator_normalizes_any_axis(alpha, dim, monkeypatch):
    monkeypatch.setattr(compiled_rows, "KERNEL_NUMBERS", 1)
    scores = torch.randn(7, 31, 5).transpose(0, 1)
    weights = normalizers.entmax(alpha)(scores, dim)
    assert weights.shape == scores.shape
    # Above 2 a weight leaves 0 like a root of its score.
    torch.testing.assert_close(weights.double(), by_sort(scores, alpha, dim), rtol=0, atol=1e-6 if alpha <= 2 else 3e-5)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_gradients_of_the_entmax_operator_are_exact(alpha):
    scores = (torch.randn(5, 13, dtype=torch.float64) * 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: row_operators.entmax(s, alpha), scores)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_operator_is_a_good_citizen(alpha):
    for dtype in (torch.float32, torch.float64):
        opcheck(row_operators.entmax, (torch.randn(3, 17, dtype=dtype, requires_grad=True), alpha))


def test_expanded_and_empty_scores():
    assert torch.equal(
        row_operators.entmax(torch.arange(5.0).expand(3, 5), 1.5),
        row_operators.entmax(torch.arange(5.0).repeat(3, 1), 1.5),
    )
    assert row_operators.entmax(torch.zeros(0, 5), 1.5).shape == (0, 5)
    assert row_operators.entmax(torch.zeros(5, 0), 1.5).shape == (5, 0)


def test_the_entmax_operator_gives_masked_scores_no_weight_and_no_gradient():
    """A row of −inf only has weights 0 and gradient 0; a masked key is a key that isn't there."""
    scores = torch.randn(4, 23)
    scores[1] = -torch.inf
    scores[2, 5:] = -torch.inf
    scores.requires_grad_()
    weights = row_operators.entmax(scores, 1.5)
    assert not weights[1].any()
    assert not weights[2, 5:].any()
    torch.testing.assert_close(weights[2, :5], row_operators.entmax(scores[2, :5], 1.5))
    (gradient,) = torch.autograd.grad(weights.square().sum(), scores)
    assert torch.isfinite(gradient).all()
    assert not gradient[1].any()


def test_the_entmax_operator_refuses_second_derivatives():
    scores = torch.randn(3, 5, requires_grad=True)
    (first,) = torch.autograd.grad(row_operators.entmax(scores, 1.5).square().sum(), scores, create_graph=True)
    with pytest.raises(BackendError, match="no second derivative"):
        first.sum().backward()


def test_threads_change_no_bit_of_the_entmax_operator(monkeypatch):
    monkeypatch.setattr(launch_module, "SERIAL_WORK", 0)
    scores, threads = torch.randn(301, 257), torch.get_num_threads()
    results = []
    for count in (1, 2):
        torch.set_num_threads(count)
        results.append(row_operators.entmax(scores, 1.5))
    torch.set_num_threads(threads)
    assert torch.equal(*results)


def test_large_problems_use_it_and_small_ones_do_not(monkeypatch):
    calls = []
    real = row_operators.entmax
    monkeypatch.setattr(row_operators, "entmax", lambda *given: calls.append(1) or real(*given))
    normalizers.sparsemax(torch.randn(3, 5))
    assert not calls
    large = torch.randn(64, 1024)
    torch.testing.assert_close(normalizers.sparsemax(large).double(), by_sort(large, 2.0), rtol=0, atol=1e-6)
    assert calls


@pytest.mark.parametrize("alpha", [2.0, 1.5, 1.2])
def test_the_normalizer_has_a_second_derivative_at_any_size(alpha, monkeypatch):
    monkeypatch.setattr(compiled_rows, "KERNEL_NUMBERS", 1)
    scores = (torch.randn(3, 5, dtype=torch.float64) * 2).requires_grad_()
    assert torch.autograd.gradgradcheck(normalizers.entmax(alpha), scores)
