"""Masks by a list of keys a query: columns of the scores that are chosen for each row, or for a block of rows."""

from collections.abc import Callable
from functools import reduce
from operator import and_

import torch
from torch import Tensor

from regard.errors import ArgumentError, ShapeError
from regard.masks.mask import Mask, Visibility, joined_masks
from regard.masks.spans import RUNS_LIMIT, Spans
from regard.shapes.axes import Bool
from regard.shapes.checks import check_device, check_integers, check_sizes
from regard.shapes.grid import Grid, span_length, spread_heads
from regard.shapes.layout import axes
from regard.tracing.transforms import has_host_data


class Columns(Mask, fields=("index", "size", "query_size")):
    """Allows the keys whose index is listed; see `columns`.

    Example:
        >>> import torch
        >>> from regard import masks
        >>> masks.Columns(torch.tensor([[0, 2], [1, -1]]), size=64)
        columns(<[2, 2]>, size=64)
    """

    def __init__(self, index: Tensor, size: int = 1, query_size: int = 1):
        check_integers("index", index)
        if index.dim() not in (1, 2, 3, 4):
            raise ShapeError(f"index must have one axis to four, the last one for a list; it has {index.dim()}")
        self.index = index
        check_sizes(size=size, query_size=query_size)
        self.size, self.query_size = size, query_size
        self._highest: tuple[int, int] | None = None

    def check(self, grid: Grid) -> None:
        batch, heads, rows, listed = self.four_axes.shape
        needed = -(-grid.queries // self.query_size)
        if batch not in (1, grid.batch) or not heads or grid.heads % heads or rows not in (1, needed):
            expected = [*(grid.batch, grid.heads)[: grid.rank - 2], needed, listed]
            own = [batch, *((heads,) if grid.rank == 4 or heads != 1 else ()), rows, listed][-self.index.dim() :]
            raise ShapeError(
                f"index must broadcast to {axes(grid.rank, 'rows', 'k')} = {expected}, a row for each "
                f"{self.query_size} queries, or have a number of heads that divides theirs; it has shape {own}"
            )
        check_device("index", self.index, grid)
        key_blocks = -(-grid.keys // self.size)
        if has_host_data(self.index) and self._largest >= key_blocks:
            of = "keys" if self.size == 1 else f"blocks of {self.size} keys"
            raise ArgumentError(
                f"index must be below {key_blocks}, the number of {of}, or negative for none; "
                f"it contains {self._largest}"
            )

    @property
    def _largest(self) -> int:
        """The largest index, −1 if there is none, which is looked for once for each version of the tensor."""
        version = None if self.index.is_inference() else self.index._version
        if self._highest is None or version is None or self._highest[0] != version:
            self._highest = (version or 0, int(self.index.amax()) if self.index.numel() else -1)
        return self._highest[1]

    @property
    def four_axes(self) -> Tensor:
        """The index as ``[batch or 1, heads or fewer, rows or 1, listed]``."""
        return self.index[(None,) * (4 - self.index.dim())]

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> "Columns":
        return Columns(function(self.index), self.size, self.query_size)

    def _key_blocks(self, grid: Grid) -> tuple[int, int]:
        """Returns the first block of keys of a tile, and the end of its blocks."""
        return grid.key_span.start // self.size, -(-grid.key_span.stop // self.size)

    def _rows(self, grid: Grid) -> Tensor:
        """Returns the lists of a tile, int64 ``[batch or 1, heads or fewer, rows, listed]``; −1 for none."""
        index, rows = self.four_axes, grid.query_span
        if index.shape[0] != 1:
            index = index[grid.batch_span.start : grid.batch_span.stop]
        if index.shape[2] != 1:
            index = index[:, :, rows.start // self.query_size : -(-rows.stop // self.query_size)]
        return index.to(torch.int64)

    def _each_query(self, rows: Tensor, grid: Grid) -> Tensor:
        """Returns what belongs to the rows of a tile, for each of its queries and heads."""
        rows = rows if rows.shape[1] == 1 else spread_heads(rows, grid.heads)
        if rows.shape[2] == 1 or self.query_size == 1:
            return rows
        return rows[:, :, grid.query_index[:, 0] // self.query_size - grid.query_span.start // self.query_size]

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        first, stop = self._key_blocks(grid)
        key_blocks, rows = stop - first, self._rows(grid) - first
        # What is not in the tile is written to one more column. On a device no index leads out of bounds.
        inside = torch.where((rows >= 0) & (rows < key_blocks), rows, key_blocks)
        listed = torch.zeros(*rows.shape[:3], key_blocks + 1, dtype=torch.bool, device=rows.device).scatter(
            -1, inside, True
        )
        if self.size == 1:
            return self._each_query(listed[..., :-1], grid)
        return self._each_query(listed[..., grid.key_index // self.size - first], grid)

    def visibility(self, grid: Grid) -> Visibility:
        if 0 in grid.shape:
            return Visibility.EMPTY
        if not has_host_data(self.index):
            return Visibility.PARTIAL
        rows = self._rows(grid)
        first, stop = self._key_blocks(grid)
        if not bool(((rows >= first) & (rows < stop)).any()):
            return Visibility.EMPTY
        is_short = rows.shape[3] * self.size < span_length(grid.key_span)
        return Visibility.PARTIAL if is_short else super().visibility(grid)

    def spans(self, grid: Grid) -> Spans | None:
        if self.four_axes.shape[3] > RUNS_LIMIT or not has_host_data(self.index):
            return None
        rows = self._each_query(self._rows(grid), grid)
        if not rows.shape[3] or 0 in grid.shape:
            return Spans.within(grid, 0, 0)
        rows = rows.expand(-1, -1, span_length(grid.query_span), -1)
        low, high = grid.key_span.start, grid.key_span.stop
        start = (rows * self.size).clamp(low, high)
        stop = ((rows + 1) * self.size).clamp(low, high).masked_fill(rows < 0, low)
        return Spans.of_runs(start.to(torch.int32), stop.to(torch.int32))


def columns(index: Tensor, size: int = 1, query_size: int = 1) -> Columns:
    r"""Lets each query see the keys that a list names, as the edges of a graph or keys that were selected do.

    .. math::

        query i sees key j in head h of batch row b  ⇔
        ⌊j / size⌋ \in \{index[b, h, ⌊i / query\_size⌋, n] \mid n = 1 … k\}

    A list is a set: an order has no meaning, and a key that is listed twice is seen once. Fine-grained selection
    (DeepSeek-AI 2025, "DeepSeek-V3.2", §2.1, top-k tokens of an indexer), selected blocks (Yuan et al. 2025, "Native
    Sparse Attention", §3.3.2) and the neighbors of a node (Veličković et al. 2018, "Graph Attention Networks", §2.1)
    have this form. The softmax of inner products runs on the listed keys alone, in memory linear in them, forward and
    backward, also under a mask of a single run of keys that is joined by ``&`` (causal, window, lengths, prefix).

    Args:
        index: integers ``[batch or 1, heads or fewer, rows, k]``, where rows = ``⌈queries / query_size⌉`` or 1, and
            the number of heads divides that of the query heads, which share a list in groups as they share keys; or
            with fewer axes, as the tensor of `keep`. A negative index names no key; so lists may differ in length. It
            is not copied: later changes of the tensor change the mask.
        size: keys of a block; the index counts blocks. 1: it counts keys.
        query_size: queries that share a row of the index.

    Raises:
        KindError, ShapeError: ``index`` holds no integers, or does not fit the call.
        ArgumentError: an index is not below ``⌈keys / size⌉``. On a device that is not checked; such an index names no
            key.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x = torch.zeros(3, 1)
        >>> edges = torch.tensor([[0, 2], [1, -1], [-1, -1]])  # node 0 sees 0 and 2, node 1 itself, node 2 nothing
        >>> (regard.attend_with_weights(x, x, x, mask=masks.columns(edges)).weights > 0).long()
        tensor([[1, 0, 1],
                [0, 1, 0],
                [0, 0, 0]])
    """
    return Columns(index, size, query_size)


def without_columns(mask: Mask | None) -> tuple[Mask | None, list[Mask]]:
    """Returns a mask without the lists of keys that ``&`` joins to it (None: it is nothing else), and these lists."""
    lists: list[Mask] = [part for part in joined_masks(mask) if isinstance(part, Columns)]
    others = [part for part in joined_masks(mask) if not isinstance(part, Columns)]
    return (reduce(and_, others) if others else None), lists
