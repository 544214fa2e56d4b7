"""Dot, scaled dot, cosine and general: what only they must do."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from regard import scores
from regard.errors import ArgumentError, KindError, ShapeError

STATE = [[5.0, 1.0, 20.0]]
ANNOTATIONS = [[3.0, 12.0, 45.0], [59.0, 2.0, 5.0], [1.0, 43.0, 5.0], [4.0, 3.0, 45.3]]


def test_large_scores_are_exact():
    query, key = torch.tensor(STATE)[None, None], torch.tensor(ANNOTATIONS)[None, None]
    result = scores.Dot()(query, key)
    torch.testing.assert_close(result, torch.tensor([[[[927.0, 397.0, 148.0, 929.0]]]]))


@given(exponent=st.integers(-37, 37), other=st.integers(-37, 37))
def test_cosine_doesnt_know_lengths(exponent: int, other: int):
    query, key = torch.randn(1, 1, 3, 5), torch.randn(1, 1, 7, 5)
    result = scores.Cosine()(query * 10.0**exponent, key * 10.0**other)
    torch.testing.assert_close(result, scores.Cosine()(query, key), rtol=1e-5, atol=1e-6)
    assert result.abs().max() <= 1 + 1e-6


def test_cosine_of_nothing_is_nothing():
    query = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    key = torch.randn(2, 3, 11, 7, dtype=torch.float64)
    query[:, :, 2], key[:, :, 4] = 0.0, 0.0
    query.requires_grad_()
    key.requires_grad_()
    result = scores.Cosine(0.5)(query, key)
    result.square().sum().backward()
    assert not result[:, :, 2].any()
    assert not result[..., 4].any()
    assert result.isfinite().all()
    for tensor, zero in ((query, 2), (key, 4)):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()
        assert not tensor.grad[:, :, zero].any()
        assert tensor.grad[:, :, 0].all()


def test_a_learned_temperature_cannot_turn_the_signs():
    query, key = torch.randn(1, 1, 3, 5), torch.randn(1, 1, 7, 5)
    score = scores.Cosine(nn.Parameter(torch.tensor(0.05)))
    with torch.no_grad():
        score.temperature.sub_(1.0)
    torch.testing.assert_close(score(query, key), scores.Cosine(0.01)(query, key))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_general_projects_half_precision_in_float32(dtype: torch.dtype):
    query = torch.full((1, 1, 1, 3), 300.0, dtype=dtype)
    weight = nn.Parameter(torch.full((3, 2), 200.0, dtype=dtype))
    projected = scores.General(weight).project_query(query)
    assert projected.dtype == torch.float32
    torch.testing.assert_close(projected, torch.full((1, 1, 1, 2), 180_000.0))


def test_a_plain_tensor_is_a_buffer_and_gets_its_gradient():
    weight = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    score = scores.General(weight)
    assert score.weight is weight
    assert not list(score.parameters())
    assert set(score.state_dict()) == {"weight"}
    query, key = torch.randn(2, 1, 7, 3, dtype=torch.float64), torch.randn(2, 1, 2, 5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda weight: scores.General(weight)(query, key), (weight,))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: scores.ScaledDot(float("nan")), ArgumentError, "scale must be finite; it is nan"),
        (lambda: scores.ScaledDot(float("inf")), ArgumentError, "scale must be finite"),
        (lambda: scores.ScaledDot(torch.tensor([1.0, float("nan")])), ArgumentError, "scale must be finite"),
        (lambda: scores.ScaledDot("large"), KindError, "scale must be a number or a tensor; it is a str"),
        (lambda: scores.ScaledDot(True), KindError, "scale must be a number or a tensor; it is a bool"),
        (lambda: scores.ScaledDot(torch.tensor(3)), KindError, "scale must hold floating-point numbers"),
        (lambda: scores.Cosine(0.0), ArgumentError, "temperature must be above 0; it is 0"),
        (lambda: scores.Cosine(-1), ArgumentError, "temperature must be above 0; it is -1"),
        (lambda: scores.Cosine(torch.tensor(0.001)), ArgumentError, "must be at least 0.01"),
        (lambda: scores.General(torch.zeros(3)), ShapeError, r"weight must be \[query_dim, key_dim\] or \[heads, "),
        (lambda: scores.General([[1.0]]), KindError, "weight must be a tensor; it is a list"),
    ],
)
def test_inner_products_refuse_wrong_arguments(make, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (scores.Dot(), "same dim; query has 7, key has 11"),
        (scores.Cosine(), "same dim; query has 7, key has 11"),
        (scores.ScaledDot(), "same dim; query has 7, key has 11"),
        (scores.Distance(), "same dim; query has 7, key has 11"),
        (scores.General(torch.zeros(5, 11)), r"query must have dim 5, as weight .* it has dim 7"),
        (scores.General(torch.zeros(7, 5)), r"key must have dim 5, as weight .* it has dim 11"),
        (scores.General(torch.zeros(5, 7, 11)), "weight must have query's heads, 3; it has 5"),
    ],
)
def test_inner_products_refuse_wrong_inputs(score: scores.Score, message: str):
    with pytest.raises(ShapeError, match=message):
        score(torch.zeros(2, 3, 5, 7), torch.zeros(2, 3, 5, 11))


@pytest.mark.parametrize("shape", [(5, 1, 1), (3,), (1, 1, 1, 1, 1), (3, 1, 5)])
def test_a_scale_that_doesnt_broadcast(shape: tuple[int, ...]):
    query = torch.zeros(2, 3, 7, 5)
    for score in (scores.ScaledDot(torch.ones(shape)), scores.Cosine(torch.ones(shape))):
        with pytest.raises(ShapeError, match=r"must broadcast to \[batch, heads, 1, 1\]"):
            score(query, query)


def test_a_weight_elsewhere():
    query = torch.zeros(2, 3, 7, 5)
    for score in (scores.General(torch.zeros(5, 5, device="meta")), scores.Additive(torch.zeros(5, device="meta"))):
        with pytest.raises(KindError, match="weight must be on query's device, cpu; it is on meta"):
            score(query, query)
