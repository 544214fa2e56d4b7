"""Scores of sums of tanh, a tile of keys at a time."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any

from regard.kernels.cpu.bodies.elementary import exp
from regard.kernels.cpu.bodies.intrinsics import address_of, size_of
from regard.kernels.cpu.bodies.parts import embedded, inlined
from regard.kernels.cpu.bodies.tanh_sum import Keys, clamp, exponent_limit
from regard.kernels.cpu.bodies.vectors import (
    broadcast,
    broadcast_at,
    four_registers,
    lanes_of,
    load,
    one_register,
    store,
)


@embedded
def _score_keys(query: Any, keys: Keys, first: int, weight: Any, total: Any, scores: Any, zeros: Any) -> None:
    """`score_tile` for as many keys as a vector has lanes; ``scores`` is the address of theirs.

    Args:
        zeros: zeros, a vector; it stays in registers.
    """
    size = size_of(total)
    a, b, w, row = (
        address_of(query),
        address_of(keys.exponentials) + first * size,
        address_of(weight),
        keys.padded * size,
    )
    one, two, sums = broadcast(type(total)(1), zeros), broadcast(type(total)(2), zeros), zeros
    for _ in range(0, weight.size, 2):
        x1 = one + broadcast_at(a, zeros) * load(b, zeros)
        x2 = one + broadcast_at(a + size, zeros) * load(b + row, zeros)
        w1, w2 = broadcast_at(w, zeros), broadcast_at(w + size, zeros)
        sums = sums + (w1 * x2 + w2 * x1) / (x1 * x2)
        a, b, w = a + 2 * size, b + 2 * row, w + 2 * size
    store(broadcast(total, zeros) - two * sums, scores)


@embedded
def score_tile(query: Any, keys: Keys, first: int, weight: Any, total: Any, scores: Any) -> None:
    """``scores = total − 2 Σ_d weight_d r_d`` of one query and the keys from ``first`` on.

    Args:
        query: e^{2a}, ``[even dim]``.
        keys: of its head.
        weight: w, ``[even dim]``, 0 in the padding.
        total: Σ w.
        scores: as many as there are keys to score, a multiple of LANES.
    """
    many, few = four_registers(total), one_register(total)
    offset, size = address_of(scores), size_of(total)
    whole = scores.size - scores.size % lanes_of(many)
    for j in range(0, whole, lanes_of(many)):
        _score_keys(query, keys, first + j, weight, total, offset + j * size, many)
    for j in range(whole, scores.size, lanes_of(few)):
        _score_keys(query, keys, first + j, weight, total, offset + j * size, few)


@inlined
def score_tile_directly(query: Any, keys: Keys, first: int, weight: Any, scores: Any) -> None:
    """As `score_tile`, from the raw query row ``[dim]`` and keys; for exponents of any size."""
    real, dim = scores.dtype.type, query.size
    limit = real(exponent_limit(scores[0]))
    for j in range(scores.size):
        row = keys.raw[(first + j) * keys.stride : (first + j) * keys.stride + dim]
        total = real(0)
        for d in range(dim):
            twice = clamp(real(2) * (query[d] + row[d]), limit)
            total += weight[d] * (real(1) - real(2) / (real(1) + exp(twice)))
        scores[j] = total
