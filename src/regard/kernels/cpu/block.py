"""One block of query rows: which keys it sees, its scores, and what happens to scores before they are normalized.

A block's scores stand in a scratch ``[rows, width]``; columns are the keys from ``first`` on, a multiple of LANES. Each
row has its own visible run of columns; the others end as zeros, so that products over the block need no mask.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any, NamedTuple

import numpy as np

from regard.kernels.cpu.compiled import inlined
from regard.kernels.cpu.elementary import exp
from regard.kernels.cpu.intrinsics import array_at, size_of
from regard.kernels.cpu.products import product_with_keys
from regard.kernels.cpu.sizes import LANES, ceil_div, even_length, padded_length
from regard.kernels.cpu.tanh_sum import (
    Queries,
    keys_of,
    part_of_tile,
    prepare_query,
    reach,
    score_tile,
    score_tile_directly,
    tiles_between,
)
from regard.kernels.cpu.wide_product import Matrix, Size
from regard.kernels.kinds import DENSE_BIAS, DIAGONAL_BIAS


class Block(NamedTuple):
    """Query rows that are calculated together.

    Attributes:
        batch, head, group: whose they are; ``group`` is the key-and-value head.
        row, rows: the first row, and how many.
        at: the first row counted through all batch rows and heads.
        first, keys: the keys that they see, from a multiple of LANES on; no keys: nothing is visible.
    """

    batch: int
    head: int
    group: int
    row: int
    rows: int
    at: int
    first: int
    keys: int


class Scratch(NamedTuple):
    """A thread's own memory.

    Attributes:
        scores: ``[rows, width]``, then weights.
        gauss: a Gaussian window, ``[width]``, or empty.
        powers, extents: of an additive score's queries, ``[rows, even dim]`` and ``[rows]``.
    """

    scores: Any
    gauss: Any
    powers: Any
    extents: Any


@inlined
def scratch_of(p: Any, additive: bool, example: Any) -> Scratch:
    """Unfilled memory for the largest block."""
    real, width = type(example), padded_length(p.keys) + LANES
    return Scratch(
        np.empty((p.block, width), real),
        np.empty(width if p.center != 0 else 0, real),
        np.empty((p.block, even_length(p.dim) if additive else 0), real),
        np.empty(p.block, real),
    )


@inlined
def block_of(p: Any, b: int, h: int, index: int) -> Block:
    """A block of a head."""
    row = index * p.block
    rows = min(p.block, p.queries - row)
    first, count = block_span(p, b, h, row, rows)
    return Block(b, h, h // (p.heads // p.kv_heads), row, rows, (b * p.heads + h) * p.queries + row, first, count)


@inlined
def blocks_of_chunk(p: Any, chunk: int) -> Any:
    """The blocks that a chunk of a head's rows has."""
    blocks = ceil_div(p.queries, p.block)
    each = ceil_div(blocks, p.chunks)
    return range(chunk * each, min((chunk + 1) * each, blocks))


@inlined
def row_span(p: Any, b: int, h: int, row: int) -> tuple[Any, Any]:
    """First visible key of a row, and the end."""
    if p.start == 0:
        return 0, p.keys
    at = b * p.span_batch + h * p.span_head + row * p.span_row
    start = array_at(p.start, at + 1, np.int32(0))[at]
    stop = array_at(p.stop, at + 1, np.int32(0))[at]
    return np.int64(start), np.int64(stop)


@inlined
def block_span(p: Any, b: int, h: int, row: int, rows: int) -> tuple[Any, Any]:
    """The keys that a block sees: the first, rounded down to a multiple of LANES, and how many; 0, 0 for none."""
    first, stop = p.keys, np.int64(0)
    for r in range(row, row + rows):
        start, end = row_span(p, b, h, r)
        if end > start:
            first = min(first, start)
            stop = max(stop, end)
    if stop <= first:
        return np.int64(0), np.int64(0)
    first -= first % LANES
    return first, stop - first


@inlined
def visible_columns(p: Any, block: Block, r: int) -> tuple[int, int]:
    """The columns of a block that its row ``r`` sees: the first, and the end; both are all columns' end for none."""
    start, stop = row_span(p, block.batch, block.head, block.row + r)
    low = min(max(start - block.first, 0), block.keys)
    high = min(max(stop - block.first, 0), block.keys)
    return (low, high) if high > low else (block.keys, block.keys)


@inlined
def query_matrix(p: Any, block: Block, example: Any) -> Matrix:
    """The queries of a block."""
    at = block.batch * p.query_batch + block.head * p.query_head + block.row * p.query_row
    return Matrix(p.query + at * size_of(example), p.query_row, 1)


@inlined
def key_matrix(p: Any, block: Block, example: Any) -> Matrix:
    """The keys that a block sees."""
    at = block.batch * p.key_batch + block.group * p.key_head + block.first * p.key_row
    return Matrix(p.key + at * size_of(example), p.key_row, 1)


@inlined
def value_matrix(p: Any, block: Block, example: Any) -> Matrix:
    """The values that a block sees."""
    at = block.batch * p.value_batch + block.group * p.value_head + block.first * p.value_row
    return Matrix(p.value + at * size_of(example), p.value_row, 1)


@inlined
def block_matrix(scores: Any) -> Matrix:
    """A block's scores, or what stands in their place."""
    return Matrix(scores.ctypes.data, scores.shape[1], 1)


@inlined
def transposed_matrix(address: int, p: Any, block: Block, features: int, example: Any) -> Matrix:
    """What a block sees of transposed keys or values, ``[batch, kv_heads, features, padded keys]``; or address 0."""
    padded = padded_length(p.keys)
    at = (block.batch * p.kv_heads + block.group) * features * padded + block.first
    return Matrix(address + at * size_of(example) if address != 0 else 0, padded, 1)


@inlined
def score_product(p: Any, block: Block, routine: Any, scores: Any) -> None:
    """Scores of a block that are inner products, scaled; before cap, bias and mask."""
    example = scores[0, 0]
    query, key = query_matrix(p, block, example), key_matrix(p, block, example)
    transposed = transposed_matrix(p.key_transposed, p, block, p.dim, example)
    size, scale = Size(block.rows, block.keys, p.dim), scores.dtype.type(p.scale)
    product_with_keys(routine, size, scale, query, key, transposed, block_matrix(scores))


@inlined
def additive_queries(p: Any, block: Block, scratch: Scratch) -> Queries:
    """The queries of a block for an additive score, of whose exponentials there is only the memory."""
    example = scratch.extents[0]
    raw = array_at(query_matrix(p, block, example).address, (block.rows - 1) * p.query_row + p.dim, example)
    return Queries(scratch.powers, scratch.extents[: block.rows], raw, p.query_row)


@inlined
def score_additive(p: Any, block: Block, scratch: Scratch, weight: Any) -> None:
    """Scores of a block that are sums of tanh; before cap, bias and mask. Leaves the queries' exponentials there."""
    scores = scratch.scores
    example = scores[0, 0]
    keys, queries = keys_of(p, block.batch, block.group, example), additive_queries(p, block, scratch)
    total = type(example)(0)
    for d in range(weight.size):
        total += weight[d]
    for r in range(block.rows):
        row = queries.raw[r * queries.stride : r * queries.stride + p.dim]
        queries.extents[r] = prepare_query(row, queries.powers[r])
    first, stop = block.first, min(block.first + padded_length(block.keys), keys.padded)
    for index in tiles_between(first, stop):
        tile = part_of_tile(index, first, stop)
        for r in range(block.rows):
            part = scores[r, tile.column : tile.column + tile.keys]
            if queries.extents[r] <= reach(example) - keys.extents[index]:
                score_tile(queries.powers[r], keys, tile.first, weight, total, part)
            else:
                row = queries.raw[r * queries.stride : r * queries.stride + p.dim]
                score_tile_directly(row, keys, tile.first, weight, part[: min(tile.keys, p.keys - tile.first)])


@inlined
def read_weight(p: Any, h: int, example: Any) -> Any:
    """The additive score's weight of a head, with a zero that makes its length even; empty for an inner product."""
    weight = np.zeros(even_length(p.dim) if p.weight != 0 else 0, type(example))
    if p.weight != 0:
        given = array_at(p.weight + h * p.weight_head * size_of(example), p.dim, example)
        for d in range(p.dim):
            weight[d] = given[d]
    return weight


@inlined
def adjust_row(p: Any, block: Block, r: int, low: int, scores: Any) -> None:
    """Cap, bias, temperature and mask of the visible scores of a block's row ``r``, from column ``low`` on."""
    real = scores.dtype.type
    n = scores.size
    b, h, row = block.batch, block.head, block.row + r
    begin = block.first + low
    if p.cap > 0:
        cap, inverse = real(p.cap), real(2.0 / p.cap)
        for j in range(n):
            scores[j] = cap * tanh_of_half(scores[j] * inverse)
    if p.bias_kind == DENSE_BIAS:
        at = b * p.bias_batch + h * p.bias_head + row * p.bias_row + begin * p.bias_key
        bias = array_at(p.bias + at * scores.itemsize, (n - 1) * p.bias_key + 1 if n > 0 else 0, real(0))
        if p.bias_key == 1:
            for j in range(n):
                scores[j] += bias[j]
        else:
            for j in range(n):
                scores[j] += bias[j * p.bias_key]
    elif p.bias_kind == DIAGONAL_BIAS:
        at = h * p.bias_head + begin - row + p.queries - 1
        bias = array_at(p.bias + at * scores.itemsize, n, real(0))
        for j in range(n):
            scores[j] += bias[j]
    if p.inverse_temperature != 1.0:
        factor = real(p.inverse_temperature)
        for j in range(n):
            scores[j] *= factor
    if p.mask != 0:
        seen = array_at(p.mask + b * p.mask_batch + h * p.mask_head + row * p.mask_row + begin, n, np.int8(0))
        for j in range(n):
            scores[j] = scores[j] if seen[j] != 0 else real(-np.inf)


@inlined
def tanh_of_half(x: Any) -> Any:
    """tanh(x / 2) = (1 − e^−x) / (1 + e^−x), from the side where nothing overflows."""
    small = exp(-abs(x))
    size = (type(x)(1) - small) / (type(x)(1) + small)
    return size if x >= type(x)(0) else -size


@inlined
def window_row(p: Any, block: Block, r: int, low: int, gauss: Any) -> None:
    """Luong's Gaussian of row ``r``: exp(−((j − center) / sigma)² / 2) for the keys from column ``low`` on."""
    real, begin = gauss.dtype.type, block.first + low
    at = block.batch * p.window_batch + block.head * p.window_head + block.row + r
    center, sigma = array_at(p.center, at + 1, real(0))[at], array_at(p.sigma, at + 1, real(0))[at]
    for j in range(gauss.size):
        distance = (real(begin + j) - center) / sigma
        gauss[j] = exp(real(-0.5) * distance * distance)


@inlined
def drop_row(p: Any, row: int, begin: int, weights: Any) -> None:
    """Drop some of a row's numbers and scale up the rest; which ones depends on the seed and the place alone.

    A counter-based generator (Salmon et al. 2011): SplitMix64's output function of seed and row (Steele, Lea & Flood
    2014), and of that and the key MurmurHash3's 32-bit finalizer; see docs/derivations/dropout.md.

    Args:
        row: counted through all batch rows and heads.
        begin: the first key.
        weights: of the keys from there on.
    """
    real = weights.dtype.type
    kept = real(p.kept)
    place = np.uint64(p.seed) + np.uint64((row + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    place ^= place >> np.uint64(30)
    place *= np.uint64(0xBF58476D1CE4E5B9)
    place ^= place >> np.uint64(27)
    place *= np.uint64(0x94D049BB133111EB)
    place ^= place >> np.uint64(31)
    own = np.uint32(place & np.uint64(0xFFFFFFFF))
    more = np.uint32(place >> np.uint64(32))
    threshold = np.uint32(p.threshold)
    for j in range(weights.size):
        bits = np.uint32(np.uint32(begin + j) * np.uint32(0x9E3779B1)) ^ own
        bits = np.uint32((bits ^ np.uint32(bits >> np.uint32(16))) * np.uint32(0x85EBCA6B)) ^ more
        bits = np.uint32((bits ^ np.uint32(bits >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        bits = bits ^ np.uint32(bits >> np.uint32(16))
        weights[j] = real(0) if bits < threshold else weights[j] * kept
