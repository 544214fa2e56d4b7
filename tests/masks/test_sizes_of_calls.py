"""Every constructor of masks, on calls of all small sizes: the definition over pairs, or an error where it has none."""

import itertools
from collections.abc import Callable

import pytest
import torch

import regard
from dense_spans import dense_spans
from regard import masks
from regard.errors import ArgumentError, ShapeError
from regard.masks import Mask, Visibility
from regard.shapes.grid import Grid

Sees = Callable[[int, int], bool] | None
"""Whether a query sees a key; None: the mask is not defined for these numbers of queries and keys."""

BLOCKS = [[1, 0, 1], [0, 1, 1]]
COLUMNS = [[0, 2], [1, -1], [3, 0]]
IDS = [0, 0, 1, -1, 0]


def block_diffusion(length: int, block: int, queries: int, keys: int) -> Sees:
    def sees(i: int, j: int) -> bool:
        of_query, of_key = i % length // block, j % length // block
        if i < length:  # noised
            return of_query == of_key if j < length else of_key < of_query
        return j >= length and of_key <= of_query

    return sees if queries == keys == 2 * length else None


def nearest(size: int, length: int, position: int, key: int, dilation: int = 1) -> bool:
    first = position % dilation
    positions = (length - first - 1) // dilation + 1
    start = min(max(position // dilation - size // 2, 0), positions - size)
    return key % dilation == first and start <= key // dilation < start + size


def neighborhood(size: int, dilation: int, queries: int, keys: int) -> Sees:
    if queries > keys or size * dilation > keys:
        return None
    return lambda i, j: nearest(size, keys, i + keys - queries, j, dilation)


def in_image(queries: int, keys: int) -> Sees:
    if queries > keys or keys != 12:
        return None
    return lambda i, j: nearest(2, 3, (i + 12 - queries) // 4, j // 4) and nearest(2, 4, (i + 12 - queries) % 4, j % 4)


def from_table(rows: list[list[int]], query_size: int, key_size: int, queries: int, keys: int) -> Sees:
    if (-(-queries // query_size), -(-keys // key_size)) != (len(rows), len(rows[0])):
        return None
    return lambda i, j: rows[i // query_size][j // key_size] == 1


def listed(query_size: int, key_size: int, queries: int, keys: int) -> Sees:
    if -(-queries // query_size) != len(COLUMNS) or keys <= 3 * key_size:
        return None
    return lambda i, j: j // key_size in COLUMNS[i // query_size]


def stands_for_visible(queries: int, blocks: int) -> Sees:
    return (lambda i, n: min(2 * n + 3, 7) - 1 <= i + 7 - queries) if blocks <= 4 else None


def with_two_appended(queries: int, keys: int) -> Sees:
    return (lambda i, j: j >= keys - 2 or j <= i + keys - 2 - queries) if keys >= 2 else None


CASES: list[tuple[Mask, Callable[[int, int], Sees]]] = [
    (masks.causal(), lambda q, k: lambda i, j: j <= i + k - q),
    (masks.causal("start"), lambda q, k: lambda i, j: j <= i),
    (masks.window(2, 1), lambda q, k: lambda i, j: -2 <= j - (i + k - q) <= 1),
    (masks.prefix(5), lambda q, k: lambda i, j: j < 5),
    (masks.dilated(3), lambda q, k: lambda i, j: (i + k - q - j) % 3 == 0),
    (masks.chunks(3, 1, 1), lambda q, k: lambda i, j: abs((i + k - q) // 3 - j // 3) <= 1),
    (masks.block_diffusion(4, 2), lambda q, k: block_diffusion(4, 2, q, k)),
    (masks.block_diffusion(1, 1), lambda q, k: block_diffusion(1, 1, q, k)),
    (masks.block_diffusion(6, 3), lambda q, k: block_diffusion(6, 3, q, k)),
    (masks.neighborhood(3), lambda q, k: neighborhood(3, 1, q, k)),
    (masks.neighborhood(4), lambda q, k: neighborhood(4, 1, q, k)),
    (masks.neighborhood(3, dilation=2), lambda q, k: neighborhood(3, 2, q, k)),
    (masks.neighborhood(2, (3, 4)), in_image),
    (masks.shifted_windows(4, 1), lambda q, k: None if q > k else lambda i, j: (i + k - q + 3) // 4 == (j + 3) // 4),
    (masks.blocks(torch.tensor(BLOCKS).bool(), 3, 2), lambda q, k: from_table(BLOCKS, 2, 3, q, k)),
    (masks.blocks(torch.tensor(BLOCKS).bool(), 2, 3), lambda q, k: from_table(BLOCKS, 3, 2, q, k)),
    (masks.keep(torch.tensor(BLOCKS).bool()), lambda q, k: from_table(BLOCKS, 1, 1, q, k)),
    (masks.columns(torch.tensor(COLUMNS)), lambda q, k: listed(1, 1, q, k)),
    (masks.columns(torch.tensor(COLUMNS), 2, 3), lambda q, k: listed(3, 2, q, k)),
    (masks.lengths(3, 2), lambda q, k: None if k < 3 or q < 2 else lambda i, j: j < 3 and i < 2),
    (masks.documents(torch.tensor(IDS)), lambda q, k: None if q != 5 or k != 5 else lambda i, j: IDS[i] == IDS[j] >= 0),
    (masks.Compressed(masks.causal(), 7, 3, 2), stands_for_visible),
    (masks.AppendedMask(masks.causal(), 2), with_two_appended),
]  # fmt: skip


@pytest.mark.parametrize(("mask", "definition"), CASES, ids=[repr(mask) for mask, _ in CASES])
def test_masks_are_their_definition_or_raise_on_calls_of_every_size(mask: Mask, definition):
    for queries, keys in itertools.product(range(13), repeat=2):
        grid, sees = Grid.whole(1, 1, queries, keys), definition(queries, keys)
        if sees is None:
            with pytest.raises(ArgumentError):
                mask.check(grid)
            continue
        mask.check(grid)
        expected = torch.tensor([[sees(i, j) for j in range(keys)] for i in range(queries)], dtype=torch.bool)
        expected = expected.reshape(queries, keys)
        assert torch.equal(mask.dense(grid)[0, 0], expected)
        for spans, visible in ((mask.spans(grid), expected), (mask.hidden_spans(grid), ~expected)):
            assert spans is None or torch.equal(dense_spans(spans, grid)[0, 0], visible)
        exact = Visibility.EMPTY if not expected.any() else Visibility.FULL if expected.all() else Visibility.PARTIAL
        assert mask.visibility(grid) in (exact, Visibility.PARTIAL)
        assert not mask.shows_all_rows(grid) or expected.any(1).all()
        assert not mask.shows_all_keys(grid) or expected.any(0).all()


def test_a_mask_of_block_diffusion_says_how_many_tokens_it_is_for():
    mask, x = masks.block_diffusion(4, 2), torch.zeros(10, 1)
    for combined in (mask, ~mask, mask & masks.causal(), masks.causal() | mask):
        with pytest.raises(ShapeError, match=r"block_diffusion\(4, 2\) is the mask of 8 tokens, 4 noised and 4 clean"):
            regard.attend(x, x, x, mask=combined)
