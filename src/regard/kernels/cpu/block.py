"""One block of query rows: which keys it sees, its scores, and what happens to scores before they are normalized.

A block's scores stand in a scratch ``[rows, width]``; columns are the keys from ``first`` on, a multiple of LANES. Each
row has its own visible run of columns; the others end as zeros, so that products over the block need no mask.
"""

import numpy as np

from regard.kernels.cpu.compiled import inlined
from regard.kernels.cpu.elementary import exp
from regard.kernels.cpu.intrinsics import array_at, size_of
from regard.kernels.cpu.products import product_with_transposed
from regard.kernels.cpu.tanh_sum import LANES, TILE, prepare_query, reach, score_tile, score_tile_directly
from regard.kernels.cpu.wide_product import wide_product
from regard.kernels.kinds import DENSE_BIAS, DIAGONAL_BIAS


@inlined
def row_span(p, b, h, row):
    """First visible key of a row, and the end."""
    if p.start == 0:
        return 0, p.keys
    at = b * p.span_batch + h * p.span_head + row * p.span_row
    start = array_at(p.start, at + 1, np.int32(0))[at]
    stop = array_at(p.stop, at + 1, np.int32(0))[at]
    return np.int64(start), np.int64(stop)


@inlined
def block_span(p, b, h, row, rows):
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
def rows_at(address, batch, head, row, b, h, r, rows, width, example):
    """A strided ``[batch, heads, rows, width]`` tensor from row ``r`` of a head on: flat, with its own row stride."""
    offset = b * batch + h * head + r * row
    return array_at(address + offset * size_of(example), (rows - 1) * row + width if rows > 0 else 0, example)


@inlined
def score_block(p, b, h, row, rows, first, count, scores, query_powers, query_extents, weight):
    """Scores of a block, scaled; before cap, bias and mask."""
    example = scores[0, 0]
    group = h // (p.heads // p.kv_heads)
    if p.key_transposed != 0:
        size, padded = size_of(example), -(-p.keys // LANES) * LANES
        query = p.query + (b * p.query_batch + h * p.query_head + row * p.query_row) * size
        key = p.key_transposed + ((b * p.kv_heads + group) * p.dim * padded + first) * size
        columns = -(-count // LANES) * LANES
        scale, into = scores.dtype.type(p.scale), scores.ctypes.data
        wide_product(rows, columns, p.dim, scale, query, p.query_row, 1, key, padded, 0, into, scores.shape[1])
        return
    if p.additive == 0:
        size = size_of(example)
        query = p.query + (b * p.query_batch + h * p.query_head + row * p.query_row) * size
        key = p.key + (b * p.key_batch + group * p.key_head + first * p.key_row) * size
        scale = scores.dtype.type(p.scale)
        into = scores.ctypes.data
        width = scores.shape[1]
        product_with_transposed(p.gemm, rows, count, p.dim, scale, query, p.query_row, key, p.key_row, into, width)
        return
    real = scores.dtype.type
    even, padded = weight.size, -(-p.keys // LANES) * LANES
    raw = rows_at(p.query, p.query_batch, p.query_head, p.query_row, b, h, row, rows, p.dim, example)
    key = rows_at(p.key, p.key_batch, p.key_head, p.key_row, b, group, 0, p.keys, p.dim, example)
    tiles = -(-p.keys // TILE)
    head = b * p.kv_heads + group
    powers = array_at(p.exponentials + head * even * padded * size_of(example), even * padded, example)
    extents = array_at(p.extents + head * tiles * size_of(example), tiles, example)
    total = real(0)
    for d in range(even):
        total += weight[d]
    end = min(-(-(first + count) // LANES) * LANES, padded)
    for r in range(rows):
        query_extents[r] = prepare_query(raw[r * p.query_row : r * p.query_row + p.dim], p.dim, query_powers[r])
    at = first
    while at < end:
        tile = at // TILE
        stop = min((tile + 1) * TILE, end)
        for r in range(rows):
            if query_extents[r] <= reach(example) - extents[tile]:
                part = scores[r, at - first : stop - first]
                score_tile(query_powers[r], powers, padded, at, weight, total, part)
            else:
                stop_keys = min(stop, p.keys)
                part = scores[r, at - first : stop_keys - first]
                score_tile_directly(
                    raw[r * p.query_row : r * p.query_row + p.dim], key, p.key_row, at, weight, p.dim, part
                )
        at = stop


@inlined
def read_weight(p, h, example):
    """The additive score's weight of a head, with a zero that makes its length even."""
    weight = np.zeros(p.dim + p.dim % 2, type(example)) if p.additive != 0 else np.zeros(0, type(example))
    if p.additive != 0:
        given = array_at(p.weight + h * p.weight_head * size_of(example), p.dim, example)
        for d in range(p.dim):
            weight[d] = given[d]
    return weight


@inlined
def head_number(address, h, stride, example):
    """The number of a head at an address; 0 if there is none."""
    return array_at(address, h * stride + 1, example)[h * stride] if address != 0 else type(example)(0)


@inlined
def adjust_row(p, b, h, row, first, low, scores):
    """Cap, bias, temperature and mask of one row's visible scores.

    Args:
        low: column of the first visible score.
        scores: the visible scores.
    """
    real = scores.dtype.type
    n = scores.size
    begin = first + low
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
def tanh_of_half(x):
    """tanh(x / 2) = (1 − e^−x) / (1 + e^−x), from the side where nothing overflows."""
    small = exp(-abs(x))
    size = (type(x)(1) - small) / (type(x)(1) + small)
    return size if x >= type(x)(0) else -size


@inlined
def window_row(p, b, h, row, begin, gauss):
    """Luong's Gaussian of one row: exp(−((j − center) / σ)² / 2) for the keys from ``begin`` on."""
    real = gauss.dtype.type
    at = b * p.window_batch + h * p.window_head + row
    center, sigma = array_at(p.center, at + 1, real(0))[at], array_at(p.sigma, at + 1, real(0))[at]
    for j in range(gauss.size):
        distance = (real(begin + j) - center) / sigma
        gauss[j] = exp(real(-0.5) * distance * distance)


@inlined
def drop_row(p, b, h, row, begin, weights):
    """Drop some of a row's numbers and scale up the rest; which ones depends on the seed and the place alone."""
    real = weights.dtype.type
    kept = real(p.kept)
    place = np.uint64(p.seed) + np.uint64(
        ((b * p.heads + h) * p.queries + row + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    )
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
