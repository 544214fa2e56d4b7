"""Causal, window, prefix and dilated masks: each against a loop over pairs."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from dense_spans import dense_spans
from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.masks import Mask, Visibility, causal, dilated, documents, lengths, prefix, window
from regard.shapes.grid import Grid

SIZES = [(5, 7), (7, 5), (7, 7), (1, 7), (7, 1), (1, 1)]


def by_loop(queries: int, keys: int, seen: Callable[[int, int], bool]) -> torch.Tensor:
    return torch.tensor([[seen(i, j) for j in range(keys)] for i in range(queries)])


def dense(mask: Mask, queries: int, keys: int, batch: int = 2) -> torch.Tensor:
    grid = Grid.whole(batch, 3, queries, keys)
    mask.check(grid)
    return mask.dense(grid)


@pytest.mark.parametrize(("queries", "keys"), SIZES)
def test_a_causal_mask_aligns_the_ends(queries: int, keys: int):
    expected = by_loop(queries, keys, lambda i, j: j <= i + keys - queries)
    assert torch.equal(dense(causal(), queries, keys), expected.expand(2, 3, queries, keys))
    assert dense(causal(), queries, keys)[:, :, -1].all()


@pytest.mark.parametrize(("queries", "keys"), SIZES)
def test_causal_aligns_the_starts(queries: int, keys: int):
    expected = by_loop(queries, keys, lambda i, j: j <= i)
    assert torch.equal(dense(causal(align="start"), queries, keys)[0, 0], expected)


@pytest.mark.parametrize("offset", [-3, 0, 2, 11])
def test_causal_offset_is_the_key_position_of_query_0(offset: int):
    expected = by_loop(5, 7, lambda i, j: j <= i + offset)
    assert torch.equal(dense(causal(offset=offset), 5, 7)[1, 2], expected)


@pytest.mark.parametrize("offset", [torch.tensor([-2, 4]), [-2, 4], torch.tensor([-2, 4], dtype=torch.int32)])
def test_mask_offsets_may_differ_between_batch_rows(offset: torch.Tensor | list[int]):
    allowed = dense(causal(offset=offset), 5, 7)
    for row, own in enumerate((-2, 4)):
        assert torch.equal(allowed[row, 0], dense(causal(offset=own), 5, 7)[0, 0])
    allowed = dense(window(1, 2, offset=offset), 5, 7)
    for row, own in enumerate((-2, 4)):
        assert torch.equal(allowed[row, 0], by_loop(5, 7, lambda i, j, own=own: i + own - 1 <= j <= i + own + 2))


@pytest.mark.parametrize(("queries", "keys"), SIZES)
@pytest.mark.parametrize("before", [None, 0, 2])
@pytest.mark.parametrize("after", [None, 0, 3])
@pytest.mark.parametrize("align", ["end", "start"])
def test_window_counts_keys_besides_the_querys_own(queries, keys, before, after, align):
    offset = keys - queries if align == "end" else 0

    def seen(i: int, j: int) -> bool:
        own = i + offset
        return (before is None or own - before <= j) and (after is None or j <= own + after)

    assert torch.equal(dense(window(before, after, align=align), queries, keys)[0, 0], by_loop(queries, keys, seen))


def test_window_2_0_sees_three_keys():
    assert dense(window(2, 0), 7, 11)[0, 0].sum(-1).tolist() == [3] * 7
    assert dense(window(2, 0), 7, 7)[0, 0].sum(-1).tolist() == [1, 2, 3, 3, 3, 3, 3]


def test_window_without_limits_sees_all_and_without_start_is_causal():
    assert dense(window(), 5, 7).all()
    assert torch.equal(dense(window(None, 0), 5, 7), dense(causal(), 5, 7))


@pytest.mark.parametrize("n", [0, 1, 4, 7, 100])
def test_prefix_shows_its_keys_to_every_query(n: int):
    assert torch.equal(dense(prefix(n), 5, 7)[0, 0], by_loop(5, 7, lambda i, j: j < n))


def test_prefixes_differ_between_batch_rows():
    allowed = dense(prefix(torch.tensor([0, 3])), 5, 7)
    assert not allowed[0].any()
    assert torch.equal(allowed[1, 0], by_loop(5, 7, lambda i, j: j < 3))


@pytest.mark.parametrize(("queries", "keys"), SIZES)
@pytest.mark.parametrize("step", [1, 2, 3, 13])
def test_dilated_sees_every_step_th_key(queries: int, keys: int, step: int):
    expected = by_loop(queries, keys, lambda i, j: (i + keys - queries - j) % step == 0)
    assert torch.equal(dense(dilated(step), queries, keys)[0, 0], expected)


def test_one_step_of_a_decoder_sees_what_its_row_of_the_whole_sees():
    whole = dense(causal() & window(3, 0), 11, 11)
    for step in range(11):
        cached = dense(causal() & window(3, 0), 1, step + 1)
        assert torch.equal(cached[:, :, 0], whole[:, :, step, : step + 1])
        # A cache of fixed size, filled up to `step`.
        fixed = dense(causal(offset=step) & window(3, 0, offset=torch.tensor([step, step])), 1, 11)
        assert torch.equal(fixed[:, :, 0], whole[:, :, step])


BANDS = [causal(), causal("start"), causal(offset=-2), window(2, 0), window(0, 0), window(1, 4), window(3)]
OTHERS = [prefix(3), dilated(1), dilated(3), dilated(5)]


@pytest.mark.parametrize("mask", [*BANDS, *OTHERS], ids=repr)
@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (7, 5)])
def test_integer_masks_know_each_tile_exactly(mask: Mask, queries: int, keys: int):
    grid = Grid.whole(2, 3, queries, keys)
    spans = [(i, k) for i in range(queries) for k in range(i + 1, queries + 1)]
    for start, stop in spans:
        for left in range(keys):
            for right in range(left + 1, keys + 1):
                tile = grid.tile(queries=range(start, stop), keys=range(left, right))
                allowed = mask.dense(tile)
                exact = (
                    Visibility.FULL if allowed.all() else Visibility.EMPTY if not allowed.any() else Visibility.PARTIAL
                )
                assert mask.visibility(tile) is exact, (mask, tile)


def test_bounds_build_no_tensor(monkeypatch: pytest.MonkeyPatch):
    masks = [causal(), window(2, 3), prefix(3), dilated(3), causal(offset=[1, 2]), prefix([1, 2])]

    def built(*_: object, **__: object) -> torch.Tensor:
        raise AssertionError("a tensor was built")

    for name in ("arange", "ones", "tensor"):
        monkeypatch.setattr(torch, name, built)
    for mask in masks:
        mask.visibility(Grid.whole(2, 3, 5, 7))


def test_a_mask_keeps_the_offsets_it_was_made_with():
    offset = torch.tensor([0, 1])
    mask = causal(offset=offset)
    before = dense(mask, 5, 7)
    offset += 3
    assert torch.equal(dense(mask, 5, 7), before)


def test_positional_masks_read_as_they_are_written():
    offset = torch.tensor([1, 2])
    masks = (causal(), causal("start"), causal(offset=3), window(2, 0), window(offset=offset), prefix(3), dilated(2))
    assert [repr(mask) for mask in masks] == [
        "causal()",
        "causal(align='start')",
        "causal(offset=3)",
        "window(before=2, after=0)",
        "window(before=None, after=None, offset=[1, 2])",
        "prefix(3)",
        "dilated(2)",
    ]
    assert repr(causal() & ~prefix(list(range(9)))) == "(causal() & ~prefix(<9 integers>))"


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: window(-1), ArgumentError, "before must be at least 0; it is -1"),
        (lambda: window(1, -2), ArgumentError, "after must be at least 0"),
        (lambda: window(1.5), KindError, "before must be an integer; it is 1.5"),
        (lambda: window(float("nan")), KindError, "before must be an integer; it is nan"),
        (lambda: window(True), KindError, "before must be an integer"),
        (lambda: causal("end", 1.0), KindError, "offset must be an integer"),
        (lambda: causal(offset=torch.tensor([1.0])), KindError, "offset must hold integers; it holds torch.float32"),
        (lambda: causal(offset=torch.tensor([True])), KindError, "offset must hold integers; it holds torch.bool"),
        (lambda: causal(offset=torch.tensor([[1]])), ShapeError, "it has shape [1, 1]"),
        (lambda: causal(offset=[1, 2.5]), KindError, "offset[1] must be an integer"),
        (lambda: causal("ends"), UnknownNameError, "unknown align 'ends'; did you mean 'end'?"),
        (lambda: dilated(0), ArgumentError, "step must be at least 1; it is 0"),
        (lambda: prefix("3"), KindError, "n must be an integer"),
    ],
)
def test_positional_masks_name_wrong_arguments(make: Callable[[], Mask], error: type[Exception], says: str):
    with pytest.raises(error) as caught:
        make()
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("mask", "error", "says"),
    [
        (causal(offset=torch.tensor([1, 2, 3])), ShapeError, "offset must be an integer or [batch] = [2]"),
        (window(1, offset=[1]), ShapeError, "it has shape [1]"),
        (prefix(-1), ArgumentError, "n must be at least 0; it is -1"),
        (prefix(torch.tensor([3, -1])), ArgumentError, "n[1] must be at least 0; it is -1"),
        (causal(offset=torch.zeros(2, dtype=torch.int64, device="meta")), KindError, "offset must be on cpu"),
    ],
)
def test_positional_masks_name_the_axis_that_does_not_fit(mask: Mask, error: type[Exception], says: str):
    for wrong in (mask, ~mask, causal() & mask, mask | causal()):
        with pytest.raises(error) as caught:
            wrong.check(Grid.whole(2, 3, 5, 7))
        assert says in str(caught.value)


@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize(("queries", "keys"), [(0, 7), (5, 0), (0, 0)])
def test_positional_masks_take_problems_without_pairs(batch: int, queries: int, keys: int):
    for mask in (causal(), window(2, 1), prefix(0), dilated(2), causal(offset=[1] * batch)):
        assert dense(mask, queries, keys, batch).shape == (batch, 3, queries, keys)
        mask.visibility(Grid.whole(batch, 3, queries, keys))


EDGE = 2**61


@pytest.mark.parametrize("distance", [0, 2, 10**12, EDGE])
@pytest.mark.parametrize("place", [-EDGE, -3, 0, 2, EDGE])
@pytest.mark.parametrize("kind", ["integer", "list", "tensor"])
def test_nothing_overflows_up_to_the_largest_integers(distance: int, place: int, kind: str):
    offset = place if kind == "integer" else [place, 1] if kind == "list" else torch.tensor([place, 1])
    grid = Grid.whole(2, 3, 5, 7)
    for before, after in ((distance, 0), (None, distance), (distance, distance), (3, distance)):
        mask = window(before, after, offset=offset)
        mask.check(grid)
        expected = by_loop(
            5, 7, lambda i, j, b=before, a=after: (b is None or i + place - b <= j) and j <= i + place + a
        )
        assert torch.equal(mask.dense(grid)[0, 0], expected)
        row = grid.tile(batch=range(1))
        spans = mask.spans(row)
        assert spans is not None
        assert torch.equal(dense_spans(spans, row)[0, 0], expected)
        exact = Visibility.FULL if expected.all() else Visibility.PARTIAL if expected.any() else Visibility.EMPTY
        assert mask.visibility(row) is exact
    assert torch.equal(dense(prefix(EDGE), 5, 7), dense(window(), 5, 7))
    assert torch.equal(dense(dilated(EDGE), 5, 7)[0, 0], by_loop(5, 7, lambda i, j: i + 2 == j))


@pytest.mark.parametrize("value", [2**61 + 1, 2**62, 2**63 - 1, 2**63, 2**70, -(2**61) - 1, -(2**63), -(2**70)])
def test_larger_integers_are_refused(value: int):
    for name, make in (("offset", lambda n: causal(offset=n)), ("n", prefix)):
        for given, named in ((value, name), ([1, value], rf"{name}\[1\]")):
            with pytest.raises(ArgumentError, match=f"^{named} must be at (most|least) -?{2**61}; it is "):
                make(given)
        if -(2**63) <= value < 2**63:
            with pytest.raises(ArgumentError, match=rf"^{name}\[1\] must be .*; it is {value}$"):
                make(torch.tensor([1, value])).check(Grid.whole(2, 3, 5, 7))
    for name, make in (("before", window), ("after", lambda n: window(0, n)), ("step", dilated)):
        with pytest.raises(ArgumentError, match=f"^{name} must be at (most|least) "):
            make(value)


@pytest.mark.parametrize("value", [np.int64(3), np.int8(3), np.uint16(3)])
def test_integers_of_numpy_are_integers(value: int):
    pairs = (
        (causal(offset=value), causal(offset=3)),
        (causal(offset=[value, value]), causal(offset=[3, 3])),
        (window(value, value), window(3, 3)),
        (prefix(value), prefix(3)),
        (dilated(value), dilated(3)),
    )
    for mask, same in pairs:
        assert mask == same
        assert repr(mask) == repr(same)


def said(name: str) -> str:
    """A pattern of what a message calls an argument: that of ``lengths`` begins with the mask's name."""
    return rf"masks\.lengths: {name}" if name in ("keys", "queries") else name


@pytest.mark.parametrize(
    "value",
    [2.5, 2.0, math.inf, -math.inf, math.nan, True, np.True_, np.float64(2), "2", 2j, {2}, np.ones(2)],
    ids=repr,
)
def test_positional_masks_refuse_arguments_that_are_no_integers(value: object):
    arguments = {
        "before": lambda n: window(n),
        "after": lambda n: window(0, n),
        "step": lambda n: dilated(n),
        "n": lambda n: prefix(n),
        "offset": lambda n: causal(offset=n),
        "keys": lambda n: lengths(n),
        "queries": lambda n: lengths(1, n),
    }
    for name, make in arguments.items():
        with pytest.raises(KindError, match=rf"^{said(name)} must be an integer"):
            make(value)
    for name in ("n", "offset", "keys", "queries"):
        with pytest.raises(KindError, match=rf"^{said(name)}\[1\] must be an integer"):
            arguments[name]([1, value])


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.float8_e4m3fn, torch.complex64, torch.uint64])
def test_tensors_of_other_numbers_are_refused_in_every_argument(dtype: torch.dtype):
    tensor = torch.ones(2).to(dtype)
    arguments = {
        "n": lambda n: prefix(n),
        "offset": lambda n: window(1, 0, offset=n),
        "keys": lambda n: lengths(n),
        "queries": lambda n: lengths(1, n),
        "query_ids": lambda n: documents(n),
        "key_ids": lambda n: documents(torch.ones(2).long(), n),
    }
    for name, make in arguments.items():
        with pytest.raises(KindError, match=rf"^{said(name)} must hold integers; it holds {dtype}"):
            make(tensor)
        with pytest.raises(KindError, match=rf"^{said(name)} must be a dense tensor; it has the layout torch"):
            make(torch.ones(2).long().to_sparse())
