"""Rows of different lengths that stay in their file: lists of numbers in an Arrow column, gathered by numpy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


class Ragged:
    """Lists of integers behind one another, in one or more pieces of (memory-mapped) memory.

    Args:
        pieces: for each piece its ``offsets`` (one more than it has rows) and its ``values``.
    """

    def __init__(self, pieces: Sequence[tuple[np.ndarray, np.ndarray]]):
        self._pieces = [piece for piece in pieces if len(piece[0]) > 1]
        self._first = np.cumsum([0, *(len(offsets) - 1 for offsets, _ in self._pieces)])

    @classmethod
    def from_column(cls, column: "pa.ChunkedArray") -> "Ragged":
        """The lists of an Arrow column, without copying them."""
        return cls([(chunk.offsets.to_numpy(), chunk.values.to_numpy()) for chunk in column.chunks])  # pyright: ignore

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]]) -> "Ragged":
        """The same of Python lists."""
        offsets = np.cumsum([0, *(len(row) for row in lists)])
        values = np.fromiter((value for row in lists for value in row), np.int64, count=int(offsets[-1]))
        return cls([(offsets, values)])

    def __len__(self) -> int:
        return int(self._first[-1])

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """int64 ``[rows]``: how long each of these rows is."""
        lengths = np.zeros(len(rows), np.int64)
        for places, local, (offsets, _) in self._split(rows):
            lengths[places] = offsets[local + 1] - offsets[local]
        return lengths

    def padded(self, rows: np.ndarray, *, before: int = 0, after: int = 0, fill: int = 0) -> np.ndarray:
        """int64 ``[rows, before + longest + after]``: these rows, with room on both sides, the rest filled."""
        lengths = self.lengths(rows)
        longest = int(lengths.max(initial=0))
        table = np.full((len(rows), before + longest + after), fill, np.int64)
        steps = np.arange(longest)
        for places, local, (offsets, values) in self._split(rows):
            inside = steps < lengths[places, None]  # [part of the rows, longest]
            where = (offsets[local, None] + steps)[inside]
            row, step = np.nonzero(inside)
            table[places[row], before + step] = values[where]
        return table

    def _split(self, rows: np.ndarray):
        # Which of the rows stand in which piece: (places in ``rows``, rows within the piece, the piece).
        if len(self._pieces) == 1:
            yield np.arange(len(rows)), rows, self._pieces[0]
            return
        holder = np.searchsorted(self._first, rows, side="right") - 1
        for number in np.unique(holder):
            places = np.flatnonzero(holder == number)
            yield places, rows[places] - self._first[number], self._pieces[number]
