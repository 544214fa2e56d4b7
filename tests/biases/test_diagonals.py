"""Biases that depend on key − query alone: their diagonals are the bias, and carry its gradient."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from regard.biases import Kerple, Sandwich
from regard.positions import Bias, RelativeBias, RelativePosition, TensorBias, alibi
from regard.shapes.grid import Grid

DOUBLE = torch.float64
HEADS, DIM = 3, 5

BIASES: dict[str, Callable[[], Bias]] = {
    "alibi": lambda: alibi(HEADS),
    "T5": lambda: RelativeBias(HEADS, buckets=8, max_distance=11),
    "T5 causal": lambda: RelativeBias(HEADS, buckets=5, max_distance=7, bidirectional=False),
    "KERPLE": lambda: Kerple(HEADS),
    "KERPLE power": lambda: Kerple(HEADS, "power"),
    "Sandwich": lambda: Sandwich(HEADS, 6),
}
every_bias = pytest.mark.parametrize("make", BIASES.values(), ids=BIASES.keys())


def diagonals_of(bias: Bias, grid: Grid, dtype: torch.dtype) -> torch.Tensor:
    diagonals = bias.diagonals(grid, dtype)
    assert diagonals is not None
    return diagonals


def spread(diagonals: torch.Tensor, grid: Grid) -> torch.Tensor:
    """Entry by entry, as the docstring has it."""
    _, _, queries, keys = grid.shape
    index = torch.arange(keys) - torch.arange(queries)[:, None] + queries - 1
    return diagonals[:, index]


def query_of(grid: Grid, dtype: torch.dtype = DOUBLE) -> torch.Tensor:
    batch, heads, queries, _ = grid.shape
    return torch.randn(batch, heads, queries, DIM, dtype=dtype)


@st.composite
def tiles(draw: st.DrawFn) -> Grid:
    queries, keys = draw(st.integers(0, 13)), draw(st.integers(0, 17))
    grid = Grid.whole(2, HEADS, queries, keys)
    first_query, first_key = draw(st.integers(0, queries)), draw(st.integers(0, keys))
    own = range(first_query, draw(st.integers(first_query, queries)))
    seen = range(first_key, draw(st.integers(first_key, keys)))
    return draw(st.sampled_from([grid, grid.tile(queries=own, keys=seen)]))


@every_bias
@given(tiles())
def test_diagonals_are_the_bias(make: Callable[[], Bias], grid: Grid):
    bias = make()
    for dtype in (torch.float32, DOUBLE):
        diagonals = diagonals_of(bias, grid, dtype)
        _, _, queries, keys = grid.shape
        assert diagonals.shape == (HEADS, max(queries + keys - 1, 0))
        assert diagonals.dtype == dtype
        if queries and keys:
            assert torch.equal(spread(diagonals, grid), bias(query_of(grid, dtype), grid))


@every_bias
@given(tiles())
def test_a_tile_has_some_of_the_diagonals_of_the_whole(make: Callable[[], Bias], tile: Grid):
    bias = make()
    whole = tile.tile(queries=range(tile.queries), keys=range(tile.keys))
    if 0 in tile.shape:
        return
    first = tile.key_span.start - (tile.query_span.stop - 1) + whole.queries - 1
    own = diagonals_of(bias, tile, DOUBLE)
    assert torch.equal(own, diagonals_of(bias, whole, DOUBLE)[:, first : first + own.shape[1]])


@every_bias
def test_gradients_are_those_of_the_bias(make: Callable[[], Bias]):
    bias, grid = make().double(), Grid.whole(2, HEADS, 7, 11)
    parameters = tuple(bias.parameters())
    if not parameters:
        assert not diagonals_of(bias, grid, DOUBLE).requires_grad
        return
    for tile in (grid, grid.tile(queries=range(2, 5), keys=range(3, 11))):
        weights = torch.randn(HEADS, *tile.shape[2:], dtype=DOUBLE)
        expected = torch.autograd.grad((bias(query_of(tile), tile) * weights).sum(), parameters)
        found = torch.autograd.grad((spread(diagonals_of(bias, tile, DOUBLE), tile) * weights).sum(), parameters)
        torch.testing.assert_close(found, expected)
    assert gradcheck(lambda *_: diagonals_of(bias, grid, DOUBLE), parameters)


@every_bias
def test_half_precision_weights_give_the_dtype_asked_for(make: Callable[[], Bias]):
    assert diagonals_of(make().half(), Grid.whole(2, HEADS, 7, 11), torch.float32).dtype == torch.float32


@every_bias
def test_a_long_problem_needs_no_dense_bias(make: Callable[[], Bias]):
    # Densely: 3 TB.
    length = 2**19
    diagonals = diagonals_of(make(), Grid.whole(1, HEADS, length, length), torch.float32)
    assert diagonals.shape == (HEADS, 2 * length - 1)


def test_biases_that_depend_on_more_have_none():
    grid = Grid.whole(2, HEADS, 7, 11)
    for bias in (RelativePosition(DIM, 2), TensorBias(torch.randn(7, 11))):
        assert bias.diagonals(grid, torch.float32) is None
