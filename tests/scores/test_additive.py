"""Additive and concat are one family; projections are shared, checked, and in float32."""

import pytest
import torch
from torch import nn

from regard import scores
from regard.errors import KindError, ShapeError


@torch.no_grad()
def test_concat_is_additive():
    query, key = torch.randn(2, 6, 5, 7, dtype=torch.float64), torch.randn(2, 3, 11, 13, dtype=torch.float64)
    score = scores.Additive.concat(7, 13, 17, heads=6).double()
    assert score.query_projection is not None
    assert score.key_projection is not None
    matrix = torch.cat([score.query_projection.weight, score.key_projection.weight], dim=1)  # W_a
    pairs = torch.cat(
        [
            query[..., :, None, :].expand(2, 6, 5, 11, 7),
            key.repeat_interleave(2, dim=1)[..., None, :, :].expand(2, 6, 5, 11, 13),
        ],
        dim=-1,
    )
    expected = torch.einsum("hd,bhqkd->bhqk", score.weight, torch.tanh(pairs @ matrix.mT))
    torch.testing.assert_close(score(query, key), expected, rtol=1e-12, atol=1e-12)


def test_a_projected_score_shares_its_weight():
    score = scores.Additive.create(7, 11, 5)
    assert score.projected().get_parameter("weight") is score.weight
    assert len(list(score.projected().parameters())) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_projected_in_float32(dtype: torch.dtype):
    score = scores.Additive.create(7, 11, 5).to(dtype)
    query = torch.randn(1, 1, 3, 7, dtype=dtype)
    projected = score.project_query(query)
    assert projected.dtype == torch.float32
    assert score.query_projection is not None
    torch.testing.assert_close(projected, query.float() @ score.query_projection.weight.float().T)


def test_saturated_units_are_finite_with_finite_gradient():
    query = torch.tensor([1e30, -1e30, 88.0, 0.0]).view(1, 1, 4, 1).requires_grad_()
    key = torch.tensor([1e30, -1e30, -88.0]).view(1, 1, 3, 1).requires_grad_()
    result = scores.Additive(torch.tensor([2.0]))(query, key)
    result.sum().backward()
    expected = [[2.0, 0.0, 2.0], [0.0, -2.0, -2.0], [2.0, -2.0, 0.0], [2.0, -2.0, -2.0]]
    torch.testing.assert_close(result, torch.tensor([[expected]]))
    for tensor in (query, key):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


def test_plain_tensors_get_their_gradient():
    query, key = torch.randn(2, 3, 5, 2, dtype=torch.float64), torch.randn(2, 1, 7, 2, dtype=torch.float64)
    weight = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda weight: scores.Additive(weight)(query, key), (weight,))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: scores.Additive(torch.zeros(2, 3, 5)), ShapeError, r"weight must be \[dim\] or \[heads, dim\]"),
        (lambda: scores.Additive(torch.zeros(3, dtype=torch.int64)), KindError, "floating-point"),
        (
            lambda: scores.Additive(torch.zeros(3), nn.Linear(7, 5)),
            ShapeError,
            "query_projection must have as many outputs as weight has units, 3; it has 5",
        ),
        (lambda: scores.Additive(torch.zeros(3), None, torch.zeros(3, 3)), KindError, "key_projection must be a torch"),
    ],
)
def test_additive_scores_refuse_wrong_arguments(make, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (scores.Additive.create(5, 11, 3), "query must have dim 5, as query_projection takes it; it has dim 7"),
        (scores.Additive.create(7, 5, 3), "key must have dim 5, as key_projection takes it; it has dim 11"),
        (scores.Additive(torch.zeros(7)), r"key must have dim 7, as weight has it \(there is no key_projection\)"),
        (scores.Additive.create(7, 11, 3, heads=2), "weight must have query's heads, 3; it has 2"),
    ],
)
def test_additive_scores_refuse_wrong_inputs(score: scores.Score, message: str):
    with pytest.raises(ShapeError, match=message):
        score(torch.zeros(2, 3, 5, 7), torch.zeros(2, 3, 5, 11))
