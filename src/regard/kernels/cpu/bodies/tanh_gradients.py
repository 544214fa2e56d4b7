"""Gradients of sums of tanh, for a block of queries, two features at a time."""

from typing import Any, NamedTuple

from regard.kernels.cpu.bodies.elementary import exp
from regard.kernels.cpu.bodies.intrinsics import address_of, matrix_at, size_of
from regard.kernels.cpu.bodies.parts import embedded, inlined
from regard.kernels.cpu.bodies.tanh_sum import (
    Gradients,
    Keys,
    KeyTile,
    Queries,
    clamp,
    clip_tile,
    exponent_limit,
    tiles_between,
)
from regard.kernels.cpu.bodies.vectors import (
    broadcast,
    broadcast_at,
    folded,
    lanes_of,
    load,
    one_register,
    store,
    sum_of,
    two_registers,
)
from regard.kernels.cpu.bodies.visible_keys import KeyRange
from regard.kernels.cpu.sizes import REGISTER, TILE

GROUP = 4 * TILE
"""Keys over which a row's sums stay in vector lanes: adding up the lanes costs as much as a few keys."""


class FeaturePair(NamedTuple):
    """Two neighbouring features, on a tile of keys.

    Attributes:
        first: index of the first feature.
        w1, w2: four times their weights.
        bound: rows with larger exponents are skipped.
    """

    first: int
    w1: Any
    w2: Any
    bound: Any


class ScoreGradients(NamedTuple):
    """The gradients of the scores of some keys: the address of the first row, and the row stride."""

    address: int
    width: int


@inlined
def partial_sums(address: int, rows: int, example: Any) -> Any:
    """Returns `Gradients.partial` at an address: two vectors of one register for each row."""
    return matrix_at(address, rows, 2 * REGISTER // size_of(example), example)


def _differentiation(of_queries: bool) -> Any:
    """Returns `differentiate_tanh`, or without gradients of queries `differentiate_keys`."""

    @embedded
    def add(
        queries: Queries,
        keys: Keys,
        pair: FeaturePair,
        first: int,
        grads: ScoreGradients,
        sums: Gradients,
        zeros: Any,
        narrow: Any,
    ) -> Any:
        """Adds the gradients of two features for as many keys as a vector has lanes.

        Args:
            first: the first key.
            grads: gradients of the keys' scores.
            sums: sums of gradients; those of queries are added to ``partial``.
            zeros: a vector of zeros, whose type stays in registers.
            narrow: zeros, a vector of one register.

        Returns:
            Σ gradient · r for each feature, in the lanes of ``narrow``.
        """
        size, register = size_of(pair.w1), lanes_of(narrow) * size_of(pair.w1)
        row, offset = keys.padded * size, (pair.first * keys.padded + first) * size
        a, b = address_of(queries.exponentials) + pair.first * size, address_of(keys.exponentials) + offset
        gradient_address, partial = grads.address, address_of(sums.partial)
        one, b1, b2 = broadcast(type(pair.w1)(1), zeros), load(b, zeros), load(b + row, zeros)
        t1, t2, g1, g2 = zeros, zeros, zeros, zeros
        for r in range(queries.extents.size):
            if queries.extents[r] <= pair.bound:
                x1, x2 = one + broadcast_at(a, zeros) * b1, one + broadcast_at(a + size, zeros) * b2
                inverse = one / (x1 * x2)
                r1, r2 = x2 * inverse, x1 * inverse
                gradient = load(gradient_address, zeros)
                v1, v2 = gradient * r1, gradient * r2
                u1, u2 = v1 - v1 * r1, v2 - v2 * r2
                t1, t2, g1, g2 = t1 + v1, t2 + v2, g1 + u1, g2 + u2
                if of_queries:
                    store(load(partial, narrow) + folded(u1, narrow), partial)
                    store(load(partial + register, narrow) + folded(u2, narrow), partial + register)
            a += queries.exponentials.shape[1] * size
            gradient_address += grads.width * size
            partial += 2 * register
        target = address_of(sums.keys) + offset
        store(load(target, zeros) + broadcast(pair.w1, zeros) * g1, target)
        store(load(target + row, zeros) + broadcast(pair.w2, zeros) * g2, target + row)
        return folded(t1, narrow), folded(t2, narrow)

    @inlined
    def differentiate(
        queries: Queries, keys: Keys, segment: KeyRange, weight: Any, gradient: Any, sums: Gradients
    ) -> None:
        """Adds the terms of some scores to the gradients of queries, keys and weight, two features at a time.

        Args:
            queries: queries of a block; a tile of keys skips rows with too large exponents.
            keys: keys of their head.
            segment: the range of keys, a multiple of LANES.
            weight: ``[even dim]``.
            gradient: gradient of the scores, ``[rows, width]``.
            sums: sums of gradients.
        """
        zero, four, rows = gradient.dtype.type(0), gradient.dtype.type(4), queries.extents.size
        wide, narrow = two_registers(zero), one_register(zero)
        size, register, stop = size_of(zero), lanes_of(narrow) * size_of(zero), segment.first + segment.keys
        for begin in range(segment.first, stop, GROUP):
            end = min(begin + GROUP, stop)
            for d in range(0, weight.size, 2):
                w1, w2 = four * weight[d], four * weight[d + 1]
                t1, t2, partial = narrow, narrow, address_of(sums.partial)
                if of_queries:
                    for index in range(2 * rows):
                        store(narrow, partial + index * register)
                for index in tiles_between(begin, end):
                    tile = clip_tile(index, begin, end, segment.column + begin - segment.first)
                    pair = FeaturePair(d, w1, w2, exponent_limit(zero) - keys.extents[index])
                    gradient_address, vector_end = (
                        address_of(gradient) + tile.column * size,
                        tile.keys - tile.keys % lanes_of(wide),
                    )
                    for j in range(0, vector_end, lanes_of(wide)):
                        grads = ScoreGradients(gradient_address + j * size, gradient.shape[1])
                        sum1, sum2 = add(queries, keys, pair, tile.first + j, grads, sums, wide, narrow)
                        t1, t2 = t1 + sum1, t2 + sum2
                    for j in range(vector_end, tile.keys, lanes_of(narrow)):
                        grads = ScoreGradients(gradient_address + j * size, gradient.shape[1])
                        sum1, sum2 = add(queries, keys, pair, tile.first + j, grads, sums, narrow, narrow)
                        t1, t2 = t1 + sum1, t2 + sum2
                sums.weight[d] -= type(zero)(2) * sum_of(t1)
                sums.weight[d + 1] -= type(zero)(2) * sum_of(t2)
                if of_queries:
                    for r in range(rows):
                        sums.query[r, d] += w1 * sum_of(load(partial, narrow))
                        sums.query[r, d + 1] += w2 * sum_of(load(partial + register, narrow))
                        partial += 2 * register

    return differentiate


differentiate_tanh, differentiate_keys = _differentiation(of_queries=True), _differentiation(of_queries=False)


@embedded
def _query_terms(a: int, b: int, row: int, gradient: int, one: Any, zeros: Any) -> Any:
    """Returns the terms of as many keys as a vector has lanes in one query's gradient, for two features: g r (1 − r).

    Args:
        a, b: addresses of the first feature's exponentials of query and keys.
        row: bytes between the keys' exponentials of the two features.
        gradient: address of the gradient of the scores.
        one: the number 1.
    """
    ones, grads = broadcast(one, zeros), load(gradient, zeros)
    x1 = ones + broadcast_at(a, zeros) * load(b, zeros)
    x2 = ones + broadcast_at(a + size_of(one), zeros) * load(b + row, zeros)
    inverse = ones / (x1 * x2)
    r1, r2 = x2 * inverse, x1 * inverse
    v1, v2 = grads * r1, grads * r2
    return v1 - v1 * r1, v2 - v2 * r2


@inlined
def differentiate_query(
    query: Any, extent: Any, keys: Keys, segment: KeyRange, weight: Any, gradient: Any, sums: Any
) -> None:
    """Differentiates as `differentiate_tanh` does, for the gradient of one query alone.

    Args:
        query: its powers, ``[even dim]``.
        extent: extent of the query.
        gradient: gradient of its scores.
        sums: gradient of the query, ``[even dim]``.
    """
    zero, one = sums.dtype.type(0), sums.dtype.type(1)
    wide, narrow = two_registers(zero), one_register(zero)
    size, row = size_of(zero), keys.padded * size_of(zero)
    for d in range(0, weight.size, 2):
        a, b = address_of(query) + d * size, address_of(keys.exponentials) + d * row
        s1, s2 = narrow, narrow
        for index in tiles_between(segment.first, segment.first + segment.keys):
            tile = clip_tile(index, segment.first, segment.first + segment.keys, segment.column)
            if extent <= exponent_limit(zero) - keys.extents[index]:
                vector_end, grads = tile.keys - tile.keys % lanes_of(wide), address_of(gradient) + tile.column * size
                for j in range(0, vector_end, lanes_of(wide)):
                    u1, u2 = _query_terms(a, b + (tile.first + j) * size, row, grads + j * size, one, wide)
                    s1, s2 = s1 + folded(u1, narrow), s2 + folded(u2, narrow)
                for j in range(vector_end, tile.keys, lanes_of(narrow)):
                    u1, u2 = _query_terms(a, b + (tile.first + j) * size, row, grads + j * size, one, narrow)
                    s1, s2 = s1 + u1, s2 + u2
        sums[d] += type(zero)(4) * weight[d] * sum_of(s1)
        sums[d + 1] += type(zero)(4) * weight[d + 1] * sum_of(s2)


@inlined
def differentiate_query_directly(
    query: Any, keys: Keys, first: int, weight: Any, gradient: Any, grad_query: Any
) -> None:
    """Differentiates as `differentiate_query` does, from the raw query and raw keys."""
    real, dim = gradient.dtype.type, query.size
    limit = real(exponent_limit(gradient[0]))
    for j in range(gradient.size):
        row = keys.raw[(first + j) * keys.stride : (first + j) * keys.stride + dim]
        for d in range(dim):
            x = exp(clamp(real(2) * (query[d] + row[d]), limit))
            r = real(1) / (real(1) + x)
            grad_query[d] += real(4) * weight[d] * gradient[j] * r * (x * r)


@inlined
def differentiate_tile_directly(
    queries: Queries, keys: Keys, tile: KeyTile, weight: Any, gradient: Any, sums: Gradients, doubled_keys: Any
) -> None:
    """Differentiates as `differentiate_tanh` does, for the rows that it skips: from raw queries and keys of any size.

    Args:
        doubled_keys: scratch for the tile's keys, doubled and transposed, ``[dim, TILE]``.
    """
    real, dim, count = gradient.dtype.type, doubled_keys.shape[0], tile.keys
    limit = real(exponent_limit(gradient[0, 0]))
    bound = exponent_limit(gradient[0, 0]) - keys.extents[tile.position]
    for j in range(count):
        offset = (tile.first + j) * keys.stride
        row = keys.raw[offset : offset + dim]
        for d in range(dim):
            doubled_keys[d, j] = real(2) * row[d]
    for d in range(dim):
        doubled = doubled_keys[d, :count]
        w = real(4) * weight[d]
        offset = d * keys.padded + tile.first
        g = sums.keys[offset : offset + count]
        for r in range(queries.extents.size):
            if queries.extents[r] <= bound:
                continue
            a = real(2) * queries.raw[r * queries.stride + d]
            grads = gradient[r, tile.column : tile.column + count]
            s, t = real(0), real(0)
            for j in range(count):
                x = exp(clamp(a + doubled[j], limit))
                ratio = real(1) / (real(1) + x)
                v = grads[j] * ratio
                u = v * (x * ratio)
                s += u
                t += v
                g[j] += w * u
            sums.query[r, d] += w * s
            sums.weight[d] -= real(2) * t
