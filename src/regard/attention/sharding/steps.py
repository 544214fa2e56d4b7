"""Which query rows travel together, and which keys of each process they see.

All of it follows from the sizes, the mask and the shards, so that every process finds the same steps by itself.
"""

from dataclasses import dataclass
from functools import cached_property

from regard.attention.backends.tiled import block_elements
from regard.attention.problem import Problem
from regard.distributed.shards import Shards
from regard.masks.mask import Visibility, visible_keys

BLOCK = 512
"""The most query rows of a block: the rows of one block share the range of keys that they are scored against."""

KEY_BLOCK = 64
"""Granularity of this range."""

STEP_ELEMENTS = 1 << 23
"""Elements that the pairs of one step may have in memory at once on a process: more than in a block of one process,
since every step costs some exchanges."""

PROBES = 5
"""Blocks on which the number of visible keys is tried, to choose the size of all blocks."""


@dataclass(frozen=True)
class RowBlock:
    """Neighbouring query rows of one owner, and the keys of this process that they see.

    Attributes:
        rows: the positions of the queries.
        keys: runs of positions of keys that this process holds, one for each of its spans, some of them empty.
    """

    rows: range
    keys: tuple[range, ...]


@dataclass(frozen=True)
class ExchangeStep:
    """The rows that travel at once.

    Attributes:
        counts: how many rows each process owns in this step.
        seen: ``seen[owner][process]``: whether the owner's rows see keys of the process.
        blocks: the blocks whose keys this process has, one owner after the other.
        own: the positions of this process's own rows.
    """

    counts: tuple[int, ...]
    seen: tuple[tuple[bool, ...], ...]
    blocks: tuple[RowBlock, ...]
    own: tuple[range, ...]


class Steps:
    """The steps of one problem.

    Args:
        problem: the whole problem.
        queries, keys: the positions that each process holds.
    """

    def __init__(self, problem: Problem, queries: Shards, keys: Shards, elements_per_pair: int):
        self.problem, self.queries, self.keys = problem, queries, keys
        self.grid, self.mask = problem.grid, problem.hiding_mask
        self.limit = max(STEP_ELEMENTS, block_elements(self.grid.device))
        self.per_pair = max(1, elements_per_pair * self.grid.batch * self.grid.heads)

    def keys_of(self, rows: range, process: int) -> tuple[range, ...]:
        """Returns the keys of a process that some of these rows may see, as one range in each of its spans."""
        return tuple(self._visible(rows, span) for span in self.keys.spans[process])

    def _visible(self, rows: range, span: range) -> range:
        tile = self.grid.tile(queries=rows, keys=span)
        if self.mask is None or not rows or not span:
            return span
        if self.mask.visibility(tile) is Visibility.EMPTY:
            return range(span.start, span.start)
        return visible_keys(self.mask, tile, KEY_BLOCK)

    @cached_property
    def block_rows(self) -> int:
        """The query rows of a block."""
        # A step has a block of every owner.
        limit = self.limit // (self.per_pair * self.queries.processes)
        widest = max(map(self.keys.count, range(self.keys.processes)), default=0)
        full = max(1, min(BLOCK, limit // max(widest, 1)))
        if self.mask is None or full == BLOCK or self.grid.queries <= full:
            return full
        rows, seen = min(64, self.grid.queries), 1
        for probe in range(PROBES):
            first = (self.grid.queries - rows) * probe // (PROBES - 1)
            widths = (
                sum(map(len, self.keys_of(range(first, first + rows), process)))
                for process in range(self.keys.processes)
            )
            seen = max(seen, *widths)
        return max(full, min(BLOCK, limit // seen))

    def work(self, process: int) -> int:
        """Returns the pairs that a process computes for one batch row and head."""
        return sum(
            len(rows) * sum(map(len, self.keys_of(rows, process)))
            for owner in range(self.queries.processes)
            for rows in self._blocks_of(owner)
        )

    def _blocks_of(self, process: int) -> list[range]:
        """Returns all query rows of a process in blocks."""
        size = self.block_rows
        return [
            range(first, min(first + size, span.stop))
            for span in self.queries.spans[process]
            for first in range(span.start, span.stop, size)
        ]

    @cached_property
    def steps(self) -> list[ExchangeStep]:
        """The steps, in the order in which all processes take them."""
        processes = range(self.queries.processes)
        blocks = [self._blocks_of(process) for process in processes]
        visible = [
            [[self.keys_of(rows, other) for other in processes] for rows in blocks[process]] for process in processes
        ]
        limit = self.limit
        steps: list[ExchangeStep] = []
        first, last = 0, max(map(len, blocks), default=0)
        while first < last:
            stop, load = first, [0] * len(processes)
            while stop < last:
                added_load = [0] * len(processes)
                for owner in processes:
                    if stop < len(blocks[owner]):
                        for other in processes:
                            width = sum(map(len, visible[owner][stop][other]))
                            added_load[other] += len(blocks[owner][stop]) * width * self.per_pair
                if stop > first and max(a + b for a, b in zip(load, added_load, strict=True)) > limit:
                    break
                load = [a + b for a, b in zip(load, added_load, strict=True)]
                stop += 1
            steps.append(self._step(blocks, visible, range(first, stop)))
            first = stop
        return steps

    def _step(
        self, blocks: list[list[range]], visible: list[list[list[tuple[range, ...]]]], indices: range
    ) -> ExchangeStep:
        processes, me = range(self.queries.processes), self.keys.rank
        chosen = [[index for index in indices if index < len(blocks[owner])] for owner in processes]
        seen = tuple(
            tuple(any(any(map(len, visible[owner][index][other])) for index in chosen[owner]) for other in processes)
            for owner in processes
        )
        mine = tuple(
            RowBlock(blocks[owner][index], visible[owner][index][me])
            for owner in processes
            if seen[owner][me]
            for index in chosen[owner]
        )
        counts = tuple(sum(len(blocks[owner][index]) for index in chosen[owner]) for owner in processes)
        return ExchangeStep(counts, seen, mine, tuple(blocks[me][index] for index in chosen[me]))


def part_of_keys(block: RowBlock, spans: tuple[range, ...]) -> list[tuple[range, int]]:
    """Returns the runs of keys of a block, each with where it begins among the keys that this process holds."""
    parts, before = [], 0
    for span, keys in zip(spans, block.keys, strict=True):
        if keys:
            parts.append((keys, before + keys.start - span.start))
        before += len(span)
    return parts
