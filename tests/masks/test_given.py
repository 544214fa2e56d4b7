"""Masks given as a function or a tensor, and what a user may pass as ``mask=``."""

import pytest
import torch

from regard.errors import KindError, ShapeError
from regard.masks import Keep, Mask, as_mask, causal, ignore, keep, where
from regard.shapes.grid import Grid

GRID = Grid.whole(2, 3, 5, 7)


def random_bools(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(5)) < 0.5


def test_where_asks_its_function_about_all_four_indices():
    def fn(b, h, i, j):
        return (b + 2 * h + 3 * i + 5 * j) % 4 == 0

    allowed = where(fn).dense(GRID)
    for b in range(2):
        for h in range(3):
            for i in range(5):
                for j in range(7):
                    assert bool(allowed[b, h, i, j]) == ((b + 2 * h + 3 * i + 5 * j) % 4 == 0)


def test_where_takes_functions_that_index_tensors():
    ids = torch.tensor([[0, 0, 1, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 1]])
    allowed = where(lambda b, h, i, j: ids[b, i] == ids[b, j]).dense(GRID)
    assert torch.equal(allowed, (ids[:, None, :5, None] == ids[:, None, None, :]).expand(2, 3, 5, 7))


def test_where_sees_positions_of_the_whole_problem():
    def fn(b, h, i, j):
        return (b == 1) & (h == 2) & (i == 4) & (j >= 5)

    tile = GRID.tile(batch=range(1, 2), queries=range(3, 5), keys=range(4, 7))
    assert torch.equal(where(fn).dense(tile), where(fn).dense(GRID)[1:2, :, 3:5, 4:7])


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 3, 1, 7), (2, 1, 5, 1), (5, 7), (7,), ()])
def test_keep_and_ignore_are_opposite_conventions(shape: tuple[int, ...]):
    tensor = random_bools(*shape)
    for mask in (keep(tensor), ignore(tensor)):
        mask.check(GRID)
    assert torch.equal(keep(tensor).dense(GRID), tensor.expand(2, 3, 5, 7))
    assert torch.equal(ignore(tensor).dense(GRID), ~tensor.expand(2, 3, 5, 7))
    tile = GRID.tile(batch=range(1, 2), queries=range(2, 4), keys=range(1, 6))
    assert torch.equal(keep(tensor).dense(tile), tensor.expand(2, 3, 5, 7)[1:2, :, 2:4, 1:6])


def test_as_mask_takes_masks_bool_tensors_and_none():
    mask = causal()
    assert as_mask(None) is None
    assert as_mask(mask) is mask
    tensor = random_bools(5, 7)
    made = as_mask(tensor)
    assert isinstance(made, Keep)
    assert torch.equal(made.dense(GRID)[0, 0], tensor)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (lambda b, h, i, j: i >= j, "masks.where"),
        (torch.zeros(5, 7), "bias="),
        (torch.zeros(5, 7, dtype=torch.int64), "mask must hold bools; it holds torch.int64"),
        ([[True]], "mask must be a Mask, a bool tensor or None; it is a list (write mask=torch.tensor(mask, dtype="),
    ],
)
def test_as_mask_says_what_to_write_instead(value: object, says: str):
    with pytest.raises(KindError) as caught:
        as_mask(value)
    assert says in str(caught.value)


@pytest.mark.parametrize("make", [keep, ignore])
def test_tensors_of_another_type_are_refused(make):
    with pytest.raises(KindError, match=f"the tensor of {make.__name__} must hold bools.*bias="):
        make(torch.zeros(5, 7))
    with pytest.raises(KindError, match="must be a bool tensor; it is a list"):
        make([[True]])


@pytest.mark.parametrize("make", [keep, ignore, as_mask])
def test_masks_refuse_tensors_that_are_not_dense(make):
    with pytest.raises(KindError, match=r"must be a dense tensor; it has the layout torch\.sparse_coo"):
        make(torch.eye(5).bool().to_sparse())
    with pytest.raises(KindError, match="must be a dense tensor; it is a nested one"):
        make(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], dtype=torch.bool, layout=torch.jagged))
    with pytest.raises(KindError, match=r"must hold bools; it holds torch.float8_e5m2 \(numbers that are added"):
        make(torch.ones(5).to(torch.float8_e5m2))


@pytest.mark.parametrize(
    ("mask", "error", "says"),
    [
        (keep(random_bools(7, 5)), ShapeError, "the tensor of keep must broadcast to [batch, heads, queries, keys]"),
        (ignore(random_bools(2, 7, 1, 1)), ShapeError, "the tensor of ignore must broadcast"),
        (keep(random_bools(1, 2, 3, 5, 7)), ShapeError, "[1, 2, 3, 5, 7]"),
        (keep(torch.zeros(7, dtype=torch.bool, device="meta")), KindError, "must be on cpu"),
        (where(lambda b, h, i, j: i - j), KindError, "must return a bool tensor; it returned a tensor of torch.int64"),
        (where(lambda b, h, i, j: True), KindError, "must return a bool tensor; it returned a bool"),
        (where(lambda b, h, i, j: random_bools(3, 2)), ShapeError, "the result of where's function"),
    ],
)
def test_given_masks_name_the_axis_that_does_not_fit(mask: Mask, error: type[Exception], says: str):
    with pytest.raises(error) as caught:
        mask.check(GRID)
    assert says in str(caught.value)


def test_where_needs_a_function():
    with pytest.raises(KindError, match="where needs a function"):
        where(torch.ones(5, 7))  # pyright: ignore[reportArgumentType]


def test_given_masks_read_as_they_are_written():
    def nearby(b, h, i, j):
        return (i - j).abs() < 3

    assert repr(where(nearby)) == "where(nearby)"
    assert repr(keep(random_bools(5, 7))) == "keep(<[5, 7]>)"


@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, 5, 7), (2, 0, 7), (2, 5, 0)])
def test_given_masks_take_problems_without_pairs(batch: int, queries: int, keys: int):
    grid = Grid.whole(batch, 3, queries, keys)
    for mask in (where(lambda b, h, i, j: i >= j), keep(random_bools(queries, keys)), keep(random_bools(1, 1))):
        mask.check(grid)
        assert mask.dense(grid).shape == (batch, 3, queries, keys)
        mask.visibility(grid)
