"""The additive score: one multiply-add and half a division for each query, key and feature.

With r = 1 / (1 + e^{2a} e^{2b}), tanh(a + b) = 1 − 2r, so

    Σ_d w_d tanh(a_d + b_d) = Σ_d w_d − 2 Σ_d w_d r_d,        ∂/∂a_d = 4 w_d r_d (1 − r_d)

with the exponentials taken once for each query and each key. Two features share one division:
w₁/x₁ + w₂/x₂ = (w₁x₂ + w₂x₁) / (x₁x₂). Where exponents could make the product x₁x₂ overflow, a tile is scored from
sums a + b directly. docs/derivations/additive.md has the derivation, with errors.

Keys are held transposed, ``[dim, keys]``, so that neighbouring keys are neighbours in a vector register. Here are the
inputs of the score; `regard.kernels.cpu.bodies.tanh_scores` takes it and `regard.kernels.cpu.bodies.tanh_gradients` its
gradients.
"""

from typing import Any, NamedTuple

from regard.kernels.cpu.bodies.elementary import exp
from regard.kernels.cpu.bodies.intrinsics import array_at, size_of
from regard.kernels.cpu.bodies.max_reduce import row_max_abs
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.sizes import TILE, ceil_div, even_length, padded_length

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.


class Queries(NamedTuple):
    """Query rows of an additive score.

    Attributes:
        exponentials: e^{2a}, ``[rows, even dim]``.
        extents: the largest |2a| of each row.
        raw: a itself, flat, from the first row on.
        stride: numbers between rows of ``raw``.
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
        extents: the largest |2b| of each tile of keys.
        raw: b itself, flat.
        stride: numbers between rows of ``raw``.
    """

    exponentials: Any
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
        partial: memory for a row's sums over keys before their lanes are added up, `partial_sums`.
    """

    query: Any
    keys: Any
    weight: Any
    partial: Any


@inlined
def keys_of(p: Any, b: int, group: int, example: Any) -> Keys:
    """All keys of one key-and-value head."""
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
    """The tiles that have keys from ``first`` to ``stop``; `part_of_tile` says which."""
    return range(first // TILE, ceil_div(stop, TILE))


@inlined
def clip_tile(index: int, first: int, stop: int, column: int) -> Tile:
    """The keys of a tile that lie between ``first``, which stands in a column, and ``stop``."""
    offset = max(index * TILE, first)
    return Tile(index, offset, min((index + 1) * TILE, stop) - offset, offset - first + column)


@inlined
def exponent_limit(example: Any) -> float:
    """Up to which sum of |2a| and |2b| the product of two denominators stays finite."""
    return 43.0 if size_of(example) == 4 else 350.0


@inlined
def prepare_row(row: Any, exponentials: Any) -> Any:
    """Write e^{2x} of a query or a key x, ``[even dim]``; the largest |2x|. NaN is passed over: it stays NaN anyway."""
    real, dim = exponentials.dtype.type, row.size
    limit = real(exponent_limit(exponentials[0]) * 2)
    for d in range(dim):
        twice = real(2) * row[d]
        twice = limit if twice > limit else twice
        twice = -limit if twice < -limit else twice
        exponentials[d] = exp(twice)
    for d in range(dim, exponentials.size):
        exponentials[d] = real(0)
    return real(2) * row_max_abs(row)


@inlined
def exceeds_limit(queries: Queries, keys: Keys, tile: Tile) -> bool:
    """Whether a row's exponents are too large for the tile's keys."""
    bound = exponent_limit(queries.extents[0]) - keys.extents[tile.number]
    found = False
    for r in range(queries.extents.size):
        found = found or not queries.extents[r] <= bound
    return found


@inlined
def clamp(twice: Any, limit: Any) -> Any:
    """The number, no larger and no smaller than ``limit``; NaN stays."""
    twice = limit if twice > limit else twice
    return -limit if twice < -limit else twice
