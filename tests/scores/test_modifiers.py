"""Scores around scores."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from regard import scores
from regard.errors import ArgumentError, KindError, ShapeError


@given(cap=st.floats(0.01, 1e4))
def test_a_soft_cap_bounds_and_keeps_order(cap: float):
    query, key = torch.randn(1, 2, 5, 7, dtype=torch.float64) * 50, torch.randn(1, 2, 3, 7, dtype=torch.float64)
    free, capped = scores.Dot()(query, key), scores.SoftCap("dot", cap)(query, key)
    assert capped.abs().max() <= cap
    assert ((free > 0) == (capped > 0)).all()
    order = free.flatten().argsort()
    assert (capped.flatten()[order].diff() >= 0).all()


def test_a_high_cap_is_none():
    query, key = torch.randn(1, 2, 5, 7, dtype=torch.float64), torch.randn(1, 2, 3, 7, dtype=torch.float64)
    torch.testing.assert_close(scores.SoftCap("dot", 1e6)(query, key), scores.Dot()(query, key), rtol=1e-9, atol=1e-9)


class Slope(nn.Module):
    """A learned slope for each head."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.randn(3, dtype=torch.float64))

    def forward(self, score: Tensor, batch: Tensor, head: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
        return score + self.slope[head] * (key_index - query_index)


def test_a_module_that_modifies_is_trained():
    query, key = torch.randn(2, 3, 5, 7, dtype=torch.float64), torch.randn(2, 3, 2, 7, dtype=torch.float64)
    score = scores.SoftCap(scores.Modified("dot", Slope()), 5.0)
    (slope,) = score.parameters()
    assert torch.autograd.gradcheck(lambda slope: score(query, key), (slope,))


def test_wrappers_hand_on_projections_and_checks():
    inner = scores.Additive.create(7, 11, 5)
    score = scores.SoftCap(scores.Modified(inner, lambda score, *_: 2 * score), 3.0)
    projected = score.projected()
    assert list(projected.parameters()) == [inner.weight]
    assert score.project_key(torch.randn(1, 1, 3, 11)).shape[-1] == 5
    with pytest.raises(ShapeError, match="key must have dim 11"):
        score(torch.zeros(1, 1, 3, 7), torch.zeros(1, 1, 3, 7))


def test_score_modifiers_refuse_wrong_arguments():
    for cap in (0.0, -1, float("nan"), float("inf")):
        with pytest.raises(ArgumentError, match="cap must be finite and above 0; it is"):
            scores.SoftCap("dot", cap)
    with pytest.raises(KindError, match="cap must be a number; it is a str"):
        scores.SoftCap("dot", "high")
    with pytest.raises(KindError, match="fn must be a callable"):
        scores.Modified("dot", 3)
    query = torch.zeros(2, 3, 5, 7)
    with pytest.raises(ShapeError, match=r"fn must return the scores' shape, \[2, 3, 5, 5\]; it returned \[2, 3, 5\]"):
        scores.Modified("dot", lambda score, *_: score.sum(-1))(query, query)
