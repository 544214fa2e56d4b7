"""The visible keys of each row as a few runs: two integers a run instead of a row of bools.

Causal, window, lengths, prefix and packed documents have this form, so one kind of kernel loop serves them all, in time
and memory proportional to the number of visible pairs.
"""

from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from regard.shapes.grid import Grid, span_length
from regard.tracing.transforms import has_data, sent

RUNS_LIMIT = 16
"""Largest number of runs in a row; a mask with more of them has no spans."""

_EMPTY_START = torch.iinfo(torch.int32).max
"""The start of an empty run during sorting, so that it comes last."""


class Spans(NamedTuple):
    """The visible keys of each row: ``start <= j < stop`` for each of its runs.

    The runs of a row ascend, with hidden keys between them. A row with fewer runs than others ends with empty runs.

    Attributes:
        start: the first key of each run, a position in the whole problem; 0 for an empty run. int32
            ``[batch or 1, heads or 1, queries, runs]`` of the tile, contiguous, always on the CPU, with at least one
            run and at most RUNS_LIMIT.
        stop: one more than the last key of each run; 0 for an empty run. It has the shape and dtype of ``start``.

    Example:
        >>> from regard import masks
        >>> from regard.shapes import Grid
        >>> spans = masks.causal().spans(Grid.whole(1, 1, 3, 3))
        >>> spans.start.flatten(), spans.stop.flatten()
        (tensor([0, 0, 0], dtype=torch.int32), tensor([1, 2, 3], dtype=torch.int32))
    """

    start: Tensor
    stop: Tensor

    @classmethod
    def within(cls, grid: Grid, start: int | Tensor, stop: int | Tensor) -> "Spans":
        """Returns one run a row: the part of ``start <= j < stop`` that lies in a tile's keys.

        Args:
            grid: the tile.
            start, stop: one integer, or integers on the CPU that broadcast to ``[batch, heads, queries]`` of the tile.
                They may lie outside the tile; where ``start`` is not before ``stop``, the run is empty.
        """
        span, queries = grid.key_span, span_length(grid.query_span)
        return _one_run(_clipped(start, span, queries)[..., None], _clipped(stop, span, queries)[..., None])

    @classmethod
    def of_runs(cls, start: Tensor, stop: Tensor) -> "Spans | None":
        """Returns the union of runs.

        Args:
            start, stop: int32 ``[batch or 1, heads or 1, queries, runs]`` on the CPU: any number of runs in any order.
                They may overlap; where ``start`` is not before ``stop``, a run is empty.

        Returns:
            The spans, or None if a row has more than RUNS_LIMIT runs or the tensors have no data.
        """
        if not has_data(start) or not has_data(stop):
            return None
        if 0 in start.shape:
            return _one_run(start[..., :1], stop[..., :1])
        # Runs are sorted by their start; empty ones come last.
        start, order = torch.where(start < stop, start, _EMPTY_START).sort(dim=-1)
        stop = stop.gather(-1, order).masked_fill(start == _EMPTY_START, 0).cummax(dim=-1).values
        # There is a gap before a run that starts after the ends of all previous runs.
        gap = (start[..., 1:] > stop[..., :-1]) & (start[..., 1:] != _EMPTY_START)
        count = 1 + int(gap.sum(-1).amax())
        if count > RUNS_LIMIT:
            return None
        # What begins behind a gap, and what ends before one: both ascend, so the n-th of one belongs to that of others.
        begins, ends = start[..., 1:].masked_fill(~gap, _EMPTY_START), stop[..., :-1].masked_fill(~gap, _EMPTY_START)
        start = torch.cat((start[..., :1], begins.sort(dim=-1).values[..., : count - 1]), dim=-1)
        stop = torch.cat((ends, stop[..., -1:]), dim=-1).sort(dim=-1).values[..., :count]
        empty = start == _EMPTY_START
        return cls(start.masked_fill(empty, 0).contiguous(), stop.masked_fill(empty, 0).contiguous())

    @property
    def runs(self) -> int:
        """The largest number of runs in a row, or 1."""
        return self.start.shape[-1]

    def dense(self, grid: Grid) -> Tensor:
        """Returns the pairs as bools on the tile's device, ``[batch or 1, heads or 1, queries, keys]``."""
        key, visible = grid.key_index, None
        for start, stop in zip(*(sent(end, grid.device).unbind(-1) for end in self), strict=True):
            run = (key >= start[..., None]) & (key < stop[..., None])
            visible = run if visible is None else visible | run
        assert visible is not None
        return visible

    def intersection(self, other: "Spans") -> "Spans | None":
        """Returns the keys that are in both, or None as in `of_runs`."""
        if self.runs == other.runs == 1:
            return _one_run(torch.maximum(self.start, other.start), torch.minimum(self.stop, other.stop))
        start = torch.maximum(self.start[..., :, None], other.start[..., None, :])
        stop = torch.minimum(self.stop[..., :, None], other.stop[..., None, :])
        return Spans.of_runs(start.flatten(-2), stop.flatten(-2))

    def union(self, *others: "Spans") -> "Spans | None":
        """Returns the keys that are in at least one, or None as in `of_runs`."""
        if not others:
            return self
        operands = (self, *others)
        if not all(has_data(end) for spans in operands for end in spans):
            return None
        if len(operands) == 2 and self.runs == others[0].runs == 1:
            return self._union_of_two(others[0])
        rows = torch.broadcast_shapes(*(spans.start.shape[:-1] for spans in operands))
        starts, stops = ([end.expand(*rows, -1) for end in ends] for ends in zip(*operands, strict=True))
        return Spans.of_runs(torch.cat(starts, dim=-1), torch.cat(stops, dim=-1))

    def _union_of_two(self, other: "Spans") -> "Spans":
        """Returns the union of spans with one run each, without sorting, which is faster."""
        left, right = self._or_where_empty(other), other._or_where_empty(self)
        low, high = torch.minimum(left.start, right.start), torch.maximum(left.stop, right.stop)
        behind, before = torch.maximum(left.start, right.start), torch.minimum(left.stop, right.stop)
        gap = behind > before
        if not bool(gap.any()):
            return _one_run(low, high)
        start = torch.cat((low, behind * gap), dim=-1)
        return Spans(start, torch.cat((torch.where(gap, before, high), high * gap), dim=-1))

    def _or_where_empty(self, other: "Spans") -> "Spans":
        empty = self.start == self.stop
        return Spans(torch.where(empty, other.start, self.start), torch.where(empty, other.stop, self.stop))

    def complement(self, grid: Grid) -> "Spans | None":
        """Returns the tile's other keys, or None as in `of_runs`."""
        if not has_data(self.start):
            return None
        low, high = grid.key_span.start, grid.key_span.stop
        if self.runs == 1:
            at_low = (self.start <= low) | (self.start == self.stop)
            if bool((at_low | (self.stop == high)).all()):
                # The ends of an empty row are 0, but its complement begins at the tile's first key.
                stop = self.stop.clamp(min=low)
                return _one_run(torch.where(at_low, stop, low), torch.where(at_low, high, self.start))
        # The complement reaches from the end of each run to the start of the next; empty runs start after the last key.
        empty, edge = self.start == self.stop, self.start[..., :1]
        start = torch.cat((torch.full_like(edge, low), self.stop.masked_fill(empty, high)), dim=-1)
        stop = torch.cat((self.start.masked_fill(empty, high), torch.full_like(edge, high)), dim=-1)
        return Spans.of_runs(start, stop)


def intersection_of(spans: list[Spans]) -> Spans | None:
    """Returns the keys that are in all spans, or None as in `Spans.of_runs`."""
    return reduce(lambda left, right: None if left is None else left.intersection(right), spans[1:], spans[0])


def _one_run(start: Tensor, stop: Tensor) -> Spans:
    visible = start < stop
    return Spans((start * visible).contiguous(), (stop * visible).contiguous())


def _clipped(end: int | Tensor, span: range, queries: int) -> Tensor:
    if isinstance(end, int):
        return torch.full((1, 1, queries), min(max(end, span.start), span.stop), dtype=torch.int32, device="cpu")
    # Clamping comes before the conversion to int32, since an offset may be any int64.
    return end.clamp(span.start, span.stop).to(torch.int32).expand(-1, -1, queries)
