"""A score of one layer of rectified units on a tile: an addition, a maximum and a multiply-add for each.

    Σ_d w_d max(a_d + b_d, 0),        ∂/∂a_d = w_d where a_d + b_d > 0

Keys are held transposed, as for sums of tanh (`regard.kernels.cpu.bodies.tanh_sum`), with themselves in the place of
their exponentials, and so are the queries of a block. NaN stays NaN.
"""

from typing import Any

from regard.kernels.cpu.bodies.parts import embedded, inlined
from regard.kernels.cpu.bodies.tanh_sum import Gradients, Keys, Queries, Tile

# pyright: reportCallIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.


@inlined
def copy_row(row: Any, target: Any) -> Any:
    """Write a query or a key, ``[dim]``, to ``[target dim]``; 0, since sums of any size are in reach."""
    real, dim = target.dtype.type, row.size
    for d in range(dim):
        target[d] = row[d]
    for d in range(dim, target.size):
        target[d] = real(0)
    return real(0)


@embedded
def score_rectified(query: Any, keys: Keys, first: int, weight: Any, scores: Any) -> None:
    """``scores = Σ_d weight_d max(query_d + key_d, 0)`` of one query and the keys from ``first`` on.

    Args:
        query: ``[even dim]``.
        keys: of its head.
        weight: ``[even dim]``, 0 in the padding.
        scores: as many as there are keys to score.
    """
    real, padded, n = scores.dtype.type, keys.padded, scores.size
    zero = real(0)
    for j in range(n):
        scores[j] = zero
    for d in range(0, weight.size, 2):
        a1, a2, w1, w2 = query[d], query[d + 1], weight[d], weight[d + 1]
        offset = d * padded + first
        b1, b2 = keys.exponentials[offset : offset + n], keys.exponentials[offset + padded : offset + padded + n]
        for j in range(n):
            h1, h2 = a1 + b1[j], a2 + b2[j]
            h1 = zero if h1 <= zero else h1
            h2 = zero if h2 <= zero else h2
            scores[j] += w1 * h1 + w2 * h2


@inlined
def differentiate_rectified(
    queries: Queries, keys: Keys, tile: Tile, weight: Any, gradient: Any, sums: Gradients
) -> None:
    """Add the gradients of a tile's scores to those of queries, keys and weight."""
    real, padded, count = gradient.dtype.type, keys.padded, tile.keys
    zero = real(0)
    for d in range(weight.size):
        w, offset = weight[d], d * padded + tile.first
        b, g = keys.exponentials[offset : offset + count], sums.keys[offset : offset + count]
        for r in range(queries.extents.size):
            a = queries.exponentials[r, d]
            passed = gradient[r, tile.column : tile.column + count]
            s, t = zero, zero
            for j in range(count):
                h = a + b[j]
                v = zero if h <= zero else passed[j]
                s += v
                t += v * h
                g[j] += w * v
            sums.query[r, d] += w * s
            sums.weight[d] += t
