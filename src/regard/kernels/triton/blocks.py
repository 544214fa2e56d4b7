"""Which tiles have visible pairs, and in which of them all pairs are visible; found on the device, without waiting."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class TileBlocks(NamedTuple):
    """The visible blocks of one axis for each block of the other, full ones and partial ones.

    Attributes:
        order: int32 ``[batch or 1, heads or 1, blocks of one axis, blocks of the other]``: the full ones, then the
            partial ones; None if the visible ones adjoin, and the full ones among them too.
        bounds: int32 ``[batch or 1, heads or 1, blocks of one axis, 4]``: the first visible block, the number of
            partial ones before the full ones, the number of full ones, and the number of visible ones.
    """

    order: Tensor | None
    bounds: Tensor


def of_runs(start: Tensor, stop: Tensor, keys: int, tile: tuple[int, int], by_columns: bool) -> TileBlocks:
    """Returns the visible blocks of keys for each block of rows, or the other way around.

    Args:
        start, stop: int32 ``[batch or 1, heads or 1, queries, runs]``.
        keys: number of keys.
        tile: rows and columns of a tile.
        by_columns: whether blocks of rows are listed for each block of keys.
    """
    queries = start.shape[2]
    rows, columns = tile
    many_rows, many_columns = -(-queries // rows), -(-keys // columns)
    is_empty = start >= stop
    start, stop = start.masked_fill(is_empty, keys), stop.masked_fill(is_empty, 0)
    room = (0, 0, 0, many_rows * rows - queries)

    def blocked(ends: Tensor, beyond: int) -> Tensor:
        return F.pad(ends, room, value=beyond).unflatten(2, (many_rows, rows))

    begin = torch.arange(many_columns, device=start.device, dtype=torch.int32) * columns
    low, high = blocked(start, keys).amin(3)[..., None], blocked(stop, 0).amax(3)[..., None]
    seen = ((low < begin + columns) & (high > begin)).any(3)
    last, first = blocked(start, 0).amax(3)[..., None], blocked(stop, keys).amin(3)[..., None]
    full = ((last <= begin) & (first >= begin + columns)).any(3)
    return _listed(seen, full, start.shape[3] > 1, by_columns)


def of_mask(mask: Tensor, queries: int, keys: int, tile: tuple[int, int], by_columns: bool) -> TileBlocks:
    """Returns the same of a dense mask ``[batch or 1, heads or 1, queries or 1, keys or 1]``; all are partial."""
    for axis, block in ((2, tile[0]), (3, tile[1])):
        if mask.shape[axis] > 1:
            room = -mask.shape[axis] % block
            mask = F.pad(mask, (0, 0, 0, room) if axis == 2 else (0, room))
            mask = mask.unflatten(axis, (-1, block)).any(axis + 1)
    seen = mask.expand(*mask.shape[:2], -(-queries // tile[0]), -(-keys // tile[1]))
    return _listed(seen, torch.zeros_like(seen), True, by_columns)


def _listed(seen: Tensor, full: Tensor, gaps: bool, by_columns: bool) -> TileBlocks:
    if by_columns:
        seen, full = seen.transpose(2, 3), full.transpose(2, 3)
    many = seen.shape[3]
    index = torch.arange(many, device=seen.device, dtype=torch.int32)
    if gaps:
        rank = index + torch.where(full, 0, torch.where(seen, many, 2 * many)).int()
        order = (rank.sort(3).values % many).contiguous()
        none = torch.zeros_like(order[..., 0])
        return TileBlocks(order, _stacked(none, none, full.sum(3), seen.sum(3)))
    first, count = _run(seen, index)
    first_full, full_count = _run(full, index)
    # Full tiles that do not adjoin are partial ones, too.
    full_count = torch.where(full_count == full.sum(3), full_count, 0)
    left = torch.where(full_count > 0, first_full - first, 0)
    return TileBlocks(None, _stacked(first, left, full_count, count))


def _run(marks: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the first marked block, and how many there are from it to the last one."""
    many = marks.shape[3]
    first = torch.where(marks, index, many).amin(3)
    last = torch.where(marks, index + 1, 0).amax(3)
    return first, (last - first).clamp(min=0)


def _stacked(*numbers: Tensor) -> Tensor:
    return torch.stack([number.int() for number in numbers], -1).contiguous()
