"""Gradients of sums of tanh, for a block of queries and two features at a time."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any, NamedTuple

from regard.kernels.cpu.bodies.elementary import exp
from regard.kernels.cpu.bodies.intrinsics import address_of, matrix_at, size_of
from regard.kernels.cpu.bodies.parts import embedded, inlined
from regard.kernels.cpu.bodies.tanh_sum import (
    Gradients,
    Keys,
    Queries,
    Tile,
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
"""Keys over which a row's sums stay in the lanes of a vector: adding up the lanes costs as much as a few keys."""


class Pair(NamedTuple):
    """Two neighbouring features, on a tile of keys.

    Attributes:
        first: the first of the two.
        w1, w2: four times their weights.
        bound: rows with exponents beyond it are passed over.
    """

    first: int
    w1: Any
    w2: Any
    bound: Any


class Passed(NamedTuple):
    """The gradients of the scores of some keys: the address of the first row's, and the numbers from row to row."""

    address: int
    width: int


@inlined
def partial_sums(address: int, rows: int, example: Any) -> Any:
    """Memory of `Gradients.partial`: for each row, two vectors of one register."""
    return matrix_at(address, rows, 2 * REGISTER // size_of(example), example)


def _differentiating(of_queries: bool) -> Any:
    """`differentiate_tanh`, or without the gradients of queries `differentiate_keys`."""

    @embedded
    def add(
        queries: Queries, keys: Keys, pair: Pair, first: int, passed: Passed, sums: Gradients, zeros: Any, few: Any
    ) -> Any:
        """Add the gradients of two features that as many keys as a vector has lanes pass on.

        Args:
            first: of the keys.
            passed: of their scores.
            sums: those of queries are added to ``partial``.
            zeros: a vector; some of its size stay in registers.
            few: zeros, a vector of one register.

        Returns:
            Σ gradient · r of the two features, each in as many lanes as ``few`` has.
        """
        size, register = size_of(pair.w1), lanes_of(few) * size_of(pair.w1)
        row, offset = keys.padded * size, (pair.first * keys.padded + first) * size
        a, b = address_of(queries.exponentials) + pair.first * size, address_of(keys.exponentials) + offset
        given, partial = passed.address, address_of(sums.partial)
        one, b1, b2 = broadcast(type(pair.w1)(1), zeros), load(b, zeros), load(b + row, zeros)
        t1, t2, g1, g2 = zeros, zeros, zeros, zeros
        for r in range(queries.extents.size):
            if queries.extents[r] <= pair.bound:
                x1, x2 = one + broadcast_at(a, zeros) * b1, one + broadcast_at(a + size, zeros) * b2
                inverse = one / (x1 * x2)
                r1, r2 = x2 * inverse, x1 * inverse
                gradient = load(given, zeros)
                v1, v2 = gradient * r1, gradient * r2
                u1, u2 = v1 - v1 * r1, v2 - v2 * r2
                t1, t2, g1, g2 = t1 + v1, t2 + v2, g1 + u1, g2 + u2
                if of_queries:
                    store(load(partial, few) + folded(u1, few), partial)
                    store(load(partial + register, few) + folded(u2, few), partial + register)
            a += queries.exponentials.shape[1] * size
            given += passed.width * size
            partial += 2 * register
        to = address_of(sums.keys) + offset
        store(load(to, zeros) + broadcast(pair.w1, zeros) * g1, to)
        store(load(to + row, zeros) + broadcast(pair.w2, zeros) * g2, to + row)
        return folded(t1, few), folded(t2, few)

    @inlined
    def differentiate(
        queries: Queries, keys: Keys, part: KeyRange, weight: Any, gradient: Any, sums: Gradients
    ) -> None:
        """Add the gradients of some scores to those of queries, keys and weight, two features at a time.

        Args:
            queries: of a block; rows whose exponents are too large for a tile of keys are passed over there.
            keys: of their head.
            part: which keys, a multiple of LANES.
            weight: ``[even dim]``.
            gradient: of the scores, ``[rows, width]``.
            sums: what to add to.
        """
        zero, four, rows = gradient.dtype.type(0), gradient.dtype.type(4), queries.extents.size
        many, few = two_registers(zero), one_register(zero)
        size, register, stop = size_of(zero), lanes_of(few) * size_of(zero), part.first + part.keys
        for begin in range(part.first, stop, GROUP):
            end = min(begin + GROUP, stop)
            for d in range(0, weight.size, 2):
                w1, w2 = four * weight[d], four * weight[d + 1]
                t1, t2, partial = few, few, address_of(sums.partial)
                if of_queries:
                    for number in range(2 * rows):
                        store(few, partial + number * register)
                for index in tiles_between(begin, end):
                    tile = clip_tile(index, begin, end, part.column + begin - part.first)
                    pair = Pair(d, w1, w2, exponent_limit(zero) - keys.extents[index])
                    given, whole = address_of(gradient) + tile.column * size, tile.keys - tile.keys % lanes_of(many)
                    for j in range(0, whole, lanes_of(many)):
                        passed = Passed(given + j * size, gradient.shape[1])
                        more1, more2 = add(queries, keys, pair, tile.first + j, passed, sums, many, few)
                        t1, t2 = t1 + more1, t2 + more2
                    for j in range(whole, tile.keys, lanes_of(few)):
                        passed = Passed(given + j * size, gradient.shape[1])
                        more1, more2 = add(queries, keys, pair, tile.first + j, passed, sums, few, few)
                        t1, t2 = t1 + more1, t2 + more2
                sums.weight[d] -= type(zero)(2) * sum_of(t1)
                sums.weight[d + 1] -= type(zero)(2) * sum_of(t2)
                if of_queries:
                    for r in range(rows):
                        sums.query[r, d] += w1 * sum_of(load(partial, few))
                        sums.query[r, d + 1] += w2 * sum_of(load(partial + register, few))
                        partial += 2 * register

    return differentiate


differentiate_tanh, differentiate_keys = _differentiating(of_queries=True), _differentiating(of_queries=False)


@embedded
def _passed_to_query(a: int, b: int, row: int, gradient: int, one: Any, zeros: Any) -> Any:
    """What as many keys as a vector has lanes pass on to one query, for two features: g r (1 − r).

    Args:
        a, b: addresses of the powers of query and keys; those of the other feature lie behind, and ``row`` behind.
        gradient: the address of that of the scores.
        one: a number.
    """
    ones, passed = broadcast(one, zeros), load(gradient, zeros)
    x1 = ones + broadcast_at(a, zeros) * load(b, zeros)
    x2 = ones + broadcast_at(a + size_of(one), zeros) * load(b + row, zeros)
    inverse = ones / (x1 * x2)
    r1, r2 = x2 * inverse, x1 * inverse
    v1, v2 = passed * r1, passed * r2
    return v1 - v1 * r1, v2 - v2 * r2


@inlined
def differentiate_query(
    query: Any, extent: Any, keys: Keys, part: KeyRange, weight: Any, gradient: Any, sums: Any
) -> None:
    """As `differentiate_tanh`, for one query and its own gradient alone.

    Args:
        query: its powers, ``[even dim]``.
        extent: of the query.
        gradient: of its scores.
        sums: of the query, ``[even dim]``.
    """
    zero, one = sums.dtype.type(0), sums.dtype.type(1)
    many, few = two_registers(zero), one_register(zero)
    size, row = size_of(zero), keys.padded * size_of(zero)
    for d in range(0, weight.size, 2):
        a, b = address_of(query) + d * size, address_of(keys.exponentials) + d * row
        s1, s2 = few, few
        for index in tiles_between(part.first, part.first + part.keys):
            tile = clip_tile(index, part.first, part.first + part.keys, part.column)
            if extent <= exponent_limit(zero) - keys.extents[index]:
                whole, passed = tile.keys - tile.keys % lanes_of(many), address_of(gradient) + tile.column * size
                for j in range(0, whole, lanes_of(many)):
                    u1, u2 = _passed_to_query(a, b + (tile.first + j) * size, row, passed + j * size, one, many)
                    s1, s2 = s1 + folded(u1, few), s2 + folded(u2, few)
                for j in range(whole, tile.keys, lanes_of(few)):
                    u1, u2 = _passed_to_query(a, b + (tile.first + j) * size, row, passed + j * size, one, few)
                    s1, s2 = s1 + u1, s2 + u2
        sums[d] += type(zero)(4) * weight[d] * sum_of(s1)
        sums[d + 1] += type(zero)(4) * weight[d + 1] * sum_of(s2)


@inlined
def differentiate_query_directly(
    query: Any, keys: Keys, first: int, weight: Any, gradient: Any, grad_query: Any
) -> None:
    """As `differentiate_query`, from the raw query row and keys."""
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
    queries: Queries, keys: Keys, tile: Tile, weight: Any, gradient: Any, sums: Gradients, doubled_keys: Any
) -> None:
    """As `differentiate_tanh`, for the rows that it passes over: from raw queries and keys of any size.

    Args:
        doubled_keys: scratch ``[dim, TILE]`` for the tile's keys, doubled and transposed.
    """
    real, dim, count = gradient.dtype.type, doubled_keys.shape[0], tile.keys
    limit = real(exponent_limit(gradient[0, 0]))
    bound = exponent_limit(gradient[0, 0]) - keys.extents[tile.number]
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
            passed = gradient[r, tile.column : tile.column + count]
            s, t = real(0), real(0)
            for j in range(count):
                x = exp(clamp(a + doubled[j], limit))
                share = real(1) / (real(1) + x)
                v = passed[j] * share
                u = v * (x * share)
                s += u
                t += v
                g[j] += w * u
            sums.query[r, d] += w * s
            sums.weight[d] -= real(2) * t
