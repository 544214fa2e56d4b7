"""Which blocks of pairs a mask shows: FlexAttention skips hidden blocks, and evaluates the mask's rule on partial ones.

The blocks follow from the runs of visible keys in each row (`Mask.spans`), which costs time linear in queries + keys.
Masks without runs, and masks whose tensors are on a device that the host would have to wait for, are evaluated on that
device, a slice of rows at a time. A mask is never in memory as a whole, and nothing waits for the device.
"""

import weakref
from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.pair_rules import Rule
from regard.masks import Mask, Spans
from regard.shapes.grid import Grid
from regard.tracing.transforms import sent

BLOCK = 128
"""Queries and keys of a block."""

SLICE_PAIRS = 1 << 24
"""Pairs whose visibility is in memory at once: 16 MiB of bools."""

CACHED_MASKS = 16
"""Masks whose blocks are cached. The layers of a model share theirs."""


class FlexBlocks(NamedTuple):
    """The blocks of a mask: for each block of queries the number of its blocks of keys, and these blocks in order.

    Partial blocks are those with visible and hidden pairs; full ones have no hidden pair. int32
    ``[batch or 1, heads or 1, query blocks]`` and ``[batch or 1, heads or 1, query blocks, key blocks]``; ``q_…`` are
    the same for each block of keys.
    """

    kv_number: Tensor
    kv_index: Tensor
    full_kv_number: Tensor
    full_kv_index: Tensor
    q_number: Tensor
    q_index: Tensor
    full_q_number: Tensor
    full_q_index: Tensor


class _CachedBlocks(NamedTuple):
    blocks: FlexBlocks
    tensors: tuple[weakref.ref[Tensor], ...]


_CACHE: OrderedDict[Hashable, _CachedBlocks] = OrderedDict()
_LOCK = Lock()


def blocks_of(mask: Mask, rule: Rule, grid: Grid) -> FlexBlocks:
    """Returns the blocks of a mask, cached for its rule, the versions of its tensors, and the sizes of the problem."""
    tensors = [tensor for tensor, value in zip(rule.inputs, rule.values, strict=True) if value is None]
    if any(tensor.is_inference() for tensor in tensors):
        return _compute(mask, not tensors, grid)
    states = tuple((id(tensor), tensor._version) for tensor in tensors)
    key = rule.text, rule.values, states, grid.shape, grid.device
    with _LOCK:
        entry = _CACHE.get(key)
        # An id may be that of another tensor by now.
        if entry is not None and all(ref() is one for ref, one in zip(entry.tensors, tensors, strict=True)):
            _CACHE.move_to_end(key)
            return entry.blocks
    blocks = _compute(mask, not tensors, grid)
    with _LOCK:
        _CACHE[key] = _CachedBlocks(blocks, tuple(map(weakref.ref, tensors)))
        while len(_CACHE) > CACHED_MASKS:
            _CACHE.popitem(last=False)
    return blocks


def _compute(mask: Mask, is_on_host: bool, grid: Grid) -> FlexBlocks:
    # The blocks are kept for trainings too, which save them.
    with torch.inference_mode(False):
        return _listed_blocks(mask, is_on_host, grid)


def _listed_blocks(mask: Mask, is_on_host: bool, grid: Grid) -> FlexBlocks:
    spans = mask.spans(grid) if is_on_host or grid.device.type == "cpu" else None
    touched, full = _in_slices(mask, grid) if spans is None else _of_spans(spans, grid)
    touched, full = sent(touched, grid.device), sent(full, grid.device)
    partial = touched & ~full
    matrices = partial, full, partial.mT, full.mT
    return FlexBlocks(*(tensor for matrix in matrices for tensor in _listed(matrix)))


def _listed(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Returns how many elements of each row are True, and the indices of all elements, of True ones first."""
    order = matrix.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return matrix.sum(-1).to(torch.int32).contiguous(), order.to(torch.int32).contiguous()


def _of_spans(spans: Spans, grid: Grid) -> tuple[Tensor, Tensor]:
    """Returns which blocks have a visible pair, and which have no hidden pair.

    Both are bool ``[batch or 1, heads or 1, query blocks, key blocks]``.

    Each run adds 1 to the blocks that it touches, and to those that it covers. Runs of a row do not adjoin, so a row
    covers a block by one of them, and a block is full if all of its rows cover it.
    """
    batch, heads, queries, runs = spans.start.shape
    rows, columns = -(-queries // BLOCK), -(-grid.keys // BLOCK)
    start, stop = (F.pad(ends, (0, 0, 0, rows * BLOCK - queries)).to(torch.int64) for ends in spans)

    def counted(first: Tensor, end: Tensor) -> Tensor:
        changes = torch.zeros(batch, heads, rows, columns + 1, dtype=torch.int64)
        is_run = (first < end).to(torch.int64)
        for ends, sign in ((first, 1), (end, -1)):
            index, values = (ends * is_run, sign * is_run)
            shape = batch, heads, rows, BLOCK * runs
            changes.scatter_add_(-1, index.reshape(shape), values.reshape(shape))
        return changes.cumsum(-1)[..., :columns]

    visible = start < stop
    touched = counted(start // BLOCK * visible, (stop + BLOCK - 1) // BLOCK * visible)
    covered = counted((start + BLOCK - 1) // BLOCK, stop // BLOCK)
    return touched > 0, covered == BLOCK


def _in_slices(mask: Mask, grid: Grid) -> tuple[Tensor, Tensor]:
    """Returns the same as `_of_spans`, by evaluating the mask for a slice of rows at a time."""
    _, _, queries, keys = grid.shape
    columns = -(-keys // BLOCK)
    row = mask.allows(grid.tile(queries=range(1)))
    matrices = row.shape[:-2].numel()  # a mask that batch rows or heads share is evaluated once for them
    step = max(1, SLICE_PAIRS // (matrices * keys * BLOCK)) * BLOCK
    touched, full = [], []
    for first in range(0, queries, step):
        stop = min(first + step, queries)
        allowed = mask.with_four_axes(grid.tile(queries=range(first, stop))).expand(-1, -1, stop - first, keys)
        padded = F.pad(allowed, (0, columns * BLOCK - keys, 0, -(stop - first) % BLOCK))
        tiles = padded.unflatten(-1, (columns, BLOCK)).unflatten(2, (-1, BLOCK))  # B H blocks BLOCK blocks BLOCK
        touched.append(tiles.any(-1).any(3))
        full.append(tiles.all(-1).all(3))
    return torch.cat(touched, dim=2), torch.cat(full, dim=2)
