"""Masks of grids and of blocks: each against a loop over positions, and in forms that kernels serve."""

import itertools

import pytest
import torch

import regard
from regard import masks
from regard.errors import ArgumentError, KindError, ShapeError
from regard.shapes.grid import Grid


def dense(mask, queries, keys, heads=1, batch=1):
    grid = Grid.whole(batch, heads, queries, keys)
    mask.check(grid)
    return mask.dense(grid)


def on_axes(shape, sees):
    """The pairs of positions of which each pair of coordinates is visible along its axis."""
    places = list(itertools.product(*map(range, shape)))
    return torch.tensor([[all(map(sees, range(len(shape)), i, j)) for j in places] for i in places])


@pytest.mark.parametrize(
    ("size", "shape", "dilation", "runs"),
    [
        ((3,), (7,), (1,), 1),
        ((4,), (9,), (2,), 4),
        ((3,), (11,), (3,), 3),
        ((3, 3), (5, 7), (1, 1), 3),
        ((2, 3), (5, 7), (2, 1), 2),
        ((2, 3), (5, 7), (2, 2), 6),
        ((3, 5), (6, 10), (2, 2), 15),
        ((3, 6), (6, 12), (2, 2), None),
        ((3, 7), (5, 7), (1, 1), 1),
        ((2, 2, 3), (3, 2, 5), (1, 1, 1), 4),
    ],
    ids=str,
)
def test_a_neighborhood_is_that_of_hassani_et_al(size, shape, dilation, runs):
    def sees(axis, i, j):
        group = range(i % dilation[axis], shape[axis], dilation[axis])  # what a dilated query may see
        start = min(max(group.index(i) - size[axis] // 2, 0), len(group) - size[axis])
        return j in group[start : start + size[axis]]

    mask, expected = masks.neighborhood(size, shape, dilation), on_axes(shape, sees)
    length = len(expected)
    assert set(expected.sum(1).tolist()) == {torch.tensor(size).prod().item()}
    assert torch.equal(dense(mask, length, length)[0, 0], expected)
    assert torch.equal(dense(mask, 3, length)[0, 0], expected[-3:])
    spans = mask.spans(Grid.whole(1, 1, length, length))
    assert (None if spans is None else spans.runs) == runs


@pytest.mark.parametrize(("window", "shift"), [((2, 2), (0, 0)), ((2, 2), (1, 1)), ((3, 4), (1, 2))], ids=str)
@pytest.mark.parametrize("shape", [(4, 6), (5, 7)], ids=str)
def test_shifted_windows_are_those_of_swin(window, shift, shape):
    """Rolled, padded, cut into windows, and masked by regions, as in the paper; then rolled back."""
    ids = torch.zeros(shape, dtype=torch.int64)
    for place in itertools.product(*map(range, shape)):
        code = 0
        for x, w, s, length in zip(place, window, shift, shape, strict=True):
            padded = -(-length // w) * w
            rolled = (x - s) % padded
            region = (rolled >= padded - w) + (rolled >= padded - s) if s else 0
            code = 100 * code + 10 * (rolled // w) + region
        ids[place] = code
    mask, length = masks.shifted_windows(window, shift, shape), ids.numel()
    assert torch.equal(
        dense(mask, length, length), dense(masks.documents(ids.flatten()), length, length).expand(1, 1, length, length)
    )


def test_compressed_keys_are_visible_with_all_of_theirs():
    inner = masks.causal() & masks.lengths([13, 6])
    tokens = inner.dense(Grid.whole(2, 1, 13, 13))
    for size, stride, blocks in ((4, 2, 5), (4, 4, 4), (3, 5, 3), (1, 1, 13)):
        mask = masks.Compressed(inner, 13, size, stride)
        expected = torch.stack([tokens[..., n * stride : n * stride + size].all(-1) for n in range(blocks)], dim=-1)
        assert torch.equal(dense(mask, 13, blocks, batch=2), expected)
        assert mask.spans(Grid.whole(2, 1, 13, blocks)).runs == 1
        reached = torch.stack([tokens[..., n * stride : n * stride + size].any(-1) for n in range(blocks)], dim=-1)
        assert torch.equal(dense(~masks.Compressed(~inner, 13, size, stride), 13, blocks, batch=2), reached)


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_top_blocks_are_those_of_moba(rank):
    torch.manual_seed(rank)
    batch, heads, queries, keys, size, count = 2, 4, 9, 11, 3, 2
    query, key = torch.randn(batch, heads, queries, 5).double(), torch.randn(batch, 2, keys, 5).double()
    if rank < 4:
        batch, heads, query, key = (2, 1, query[:, 0], key[:, 0]) if rank == 3 else (1, 1, query[0, 0], key[0, 0])
    mask = masks.top_blocks(query.requires_grad_(), key, size, count)
    seen = dense(mask, queries, keys, heads, batch)
    query, key = query.detach().reshape(batch, heads, queries, 5), key.reshape(batch, -1, keys, 5)
    for b, h, i in itertools.product(range(batch), range(heads), range(queries)):
        place = i + keys - queries
        past = range(place // size)
        gates = {n: query[b, h, i] @ key[b, h * key.shape[1] // heads, n * size : (n + 1) * size].mean(0) for n in past}
        best = {place // size, *sorted(past, key=lambda n: -gates[n])[: count - 1]}
        assert [j for j in range(keys) if seen[b, h, i, j]] == [j for j in range(place + 1) if j // size in best]


def test_kernels_take_masks_of_grids_and_blocks_as_runs():
    x = torch.randn(1, 2, 80, 8)
    for mask in (
        masks.neighborhood(5, (8, 10)),
        masks.shifted_windows(4, 2, (8, 10)),
        masks.top_blocks(x, x, 8, 3),
        masks.blocks(torch.rand(20, 5) < 0.5, 16, 4),
    ):
        expected = regard.attend(x, x, x, mask=mask, backend="reference")
        torch.testing.assert_close(regard.attend(x, x, x, mask=mask, backend="cpu"), expected)
        assert mask.spans(Grid.of(x, x)) is not None


@pytest.mark.parametrize("mask", [masks.neighborhood(3, (4, 6)), masks.documents(torch.arange(24) // 5)], ids=repr)
def test_runs_that_inference_kept_serve_a_training(mask):
    x = torch.randn(1, 1, 24, 4)
    with torch.inference_mode():
        regard.attend(x, x, x, mask=mask, backend="cpu")
    regard.attend(x.requires_grad_(), x, x, mask=mask, backend="cpu").sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: masks.neighborhood(4, (5, 3)),
            ArgumentError,
            "must be at most the length of its axis, 3; it is 4 · 1",
        ),
        (lambda: masks.neighborhood(4).check(Grid.whole(1, 1, 3, 3)), ArgumentError, "length of its axis, 3"),
        (lambda: masks.neighborhood((3, 3), (9, 9, 9)), ArgumentError, "one for each axis of shape, 3; it has 2"),
        (lambda: masks.neighborhood(3, (2, 3)).check(Grid.whole(1, 1, 5, 5)), ArgumentError, "axis, 2"),
        (
            lambda: masks.neighborhood(2, (2, 3)).check(Grid.whole(1, 1, 5, 5)),
            ShapeError,
            "has 6 positions.* are 5 keys",
        ),
        (lambda: masks.neighborhood(2).check(Grid.whole(1, 1, 6, 5)), ShapeError, "6 queries and 5 keys"),
        (lambda: masks.neighborhood(2.5), KindError, "size must be an integer"),
        (lambda: masks.neighborhood(1, ()), ArgumentError, "at least one axis"),
        (lambda: masks.shifted_windows(3, 3), ArgumentError, "shift .* must be at most 2; it is 3"),
        (lambda: masks.blocks(torch.ones(2, 2), 3), KindError, "visible must hold bools"),
        (
            lambda: masks.blocks(torch.ones(2, 2).bool(), 3).check(Grid.whole(1, 1, 2, 7)),
            ShapeError,
            r"visible, a bool for each block, must broadcast .*\[1, 1, 2, 3\]",
        ),
        (lambda: masks.Compressed(masks.causal(), 5, 2, 2).check(Grid.whole(1, 1, 5, 4)), ShapeError, "than 4 blocks"),
        (lambda: masks.top_blocks(torch.ones(1, 2, 3), torch.ones(2, 3), 1, 1), ShapeError, "query and key must be"),
    ],
)
def test_grid_masks_name_wrong_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()
