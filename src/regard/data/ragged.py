"""Rows of different lengths: lists of numbers in a memory-mapped Arrow column, gathered by NumPy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


class Ragged:
    """Lists of numbers, stored one after the other in one or more arrays.

    Args:
        pieces: for each array of ``values`` its ``offsets``, one more than it has rows.
    """

    def __init__(self, pieces: Sequence[tuple[np.ndarray, np.ndarray]]):
        self._pieces = [piece for piece in pieces if len(piece[0]) > 1]
        self._first = np.cumsum([0, *(len(offsets) - 1 for offsets, _ in self._pieces)])

    @classmethod
    def from_column(cls, column: "pa.ChunkedArray") -> "Ragged":
        """Returns the lists of an Arrow column, without copying them."""
        return cls([(chunk.offsets.to_numpy(), chunk.values.to_numpy()) for chunk in column.chunks])

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]]) -> "Ragged":
        """Returns the rows of Python lists, copied."""
        offsets = np.cumsum([0, *(len(row) for row in lists)])
        values = np.fromiter((value for row in lists for value in row), np.int64, count=int(offsets[-1]))
        return cls([(offsets, values)])

    def __len__(self) -> int:
        return int(self._first[-1])

    def __getitem__(self, row: int) -> np.ndarray:
        """Returns the numbers of one row, without copying them."""
        ((_, (local,), (offsets, values)),) = self._split(np.array([row]))
        return values[offsets[local] : offsets[local + 1]]

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """Returns int64 ``[rows]``: the lengths of these rows."""
        lengths = np.zeros(len(rows), np.int64)
        for positions, local, (offsets, _) in self._split(rows):
            lengths[positions] = offsets[local + 1] - offsets[local]
        return lengths

    def padded(self, rows: np.ndarray, *, before: int = 0, after: int = 0, fill: int = 0) -> np.ndarray:
        """Returns these rows from column ``before`` on, padded: int64 ``[rows, before + longest + after]``."""
        lengths = self.lengths(rows)
        longest = int(lengths.max(initial=0))
        table = np.full((len(rows), before + longest + after), fill, np.int64)
        steps = np.arange(longest)
        for positions, local, (offsets, values) in self._split(rows):
            inside = steps < lengths[positions, None]  # [part of the rows, longest]
            where = (offsets[local, None] + steps)[inside]
            row, step = np.nonzero(inside)
            table[positions[row], before + step] = values[where]
        return table

    def with_ends(self, rows: np.ndarray, bos: int, eos: int, fill: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns `padded` rows with ``bos`` before and ``eos`` after each, and their lengths with both."""
        table, lengths = self.padded(rows, before=1, after=1, fill=fill), self.lengths(rows) + 2
        table[:, 0] = bos
        table[np.arange(len(rows)), lengths - 1] = eos
        return table, lengths

    def _split(self, rows: np.ndarray):
        """Yields each piece with some of the rows, after their positions in ``rows`` and their numbers in the piece."""
        if len(self._pieces) == 1:
            yield np.arange(len(rows)), rows, self._pieces[0]
            return
        piece_of_row = np.searchsorted(self._first, rows, side="right") - 1
        for number in np.unique(piece_of_row):
            positions = np.flatnonzero(piece_of_row == number)
            yield positions, rows[positions] - self._first[number], self._pieces[number]
