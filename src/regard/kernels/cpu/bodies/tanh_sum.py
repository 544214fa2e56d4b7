"""The additive score: one multiply-add and half a division per query, key and feature.

With r = 1 / (1 + e^{2a} e^{2b}), tanh(a + b) = 1 − 2r, so

    Σ_d w_d tanh(a_d + b_d) = Σ_d w_d − 2 Σ_d w_d r_d,        ∂/∂a_d = 4 w_d r_d (1 − r_d)

where the exponentials are computed once for each query and each key. Two features share one division:
w₁/x₁ + w₂/x₂ = (w₁x₂ + w₂x₁) / (x₁x₂). If the product x₁x₂ could overflow, a tile is scored directly from the sums
a + b. docs/en/understand/derivations/additive.md has the derivation and the errors.

Keys are transposed, ``[dim, keys]``, so that neighbouring keys are neighbouring lanes of a vector.
`regard.kernels.cpu.bodies.tanh_gradients` computes the gradients.
"""

from typing import Any, NamedTuple

from regard.kernels.cpu.bodies.elementary import exp
from regard.kernels.cpu.bodies.intrinsics import address_of, array_at, size_of
from regard.kernels.cpu.bodies.max_reduce import row_max_abs
from regard.kernels.cpu.bodies.parts import embedded, inlined
from regard.kernels.cpu.bodies.vectors import (
    broadcast,
    broadcast_at,
    four_registers,
    lanes_of,
    load,
    one_register,
    store,
)
from regard.kernels.cpu.sizes import TILE, ceil_div, even_length, padded_length


class Queries(NamedTuple):
    """Query rows of an additive score.

    Attributes:
        exponentials: e^{2a}, ``[rows, even dim]``.
        extents: the maximum of |2a| in each row.
        raw: a itself, flat, from the first row on.
        stride: row stride of ``raw``.
    """

    exponentials: Any
    extents: Any
    raw: Any
    stride: int


class Keys(NamedTuple):
    """Keys of an additive score.

    Attributes:
        exponentials: e^{2b}, ``[even dim · padded]``, a row for each feature.
        padded: length of these rows.
        extents: the maximum of |2b| in each tile of keys.
        raw: b itself, flat.
        stride: row stride of ``raw``.
    """

    exponentials: Any
    padded: int
    extents: Any
    raw: Any
    stride: int


class KeyTile(NamedTuple):
    """Keys of a tile: its position, the first key, the number of keys, and the first key's column in a block."""

    position: int
    first: int
    keys: int
    column: int


class Gradients(NamedTuple):
    """Sums to which gradients are added.

    Attributes:
        query: gradients of the queries, ``[rows, even dim]``.
        keys: gradients of the keys, ``[even dim · padded]``.
        weight: gradient of the weight, ``[even dim]``: −2 Σ gradient · r, to which the caller adds Σ gradient.
        partial: memory for the lanes of a row's sums over keys, see `partial_sums`.
    """

    query: Any
    keys: Any
    weight: Any
    partial: Any


@inlined
def keys_of(p: Any, b: int, group: int, example: Any) -> Keys:
    """Returns all keys of one key-and-value head."""
    size, head = size_of(example), b * p.kv_heads + group
    padded, tiles = padded_length(p.keys), ceil_div(p.keys, TILE)
    length = even_length(p.dim) * padded
    offset = (b * p.key_batch + group * p.key_head) * size
    return Keys(
        array_at(p.exponentials + head * length * size, length, example),
        padded,
        array_at(p.extents + head * tiles * size, tiles, example),
        array_at(p.key + offset, (p.keys - 1) * p.key_row + p.dim, example),
        p.key_row,
    )


@inlined
def tiles_between(first: int, stop: int) -> Any:
    """Returns the indices of the tiles with keys from ``first`` to ``stop``; `clip_tile` returns these keys."""
    return range(first // TILE, ceil_div(stop, TILE))


@inlined
def clip_tile(index: int, first: int, stop: int, column: int) -> KeyTile:
    """Returns the keys of a tile between ``first`` and ``stop``; ``column`` is the column of ``first``."""
    offset = max(index * TILE, first)
    return KeyTile(index, offset, min((index + 1) * TILE, stop) - offset, offset - first + column)


@inlined
def exponent_limit(example: Any) -> float:
    """Returns the largest sum of |2a| and |2b| for which the product of two denominators stays finite."""
    return 43.0 if size_of(example) == 4 else 350.0


@inlined
def prepare_row(row: Any, exponentials: Any) -> Any:
    """Writes e^{2x} of a query or a key x, ``[even dim]``; returns the maximum of |2x|, which ignores NaN."""
    real, dim = exponentials.dtype.type, row.size
    limit = real(exponent_limit(exponentials[0]) * 2)
    for d in range(dim):
        doubled = real(2) * row[d]
        doubled = limit if doubled > limit else doubled
        doubled = -limit if doubled < -limit else doubled
        exponentials[d] = exp(doubled)
    for d in range(dim, exponentials.size):
        exponentials[d] = real(0)
    return real(2) * row_max_abs(row)


@inlined
def exceeds_limit(queries: Queries, keys: Keys, tile: KeyTile) -> bool:
    """Whether the exponents of any row are too large for the tile's keys."""
    bound = exponent_limit(queries.extents[0]) - keys.extents[tile.position]
    exceeds = False
    for r in range(queries.extents.size):
        exceeds = exceeds or not queries.extents[r] <= bound
    return exceeds


@inlined
def clamp(doubled: Any, limit: Any) -> Any:
    """Clamps a number to ±``limit``; NaN stays NaN."""
    doubled = limit if doubled > limit else doubled
    return -limit if doubled < -limit else doubled


@embedded
def _score_keys(query: Any, keys: Keys, first: int, weight: Any, total: Any, scores: Any, zeros: Any) -> None:
    """Computes `score_tile` for as many keys as a vector has lanes; ``scores`` is the address of their scores.

    Args:
        zeros: a vector of zeros, whose type stays in registers.
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
    """Writes ``scores = total − 2 Σ_d weight_d r_d`` for one query and the keys from ``first`` on.

    Args:
        query: e^{2a}, ``[even dim]``.
        keys: keys of its head.
        weight: w, ``[even dim]``, 0 in the padding.
        total: Σ w.
        scores: the output, one score for each key, a multiple of LANES.
    """
    wide, narrow = four_registers(total), one_register(total)
    offset, size = address_of(scores), size_of(total)
    vector_end = scores.size - scores.size % lanes_of(wide)
    for j in range(0, vector_end, lanes_of(wide)):
        _score_keys(query, keys, first + j, weight, total, offset + j * size, wide)
    for j in range(vector_end, scores.size, lanes_of(narrow)):
        _score_keys(query, keys, first + j, weight, total, offset + j * size, narrow)


@inlined
def score_tile_directly(query: Any, keys: Keys, first: int, weight: Any, scores: Any) -> None:
    """Computes `score_tile` from the raw query ``[dim]`` and raw keys, for exponents of any size."""
    real, dim = scores.dtype.type, query.size
    limit = real(exponent_limit(scores[0]))
    for j in range(scores.size):
        row = keys.raw[(first + j) * keys.stride : (first + j) * keys.stride + dim]
        total = real(0)
        for d in range(dim):
            doubled = clamp(real(2) * (query[d] + row[d]), limit)
            total += weight[d] * (real(1) - real(2) / (real(1) + exp(doubled)))
        scores[j] = total
