"""The visible keys of each row as a few runs: two integers a run in place of a row of bools.

What causal, window, lengths, prefix and packed documents have in common, so that a kernel needs one kind of loop for
all of them, and time and memory in proportion to what is seen.
"""

from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from regard.shapes import Grid, span_length
from regard.transforms import has_data

RUNS_LIMIT = 8
"""Runs that a row may have; with more of them, a mask has no spans."""

_NOWHERE = torch.iinfo(torch.int32).max
"""Where runs begin and end that are none: behind all others."""


class Spans(NamedTuple):
    """Each row sees the keys ``start <= j < stop`` of each of its runs, and no other.

    The runs of a row ascend, and keys that it does not see stand between them. Rows with fewer runs than others have
    empty ones behind their own.

    Attributes:
        start: the first key of each run, a position of the whole problem; 0 for an empty run. int32
            ``[batch or 1, heads or 1, queries, runs]`` of the tile, contiguous, on the CPU wherever the problem lies;
            there is one run at least, and RUNS_LIMIT at most.
        stop: one more than the last key of each run; 0 for an empty run. Shape and dtype of ``start``.
    """

    start: Tensor
    stop: Tensor

    @classmethod
    def within(cls, grid: Grid, start: int | Tensor, stop: int | Tensor) -> "Spans":
        """One run in each row: the part of ``start <= j < stop`` that lies in a tile's keys.

        Args:
            grid: which tile.
            start, stop: one integer, or integers on the CPU that broadcast to ``[batch, heads, queries]`` of the tile.
                They may lie outside of the tile, and ``start`` behind ``stop``, where nothing is seen.
        """
        span, queries = grid.key_span, span_length(grid.query_span)
        return _one_run(_clipped(start, span, queries)[..., None], _clipped(stop, span, queries)[..., None])

    @classmethod
    def of_runs(cls, start: Tensor, stop: Tensor) -> "Spans | None":
        """The keys that are in any of some runs.

        Args:
            start, stop: int32 ``[batch or 1, heads or 1, queries, runs]`` on the CPU, as many runs as there may be, in
                any order; they may overlap, and be empty, where ``start`` is not before ``stop``.

        Returns:
            None if more than RUNS_LIMIT runs are left of a row, or if the tensors have no data.
        """
        if not has_data(start) or not has_data(stop):
            return None
        if 0 in start.shape:
            return _one_run(start[..., :1], stop[..., :1])
        # Sorted, so that each run begins before those behind it, and empty ones come last.
        start, order = torch.where(start < stop, start, _NOWHERE).sort(dim=-1)
        stop = stop.gather(-1, order).masked_fill(start == _NOWHERE, 0).cummax(dim=-1).values
        # Where a run begins behind the end of all before it, there is a gap.
        gap = (start[..., 1:] > stop[..., :-1]) & (start[..., 1:] != _NOWHERE)
        count = 1 + int(gap.sum(-1).amax())
        if count > RUNS_LIMIT:
            return None
        # What begins behind a gap, and what ends before one: both ascend, so the n-th of one belongs to that of others.
        begins, ends = start[..., 1:].masked_fill(~gap, _NOWHERE), stop[..., :-1].masked_fill(~gap, _NOWHERE)
        start = torch.cat((start[..., :1], begins.sort(dim=-1).values[..., : count - 1]), dim=-1)
        stop = torch.cat((ends, stop[..., -1:]), dim=-1).sort(dim=-1).values[..., :count]
        nothing = start == _NOWHERE
        return cls(start.masked_fill(nothing, 0).contiguous(), stop.masked_fill(nothing, 0).contiguous())

    @property
    def runs(self) -> int:
        """How many runs the rows have at most, or 1."""
        return self.start.shape[-1]

    def intersection(self, other: "Spans") -> "Spans | None":
        """Keys that are in both; None as for `of_runs`."""
        if self.runs == other.runs == 1:
            return _one_run(torch.maximum(self.start, other.start), torch.minimum(self.stop, other.stop))
        start = torch.maximum(self.start[..., :, None], other.start[..., None, :])
        stop = torch.minimum(self.stop[..., :, None], other.stop[..., None, :])
        return Spans.of_runs(start.flatten(-2), stop.flatten(-2))

    def union(self, *others: "Spans") -> "Spans | None":
        """Keys that are in any; None as for `of_runs`."""
        if not others:
            return self
        every = (self, *others)
        if not all(has_data(end) for spans in every for end in spans):
            return None
        if len(every) == 2 and self.runs == others[0].runs == 1:
            return self._union_of_two(others[0])
        rows = torch.broadcast_shapes(*(spans.start.shape[:-1] for spans in every))
        starts, stops = ([end.expand(*rows, -1) for end in ends] for ends in zip(*every, strict=True))
        return Spans.of_runs(torch.cat(starts, dim=-1), torch.cat(stops, dim=-1))

    def _union_of_two(self, other: "Spans") -> "Spans":
        """The same for one run each, without a sort, which is faster."""
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
        """The tile's other keys; None as for `of_runs`."""
        if not has_data(self.start):
            return None
        low, high = grid.key_span.start, grid.key_span.stop
        if self.runs == 1:
            at_low = (self.start <= low) | (self.start == self.stop)
            if bool((at_low | (self.stop == high)).all()):
                # A row that sees nothing holds zeros, and its other keys begin at the tile's first one.
                stop = self.stop.clamp(min=low)
                return _one_run(torch.where(at_low, stop, low), torch.where(at_low, high, self.start))
        # From the end of each run to the beginning of the next; empty ones count as those behind the last key.
        empty, edge = self.start == self.stop, self.start[..., :1]
        start = torch.cat((torch.full_like(edge, low), self.stop.masked_fill(empty, high)), dim=-1)
        stop = torch.cat((self.start.masked_fill(empty, high), torch.full_like(edge, high)), dim=-1)
        return Spans.of_runs(start, stop)


def intersection_of(spans: list[Spans]) -> Spans | None:
    """Keys that are in all of them; None as for `Spans.of_runs`."""
    return reduce(lambda seen, other: None if seen is None else seen.intersection(other), spans[1:], spans[0])


def _one_run(start: Tensor, stop: Tensor) -> Spans:
    visible = start < stop
    return Spans((start * visible).contiguous(), (stop * visible).contiguous())


def _clipped(end: int | Tensor, span: range, queries: int) -> Tensor:
    if isinstance(end, int):
        return torch.full((1, 1, queries), min(max(end, span.start), span.stop), dtype=torch.int32)
    # Clipped before it is narrowed: an offset may be any int64.
    return end.clamp(span.start, span.stop).to(torch.int32).expand(-1, -1, queries)
