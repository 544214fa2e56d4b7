"""What a reader looks for in a long map: keys that many queries attend to, diagonals, single large weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.records import TileSource, bin_edges

MOST = 8
"""Findings of one kind."""

SINK_SHARE = 0.02
"""Least mean weight of a key that is called a sink (and ten times what an even distribution gives)."""

DIAGONAL_SHARE = 0.05
"""Least mean weight of a diagonal."""

SAMPLES = 5
"""Places along a diagonal whose exact tiles are looked at."""


def sinks(source: TileSource) -> list[dict[str, Any]]:
    """Keys with a large mean weight over all queries, the largest first: ``head``, ``key``, ``share``."""
    mean, _ = source.pooled(1, source.keys)
    shares = np.nan_to_num(mean[:, 0, :])
    least = max(SINK_SHARE, 10 / source.keys)
    found = [(float(shares[h, k]), int(h), int(k)) for h, k in np.argwhere(shares >= least)]
    return [{"head": head, "key": key, "share": share} for share, head, key in sorted(found, reverse=True)[:MOST]]


def diagonals(source: TileSource, maximum: NDArray[np.float32]) -> list[dict[str, Any]]:
    """Distances key − query with a large mean weight: ``head``, ``offset``, ``share``.

    Candidates are the diagonals of the pooled maximum that are bright along their whole length; exact tiles on them
    tell the distance.

    Args:
        source: of the exact tiles.
        maximum: pooled, ``[heads, rows, columns]``.
    """
    found = []
    heads, rows, columns = maximum.shape
    query_edges, key_edges = bin_edges(source.queries, rows), bin_edges(source.keys, columns)
    for offset in _bright_offsets(np.nan_to_num(maximum)):
        first, last = max(0, -offset), min(rows, columns - offset)
        sampled = np.unique(np.linspace(first, last - 1, SAMPLES).astype(int))
        sums: dict[int, NDArray[np.float64]] = {}
        counts: dict[int, int] = {}
        for row in sampled.tolist():
            q0 = int(query_edges[row])
            q1 = min(int(query_edges[row + 1]), q0 + 128)
            k0 = max(0, int(key_edges[row + offset]) - 1)
            k1 = min(source.keys, int(key_edges[row + offset + 1]) + 128)
            tile = np.nan_to_num(source.tile((q0, q1), (k0, k1))).astype(np.float64)
            for distance in range(k0 - q1 + 1, k1 - q0):
                line = np.diagonal(tile, distance + q0 - k0, axis1=1, axis2=2)
                # A corner of the tile says little about the diagonal.
                if 2 * line.shape[1] >= min(q1 - q0, k1 - k0):
                    sums[distance] = sums.get(distance, np.zeros(heads)) + line.sum(axis=1)
                    counts[distance] = counts.get(distance, 0) + line.shape[1]
        for distance, total in sums.items():
            for head, share in enumerate((total / counts[distance]).tolist()):
                if share >= DIAGONAL_SHARE:
                    found.append((share, head, distance))
    best: dict[tuple[int, int], float] = {}
    for share, head, distance in found:
        best[head, distance] = max(share, best.get((head, distance), 0.0))
    ordered = sorted(((share, *place) for place, share in best.items()), reverse=True)[:MOST]
    return [{"head": head, "offset": distance, "share": share} for share, head, distance in ordered]


def _bright_offsets(maximum: NDArray[np.float32]) -> list[int]:
    """Diagonals of a pooled map, as column − row, whose cells are bright on average and not only where a column is."""
    _, rows, columns = maximum.shape
    # What a whole column or row has is no diagonal.
    rest = maximum - np.minimum(np.median(maximum, axis=1, keepdims=True), maximum)
    shortest = max(4, min(rows, columns) // 4)
    scores = []
    for offset in range(-rows + shortest, columns - shortest + 1):
        line = np.diagonal(rest, offset, axis1=1, axis2=2)
        scores.append((float(np.median(line, axis=1).max()), offset))
    best = [(score, offset) for score, offset in sorted(scores, reverse=True)[:6] if score >= DIAGONAL_SHARE]
    return [offset for _, offset in best]


def spikes(maximum: NDArray[np.float32], most: int) -> list[tuple[int, int, int]]:
    """The bins that are the brightest in comparison with their column, as (head, row, column), spread over the map."""
    values = np.nan_to_num(maximum)
    values = values - np.minimum(np.median(values, axis=1, keepdims=True), values)
    heads, rows, columns = values.shape
    order = np.argsort(values, axis=None, kind="stable")[::-1][: 512 * most]
    far = max(2, min(rows, columns) // 32)
    taken: list[tuple[int, int, int]] = []
    for place in order.tolist():
        head, row, column = (int(i) for i in np.unravel_index(place, (heads, rows, columns)))
        if all(abs(row - r) > far or abs(column - c) > far for _, r, c in taken):
            taken.append((head, row, column))
            if len(taken) == most:
                break
    return taken
