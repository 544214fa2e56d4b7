"""Masks by blocks: a bool for each block of keys, blocks that queries select by their scores, and compressed keys."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.errors import ShapeError
from regard.masks.columns import Columns
from regard.masks.explicit import check_bool, runs_of_keys
from regard.masks.mask import Mask, Visibility, as_part, check_size
from regard.masks.positional import causal
from regard.masks.spans import Spans
from regard.shapes.axes import Bool
from regard.shapes.checks import check_device, check_floating, check_pairs, check_same_dim, check_sizes, whole_number
from regard.shapes.grid import Grid, is_open, span_length, spread_heads, upcast
from regard.shapes.layout import with_four_axes
from regard.tracing.transforms import has_host_data


class Blocks(Mask, fields=("visible", "size", "query_size")):
    """Allows the pairs of the blocks that are True in a bool tensor; see `blocks`.

    Example:
        >>> import torch
        >>> from regard import masks
        >>> masks.Blocks(torch.ones(8, 4, dtype=torch.bool), 64, 32)
        blocks(<[8, 4]>, 64, query_size=32)
    """

    def __init__(self, visible: Tensor, size: int, query_size: int = 1):
        check_bool("visible", visible)
        self.visible = visible
        check_sizes(size=size, query_size=query_size)
        self.size, self.query_size = size, query_size

    def _of_blocks(self, grid: Grid) -> Grid:
        """Returns the grid of the blocks of a tile."""
        rows, columns = grid.query_span, grid.key_span
        return Grid.whole(
            grid.batch, grid.heads, -(-grid.queries // self.query_size), -(-grid.keys // self.size), grid.device
        ).tile(
            batch=grid.batch_span,
            queries=range(rows.start // self.query_size, -(-rows.stop // self.query_size)),
            keys=range(columns.start // self.size, -(-columns.stop // self.size)),
        )

    def check(self, grid: Grid) -> None:
        check_pairs("visible, a bool for each block,", self.visible, self._of_blocks(grid))
        check_device("visible", self.visible, grid)

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> "Blocks":
        return Blocks(function(self.visible), self.size, self.query_size)

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        visible = self.visible[(None,) * (4 - self.visible.dim())]
        index = (grid.batch_index, grid.head_index, grid.query_index // self.query_size, grid.key_index // self.size)
        return visible[tuple(0 if length == 1 else each for length, each in zip(visible.shape, index, strict=True))]

    def visibility(self, grid: Grid) -> Visibility:
        if 0 in grid.shape:
            return Visibility.EMPTY
        if not has_host_data(self.visible):
            return Visibility.PARTIAL
        visible = self._of_blocks(grid).cut(self.visible)
        if bool(visible.all()):
            return Visibility.FULL
        return Visibility.PARTIAL if bool(visible.any()) else Visibility.EMPTY

    def spans(self, grid: Grid) -> Spans | None:
        return self._runs(self.visible, grid)

    def hidden_spans(self, grid: Grid) -> Spans | None:
        # This is not the complement of `spans`, since one of the two may exceed the limit of runs.
        return self._runs(~self.visible, grid)

    def _runs(self, allowed: Tensor, grid: Grid) -> Spans | None:
        if not has_host_data(allowed):
            return None
        if 0 in grid.shape:
            return Spans.within(grid, 0, 0)
        inner = self._of_blocks(grid)
        part = inner.cut(allowed)
        runs = runs_of_keys(part[(None,) * (4 - part.dim())], inner)
        if runs is None:
            return None
        row = torch.arange(grid.query_span.start, grid.query_span.stop, device="cpu") // self.query_size
        low, high = grid.key_span.start, grid.key_span.stop
        start, stop = (
            (end[:, :, row - inner.query_span.start].long() * self.size).clamp(low, high).to(torch.int32)
            for end in runs
        )
        return Spans.of_runs(start, stop)


def blocks(visible: Tensor, size: int, query_size: int = 1) -> Blocks:
    """Lets each query see whole blocks of keys.

    .. math::

        query i sees key j in head h of batch row b  ⇔  visible[b, h, ⌊i / query_size⌋, ⌊j / size⌋]

    Block-sparse patterns (Child et al. 2019, §5.5; Zaheer et al. 2020, "Big Bird", §2) and blocks that are selected
    from the data (`top_blocks`) have this form. A few runs of blocks in each row are runs of keys, which kernels take.

    Args:
        visible: bool, broadcastable to ``[batch, heads, ⌈queries / query_size⌉, ⌈keys / size⌉]``; it is not copied.
        size: keys of a block.
        query_size: queries of a block.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x, visible = torch.zeros(4, 1), torch.tensor([[True, False], [True, True]])
        >>> (regard.attend_with_weights(x, x, x, mask=masks.blocks(visible, 3, 2)).weights > 0).long()
        tensor([[1, 1, 1, 0],
                [1, 1, 1, 0],
                [1, 1, 1, 1],
                [1, 1, 1, 1]])
    """
    return Blocks(visible, size, query_size)


def top_blocks(query: Tensor, key: Tensor, size: int, count: int) -> Mask:
    """Lets each query see the keys so far in the blocks whose mean key has the largest inner product with it.

    .. math::

        query i sees key j  ⇔  j <= i  and  block(j) is among the count largest of s_i,
        s_{iB} = q_i · mean_{j ∈ B} k_j;  ∞ for the query's own block, −∞ for later ones

    Lu et al. 2025, "MoBA: Mixture of Block Attention for Long-Context LLMs", §2.2, eq. 3 to 6. As published, no
    gradient passes through the selection; it passes through the attention to the selected keys. The last query aligns
    with the last key.

    Args:
        query: ``[batch, heads, queries, dim]``, or with fewer axes as in `regard.attend`.
        key: ``[batch, kv_heads, keys, dim]``, with as many axes.
        size: keys of a block; those of the last one may be fewer.
        count: number of blocks that each query sees, its own among them.

    Returns:
        ``causal() & columns(index, size)``: kernels read the selected blocks alone.

    Raises:
        ShapeError, KindError, ArgumentError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x = torch.eye(2)[[0, 0, 1, 1, 0, 0]]
        >>> (regard.attend_with_weights(x, x, x, mask=masks.top_blocks(x, x, size=2, count=2)).weights > 0).long()
        tensor([[1, 0, 0, 0, 0, 0],
                [1, 1, 0, 0, 0, 0],
                [1, 1, 1, 0, 0, 0],
                [1, 1, 1, 1, 0, 0],
                [1, 1, 0, 0, 1, 0],
                [1, 1, 0, 0, 1, 1]])
    """
    check_sizes(size=size, count=count)
    for name, tensor in (("query", query), ("key", key)):
        check_floating(name, tensor)
    rank = query.dim()
    if rank not in (2, 3, 4) or key.dim() != rank or key.shape[:-3] != query.shape[:-3]:
        raise ShapeError(
            f"query and key must be [batch, heads, length, dim], [batch, length, dim] or [length, dim]; "
            f"they have shapes {list(query.shape)} and {list(key.shape)}"
        )
    check_same_dim(query, key)
    with torch.no_grad():
        query, key = (upcast(with_four_axes(tensor, rank)) for tensor in (query, key))
        keys, queries = key.shape[2], query.shape[2]
        # The mean of the last block, if it is smaller, is never read: only queries inside of it see it.
        mean = F.pad(key, (0, 0, 0, -keys % size)).unflatten(2, (-1, size)).mean(3)
        scores = query @ spread_heads(mean, query.shape[1]).mT  # B H Q blocks
        own = (torch.arange(queries, device=query.device) + (keys - queries))[:, None] // size
        block = torch.arange(mean.shape[2], device=query.device)
        scores = scores.masked_fill(block == own, torch.inf)
        index = largest_blocks(scores, block <= own, count)
    return causal() & Columns(index, size)


def largest_blocks(scores: Tensor, eligible: Bool[Tensor, "..."], count: int) -> Tensor:
    """Returns the blocks with the largest scores of each query, int64 ``[batch, heads, queries, count]``.

    Scores are compared in float32; of equal ones the first come first, so that later blocks never change the choice.

    Args:
        scores: ``[batch, heads, queries, blocks]``.
        eligible: which blocks may be selected; broadcasts to the scores.
        count: number of blocks to select; all, where there are fewer. Where fewer are eligible, −1 is added.
    """
    blocks = scores.shape[-1]
    # Integers in the order of the scores, in which 0 and −0 are one, and below them those of the blocks.
    bits = scores.float().masked_fill(~eligible, -torch.inf).add(0.0).view(torch.int32)
    order = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long() << 32
    best = (order - torch.arange(blocks, device=scores.device)).topk(min(count, blocks), dim=-1).indices
    return best.masked_fill(~eligible.expand(scores.shape).gather(-1, best), -1)


class Compressed(Mask, fields=("mask", "keys", "size", "stride")):
    """Allows a block of keys, which stands for them, if a mask allows all of them.

    .. math::

        query i sees block n  ⇔  the mask lets it see every key n · stride <= j < min(n · stride + size, keys)

    The compressed keys of Yuan et al. 2025, "Native Sparse Attention", eq. 7, are such blocks.

    Args:
        mask: the mask of the keys.
        keys: number of keys.
        size: keys of a block.
        stride: distance between the first keys of neighboring blocks.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x, blocks = torch.zeros(6, 1), torch.zeros(3, 1)
        >>> mask = masks.Compressed(masks.causal(), keys=6, size=2, stride=2)
        >>> (regard.attend_with_weights(x, blocks, blocks, mask=mask).weights > 0).long()
        tensor([[0, 0, 0],
                [1, 0, 0],
                [1, 0, 0],
                [1, 1, 0],
                [1, 1, 0],
                [1, 1, 1]])
    """

    def __init__(self, mask: Mask, keys: int, size: int, stride: int):
        check_sizes(size=size, stride=stride)
        self.mask, self.keys, self.size, self.stride = as_part(mask), whole_number("keys", keys, low=0), size, stride
        self.depth, self.total_parts = mask.depth + 1, mask.total_parts
        check_size(self.depth, self.total_parts)

    def _of_keys(self, grid: Grid) -> Grid:
        """Returns the grid of the keys that the blocks of a tile stand for."""
        first = min(grid.key_span.start * self.stride, self.keys)
        stop = min((grid.key_span.stop - 1) * self.stride + self.size, self.keys) if grid.key_span else first
        return Grid(
            grid.batch, grid.heads, grid.queries, self.keys, grid.device, grid.batch_span, grid.query_span,
            range(first, max(first, stop)), grid.rank,
        )  # fmt: skip

    def check(self, grid: Grid) -> None:
        if (grid.keys - 1) * self.stride >= self.keys > 0 or (grid.keys and not self.keys):
            raise ShapeError(
                f"{self.keys} keys have fewer than {grid.keys} blocks, which begin at multiples of {self.stride}"
            )
        self.mask.check(self._of_keys(grid.tile(keys=range(grid.keys))))

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        runs = None if is_open(grid.keys) else self.spans(grid)
        if runs is not None:
            return runs.dense(grid)
        inner, blocks = self._of_keys(grid), span_length(grid.key_span)
        allowed = self.mask.allows(inner)
        allowed = allowed.expand(*allowed.shape[:-1], span_length(inner.key_span))
        missing = (blocks - 1) * self.stride + self.size - allowed.shape[-1]
        return F.pad(allowed, (0, missing), value=True).unfold(-1, self.size, self.stride).all(-1)

    def spans(self, grid: Grid) -> Spans | None:
        if not grid.key_span:
            return Spans.within(grid, 0, 0)
        runs = self.mask.spans(self._of_keys(grid))
        if runs is None:
            return None
        start, stop = (end.long() for end in runs)
        visible = start < stop
        first = (start + (self.stride - 1)) // self.stride
        # The blocks that end after the last key are the last ones, and end with it.
        last = torch.where(stop == self.keys, grid.keys, (stop - self.size) // self.stride + 1)
        low, high = grid.key_span.start, grid.key_span.stop
        first, last = (end.clamp(low, high).masked_fill(~visible, low).to(torch.int32) for end in (first, last))
        return Spans.of_runs(first, last)

    def __repr__(self) -> str:
        return f"({self.mask!r} of blocks of {self.size} at multiples of {self.stride})"
