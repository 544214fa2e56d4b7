"""Attention weights that are not stored as one matrix: pooled maps and exact tiles, made when they are asked for."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, ShapeError
from regard.records.axis import as_numbers


class TileSource(Protocol):
    """Gives pooled maps and exact tiles of ``[heads, queries, keys]`` weights."""

    @property
    def heads(self) -> int: ...

    @property
    def queries(self) -> int: ...

    @property
    def keys(self) -> int: ...

    def pooled(self, rows: int, columns: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Mean and maximum over each of ``rows × columns`` bins whose limits are those of `bin_edges`.

        Args:
            rows: from 1 to ``queries``.
            columns: from 1 to ``keys``.

        Returns:
            Mean and maximum, each ``[heads, rows, columns]``.
        """
        ...

    def tile(self, queries: tuple[int, int], keys: tuple[int, int]) -> NDArray[np.float32]:
        """The exact weights of a rectangle: queries and keys as (first, one past the last).

        Returns:
            ``[heads, q1 − q0, k1 − k0]``.
        """
        ...


def bin_edges(length: int, bins: int) -> NDArray[np.int64]:
    """The limits of bins: position ``p`` lies in bin ``⌊p · bins / length⌋``, as in the reading ``pooled``.

    Raises:
        ArgumentError: ``bins`` is not from 1 to ``length``.
    """
    if not 1 <= bins <= length:
        raise ArgumentError(f"bins must be from 1 to {length}; it is {bins}")
    return (np.arange(bins + 1, dtype=np.int64) * length + bins - 1) // bins


class DenseTiles:
    """A `TileSource` of weights that are stored.

    Args:
        weights: ``[heads, queries, keys]``.
    """

    def __init__(self, weights: NDArray[np.float32]):
        array = as_numbers("weights", weights)
        if array.ndim != 3:
            raise ShapeError(f"weights must be [heads, queries, keys]; the shape is {list(array.shape)}")
        self.weights = array.astype(np.float32, copy=False)

    @property
    def heads(self) -> int:
        return self.weights.shape[0]

    @property
    def queries(self) -> int:
        return self.weights.shape[1]

    @property
    def keys(self) -> int:
        return self.weights.shape[2]

    def pooled(self, rows: int, columns: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        row_edges, column_edges = bin_edges(self.queries, rows), bin_edges(self.keys, columns)
        counts = np.diff(row_edges)[:, None] * np.diff(column_edges)[None, :]
        row_sums = np.add.reduceat(self.weights, row_edges[:-1], axis=1, dtype=np.float64)
        sums = np.add.reduceat(row_sums, column_edges[:-1], axis=2)
        highest = np.maximum.reduceat(self.weights, row_edges[:-1], axis=1)
        highest = np.maximum.reduceat(highest, column_edges[:-1], axis=2)
        return (sums / counts).astype(np.float32), highest

    def tile(self, queries: tuple[int, int], keys: tuple[int, int]) -> NDArray[np.float32]:
        for name, (first, last), length in (("queries", queries, self.queries), ("keys", keys, self.keys)):
            if not 0 <= first < last <= length:
                raise ArgumentError(f"{name} must be (first, last) with 0 ≤ first < last ≤ {length}; got {first, last}")
        return self.weights[:, queries[0] : queries[1], keys[0] : keys[1]]
