"""The visible keys of each row, where they are one run: two integers a row in place of a row of bools.

What causal, window, lengths, prefix and packed documents have in common, so that a kernel needs one kind of loop for
all of them, and time and memory in proportion to what is seen.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.shapes import Grid
from regard.transforms import has_data


class Spans(NamedTuple):
    """Each row sees the keys ``start <= j < stop``, and no other.

    Attributes:
        start: the first visible key of each row, a position of the whole problem; 0 for a row that sees nothing. int32
            ``[batch or 1, heads or 1, queries]`` of the tile, contiguous, on the CPU wherever the problem lies.
        stop: one more than the last visible key; 0 for a row that sees nothing. Shape and dtype of ``start``.
    """

    start: Tensor
    stop: Tensor

    @classmethod
    def within(cls, grid: Grid, start: int | Tensor, stop: int | Tensor) -> "Spans":
        """The part of the runs ``start <= j < stop`` that lies in a tile's keys.

        Args:
            grid: which tile.
            start, stop: one integer, or integers on the CPU that broadcast to ``[batch, heads, queries]`` of the tile.
                They may lie outside of the tile, and ``start`` behind ``stop``, where nothing is seen.
        """
        span, queries = grid.key_span, len(grid.query_span)
        ends = (_clipped(start, span, queries), _clipped(stop, span, queries))
        return cls._normal(*ends)

    @classmethod
    def _normal(cls, start: Tensor, stop: Tensor) -> "Spans":
        visible = start < stop
        return cls((start * visible).contiguous(), (stop * visible).contiguous())

    def intersection(self, other: "Spans") -> "Spans":
        """Keys that are in both."""
        return self._normal(torch.maximum(self.start, other.start), torch.minimum(self.stop, other.stop))

    def union(self, *others: "Spans") -> "Spans | None":
        """Keys that are in any; None if they leave a gap in any row, or if these are tensors without data."""
        if not others:
            return self
        if not all(has_data(end) for spans in (self, *others) for end in spans):
            return None
        if len(others) == 1:
            return self._union_of_two(others[0])
        starts = torch.stack(torch.broadcast_tensors(self.start, *(other.start for other in others)))
        stops = torch.stack(torch.broadcast_tensors(self.stop, *(other.stop for other in others)))
        # Sorted, so that each run must begin before those in front of it end; empty runs come last and count as none.
        starts, order = torch.where(starts == stops, torch.iinfo(starts.dtype).max, starts).sort(dim=0)
        stops = stops.gather(0, order).cummax(0).values
        gap = (starts[1:] > stops[:-1]) & (starts[1:] != torch.iinfo(starts.dtype).max)
        return None if bool(gap.any()) else self._normal(starts[0], stops[-1])

    def _union_of_two(self, other: "Spans") -> "Spans | None":
        """The same for two, without a sort, which is faster."""
        left, right = self._or_where_empty(other), other._or_where_empty(self)
        if bool((torch.maximum(left.start, right.start) > torch.minimum(left.stop, right.stop)).any()):
            return None
        return self._normal(torch.minimum(left.start, right.start), torch.maximum(left.stop, right.stop))

    def _or_where_empty(self, other: "Spans") -> "Spans":
        empty = self.start == self.stop
        return Spans(torch.where(empty, other.start, self.start), torch.where(empty, other.stop, self.stop))

    def complement(self, grid: Grid) -> "Spans | None":
        """The tile's other keys; None if in any row there are some on both sides, or if these are without data."""
        if not has_data(self.start):
            return None
        low, high = grid.key_span.start, grid.key_span.stop
        at_low = (self.start <= low) | (self.start == self.stop)
        if not bool((at_low | (self.stop == high)).all()):
            return None
        # A row that sees nothing holds zeros, and its other keys begin at the tile's first one.
        return self._normal(torch.where(at_low, self.stop.clamp(min=low), low), torch.where(at_low, high, self.start))


def _clipped(end: int | Tensor, span: range, queries: int) -> Tensor:
    if isinstance(end, int):
        return torch.full((1, 1, queries), min(max(end, span.start), span.stop), dtype=torch.int32)
    # Clipped before it is narrowed: an offset may be any int64.
    return end.clamp(span.start, span.stop).to(torch.int32).expand(-1, -1, queries)
