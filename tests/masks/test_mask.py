"""Laws that hold for every mask: the algebra, tiles, visibility, the hull of visible keys."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from regard import masks
from regard.errors import KindError
from regard.masks import Mask, Visibility, causal, visible_keys, window
from regard.shapes import Grid

# A busy machine draws masks slowly; that says nothing about them.
modest = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def grids(draw: DrawFn) -> Grid:
    return Grid.whole(draw(st.integers(1, 3)), 2, draw(st.integers(1, 7)), draw(st.integers(1, 11)))


def simple_masks(grid: Grid) -> st.SearchStrategy[Mask]:
    def rows(low: int, high: int) -> st.SearchStrategy[int | list[int] | torch.Tensor]:
        each = st.lists(st.integers(low, high), min_size=grid.batch, max_size=grid.batch)
        return st.one_of(st.integers(low, high), each, each.map(torch.tensor))

    def bools(*shape: int) -> st.SearchStrategy[torch.Tensor]:
        return st.integers(0, 2**16).map(lambda seed: torch.rand(shape, generator=_generator(seed)) < 0.5)

    def ids(*shape: int) -> st.SearchStrategy[torch.Tensor]:
        return st.integers(0, 2**16).map(lambda seed: torch.randint(-1, 3, shape, generator=_generator(seed)))

    aligns = st.sampled_from(["end", "start"])
    offsets = st.one_of(st.none(), rows(-4, 12))
    side = st.one_of(st.none(), st.integers(0, 5))
    return st.one_of(
        st.builds(masks.causal, aligns, offsets),
        st.builds(masks.window, side, side, aligns, offsets),
        st.builds(masks.prefix, rows(0, 13)),
        st.builds(masks.dilated, st.integers(1, 5)),
        st.builds(masks.lengths, rows(0, grid.keys), st.one_of(st.none(), rows(0, grid.queries))),
        st.builds(masks.documents, ids(grid.batch, grid.queries), ids(grid.keys)),
        st.builds(masks.documents, ids(grid.queries), ids(grid.batch, grid.keys).map(lambda x: x.sort().values)),
        st.builds(masks.keep, bools(grid.batch, 1, grid.queries, grid.keys)),
        st.builds(masks.ignore, bools(2, 1, grid.keys)),
        st.just(masks.where(lambda b, h, i, j: (b + h + i) % 3 > j % 2)),
    )


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def any_masks(grid: Grid) -> st.SearchStrategy[Mask]:
    return st.recursive(
        simple_masks(grid),
        lambda inner: st.one_of(
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a | b, inner, inner),
            st.builds(lambda a: ~a, inner),
        ),
        max_leaves=3,
    )


@st.composite
def spans(draw: DrawFn, length: int) -> range:
    start = draw(st.integers(0, length))
    return range(start, draw(st.integers(start, length)))


@st.composite
def tiles(draw: DrawFn) -> tuple[Mask, Grid, Grid]:
    grid = draw(grids())
    mask = draw(any_masks(grid))
    tile = grid.tile(batch=draw(spans(grid.batch)), queries=draw(spans(grid.queries)), keys=draw(spans(grid.keys)))
    return mask, grid, tile


@modest
@given(st.data())
def test_algebra(data: st.DataObject):
    grid = data.draw(grids())
    a, b, c = (data.draw(any_masks(grid)) for _ in range(3))
    x, y = a.dense(grid), b.dense(grid)
    assert torch.equal((a & b).dense(grid), x & y)
    assert torch.equal((a | b).dense(grid), x | y)
    assert torch.equal((~a).dense(grid), ~x)
    assert torch.equal((~~a).dense(grid), x)
    assert torch.equal((~(a & b)).dense(grid), (~a | ~b).dense(grid))
    assert torch.equal((~(a | b)).dense(grid), (~a & ~b).dense(grid))
    assert torch.equal((a & (b | c)).dense(grid), ((a & b) | (a & c)).dense(grid))


@modest
@given(tiles())
def test_a_tile_is_a_slice_of_the_whole(case: tuple[Mask, Grid, Grid]):
    mask, grid, tile = case
    mask.check(grid)
    rows, queries, keys = (slice(s.start, s.stop) for s in (tile.batch_span, tile.query_span, tile.key_span))
    assert torch.equal(mask.dense(tile), mask.dense(grid)[rows, :, queries, keys])


@modest
@given(tiles())
def test_visibility_never_lies(case: tuple[Mask, Grid, Grid]):
    mask, _, tile = case
    allowed = mask.dense(tile)
    match mask.visibility(tile):
        case Visibility.EMPTY:
            assert not allowed.any()
        case Visibility.FULL:
            assert allowed.all()


def parts(length: int) -> list[range]:
    return [range(start, stop) for start in range(length) for stop in range(start + 1, length + 1)]


@pytest.mark.parametrize(
    "mask",
    [
        window(1, 1, offset=[-1, 2]),
        window(2, 0, offset=torch.tensor([3, 0])),
        causal(offset=[0, 2]),
        masks.prefix([1, 3]),
        masks.lengths([2, 4], [3, 1]),
        masks.lengths([0, 5]),
        masks.documents(torch.tensor([[0, 0, 1], [-1, -1, -1]]), torch.tensor([[0, 0, 1, 1, 1], [-1, -1, 0, 0, 0]])),
        masks.dilated(2),
    ],
    ids=repr,
)
def test_visibility_never_lies_where_batch_rows_differ(mask: Mask):
    grid = Grid.whole(2, 1, 3, 5)
    for rows in parts(2):
        for queries in parts(3):
            for keys in parts(5):
                tile = grid.tile(batch=rows, queries=queries, keys=keys)
                allowed, visibility = mask.dense(tile), mask.visibility(tile)
                assert visibility is not Visibility.EMPTY or not allowed.any()
                assert visibility is not Visibility.FULL or allowed.all()
                if not allowed.any() and len(rows) == 1:
                    assert visibility is Visibility.EMPTY
                if allowed.all():
                    assert visibility is Visibility.FULL


@modest
@given(tiles(), st.integers(1, 5))
def test_visible_keys_leave_nothing_visible_out(case: tuple[Mask, Grid, Grid], block: int):
    mask, _, tile = case
    seen = visible_keys(mask, tile, block)
    span = tile.key_span
    assert len(seen) == 0 or (seen.start >= span.start and seen.stop <= span.stop)
    if len(seen):
        assert (seen.start - span.start) % block == 0
        assert seen.stop == span.stop or (seen.stop - span.start) % block == 0
    visible = mask.dense(tile).any(0).any(0).any(0) if tile.shape[3] else torch.zeros(0)
    positions = (visible.nonzero().flatten() + span.start).tolist()
    assert set(positions) <= set(seen)


def test_visible_keys_are_the_smallest_range_of_blocks():
    grid = Grid.whole(2, 3, 101, 101)
    tile = grid.tile(queries=range(40, 50))
    assert visible_keys(causal(), tile, 8) == range(56)
    assert visible_keys(window(6, 0), tile, 8) == range(32, 56)
    assert visible_keys(window(6, None), tile, 8) == range(32, 101)
    assert len(visible_keys(causal(offset=-60), tile, 8)) == 0
    gap = masks.where(lambda b, h, i, j: (j == 17) | (j == 90))
    assert visible_keys(gap, tile, 8) == range(16, 96)


def test_visible_keys_ask_few_times_where_bounds_are_known():
    asked = 0

    class Counted(Mask):
        def allows(self, grid: Grid) -> torch.Tensor:
            raise AssertionError("bounds are known without tensors")

        def visibility(self, grid: Grid) -> Visibility:
            nonlocal asked
            asked += 1
            return window(100, 0).visibility(grid)

    tile = Grid.whole(1, 1, 65536, 65536).tile(queries=range(30000, 30064))
    visible_keys(Counted(), tile, 64)
    assert asked <= 60


def test_the_costly_side_is_asked_only_where_it_matters():
    def fn(b, h, i, j):
        raise AssertionError("asked")

    tile = Grid.whole(2, 3, 11, 11).tile(queries=range(2), keys=range(5, 7))
    assert (causal() & masks.where(fn)).visibility(tile) is Visibility.EMPTY
    assert (~causal() | masks.where(fn)).visibility(tile) is Visibility.FULL


def test_combined_masks_are_as_sure_as_their_parts():
    full, empty, partial = window(), ~window(), masks.prefix(3)
    grid = Grid.whole(2, 3, 5, 7)
    for some in (full, empty, partial):
        known = some.visibility(grid)
        for both in (some & full, full & some, some | empty, empty | some, ~~some):
            assert both.visibility(grid) is known
        for both in (some & empty, empty & some, ~(some | full), ~(full | some)):
            assert both.visibility(grid) is Visibility.EMPTY


def test_masks_combine_with_masks_only():
    for combine in (lambda: causal() & torch.ones(5, 7).bool(), lambda: causal() | None):
        with pytest.raises(KindError, match="a mask combines with masks only"):
            combine()


def test_everything_exported_exists():
    assert sorted(masks.__all__) == list(masks.__all__)
    assert all(hasattr(masks, name) for name in masks.__all__)
