"""Appended keys: every query sees them, and the visible keys stay a few runs."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dense_spans import dense_spans, runs_of
from regard import masks
from regard.errors import ArgumentError, KindError, ShapeError
from regard.masks import AppendedMask, Mask, Visibility
from regard.shapes.grid import Grid

B, H, Q, K, APPENDED = 2, 3, 5, 7, 2

MASKS = [
    masks.window(),
    ~masks.window(),
    masks.causal(),
    ~masks.causal(),
    masks.window(None, 3),
    masks.window(2, 0),
    masks.window(1, None, offset=[-1, 4]),
    masks.lengths([K, 0]),
    masks.lengths([K, 4], [3, Q]),
    ~masks.lengths([K, 4]),
    masks.prefix(3) | masks.dilated(2),
    masks.keep(torch.tensor([0, 0, 1, 1, 1, 1, 1]).bool()),
    masks.ignore(torch.tensor([0, 0, 1, 1, 1, 0, 0]).bool()),
    masks.keep(torch.tensor([[1], [0], [1], [1], [0]]).bool()),
    masks.where(lambda b, h, i, j: (i + j + h) % 3 > b),
    AppendedMask(masks.window(0, None), 3),
]


def parts(length: int) -> st.SearchStrategy[range]:
    return st.tuples(st.integers(0, length), st.integers(0, length)).map(lambda ends: range(min(ends), max(ends)))


@pytest.mark.parametrize("mask", MASKS, ids=repr)
@given(batch=parts(B), queries=parts(Q), keys=parts(K + APPENDED))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_spans_are_those_of_the_dense_mask(mask: Mask, batch: range, queries: range, keys: range):
    appended = AppendedMask(mask, APPENDED)
    tile = Grid.whole(B, H, Q, K + APPENDED).tile(batch=batch, queries=queries, keys=keys)
    allowed = appended.dense(tile)
    inner = mask.spans(Grid.whole(B, H, Q, K)) is not None
    for spans, dense in ((appended.spans(tile), allowed), (appended.hidden_spans(tile), ~allowed)):
        if spans is not None:
            assert torch.equal(dense_spans(spans, tile), dense)
    if inner and 0 not in tile.shape:
        spans = appended.spans(tile)
        assert spans is not None
        assert spans.runs == max(runs_of(allowed), 1)


@pytest.mark.parametrize(("mask", "runs"), [(masks.window(), 1), (masks.causal(), 2), (~masks.causal(), 1)])
def test_appended_keys_continue_a_run_that_ends_at_the_last_given_key(mask: Mask, runs: int):
    grid = Grid.whole(B, H, Q, K + APPENDED)
    spans, hidden = AppendedMask(mask, APPENDED).spans(grid), AppendedMask(mask, APPENDED).hidden_spans(grid)
    assert spans is not None
    assert spans.runs == runs
    # What is hidden lies among the given keys, and is a run whenever it was one there.
    assert hidden is not None
    assert hidden.runs == 1


def test_nothing_but_appended_keys_is_seen_by_all():
    grid = Grid.whole(B, H, Q, APPENDED)
    appended = AppendedMask(~masks.window(), APPENDED)
    appended.check(grid)
    assert appended.dense(grid).all()
    assert appended.visibility(grid) is Visibility.FULL
    spans, hidden = appended.spans(grid), appended.hidden_spans(grid)
    assert spans is not None
    assert hidden is not None
    assert dense_spans(spans, grid).all()
    assert not dense_spans(hidden, grid).any()


def test_appended_masks_name_wrong_arguments():
    with pytest.raises(ArgumentError, match="appended must be at least 0; it is -1"):
        AppendedMask(masks.causal(), -1)
    with pytest.raises(KindError, match=r"appended must be an integer; it is 1\.5"):
        AppendedMask(masks.causal(), 1.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ShapeError, match="8 keys are appended, but there are 7 in all"):
        AppendedMask(masks.causal(), 8).check(Grid.whole(B, H, Q, K))
    with pytest.raises(ShapeError, match=r"keys must be an integer or \[batch\] = \[2\]"):
        AppendedMask(masks.lengths([1, 2, 3]), 1).check(Grid.whole(B, H, Q, K))
