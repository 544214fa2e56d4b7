"""The additive score on a tile: one multiply-add and half a division for each query, key and feature.

With r = 1 / (1 + e^{2a} e^{2b}), tanh(a + b) = 1 − 2r, so

    Σ_d w_d tanh(a_d + b_d) = Σ_d w_d − 2 Σ_d w_d r_d,        ∂/∂a_d = 4 w_d r_d (1 − r_d)

with the exponentials taken once for each query and each key. Two features share one division:
w₁/x₁ + w₂/x₂ = (w₁x₂ + w₂x₁) / (x₁x₂). Where exponents could make the product x₁x₂ overflow, a tile is scored from
sums a + b directly. docs/derivations/additive.md has the derivation, with errors.

Keys are held transposed, ``[dim, keys]``, so that neighbouring keys are neighbours in a vector register.
"""

from regard.kernels.cpu.compiled import inlined
from regard.kernels.cpu.elementary import exp
from regard.kernels.cpu.intrinsics import size_of

LANES = 16
"""Keys are padded to a multiple of so many."""

TILE = 128
"""Keys whose largest exponent is known together."""


@inlined
def reach(example):
    """Up to which sum of |2a| and |2b| the product of two denominators stays finite."""
    return 43.0 if size_of(example) == 4 else 350.0


@inlined
def prepare_keys(key, key_row, first, count, dim, exponentials, padded, scratch):
    """Write e^{2 key} of some keys, transposed; the largest |2 key| of them.

    Args:
        key: rows of keys, from the first row of the head on.
        key_row: numbers between rows.
        first, count: which keys.
        dim: features.
        exponentials: ``[even dim · padded]`` of the head.
        padded: length of its rows.
        scratch: ``[dim]``.
    """
    real = scratch.dtype.type
    limit = real(reach(scratch[0]) * 2)
    extent = real(0)
    for j in range(first, first + count):
        row = key[j * key_row : j * key_row + dim]
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
def prepare_query(query, dim, exponentials):
    """Write e^{2 query} of one row; the largest |2 query| of it."""
    real = exponentials.dtype.type
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


@inlined
def score_tile(query, keys, padded, first, weight, total, scores):
    """``scores = total − 2 Σ_d weight_d r_d`` of one query and the keys from ``first`` on.

    Args:
        query: e^{2a}, ``[even dim]``.
        keys: e^{2b}, ``[even dim · padded]``.
        weight: w, ``[even dim]``, 0 in the padding.
        total: Σ w.
        scores: as many as there are keys to score.
    """
    real = scores.dtype.type
    one, n = real(1), scores.size
    for j in range(n):
        scores[j] = real(0)
    for d in range(0, weight.size, 2):
        a1, a2, w1, w2 = query[d], query[d + 1], weight[d], weight[d + 1]
        at = d * padded + first
        b1, b2 = keys[at : at + n], keys[at + padded : at + padded + n]
        for j in range(n):
            x1 = one + a1 * b1[j]
            x2 = one + a2 * b2[j]
            scores[j] += (w1 * x2 + w2 * x1) / (x1 * x2)
    for j in range(n):
        scores[j] = total - real(2) * scores[j]


@inlined
def score_tile_directly(query, key, key_row, first, weight, dim, scores):
    """As `score_tile`, from the raw query row and keys; for exponents of any size."""
    real = scores.dtype.type
    limit = real(reach(scores[0]))
    for j in range(scores.size):
        row = key[(first + j) * key_row : (first + j) * key_row + dim]
        total = real(0)
        for d in range(dim):
            twice = real(2) * (query[d] + row[d])
            twice = limit if twice > limit else twice
            twice = -limit if twice < -limit else twice
            total += weight[d] * (real(1) - real(2) / (real(1) + exp(twice)))
        scores[j] = total


def _differentiating(with_queries: bool):  # type: ignore[no-untyped-def]
    """`differentiate_tile`, or without the part that goes to the queries `differentiate_keys`."""

    @inlined
    def differentiate(
        queries, extents, bound, keys, padded, first, weight, gradient, column, count, by_query, by_keys, by_weight
    ):
        """Add what the scores of some queries and some keys pass back, feature by feature: a few rows stay at hand.

        Args:
            queries: e^{2a}, ``[rows, even dim]``.
            extents: largest |2a| of each row; rows beyond ``bound`` are passed over.
            bound: `reach` less the keys' largest |2b|.
            keys, padded, first, weight: as for `score_tile`.
            gradient: of the scores, ``[rows, width]``; the tile's keys begin at ``column``, and there are ``count``.
            by_query: ``[rows, even dim]``.
            by_keys: ``[even dim · padded]``.
            by_weight: ``[even dim]``; gets −2 Σ gradient · r, to which the caller adds Σ gradient.
        """
        real = gradient.dtype.type
        one = real(1)
        for d in range(0, weight.size, 2):
            w1, w2 = real(4) * weight[d], real(4) * weight[d + 1]
            at = d * padded + first
            b1, b2 = keys[at : at + count], keys[at + padded : at + padded + count]
            g1, g2 = by_keys[at : at + count], by_keys[at + padded : at + padded + count]
            for r in range(extents.size):
                if not extents[r] <= bound:
                    continue
                a1, a2 = queries[r, d], queries[r, d + 1]
                passed = gradient[r, column : column + count]
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
                    by_query[r, d] += w1 * s1
                    by_query[r, d + 1] += w2 * s2
                by_weight[d] -= real(2) * t1
                by_weight[d + 1] -= real(2) * t2

    return differentiate


differentiate_tile, differentiate_keys = _differentiating(True), _differentiating(False)


@inlined
def any_beyond(extents, bound):
    """Whether a row's exponents are too large for the tile's keys, or NaN."""
    found = False
    for r in range(extents.size):
        found = found or not extents[r] <= bound
    return found


@inlined
def differentiate_query(query, keys, padded, first, weight, gradient, by_query):
    """As `differentiate_tile`, for one query and what it gets alone."""
    real = gradient.dtype.type
    one, n = real(1), gradient.size
    for d in range(0, weight.size, 2):
        a1, a2 = query[d], query[d + 1]
        at = d * padded + first
        b1, b2 = keys[at : at + n], keys[at + padded : at + padded + n]
        s1, s2 = real(0), real(0)
        for j in range(n):
            x1 = one + a1 * b1[j]
            x2 = one + a2 * b2[j]
            inverse = one / (x1 * x2)
            v1, v2 = gradient[j] * (x2 * inverse), gradient[j] * (x1 * inverse)
            s1 += v1 - v1 * (x2 * inverse)
            s2 += v2 - v2 * (x1 * inverse)
        by_query[d] += real(4) * weight[d] * s1
        by_query[d + 1] += real(4) * weight[d + 1] * s2


@inlined
def differentiate_query_directly(query, key, key_row, first, weight, dim, gradient, by_query):
    """As `differentiate_query`, from the raw query row and keys."""
    real = gradient.dtype.type
    limit = real(reach(gradient[0]))
    for j in range(gradient.size):
        row = key[(first + j) * key_row : (first + j) * key_row + dim]
        for d in range(dim):
            twice = real(2) * (query[d] + row[d])
            twice = limit if twice > limit else twice
            twice = -limit if twice < -limit else twice
            x = exp(twice)
            r = real(1) / (real(1) + x)
            by_query[d] += real(4) * weight[d] * gradient[j] * r * (x * r)


@inlined
def differentiate_tile_directly(
    queries, query_row, extents, bound, key, key_row, dim, padded, first, weight, gradient, column, count, turned,
    by_query, by_keys, by_weight,
):  # fmt: skip
    """As `differentiate_tile`, for the rows that it passes over: from raw queries and keys of any size.

    Args:
        queries: raw, with ``query_row`` numbers between rows.
        key: raw rows of keys, with ``key_row`` numbers between them.
        turned: scratch ``[even dim, TILE]`` for the tile's keys, doubled and transposed.
    """
    real = gradient.dtype.type
    limit = real(reach(gradient[0, 0]))
    for j in range(count):
        row = key[(first + j) * key_row : (first + j) * key_row + dim]
        for d in range(dim):
            turned[d, j] = real(2) * row[d]
    for d in range(dim):
        doubled = turned[d, :count]
        w = real(4) * weight[d]
        at = d * padded + first
        g = by_keys[at : at + count]
        for r in range(extents.size):
            if extents[r] <= bound:
                continue
            a = real(2) * queries[r * query_row + d]
            passed = gradient[r, column : column + count]
            s, t = real(0), real(0)
            for j in range(count):
                twice = a + doubled[j]
                twice = limit if twice > limit else twice
                twice = -limit if twice < -limit else twice
                x = exp(twice)
                share = real(1) / (real(1) + x)
                v = passed[j] * share
                u = v * (x * share)
                s += u
                t += v
                g[j] += w * u
            by_query[r, d] += w * s
            by_weight[d] -= real(2) * t


def padded_length(keys: int) -> int:
    """Length of a row of transposed keys."""
    return -(-keys // LANES) * LANES


def even(dim: int) -> int:
    """Features with the one that makes pairs of them."""
    return dim + dim % 2
