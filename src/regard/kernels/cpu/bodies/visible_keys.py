"""The keys that a block of query rows sees: the runs of each row, and the segments that contain them.

A segment is a range of keys that covers the runs of some rows and the small gaps between them. A block's columns are
the keys of its segments, one after the other, so that keys that no row sees cost nothing.
"""

from typing import Any, NamedTuple

import numpy as np

from regard.kernels.cpu.bodies.intrinsics import array_at
from regard.kernels.cpu.bodies.parts import embedded, inlined
from regard.kernels.cpu.sizes import LANES, padded_length

SEGMENTS_LIMIT = 8
"""Maximum segments of a block; beyond that, the segments with the smallest gap are merged."""

LEAST_GAP = 64
"""Minimum keys of a gap between segments, at least LANES: a smaller gap costs less than another product."""

FIRST, STOP, COLUMN = range(3)
"""Columns of an array of ranges: the first key, the end of the keys, and the first key's column in the block."""


class KeyRange(NamedTuple):
    """A range of keys, contiguous in a block's columns: the first key, the number of keys, and the first column."""

    first: int
    keys: int
    column: int


class Runs(NamedTuple):
    """The visible runs of a row in ascending order: the first ``size`` ranges of an array ``[…, 3]``."""

    ranges: Any
    size: Any


@embedded
def range_at(ranges: Any, number: int) -> KeyRange:
    """Returns one range of an array ``[ranges, 3]``."""
    return KeyRange(ranges[number, FIRST], ranges[number, STOP] - ranges[number, FIRST], ranges[number, COLUMN])


@embedded
def run_of_row(p: Any, b: int, h: int, row: int, number: int) -> tuple[Any, Any]:
    """Returns the first key and the end of a row's run; they are equal for an empty run."""
    if p.start == 0:
        return np.int64(0), np.int64(p.keys)
    offset = b * p.span_batch + h * p.span_head + row * p.span_row + number * p.span_run
    start = array_at(p.start, offset + 1, np.int32(0))[offset]
    stop = array_at(p.stop, offset + 1, np.int32(0))[offset]
    return np.int64(start), np.int64(max(start, stop))


@inlined
def write_segments(p: Any, b: int, h: int, row: int, rows: int, segments: Any) -> tuple[Any, Any]:
    """Writes the segments that contain all runs of some rows, in ascending order; each begins at a multiple of LANES.

    Args:
        segments: the output, ``[SEGMENTS_LIMIT + 1, 3]``.

    Returns:
        The number of segments, and the end of the last one's columns; 0, 0 if no key is visible. The columns of every
        segment but the last are padded to a multiple of LANES.
    """
    count = np.int64(0)
    for r in range(row, row + rows):
        for number in range(p.runs):
            start, stop = run_of_row(p, b, h, r, number)
            if stop > start:
                count = add_run(segments, count, start - start % LANES, stop)
    column, end = np.int64(0), np.int64(0)
    for s in range(count):
        keys = segments[s, STOP] - segments[s, FIRST]
        segments[s, COLUMN] = column
        end = column + keys
        column += padded_length(keys)
    return count, end


@inlined
def add_run(segments: Any, count: Any, first: int, stop: int) -> Any:
    """Adds the keys ``first <= j < stop`` to ``count`` ascending segments; returns the new count."""
    s = np.int64(0)
    while s < count and segments[s, STOP] + LEAST_GAP <= first:
        s += 1
    if s < count and segments[s, FIRST] < stop + LEAST_GAP:
        segments[s, FIRST] = min(segments[s, FIRST], first)
        segments[s, STOP] = max(segments[s, STOP], stop)
        while s + 1 < count and segments[s + 1, FIRST] < segments[s, STOP] + LEAST_GAP:
            count = merge_with_next(segments, count, s)
        return count
    for index in range(count, s, -1):
        segments[index, FIRST], segments[index, STOP] = segments[index - 1, FIRST], segments[index - 1, STOP]
    segments[s, FIRST], segments[s, STOP] = first, stop
    count += 1
    if count <= SEGMENTS_LIMIT:
        return count
    closest = np.int64(0)
    for index in range(1, count - 1):
        if gap_after(segments, index) < gap_after(segments, closest):
            closest = index
    return merge_with_next(segments, count, closest)


@inlined
def gap_after(segments: Any, index: Any) -> Any:
    """Returns the number of keys between a segment and the next."""
    return segments[index + 1, FIRST] - segments[index, STOP]


@inlined
def merge_with_next(segments: Any, count: Any, index: Any) -> Any:
    """Merges a segment with the next; returns the new count."""
    segments[index, STOP] = max(segments[index, STOP], segments[index + 1, STOP])
    for later in range(index + 1, count - 1):
        segments[later, FIRST], segments[later, STOP] = segments[later + 1, FIRST], segments[later + 1, STOP]
    return count - 1


@embedded
def runs_of_row(p: Any, block: Any, r: int, memory: Any) -> Any:
    """Writes the visible runs of a block's row ``r`` to ``memory``, ``[runs, 3]``, in ascending order."""
    count = np.int64(0)
    for number in range(p.runs):
        start, stop = run_of_row(p, block.batch, block.head, block.row + r, number)
        if stop > start:
            s = np.int64(0)
            while block.segments[s, STOP] < stop:
                s += 1
            memory[count, FIRST], memory[count, STOP] = start, stop
            memory[count, COLUMN] = block.segments[s, COLUMN] + start - block.segments[s, FIRST]
            count += 1
    return Runs(memory, count)


@embedded
def column_span(runs: Any) -> tuple[Any, Any]:
    """Returns the first column of a row's first run, and the end of its last run; the row has at least one."""
    last = range_at(runs.ranges, runs.size - 1)
    return runs.ranges[0, COLUMN], last.column + last.keys


@inlined
def key_at(runs: Any, column: int) -> int:
    """Returns the key in a column of a row's runs."""
    n = np.int64(0)
    while n + 1 < runs.size and runs.ranges[n + 1, COLUMN] <= column:
        n += 1
    return runs.ranges[n, FIRST] + column - runs.ranges[n, COLUMN]


@embedded
def fill_gaps(runs: Any, row: Any, number: Any) -> None:
    """Writes a number to the columns between a row's runs."""
    for n in range(1, runs.size):
        previous = range_at(runs.ranges, n - 1)
        for j in range(previous.column + previous.keys, runs.ranges[n, COLUMN]):
            row[j] = number


@embedded
def clear_hidden(block: Any, runs: Any, row: Any) -> None:
    """Writes zeros to all columns of a row outside of its runs."""
    zero = row.dtype.type(0)
    if runs.size == 0:
        row[: block.columns] = zero
        return
    low, high = column_span(runs)
    row[:low] = zero
    row[high : block.columns] = zero
    fill_gaps(runs, row, zero)
