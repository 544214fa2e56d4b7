"""NaN and infinite numbers in a bias: a hidden pair reaches nothing, a visible one reaches its own row."""

import pytest
import torch

from regard.biases import RelativePosition
from regard.shapes.grid import Grid

HEADS, QUERIES, KEYS, DIM, FAR = 3, 5, 7, 11, 2
GRID = Grid.whole(2, HEADS, QUERIES, KEYS)
nonfinite = pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])


def shaw() -> tuple[RelativePosition, torch.Tensor]:
    torch.manual_seed(6)
    bias = RelativePosition(DIM, FAR).double()
    return bias, torch.randn(2, HEADS, QUERIES, DIM, dtype=torch.float64)


def gradients(bias: RelativePosition, query: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of a sum of squares of the visible numbers."""
    query = query.clone().requires_grad_()
    added = bias(query, GRID).masked_fill(hidden, 0.0)
    return torch.autograd.grad(added.square().sum(), (query, bias.weight))


@nonfinite
def test_a_nonfinite_query_reaches_its_own_row_only(number: float):
    bias, query = shaw()
    expected = bias(query, GRID)
    query[1, 2, 3, 4] = number
    found = bias(query, GRID)
    assert not found[1, 2, 3].isfinite().any()
    found[1, 2, 3] = expected[1, 2, 3]
    assert torch.equal(found, expected)


@nonfinite
def test_a_hidden_query_reaches_no_gradient(number: float):
    bias, query = shaw()
    hidden = torch.zeros(GRID.shape, dtype=torch.bool)
    hidden[1, 2, 3] = True
    expected = gradients(bias, query, hidden)
    query[1, 2, 3, 4] = number
    torch.testing.assert_close(gradients(bias, query, hidden), expected)


@nonfinite
def test_the_vector_of_a_hidden_distance_reaches_no_gradient(number: float):
    bias, query = shaw()
    relative = torch.arange(KEYS) - torch.arange(QUERIES)[:, None] - (KEYS - QUERIES)
    hidden = relative > 0
    expected = gradients(bias, query, hidden)
    with torch.no_grad():
        bias.weight[FAR + 1 :, 4] = number
    torch.testing.assert_close(gradients(bias, query, hidden), expected)


@nonfinite
def test_a_visible_query_makes_the_gradient_of_the_vectors_nan(number: float):
    bias, query = shaw()
    query[1, 2, 3, 4] = number
    grad_query, grad_weight = gradients(bias, query, torch.zeros(GRID.shape, dtype=torch.bool))
    assert grad_query[1, 2, 3].isnan().any()
    assert grad_weight.isnan().any()
