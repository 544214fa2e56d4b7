"""The distance score's numerics."""

import pytest
import torch

from regard import scores
from regard.errors import KindError

BOTH = pytest.mark.parametrize("squared", [True, False])


@BOTH
def test_far_from_zero_is_as_good_as_near(squared: bool):
    query, key = torch.randn(2, 6, 5, 11), torch.randn(2, 3, 7, 11)
    # Each head lies elsewhere; float32 adds these offsets without rounding away the numbers' own digits.
    offset = torch.tensor([4096.0, -2048.0, 1024.0])[:, None, None]
    key = key.mul(256).round().div(256) + offset
    query = query.mul(256).round().div(256) + offset.repeat_interleave(2, dim=0)
    score = scores.Distance(squared)
    exact = score(query.double(), key.double())
    torch.testing.assert_close(score(query, key).double(), exact, rtol=1e-5, atol=1e-4)


@BOTH
def test_equal_vectors_have_score_and_gradient_zero(squared: bool):
    query = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    key = query.clone().requires_grad_()
    query.requires_grad_()
    score = scores.Distance(squared)(query, key).diagonal(dim1=-2, dim2=-1)
    score.sum().backward()
    for tensor in (score, query.grad, key.grad):
        assert tensor is not None
        torch.testing.assert_close(tensor, torch.zeros_like(tensor), rtol=0, atol=1e-13)


def test_unsquared_distances_are_exact_near_zero():
    query = torch.randn(1, 1, 3, 5) + 100
    key = query + torch.tensor([0.0, 0.0, 2.0**-10, 0.0, 0.0])
    score = scores.Distance(squared=False)(query, key).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(score, torch.full_like(score, -(2.0**-10)), rtol=1e-6, atol=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_key_that_is_no_number_spoils_only_itself(bad: float):
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    clean = scores.Distance()(query, key[:, :, 1:])
    key[:, :, 0] = bad
    result = scores.Distance()(query, key)[..., 1:]
    torch.testing.assert_close(result, clean, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e38, 1e4])
@BOTH
def test_no_key_changes_a_bit_of_another_key(squared: bool, bad: float):
    query, key = torch.randn(2, 6, 5, 7) + 3, torch.randn(2, 3, 11, 7) + 3
    score = scores.Distance(squared)
    clean = score(query, key)
    key[:, :, 4] = bad
    columns = torch.arange(11) != 4
    assert torch.equal(score(query, key)[..., columns], clean[..., columns])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e38, 0.0])
@pytest.mark.parametrize("many", [1, 4])
def test_other_queries_leave_the_digits(bad: float, many: int):
    query, key = torch.randn(2, 6, 5, 7), torch.randn(2, 3, 11, 7)
    exact = scores.Distance()(query.double(), key.double())
    query[:, :, :many] = bad
    got = scores.Distance()(query, key)[:, :, many:].double()
    torch.testing.assert_close(got, exact[:, :, many:], rtol=1e-5, atol=1e-5)


def test_one_query_far_from_zero_has_exact_distances():
    key = torch.randn(1, 1, 7, 5) + 4096
    query = key[:, :, :1] + torch.tensor([0.0, 0.0, 2.0**-5, 0.0, 0.0])
    exact = scores.Distance()(query.double(), key.double())
    torch.testing.assert_close(scores.Distance()(query, key).double(), exact, rtol=1e-6, atol=0)


def test_distance_refuses_wrong_arguments():
    with pytest.raises(KindError, match="squared must be True or False; it is "):
        scores.Distance("no")
