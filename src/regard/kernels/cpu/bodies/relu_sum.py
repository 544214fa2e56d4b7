"""The score of one layer of rectified units, on a tile: an addition, a maximum and a multiply-add per unit.

    Σ_d w_d max(a_d + b_d, 0),        ∂/∂a_d = w_d where a_d + b_d > 0

The layout is that of sums of tanh (`regard.kernels.cpu.bodies.tanh_sum`), with keys and queries themselves instead of
their exponentials. NaN stays NaN.
"""

from typing import Any

from regard.kernels.cpu.bodies.parts import embedded, inlined
from regard.kernels.cpu.bodies.tanh_sum import Gradients, Keys, KeyTile, Queries


@inlined
def copy_row(row: Any, target: Any) -> Any:
    """Copies a query or a key, ``[dim]``, to ``[even dim]``. Returns 0, since sums of any size are within the limit."""
    real, dim = target.dtype.type, row.size
    for d in range(dim):
        target[d] = row[d]
    for d in range(dim, target.size):
        target[d] = real(0)
    return real(0)


@embedded
def score_rectified(query: Any, keys: Keys, first: int, weight: Any, scores: Any) -> None:
    """Writes ``scores = Σ_d weight_d max(query_d + key_d, 0)`` for one query and the keys from ``first`` on.

    Args:
        query: ``[even dim]``.
        keys: keys of its head.
        weight: ``[even dim]``, 0 in the padding.
        scores: the output, one score for each key.
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
    queries: Queries, keys: Keys, tile: KeyTile, weight: Any, gradient: Any, sums: Gradients
) -> None:
    """Adds the gradients of a tile's scores to those of queries, keys and weight."""
    real, padded, count = gradient.dtype.type, keys.padded, tile.keys
    zero = real(0)
    for d in range(weight.size):
        w, offset = weight[d], d * padded + tile.first
        b, g = keys.exponentials[offset : offset + count], sums.keys[offset : offset + count]
        for r in range(queries.extents.size):
            a = queries.exponentials[r, d]
            grad_scores = gradient[r, tile.column : tile.column + count]
            s, t = zero, zero
            for j in range(count):
                h = a + b[j]
                v = zero if h <= zero else grad_scores[j]
                s += v
                t += v * h
                g[j] += w * v
            sums.query[r, d] += w * s
            sums.weight[d] += t
