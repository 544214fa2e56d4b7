"""Lengths and documents: each against a loop over pairs."""

import pytest
import torch

from regard.errors import ArgumentError, KindError, ShapeError
from regard.masks import Mask, Visibility, documents, lengths
from regard.shapes.grid import Grid


def dense(mask: Mask, batch: int, queries: int, keys: int) -> torch.Tensor:
    grid = Grid.whole(batch, 2, queries, keys)
    mask.check(grid)
    return mask.dense(grid)


@pytest.mark.parametrize("kind", [list, torch.tensor])
def test_lengths_end_each_row(kind):
    keys, queries = [0, 3, 7], [5, 0, 2]
    alone = dense(lengths(kind(keys)), 3, 5, 7)
    both = dense(lengths(kind(keys), kind(queries)), 3, 5, 7)
    for b in range(3):
        for i in range(5):
            for j in range(7):
                assert bool(alone[b, 1, i, j]) == (j < keys[b])
                assert bool(both[b, 1, i, j]) == (j < keys[b] and i < queries[b])


def test_one_length_for_all_rows():
    assert torch.equal(dense(lengths(3, 2), 2, 5, 7), dense(lengths([3, 3], [2, 2]), 2, 5, 7))


def test_lengths_know_their_tiles():
    grid = Grid.whole(3, 2, 5, 7)
    mask = lengths([2, 4, 5], queries=[3, 5, 5])

    def visibility(queries: range, keys: range, batch: range = range(3)) -> Visibility:
        return mask.visibility(grid.tile(batch=batch, queries=queries, keys=keys))

    assert visibility(range(3), range(2)) is Visibility.FULL
    assert visibility(range(4), range(2)) is Visibility.PARTIAL
    assert visibility(range(3), range(2, 4)) is Visibility.PARTIAL
    assert visibility(range(3), range(5, 7)) is Visibility.EMPTY
    assert visibility(range(3), range(2, 4), range(1)) is Visibility.EMPTY
    assert visibility(range(3, 5), range(2), range(1)) is Visibility.EMPTY
    assert visibility(range(5), range(4), range(1, 3)) is Visibility.FULL


@pytest.mark.parametrize("batched", [False, True])
def test_documents_see_themselves(batched: bool):
    ids = torch.tensor([[0, 0, 2, 1, 1, -1, 0], [5, 5, 5, -1, 5, -1, -2]])
    ids = ids if batched else ids[0]
    allowed = dense(documents(ids), 2, 7, 7)
    for b in range(2):
        row = ids[b] if batched else ids
        for i in range(7):
            for j in range(7):
                assert bool(allowed[b, 0, i, j]) == (int(row[i]) == int(row[j]) >= 0)


def test_documents_of_queries_and_keys_that_differ():
    query_ids, key_ids = torch.tensor([[0, 1, -1]]), torch.tensor([1, 1, 0, -1, 2], dtype=torch.int32)
    allowed = dense(documents(query_ids, key_ids), 1, 3, 5)[0, 0]
    assert allowed.int().tolist() == [[0, 0, 1, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]


def test_documents_in_order_know_their_tiles_exactly():
    ids = torch.tensor([0, 0, 0, 1, 1, 2, -1, -1])
    mask, grid = documents(ids), Grid.whole(2, 2, 8, 8)
    for start in range(8):
        for stop in range(start + 1, 9):
            for left in range(8):
                for right in range(left + 1, 9):
                    tile = grid.tile(queries=range(start, stop), keys=range(left, right))
                    allowed = mask.dense(tile)
                    exact = Visibility.FULL if allowed.all() else Visibility.PARTIAL
                    assert mask.visibility(tile) is (exact if allowed.any() else Visibility.EMPTY)


def test_masks_keep_what_they_were_made_with():
    ids, ends = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([3])
    mask = documents(ids) & lengths(ends)
    before = dense(mask, 1, 5, 5)
    ids.zero_()
    ends.zero_()
    assert torch.equal(dense(mask, 1, 5, 5), before)


def test_content_masks_read_as_they_are_written():
    assert repr(lengths(3)) == "lengths(3)"
    assert repr(lengths(torch.tensor([3, 4]), 2)) == "lengths([3, 4], queries=2)"
    assert repr(documents(torch.zeros(2, 7, dtype=torch.int64))) == "documents(<[2, 7]>)"


@pytest.mark.parametrize(
    ("mask", "error", "says"),
    [
        (lengths([1, 8]), ArgumentError, "keys[1] must be in 0..7; it is 8"),
        (lengths(-1), ArgumentError, "keys must be in 0..7; it is -1"),
        (lengths(torch.tensor([1, -1])), ArgumentError, "keys[1] must be in 0..7; it is -1"),
        (lengths(1, 6), ArgumentError, "queries must be in 0..5; it is 6"),
        (lengths([1, 2, 3]), ShapeError, "keys must be an integer or [batch] = [2]; it has shape [3]"),
        (lengths(torch.zeros(2, dtype=torch.int64, device="meta")), KindError, "keys must be on cpu"),
        (documents(torch.zeros(7).long()), ShapeError, "documents needs key_ids"),
        (documents(torch.zeros(7).long(), torch.zeros(7).long()), ShapeError, "query_ids must be [queries] = [5]"),
        (documents(torch.zeros(3, 5).long(), torch.zeros(7).long()), ShapeError, "[batch, queries] = [2, 5]"),
        (documents(torch.zeros(5).long(), torch.zeros(2, 5).long()), ShapeError, "key_ids must be [keys] = [7]"),
        (
            documents(torch.zeros(5).long(), torch.zeros(7, dtype=torch.int64, device="meta")),
            KindError,
            "key_ids must be on cpu",
        ),
    ],
)
def test_content_masks_name_the_axis_that_does_not_fit(mask: Mask, error: type[Exception], says: str):
    with pytest.raises(error) as caught:
        mask.check(Grid.whole(2, 3, 5, 7))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: lengths(2.0), KindError, "keys must be an integer"),
        (lambda: lengths(torch.tensor([2.0])), KindError, "keys must hold integers"),
        (lambda: lengths(torch.tensor(2)), ShapeError, "it has shape []"),
        (lambda: documents([0, 1]), KindError, "query_ids must be a tensor of integers; it is a list"),
        (lambda: documents(torch.zeros(5)), KindError, "query_ids must hold integers; it holds torch.float32"),
        (lambda: documents(torch.zeros(1, 1, 5).long()), ShapeError, "query_ids must be [length] or [batch, length]"),
    ],
)
def test_content_masks_name_wrong_arguments(make, error: type[Exception], says: str):
    with pytest.raises(error) as caught:
        make()
    assert says in str(caught.value)


@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, 5, 7), (2, 0, 7), (2, 5, 0), (0, 0, 0)])
def test_content_masks_take_problems_without_pairs(batch: int, queries: int, keys: int):
    query_ids, key_ids = torch.zeros(batch, queries).long(), torch.zeros(keys).long()
    for mask in (lengths(0, 0), lengths([0] * batch), documents(query_ids, key_ids)):
        assert dense(mask, batch, queries, keys).shape == (batch, 2, queries, keys)
        mask.visibility(Grid.whole(batch, 2, queries, keys))
