"""Laws that hold for every mask: the algebra, tiles, visibility, the hull of visible keys."""

import copy
import pickle
from operator import and_, or_

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from dense_spans import dense_spans
from regard import masks
from regard.errors import ArgumentError, KindError
from regard.masks import And, Mask, Or, Visibility, causal, visible_keys, window
from regard.masks.mask import DEPTH_LIMIT, PARTS_LIMIT
from regard.shapes.grid import Grid

# A busy machine draws masks slowly; that says nothing about them. How many are drawn is for ``--full`` to say.
modest = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


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
    shapes = [(grid.keys // width, width) for width in range(1, grid.keys + 1) if grid.keys % width == 0]
    on_grids = st.builds(
        lambda shape, size, dilation, shift: (
            masks.shifted_windows(size, min(shift, size - 1), shape)
            if dilation > 2
            else masks.neighborhood(
                [max(1, min(size, length // dilation)) for length in shape],
                shape,
                [min(dilation, length) for length in shape],
            )
        ),
        st.sampled_from(shapes),
        st.integers(1, 5),
        st.integers(1, 3),
        st.integers(0, 3),
    )
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
        st.builds(masks.blocks, bools(2, 1, -(-grid.keys // 3)), st.just(3), st.just(grid.queries)),
        st.builds(
            masks.blocks, bools(grid.batch, 1, -(-grid.queries // 2), -(-grid.keys // 2)), st.just(2), st.just(2)
        ),
        listed(grid.batch, 1, grid.queries, 3, blocks=grid.keys).map(masks.columns),
        listed(1, -(-grid.queries // 2), 2, blocks=-(-grid.keys // 3)).map(lambda index: masks.columns(index, 3, 2)),
        st.builds(
            masks.Compressed,
            st.sampled_from([masks.window(9, 2), masks.dilated(3)]),
            st.just(2 * grid.keys),
            st.integers(1, 4),
            st.just(2),
        ),
        *([on_grids] if grid.queries <= grid.keys else []),
        st.just(masks.where(lambda b, h, i, j: (b + h + i) % 3 > j % 2)),
    )


def listed(*shape: int, blocks: int) -> st.SearchStrategy[torch.Tensor]:
    """Lists of blocks of keys, in some of which keys are missing or occur twice."""
    return st.integers(0, 2**16).map(lambda seed: torch.randint(-1, blocks, shape, generator=_generator(seed)))


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
def test_masks_are_a_boolean_algebra(data: st.DataObject):
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
def test_a_tile_of_a_mask_is_a_slice_of_the_whole(case: tuple[Mask, Grid, Grid]):
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
    assert not mask.hides_nothing(tile) or allowed.all()


def test_masks_that_hide_nothing_are_known_where_that_is_cheap():
    step, whole = Grid.whole(2, 3, 1, 9), Grid.whole(2, 3, 9, 9)
    for mask in (causal(), window(8), masks.lengths([9, 9]), causal() & masks.lengths(9), masks.lengths(3) | causal()):
        assert mask.hides_nothing(step)
    for mask in (causal(), window(7), masks.lengths([9, 8]), causal() & masks.lengths(9)):
        assert not mask.hides_nothing(whole)
    assert not window(7).hides_nothing(step)


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


def test_visibility_asks_the_costly_side_only_where_it_matters():
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


def combine(data: st.DataObject, grid: Grid, levels: int) -> tuple[Mask, torch.Tensor]:
    """A random tree of operators over masks, and what it must allow."""
    if levels == 0:
        mask = data.draw(simple_masks(grid))
        return mask, mask.dense(grid)
    kind = data.draw(st.sampled_from(["&", "|", "~"]))
    left, seen = combine(data, grid, levels - 1)
    if kind == "~":
        return ~left, ~seen
    right, also = combine(data, grid, data.draw(st.integers(0, levels - 1)))
    # Operands that stand in the tree twice, and chains that are grouped from the right.
    again = data.draw(st.booleans())
    if kind == "&":
        return (left & (right & left) if again else left & right), seen & also
    return (left | (right | left) if again else left | right), seen | also


@modest
@given(st.data())
def test_any_tree_of_operators_allows_what_its_operators_say(data: st.DataObject):
    grid = data.draw(grids())
    mask, expected = combine(data, grid, 3)
    assert torch.equal(mask.dense(grid), expected)
    for copied in (copy.deepcopy(mask), mask):
        spans = copied.spans(grid)
        if spans is not None:
            assert torch.equal(dense_spans(spans, grid), expected)


def test_a_chain_is_one_level_however_it_is_grouped():
    a, b, c, d = causal(), masks.prefix(3), window(2, 0), masks.dilated(2)
    for kind, together in ((And, and_), (Or, or_)):
        left = together(together(together(a, b), c), d)
        right = together(a, together(b, together(c, d)))
        for mask in (left, right, together(together(a, b), together(c, d)), kind(a, b, c, d)):
            assert isinstance(mask, kind)
            assert mask.parts == (a, b, c, d)
            assert mask.depth == 2
    assert (a & b | c & d).depth == 3


def test_equal_operands_and_double_negation_collapse():
    offsets, tensor = torch.tensor([1, 2]), torch.ones(5, 7).bool()
    made = [
        lambda: causal(),
        lambda: causal("start"),
        lambda: causal(offset=[1, 2]),
        lambda: window(2, 0),
        lambda: masks.prefix(3),
        lambda: masks.dilated(2),
        lambda: masks.lengths([1, 2], 3),
        lambda: ~causal(),
        lambda: masks.AppendedMask(causal(), 2),
        lambda: masks.keep(tensor),
        lambda: masks.blocks(tensor, 2),
        lambda: masks.columns(offsets),
        lambda: masks.neighborhood(3, (4, 5)),
        lambda: masks.where(torch.equal),  # pyright: ignore[reportArgumentType]
    ]
    for make in made:
        mask, same = make(), make()
        assert mask == same
        assert hash(mask) == hash(same)
        assert mask & same is mask
        assert mask | same is mask
        assert ~~mask == mask
    assert len({make() for make in made for _ in range(2)}) == len(made)
    # The elements of tensors are not compared: they may be many, or lie on a device.
    for make in (
        lambda: causal(offset=offsets),
        lambda: masks.keep(tensor.clone()),
        lambda: masks.documents(offsets),
        lambda: masks.where(lambda b, h, q, k: k <= q),
    ):
        mask = make()
        assert mask & mask is mask
        assert mask != make()
        assert len(masks.And(mask, make()).parts) == 2
    assert causal() != "causal"


def test_masks_have_no_truth_value():
    for mask in (causal(), causal() & window(1, 0), ~causal(), masks.keep(torch.ones(5, 7).bool())):
        for decide in (
            lambda mask=mask: mask and window(1, 0),
            lambda mask=mask: mask or window(1, 0),
            lambda mask=mask: not mask,
            lambda mask=mask: bool(mask),
        ):
            with pytest.raises(KindError, match=r"a mask has no truth value: combine masks with &, \| and ~"):
                decide()


GROWING = {
    "equal &": (3_000, lambda mask, step: mask & causal()),
    "equal |": (3_000, lambda mask, step: mask | causal()),
    "~": (3_001, lambda mask, step: ~mask),
    "&": (2_000, lambda mask, step: mask & window(step, 0)),
    "| from the left": (2_000, lambda mask, step: window(step, 0) | mask),
    "tensors": (2_000, lambda mask, step: mask & masks.keep(torch.ones(7).bool())),
}


@pytest.mark.parametrize("kind", GROWING)
def test_thousands_of_operators_are_a_mask_like_any_other(kind: str):
    mask = masks.prefix(3)
    steps, grow = GROWING[kind]
    for step in range(steps):
        mask = grow(mask, step)
    assert mask.depth <= 2
    assert_usable(mask, Grid.whole(1, 1, 2, 7))


def assert_usable(mask: Mask, grid: Grid):
    mask.check(grid)
    allowed = mask.dense(grid)
    assert (~mask).dense(grid).logical_xor(allowed).all()
    assert mask.visibility(grid) is Visibility.PARTIAL
    mask.spans(grid)
    mask.hidden_spans(grid)
    visible_keys(mask, grid, 2)
    assert repr(mask)
    for copied in (copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
        assert torch.equal(copied.dense(grid), allowed)
        assert repr(copied) == repr(mask)


@pytest.mark.parametrize(
    "grow",
    [
        lambda mask: (mask & causal()) | masks.prefix(2),
        lambda mask: ~(mask & masks.prefix(2)),
        lambda mask: masks.AppendedMask(mask, 0),
    ],
)
def test_the_deepest_mask_is_usable_and_a_deeper_one_is_refused(grow):
    mask = masks.prefix(3)
    while mask.depth < DEPTH_LIMIT - 1:
        mask = grow(mask)
    with pytest.raises(ArgumentError, match=f"masks may be nested {DEPTH_LIMIT} levels deep"):
        grow(grow(mask))
    assert_usable(mask, Grid.whole(1, 1, 2, 7))


def test_a_mask_has_a_limited_number_of_parts():
    def grow(mask: Mask) -> Mask:
        return (mask & window(3, 0)) | (mask & window(5, 0))

    mask = masks.keep(torch.ones(7).bool())
    while 2 * (mask.total_parts + 1) <= PARTS_LIMIT:
        mask = grow(mask)
    with pytest.raises(ArgumentError, match=f"a mask may be combined of {PARTS_LIMIT} masks; there are "):
        grow(mask)


def test_masks_combine_with_masks_only():
    allowed = torch.ones(5, 7).bool()
    for mix in (
        lambda: causal() & allowed,
        lambda: causal() | None,
        lambda: allowed & causal(),
        lambda: allowed | causal(),
        lambda: True & causal(),
        lambda: And(causal(), allowed),  # pyright: ignore[reportArgumentType]
        lambda: masks.AppendedMask(allowed, 2),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(KindError, match="a mask combines with masks only"):
            mix()


def test_everything_exported_exists():
    assert sorted(masks.__all__) == list(masks.__all__)
    assert all(hasattr(masks, name) for name in masks.__all__)


SHOWING = {
    "causal": masks.causal(),
    "start": masks.causal(align="start"),
    "offset": masks.causal(offset=3),
    "offsets": masks.causal(offset=[3, -2]),
    "window": masks.window(2, 1),
    "past": masks.window(2, 0),
    "future": masks.window(0, 3, align="start"),
    "from": masks.window(2, None),
    "dilated": masks.dilated(3),
    "prefix": masks.prefix(2),
    "lengths": masks.lengths([1, 2]),
    "union": masks.prefix(1) | masks.window(1, 1),
    "both": masks.causal() & masks.window(1, 1),
    "not": ~masks.prefix(1),
    "appended": masks.AppendedMask(masks.prefix(0), 1),
    "appended causal": masks.AppendedMask(masks.causal(), 1),
}


@pytest.mark.parametrize("name", SHOWING)
def test_masks_say_rightly_that_all_rows_or_keys_are_seen(name):
    """A mask that says that all rows see a key, or all keys are seen, is right; aligned bands always say the latter."""
    mask = SHOWING[name]
    for queries in (1, 2, 3, 5, 8):
        for keys in (2, 3, 5, 8):
            grid = Grid.whole(2, 1, queries, keys)
            dense = mask.dense(grid)
            rows, columns = bool(dense.any(-1).all()), bool(dense.any(-2).all())
            assert rows or not mask.shows_all_rows(grid), (queries, keys)
            assert columns or not mask.shows_all_keys(grid), (queries, keys)
            if name in ("causal", "start", "window", "past", "future", "from"):
                assert mask.shows_all_keys(grid) == columns, (queries, keys)


@pytest.mark.parametrize(
    "make",
    [
        masks.lengths, masks.prefix, masks.documents,
        lambda one: masks.causal(offset=one), lambda one: masks.window(1, 0, offset=one),
        lambda one: masks.lengths(3, one), lambda one: masks.documents(torch.zeros(3, dtype=torch.long), one),
    ],
)  # fmt: skip
def test_integers_are_copied_and_masks_of_pairs_are_not(make):
    numbers, pairs = torch.tensor([0, 1, 2]), torch.ones(3, 3, dtype=torch.bool)
    grid = Grid.whole(3, 1, 3, 3)
    kept = [masks.keep(pairs), masks.ignore(pairs), masks.as_mask(pairs)]
    mask = make(numbers)
    before, live = mask.dense(grid).clone(), [one.dense(grid).clone() for one in kept]
    mask = make(numbers)  # of which nothing was read yet
    numbers += 1
    pairs[0, 1] = False
    assert torch.equal(mask.dense(grid), before)
    assert not any(torch.equal(one.dense(grid), old) for one, old in zip(kept, live, strict=True))
