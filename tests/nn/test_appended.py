"""Appended keys are seen by everybody and have no bias, in every tile."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import masks, positions
from regard.biases import AppendedBias, SummedBias
from regard.masks import AppendedMask, Visibility
from regard.positions import TensorBias
from regard.shapes.grid import Grid

BATCH, HEADS, QUERIES, KEYS, APPENDED = 3, 2, 5, 11, 2


def spans(length: int) -> st.SearchStrategy[range]:
    ends = st.tuples(st.integers(0, length), st.integers(0, length))
    return ends.map(lambda pair: range(min(pair), max(pair)))


MASKS = [
    masks.causal(),
    masks.window(2, 0),
    masks.lengths([4, 0, KEYS]),
    masks.keep(torch.zeros((), dtype=torch.bool)),
    masks.keep(torch.tensor([[True], [False], [True], [True], [False]])),
]


@pytest.mark.parametrize("mask", MASKS, ids=repr)
@given(queries=spans(QUERIES), keys=spans(KEYS + APPENDED))
@settings(deadline=None, max_examples=40)
def test_a_tile_of_an_appended_mask_is_a_part_of_the_whole(mask, queries, keys):
    appended = AppendedMask(mask, APPENDED)
    plain = mask.dense(Grid.whole(BATCH, HEADS, QUERIES, KEYS))
    whole = torch.nn.functional.pad(plain, (0, APPENDED), value=True)
    grid = Grid.whole(BATCH, HEADS, QUERIES, KEYS + APPENDED)
    appended.check(grid)
    tile = grid.tile(queries=queries, keys=keys)
    part = whole[:, :, queries.start : queries.stop, keys.start : keys.stop]
    assert torch.equal(appended.dense(tile), part)
    visibility = appended.visibility(tile)
    if visibility is Visibility.FULL:
        assert part.all()
    if visibility is Visibility.EMPTY:
        assert not part.any()


@pytest.mark.parametrize("kind", ["alibi", "relative", "scalar", "both"])
@given(queries=spans(QUERIES), keys=spans(KEYS + APPENDED))
@settings(deadline=None, max_examples=40)
def test_a_tile_of_an_appended_bias_is_a_part_of_the_whole(kind, queries, keys):
    torch.manual_seed(1)
    bias = {
        "alibi": positions.alibi(HEADS),
        "relative": positions.RelativeBias(HEADS, 8, 16),
        "scalar": TensorBias(torch.randn(())),
        "both": SummedBias([positions.alibi(HEADS), TensorBias(torch.randn(BATCH, 1, QUERIES, KEYS))]),
    }[kind]
    query = torch.randn(BATCH, HEADS, QUERIES, 7)
    plain = bias(query, Grid.whole(BATCH, HEADS, QUERIES, KEYS)).expand(BATCH, HEADS, QUERIES, KEYS)
    whole = torch.nn.functional.pad(plain, (0, APPENDED))
    appended = AppendedBias(bias, APPENDED)
    grid = Grid.whole(BATCH, HEADS, QUERIES, KEYS + APPENDED)
    appended.check(query, grid)
    tile = grid.tile(queries=queries, keys=keys)
    came = appended(query[:, :, queries.start : queries.stop], tile).expand(tile.shape)
    assert torch.equal(came, whole[:, :, queries.start : queries.stop, keys.start : keys.stop])
