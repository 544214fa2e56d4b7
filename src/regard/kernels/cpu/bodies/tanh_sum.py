"""The additive score on a tile: one multiply-add and half a division for each query, key and feature.

With r = 1 / (1 + e^{2a} e^{2b}), tanh(a + b) = 1 − 2r, so

    Σ_d w_d tanh(a_d + b_d) = Σ_d w_d − 2 Σ_d w_d r_d,        ∂/∂a_d = 4 w_d r_d (1 − r_d)

with the exponentials taken once for each query and each key. Two features share one division:
w₁/x₁ + w₂/x₂ = (w₁x₂ + w₂x₁) / (x₁x₂). Where exponents could make the product x₁x₂ overflow, a tile is scored from
sums a + b directly. docs/derivations/additive.md has the derivation, with errors.

Keys are held transposed, ``[dim, keys]``, so that neighbouring keys are neighbours in a vector register.
"""

from typing import Any, NamedTuple

from regard.kernels.cpu.bodies.elementary import exp
from regard.kernels.cpu.bodies.intrinsics import array_at, size_of
from regard.kernels.cpu.bodies.parts import embedded, inlined
from regard.kernels.cpu.sizes import TILE, ceil_div, even_length, padded_length

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.


class Queries(NamedTuple):
    """Query rows of an additive score.

    Attributes:
        powers: e^{2a}, ``[rows, even dim]``.
        extents: the largest |2a| of each row.
        raw: a itself, flat, from the first row on.
        stride: numbers between rows of ``raw``.
    """

    powers: Any
    extents: Any
    raw: Any
    stride: int


class Keys(NamedTuple):
    """Keys of an additive score.

    Attributes:
        powers: e^{2b}, ``[even dim · padded]``, a row for each feature.
        padded: length of these rows.
        extents: the largest |2b| of each tile of keys.
        raw: b itself, flat.
        stride: numbers between rows of ``raw``.
    """

    powers: Any
    padded: int
    extents: Any
    raw: Any
    stride: int


class Tile(NamedTuple):
    """Keys from one on, at most TILE: which tile, the first key, how many, and its column in a block of scores."""

    number: int
    first: int
    keys: int
    column: int


class Gradients(NamedTuple):
    """Sums that gradients are added to.

    Attributes:
        query: ``[rows, even dim]``.
        keys: ``[even dim · padded]``.
        weight: ``[even dim]``; gets −2 Σ gradient · r, to which the caller adds Σ gradient.
    """

    query: Any
    keys: Any
    weight: Any


@inlined
def keys_of(p: Any, b: int, group: int, example: Any) -> Keys:
    """All keys of one key-and-value head."""
    size, head = size_of(example), b * p.kv_heads + group
    padded, tiles = padded_length(p.keys), ceil_div(p.keys, TILE)
    length = even_length(p.dim) * padded
    at = (b * p.key_batch + group * p.key_head) * size
    return Keys(
        array_at(p.exponentials + head * length * size, length, example),
        padded,
        array_at(p.extents + head * tiles * size, tiles, example),
        array_at(p.key + at, (p.keys - 1) * p.key_row + p.dim, example),
        p.key_row,
    )


@inlined
def tiles_between(first: int, stop: int) -> Any:
    """The tiles that have keys from ``first`` to ``stop``; `part_of_tile` says which."""
    return range(first // TILE, ceil_div(stop, TILE))


@inlined
def part_of_tile(index: int, first: int, stop: int, column: int) -> Tile:
    """The keys of a tile that lie between ``first``, which stands in a column, and ``stop``."""
    at = max(index * TILE, first)
    return Tile(index, at, min((index + 1) * TILE, stop) - at, at - first + column)


@inlined
def reach(example: Any) -> float:
    """Up to which sum of |2a| and |2b| the product of two denominators stays finite."""
    return 43.0 if size_of(example) == 4 else 350.0


@inlined
def prepare_keys(keys: Keys, first: int, count: int, scratch: Any) -> Any:
    """Write e^{2 key} of some keys, transposed; the largest |2 key| of them.

    Args:
        keys: of a head, whose ``powers`` are written.
        first, count: which keys.
        scratch: ``[dim]``.
    """
    dim, padded, exponentials = scratch.size, keys.padded, keys.powers
    real = scratch.dtype.type
    limit = real(reach(scratch[0]) * 2)
    extent = real(0)
    for j in range(first, first + count):
        row = keys.raw[j * keys.stride : j * keys.stride + dim]
        for d in range(dim):
            twice = real(2) * row[d]
            size = abs(twice)
            extent = extent if size <= extent else size
            twice = limit if twice > limit else twice
            twice = -limit if twice < -limit else twice
            scratch[d] = exp(twice)
        for d in range(dim):
            exponentials[d * padded + j] = scratch[d]
        if dim % 2:
            exponentials[dim * padded + j] = real(0)
    return extent


@inlined
def prepare_query(query: Any, exponentials: Any) -> Any:
    """Write e^{2 query} of one row, ``[even dim]``; the largest |2 query| of it."""
    real, dim = exponentials.dtype.type, query.size
    limit = real(reach(exponentials[0]) * 2)
    extent = real(0)
    for d in range(dim):
        twice = real(2) * query[d]
        size = abs(twice)
        extent = extent if size <= extent else size
        twice = limit if twice > limit else twice
        twice = -limit if twice < -limit else twice
        exponentials[d] = exp(twice)
    for d in range(dim, exponentials.size):
        exponentials[d] = real(0)
    return extent


@embedded
def score_tile(query: Any, keys: Keys, first: int, weight: Any, total: Any, scores: Any) -> None:
    """``scores = total − 2 Σ_d weight_d r_d`` of one query and the keys from ``first`` on.

    Args:
        query: e^{2a}, ``[even dim]``.
        keys: of its head.
        weight: w, ``[even dim]``, 0 in the padding.
        total: Σ w.
        scores: as many as there are keys to score.
    """
    real, padded = scores.dtype.type, keys.padded
    one, n = real(1), scores.size
    for j in range(n):
        scores[j] = real(0)
    for d in range(0, weight.size, 2):
        a1, a2, w1, w2 = query[d], query[d + 1], weight[d], weight[d + 1]
        at = d * padded + first
        b1, b2 = keys.powers[at : at + n], keys.powers[at + padded : at + padded + n]
        for j in range(n):
            x1 = one + a1 * b1[j]
            x2 = one + a2 * b2[j]
            scores[j] += (w1 * x2 + w2 * x1) / (x1 * x2)
    for j in range(n):
        scores[j] = total - real(2) * scores[j]


@inlined
def limited(twice: Any, limit: Any) -> Any:
    """The number, no larger and no smaller than ``limit``; NaN stays."""
    twice = limit if twice > limit else twice
    return -limit if twice < -limit else twice


@inlined
def score_tile_directly(query: Any, keys: Keys, first: int, weight: Any, scores: Any) -> None:
    """As `score_tile`, from the raw query row ``[dim]`` and keys; for exponents of any size."""
    real, dim = scores.dtype.type, query.size
    limit = real(reach(scores[0]))
    for j in range(scores.size):
        row = keys.raw[(first + j) * keys.stride : (first + j) * keys.stride + dim]
        total = real(0)
        for d in range(dim):
            twice = limited(real(2) * (query[d] + row[d]), limit)
            total += weight[d] * (real(1) - real(2) / (real(1) + exp(twice)))
        scores[j] = total


def _differentiating(with_queries: bool) -> Any:
    """`differentiate_tile`, or without the queries' gradient `differentiate_keys`."""

    @inlined
    def differentiate(queries: Queries, keys: Keys, tile: Tile, weight: Any, gradient: Any, sums: Gradients) -> None:
        """Add the gradients of some scores to those of queries, keys and weight, feature by feature.

        Args:
            queries: of a block; rows whose exponents are too large for the tile are passed over.
            keys: of their head.
            tile: which keys.
            weight: ``[even dim]``.
            gradient: of the scores, ``[rows, width]``.
            sums: what to add to.
        """
        real = gradient.dtype.type
        one, padded, count = real(1), keys.padded, tile.keys
        bound = reach(one) - keys.extents[tile.number]
        for d in range(0, weight.size, 2):
            w1, w2 = real(4) * weight[d], real(4) * weight[d + 1]
            at = d * padded + tile.first
            b1, b2 = keys.powers[at : at + count], keys.powers[at + padded : at + padded + count]
            g1, g2 = sums.keys[at : at + count], sums.keys[at + padded : at + padded + count]
            for r in range(queries.extents.size):
                if not queries.extents[r] <= bound:
                    continue
                a1, a2 = queries.powers[r, d], queries.powers[r, d + 1]
                passed = gradient[r, tile.column : tile.column + count]
                s1, s2, t1, t2 = real(0), real(0), real(0), real(0)
                for j in range(count):
                    x1 = one + a1 * b1[j]
                    x2 = one + a2 * b2[j]
                    inverse = one / (x1 * x2)
                    v1, v2 = passed[j] * (x2 * inverse), passed[j] * (x1 * inverse)
                    u1, u2 = v1 - v1 * (x2 * inverse), v2 - v2 * (x1 * inverse)
                    if with_queries:
                        s1 += u1
                        s2 += u2
                    t1 += v1
                    t2 += v2
                    g1[j] += w1 * u1
                    g2[j] += w2 * u2
                if with_queries:
                    sums.query[r, d] += w1 * s1
                    sums.query[r, d + 1] += w2 * s2
                sums.weight[d] -= real(2) * t1
                sums.weight[d + 1] -= real(2) * t2

    return differentiate


differentiate_tile, differentiate_keys = _differentiating(True), _differentiating(False)


@inlined
def any_beyond(queries: Queries, keys: Keys, tile: Tile) -> bool:
    """Whether a row's exponents are too large for the tile's keys, or NaN."""
    bound = reach(queries.extents[0]) - keys.extents[tile.number]
    found = False
    for r in range(queries.extents.size):
        found = found or not queries.extents[r] <= bound
    return found


@embedded
def differentiate_query(query: Any, keys: Keys, first: int, weight: Any, gradient: Any, grad_query: Any) -> None:
    """As `differentiate_tile`, for one query ``[even dim]`` and its own gradient alone."""
    real, padded = gradient.dtype.type, keys.padded
    one, n = real(1), gradient.size
    for d in range(0, weight.size, 2):
        a1, a2 = query[d], query[d + 1]
        at = d * padded + first
        b1, b2 = keys.powers[at : at + n], keys.powers[at + padded : at + padded + n]
        s1, s2 = real(0), real(0)
        for j in range(n):
            x1 = one + a1 * b1[j]
            x2 = one + a2 * b2[j]
            inverse = one / (x1 * x2)
            v1, v2 = gradient[j] * (x2 * inverse), gradient[j] * (x1 * inverse)
            s1 += v1 - v1 * (x2 * inverse)
            s2 += v2 - v2 * (x1 * inverse)
        grad_query[d] += real(4) * weight[d] * s1
        grad_query[d + 1] += real(4) * weight[d + 1] * s2


@inlined
def differentiate_query_directly(
    query: Any, keys: Keys, first: int, weight: Any, gradient: Any, grad_query: Any
) -> None:
    """As `differentiate_query`, from the raw query row and keys."""
    real, dim = gradient.dtype.type, query.size
    limit = real(reach(gradient[0]))
    for j in range(gradient.size):
        row = keys.raw[(first + j) * keys.stride : (first + j) * keys.stride + dim]
        for d in range(dim):
            x = exp(limited(real(2) * (query[d] + row[d]), limit))
            r = real(1) / (real(1) + x)
            grad_query[d] += real(4) * weight[d] * gradient[j] * r * (x * r)


@inlined
def differentiate_tile_directly(
    queries: Queries, keys: Keys, tile: Tile, weight: Any, gradient: Any, sums: Gradients, doubled_keys: Any
) -> None:
    """As `differentiate_tile`, for the rows that it passes over: from raw queries and keys of any size.

    Args:
        doubled_keys: scratch ``[dim, TILE]`` for the tile's keys, doubled and transposed.
    """
    real, dim, count = gradient.dtype.type, doubled_keys.shape[0], tile.keys
    limit = real(reach(gradient[0, 0]))
    bound = reach(gradient[0, 0]) - keys.extents[tile.number]
    for j in range(count):
        at = (tile.first + j) * keys.stride
        row = keys.raw[at : at + dim]
        for d in range(dim):
            doubled_keys[d, j] = real(2) * row[d]
    for d in range(dim):
        doubled = doubled_keys[d, :count]
        w = real(4) * weight[d]
        at = d * keys.padded + tile.first
        g = sums.keys[at : at + count]
        for r in range(queries.extents.size):
            if queries.extents[r] <= bound:
                continue
            a = real(2) * queries.raw[r * queries.stride + d]
            passed = gradient[r, tile.column : tile.column + count]
            s, t = real(0), real(0)
            for j in range(count):
                x = exp(limited(a + doubled[j], limit))
                share = real(1) / (real(1) + x)
                v = passed[j] * share
                u = v * (x * share)
                s += u
                t += v
                g[j] += w * u
            sums.query[r, d] += w * s
            sums.weight[d] -= real(2) * t
