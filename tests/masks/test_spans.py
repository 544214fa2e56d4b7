"""Laws of spans: never another mask than the dense one, and there wherever each row's visible keys are a few runs."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from dense_spans import dense_spans, runs_of
from regard import masks
from regard.masks import Mask, Spans, causal, documents, ignore, keep, lengths, prefix, window
from regard.masks.spans import RUNS_LIMIT
from regard.shapes.grid import Grid

modest = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def assert_well_formed(spans: Spans, grid: Grid):
    batch, heads, queries, _ = grid.shape
    for end in spans:
        assert end.dtype == torch.int32
        assert end.device.type == "cpu"
        assert end.is_contiguous()
        assert end.shape[0] in (1, batch)
        assert end.shape[1] in (1, heads)
        assert end.shape[2] == queries
        assert 1 <= end.shape[3] <= RUNS_LIMIT
    assert spans.start.shape == spans.stop.shape
    empty = spans.start >= spans.stop
    assert not spans.start[empty].any()
    assert not spans.stop[empty].any()
    assert bool((spans.start[~empty] >= grid.key_span.start).all())
    assert bool((spans.stop[~empty] <= grid.key_span.stop).all())
    # Empty runs are the last ones, some row has as many runs as there are, and all have a gap before the next.
    assert not (empty[..., :-1] & ~empty[..., 1:]).any()
    assert spans.runs == 1 or not bool(empty[..., -1].all())
    assert bool((empty[..., 1:] | (spans.stop[..., :-1] < spans.start[..., 1:])).all())


def are_few(allowed: torch.Tensor) -> bool:
    return runs_of(allowed) <= RUNS_LIMIT


def assert_exact(mask: Mask, tile: Grid):
    spans = mask.spans(tile)
    if spans is not None:
        assert_well_formed(spans, tile)
        assert torch.equal(dense_spans(spans, tile), mask.dense(tile))
        assert 0 in tile.shape or spans.runs == max(runs_of(mask.dense(tile)), 1)


@st.composite
def grids(draw: DrawFn) -> Grid:
    """Whole problems, of which any axis but the heads may be empty."""
    # Sampled, since integers are drawn near their bounds: most problems would be empty, and few runs have a gap.
    batch, queries = draw(st.sampled_from([*(1, 2, 3) * 5, 0])), draw(st.sampled_from([*(1, 2, 5, 7) * 4, 0]))
    return Grid.whole(batch, 2, queries, draw(st.sampled_from([*(1, 5, 7, 11) * 4, 0])))


def bools(*shape: int) -> st.SearchStrategy[torch.Tensor]:
    return _drawn(lambda generator: torch.rand(shape, generator=generator) < 0.5)


def paddings(*shape: int) -> st.SearchStrategy[torch.Tensor]:
    """True at the beginning and at the end of the last axis, so that what is left is a run."""

    def drawn(generator: torch.Generator) -> torch.Tensor:
        low, high = torch.randint(0, shape[-1] + 1, (2, *shape[:-1], 1), generator=generator)
        place = torch.arange(shape[-1])
        return (place < low) | (place >= high)

    return _drawn(drawn)


def ids(*shape: int) -> st.SearchStrategy[torch.Tensor]:
    return _drawn(lambda generator: torch.randint(-2, 4, shape, generator=generator))


def _drawn(make) -> st.SearchStrategy[torch.Tensor]:
    return st.integers(0, 2**16).map(lambda seed: make(torch.Generator().manual_seed(seed)))


def _ascending(drawn: st.SearchStrategy[torch.Tensor]) -> st.SearchStrategy[torch.Tensor]:
    return drawn.map(lambda x: x.sort(-1).values)


def rows(grid: Grid, low: int, high: int) -> st.SearchStrategy[int | list[int] | torch.Tensor]:
    each = st.lists(st.integers(low, high), min_size=grid.batch, max_size=grid.batch)
    return st.one_of(st.integers(low, high), each, each.map(lambda x: torch.tensor(x, dtype=torch.int64)))


def runs(grid: Grid) -> st.SearchStrategy[Mask]:
    """Masks of which each row is one run, whatever is drawn, and stays one in every tile."""
    aligns = st.sampled_from(["end", "start"])
    offsets = st.one_of(st.none(), rows(grid, -9, 19), rows(grid, -(10**12), 10**12))
    side = st.one_of(st.none(), st.integers(0, 5), st.just(10**12))
    b, q, k = grid.batch, grid.queries, grid.keys
    return st.one_of(
        st.builds(causal, aligns, offsets),
        st.builds(window, side, side, aligns, offsets),
        st.builds(prefix, rows(grid, 0, 13)),
        st.builds(lambda n: ~prefix(n), rows(grid, 0, 13)),
        st.builds(lambda offset: ~causal(offset=offset), offsets),
        st.just(masks.dilated(1)),
        st.builds(lengths, rows(grid, 0, k), st.one_of(st.none(), rows(grid, 0, q))),
        st.builds(documents, st.one_of(ids(q), ids(b, q)), _ascending(st.one_of(ids(k), ids(b, k)))),
        st.builds(ignore, st.one_of(paddings(k), paddings(1, 1, k), paddings(b, 1, 1, k), paddings(b, 2, 1, k))),
        st.builds(keep, st.one_of(bools(b, 1, q, 1), bools(2, q, 1), bools(1, 1), bools())),
    )


def simple_masks(grid: Grid) -> st.SearchStrategy[Mask]:
    b, q, k = grid.batch, grid.queries, grid.keys
    return st.one_of(
        runs(grid),
        st.builds(masks.dilated, st.integers(1, 3)),
        st.builds(documents, st.one_of(ids(q), ids(b, q)), st.one_of(ids(k), ids(b, k))),
        st.builds(keep, st.one_of(bools(b, 1, 1, k), bools(k), bools(b, 2, q, k))),
        st.builds(keep, paddings(b, 1, 1, k)),
        st.builds(keep, bools(b, 1, 1, k).map(lambda x: x.expand(b, 2, q, k))),
        st.just(masks.where(lambda b, h, i, j: (b + h + i) % 3 > j % 2)),
    )


def any_masks(grid: Grid) -> st.SearchStrategy[Mask]:
    return st.recursive(
        simple_masks(grid),
        lambda inner: st.one_of(
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a | b, inner, inner),
            st.builds(lambda a: ~a, inner),
        ),
        max_leaves=4,
    )


@st.composite
def spans_of(draw: DrawFn, length: int) -> range:
    return draw(st.sampled_from([range(a, b) for a in range(length + 1) for b in range(a, length + 1)]))


@st.composite
def tiles(draw: DrawFn, grid: Grid) -> Grid:
    b, q, k = (draw(spans_of(length)) for length in (grid.batch, grid.queries, grid.keys))
    return draw(st.sampled_from([grid, grid.tile(batch=b, queries=q, keys=k)]))


@modest
@given(st.data())
def test_spans_are_the_dense_mask(data: st.DataObject):
    grid = data.draw(grids())
    mask = data.draw(any_masks(grid))
    tile = data.draw(tiles(grid))
    mask.check(grid)
    assert_exact(mask, tile)
    assert_exact(~mask, tile)


@modest
@given(st.data())
def test_masks_of_runs_have_spans(data: st.DataObject):
    grid = data.draw(grids())
    a, b = data.draw(runs(grid)), data.draw(runs(grid))
    tile = data.draw(tiles(grid))
    for mask in (a, b, a & b, ~(~a | ~b)):
        assert mask.spans(tile) is not None
        assert_exact(mask, tile)


@modest
@given(st.data())
def test_unions_and_complements_of_runs_have_spans(data: st.DataObject):
    grid = data.draw(grids())
    parts = [data.draw(runs(grid)) for _ in range(data.draw(st.integers(2, 4)))]
    tile = data.draw(tiles(grid))
    for mask in (
        masks.Or(*parts),
        ~masks.Or(*parts),
        ~parts[0],
        masks.Or(*parts[:2]) & ~masks.Or(*parts[2:], ~parts[1]),
    ):
        assert mask.spans(tile) is not None
        assert_exact(mask, tile)


@modest
@given(st.data())
def test_spans_of_many_runs_are_there_unless_they_are_too_many(data: st.DataObject):
    """Masks of up to twice as many runs as a row may have."""
    keys = 4 * RUNS_LIMIT
    grid = Grid.whole(data.draw(st.sampled_from([1, 2])), 2, data.draw(st.sampled_from([1, 5])), keys)
    marks = [data.draw(bools(grid.batch, 1, 1, keys)) for _ in range(2)]
    mask = data.draw(
        st.sampled_from([keep(marks[0]), ~keep(marks[0]), keep(marks[0] & (torch.arange(keys) < 2 * RUNS_LIMIT))])
    )
    tile = data.draw(tiles(grid))
    if 0 in tile.shape:
        return
    assert (mask.spans(tile) is not None) == are_few(mask.dense(tile))
    other = keep(marks[1])
    for both, parts in ((mask & other, (mask, other)), (mask | other, (mask, other)), (mask & window(3, 2), (mask,))):
        assert_exact(both, tile)
        if all(are_few(part.dense(tile)) for part in parts):
            assert (both.spans(tile) is not None) == are_few(both.dense(tile))


def test_a_gap_may_be_filled_by_any_mask_of_a_union():
    left, middle, right = prefix(3), window(4, 4), ~prefix(5)
    grid = Grid.whole(1, 1, 7, 7)
    assert _known(left | right, grid).runs == 2
    for mask in (left | right | middle, left | (right | middle), middle | left | right):
        assert _known(mask, grid).runs == 1
        assert_exact(mask, grid)


def _known(mask: Mask, grid: Grid) -> Spans:
    spans = mask.spans(grid)
    assert spans is not None
    return spans


@modest
@given(st.data())
def test_of_documents_and_of_what_queries_share_nothing_is_missed(data: st.DataObject):
    grid = data.draw(grids())
    b, q, k = grid.batch, grid.queries, grid.keys
    shared = st.one_of(bools(b, 1, 1, k), bools(2, 1, k), bools(k), paddings(k))
    packed = st.builds(documents, st.one_of(ids(q), ids(b, q)), st.one_of(ids(k), ids(b, k)))
    mask = data.draw(st.one_of(packed, st.builds(keep, shared), st.builds(ignore, shared)))
    tile = data.draw(tiles(grid))
    assert (mask.spans(tile) is not None) == (0 in tile.shape or are_few(mask.dense(tile)))


ragged = torch.tensor([[0, 0, 1, 1, 2, -1, -1], [0, 1, 1, 1, 1, 2, 2]])
left_padding = torch.tensor([[1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1]]).bool()[:, None, None]
both_sides = torch.tensor([1, 0, 0, 0, 0, 1, 1]).bool()


@pytest.mark.parametrize(
    "mask",
    [
        causal() & lengths([3, 7]),
        causal() | prefix([2, 5]),
        window(2, 1) & documents(ragged),
        causal() & documents(ragged) & ignore(left_padding),
        documents(torch.tensor([5, 5, 5, 2, 2, 9, 9])),
        ~prefix(3) & causal(),
        ~(prefix(2) | ~causal()),
        ~(keep(left_padding) | ~causal()),
        ~(keep(both_sides) | ~causal()),
        ~~ignore(both_sides),
        keep((~left_padding).expand(2, 3, 7, 7)),
        window(3, 0) | window(0, 2),
        lengths([0, 7]) | keep(torch.zeros(7).bool()),
        prefix(0) | ~prefix(0),
        ~window(1, 1),
        window(1, 0) | prefix(1),
        window(1, 1) | prefix(1) | lengths(7, queries=2),
        (window(1, 1) | prefix(1)) & lengths([3, 7]),
        window(0, 0) | prefix([1, 2]) | ~prefix(6),
        ~(window(1, 1) | prefix(1)),
        prefix(2) | ~prefix(5),
        keep(both_sides),
        (causal() | prefix(3)) & documents(ragged) & ~window(0, 0),
        documents(torch.tensor([0, 1, 0, 1, 0, 1, 0])),
        documents(torch.tensor([[0, 0, 0, 0, 0, 0, 0], [0, 1, 0, 1, 0, 1, 0]])),
        masks.AppendedMask(causal(offset=-3) & lengths(4), 1),
    ],
    ids=repr,
)
def test_masks_of_practice_have_spans(mask: Mask):
    grid = Grid.whole(2, 3, 7, 7)
    mask.check(grid)
    for tile in (grid, grid.tile(batch=range(1, 2), queries=range(2, 7), keys=range(1, 6))):
        assert mask.spans(tile) is not None
        assert_exact(mask, tile)


@pytest.mark.parametrize(
    "mask",
    [
        masks.dilated(2),
        masks.dilated(2) & causal(),
        masks.where(lambda b, h, i, j: i >= j),
        keep(torch.ones(7, 7).bool().tril()),
        causal() | masks.dilated(2),
    ],
    ids=repr,
)
def test_other_masks_have_none(mask: Mask):
    assert mask.spans(Grid.whole(2, 3, 7, 7)) is None


def test_more_runs_than_a_row_may_have_are_none():
    comb = torch.arange(2 * RUNS_LIMIT + 2) % 2 == 0
    grid = Grid.whole(1, 1, 1, len(comb))
    assert keep(comb).spans(grid) is None
    assert documents(torch.zeros(1).long(), comb.long() - 1).spans(grid) is None
    assert (keep(comb) & causal()).spans(grid) is None
    assert _known(keep(comb & (torch.arange(len(comb)) > 0)), grid).runs == RUNS_LIMIT


def test_documents_may_hold_ids_that_the_other_side_lacks():
    mask = documents(torch.tensor([7, -3, 2, 10**15, -1]), torch.tensor([-3, 5, 2, 2, -1, 10**15, 9]))
    start, stop = _known(mask, Grid.whole(1, 1, 5, 7))
    assert start.flatten().tolist() == [0, 0, 2, 5, 0]
    assert stop.flatten().tolist() == [0, 0, 4, 6, 0]


def test_documents_asked_again_answer_for_the_grid_that_is_asked():
    mask, grid = documents(ragged), Grid.whole(2, 1, 7, 7)
    for tile in (grid, grid, grid.tile(batch=range(1)), grid.tile(keys=range(3, 5)), Grid.whole(2, 5, 7, 7), grid):
        assert_exact(mask, tile)
        assert mask.spans(tile) is not None
    assert mask.spans(grid) is mask.spans(Grid.whole(2, 1, 7, 7))


def test_queries_that_see_nothing_do_not_spoil_a_run():
    # Id 1 lies in two pieces, but no query asks for it.
    mask = documents(torch.tensor([0, 2, 2]), torch.tensor([1, 0, 0, 1, 2]))
    assert _known(mask, Grid.whole(1, 1, 3, 5)).stop.flatten().tolist() == [3, 5, 5]


def test_spans_ask_the_costly_side_only_where_it_matters():
    class Asked(Mask):
        def allows(self, grid: Grid) -> torch.Tensor:
            raise AssertionError("asked")

        def spans(self, grid: Grid) -> Spans | None:
            raise AssertionError("asked")

    grid = Grid.whole(2, 3, 5, 7)
    assert (masks.dilated(2) & Asked()).spans(grid) is None
    assert (masks.dilated(2) | Asked()).spans(grid) is None


def test_spans_of_a_long_problem_need_no_dense_mask():
    # Densely: 256 GB for each of them.
    length = 2**19
    grid = Grid.whole(1, 1, length, length)
    packed = documents(torch.arange(length) // 1009)
    padding = torch.arange(length) >= length - 13
    for mask in (causal() & packed & ignore(padding), window(7, 0) & ~prefix(11), ~causal(), keep(padding[:, None]),
                 (window(7, 5) | prefix(3)) & ~window(1, 0) & packed):  # fmt: skip
        last = grid.tile(queries=range(length - 17, length), keys=range(length - 31, length))
        spans = _known(mask, grid)
        assert_well_formed(spans, grid)
        tail = Spans(spans.start[:, :, -17:], spans.stop[:, :, -17:])
        assert torch.equal(dense_spans(tail, last), mask.dense(last))
