"""Attention backward: a block's weights are made again from its scores and statistics, and its gradients from them.

Query rows of one key-and-value head are cut into chunks. A task is one chunk; it sums what its rows pass to keys,
values, weights and biases into sums of its own, which the caller adds up. So no two threads write to one place, and the
order of summation is the same for any number of threads.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from functools import cache

import numpy as np
import torch

from regard.kernels.cpu.block import (
    adjust_row,
    block_span,
    drop_row,
    head_number,
    read_weight,
    row_span,
    rows_at,
    score_block,
    tanh_of_half,
    window_row,
)
from regard.kernels.cpu.compiled import Kernel, inlined
from regard.kernels.cpu.elementary import exp
from regard.kernels.cpu.intrinsics import array_at, fetch_add, size_of
from regard.kernels.cpu.kernel_arguments import arguments_at
from regard.kernels.cpu.nonfinite import report_nonfinite, report_nonfinite_number
from regard.kernels.cpu.products import limit_threads, product, product_of_transposed, product_with_transposed
from regard.kernels.cpu.row_normalizers import differentiate, log_weight, normalize_again
from regard.kernels.cpu.tanh_sum import (
    LANES,
    TILE,
    any_beyond,
    differentiate_tile,
    differentiate_tile_directly,
    reach,
)
from regard.kernels.cpu.wide_product import wide_product
from regard.kernels.kinds import DENSE_BIAS, SIGMOID, SOFTMAX


@inlined
def cap_slopes(p, scores, slopes):
    """The derivative of the cap at each score: 1 − tanh²."""
    real = scores.dtype.type
    inverse = real(2.0 / p.cap)
    for j in range(scores.size):
        capped = tanh_of_half(scores[j] * inverse)
        slopes[j] = real(1) - capped * capped


@inlined
def weigh_row_again(p, b, h, row, first, low, statistics, scores, gauss):
    """Weights of one row's visible keys, without the Gaussian; and the Gaussian."""
    real = scores.dtype.type
    adjust_row(p, b, h, row, first, low, scores)
    shift = head_number(p.shift, h, p.shift_head, real(0))
    normalize_again(p.normalizer, scores, p.alpha, shift, statistics[0], statistics[1])
    if p.center != 0:
        window_row(p, b, h, row, first + low, gauss)


@inlined
def differentiate_window(p, b, h, row, begin, weights, gauss, gradient):
    """Gradients of a row's center and sigma; the gradient of the weights that the window was laid over."""
    real = weights.dtype.type
    at = b * p.window_batch + h * p.window_head + row
    center, sigma = array_at(p.center, at + 1, real(0))[at], array_at(p.sigma, at + 1, real(0))[at]
    grad_center, grad_sigma = real(0), real(0)
    for j in range(weights.size):
        distance = (real(begin + j) - center) / sigma
        gradient[j] *= gauss[j]
        pull = gradient[j] * weights[j] * distance
        grad_center += pull
        grad_sigma += pull * distance
    at = (b * p.heads + h) * p.queries + row
    array_at(p.grad_center, at + 1, real(0))[at] = grad_center / sigma
    report_nonfinite_number(p.nonfinite, abs(grad_center / sigma) + abs(grad_sigma / sigma))
    array_at(p.grad_sigma, at + 1, real(0))[at] = grad_sigma / sigma


@inlined
def differentiate_row(p, b, h, row, first, low, statistics, weights, gradient, gauss):
    """Turn the gradient of one row's weights into that of its biased scores; add to the bias's gradient."""
    real = weights.dtype.type
    if p.center != 0:
        differentiate_window(p, b, h, row, first + low, weights, gauss, gradient)
    total = differentiate(p.normalizer, weights, gradient, p.alpha)
    at = (b * p.heads + h) * p.queries + row
    if p.sink != 0 and p.normalizer == SOFTMAX and statistics[0] > real(-np.inf):
        sink = head_number(p.sink, h, p.sink_head, real(0))
        weight = exp(log_weight(sink, statistics[0], statistics[1]))
        array_at(p.grad_sink, at + 1, real(0))[at] = -total * weight
    if p.shift != 0 and p.normalizer == SIGMOID:
        array_at(p.grad_shift, at + 1, real(0))[at] = total
    if p.inverse_temperature != 1.0:
        factor = real(p.inverse_temperature)
        for j in range(gradient.size):
            gradient[j] *= factor


@inlined
def add_bias_gradient(p, chunk, b, h, row, begin, gradient):
    """Add a row's gradient to that of the bias: to its place among the pairs, or to its diagonals."""
    n = gradient.size
    size = size_of(gradient[0])
    if p.bias_kind == DENSE_BIAS:
        at = ((b * p.heads + h) * p.queries + row) * p.keys + begin
        sums = array_at(p.grad_bias + at * size, n, gradient[0])
        for j in range(n):
            sums[j] += gradient[j]
    else:
        head = (b * p.heads + h) * p.chunks + chunk
        at = head * (p.queries + p.keys - 1) + begin - row + p.queries - 1
        sums = array_at(p.grad_bias + at * size, n, gradient[0])
        for j in range(n):
            sums[j] += gradient[j]


@inlined
def pass_to_additive(p, b, h, group, chunk, row, rows, first, count, gradient, weight, powers, extents, sums, turned):
    """What a block's scores pass to its queries, and to the chunk's sums for keys and weight."""
    example = gradient[0, 0]
    real = gradient.dtype.type
    size = size_of(example)
    even, padded = weight.size, -(-p.keys // LANES) * LANES
    head = b * p.kv_heads + group
    tiles = -(-p.keys // TILE)
    key_powers = array_at(p.exponentials + head * even * padded * size, even * padded, example)
    key_extents = array_at(p.extents + head * tiles * size, tiles, example)
    raw = rows_at(p.query, p.query_batch, p.query_head, p.query_row, b, h, row, rows, p.dim, example)
    key = rows_at(p.key, p.key_batch, p.key_head, p.key_row, b, group, 0, p.keys, p.dim, example)
    by_keys = array_at(p.grad_key + (head * p.chunks + chunk) * even * padded * size, even * padded, example)
    at = ((b * p.heads + h) * p.chunks + chunk) * even
    by_weight = array_at(p.grad_weight + at * size, even, example)
    at = ((b * p.heads + h) * p.queries + row) * p.dim
    by_query = array_at(p.grad_query + at * size, rows * p.dim, example)
    sums[:rows] = real(0)
    end = first + -(-count // LANES) * LANES
    # Zeros up to whole vectors.
    gradient[:rows, count : end - first] = real(0)
    for r in range(rows):
        total = real(0)
        for j in range(count):
            total += gradient[r, j]
        for d in range(p.dim):
            by_weight[d] += total
    at = first
    while at < end:
        tile = at // TILE
        stop = min((tile + 1) * TILE, end)
        bound = reach(example) - key_extents[tile]
        differentiate_tile(
            powers, extents[:rows], bound, key_powers, padded, at, weight, gradient, at - first, stop - at,
            sums, by_keys, by_weight,
        )  # fmt: skip
        if any_beyond(extents[:rows], bound):
            differentiate_tile_directly(
                raw, p.query_row, extents[:rows], bound, key, p.key_row, p.dim, padded, at, weight, gradient,
                at - first, min(stop, p.keys) - at, turned, sums, by_keys, by_weight,
            )  # fmt: skip
        at = stop
    for r in range(rows):
        for d in range(p.dim):
            by_query[r * p.dim + d] = sums[r, d]


@inlined
def pass_to_product(p, b, h, group, chunk, row, rows, first, count, gradient):
    """The same for inner products: ``dQ = dS K``, ``dK += dSᵀ Q``."""
    example = gradient[0, 0]
    real = gradient.dtype.type
    size, width = size_of(example), gradient.shape[1]
    scale = real(p.scale)
    into = gradient.ctypes.data
    key = p.key + (b * p.key_batch + group * p.key_head + first * p.key_row) * size
    by_query = p.grad_query + ((b * p.heads + h) * p.queries + row) * p.dim * size
    product(p.gemm, p.wide, rows, p.dim, count, scale, into, width, key, p.key_row, 0, by_query, p.dim)
    query = p.query + (b * p.query_batch + h * p.query_head + row * p.query_row) * size
    head = (b * p.kv_heads + group) * p.chunks + chunk
    by_key = p.grad_key + (head * p.keys + first) * p.dim * size
    product_of_transposed(p.gemm, p.wide, count, p.dim, rows, scale, into, width, query, p.query_row, 1, by_key, p.dim)


@inlined
def differentiate_block(p, b, h, group, chunk, row, rows, first, count, weights, gradient, slopes, gauss, mixed):
    """Weights of a block, what it passes to values, and the gradient of its scores."""
    example = gradient[0, 0]
    real = gradient.dtype.type
    size, width = size_of(example), gradient.shape[1]
    at = (b * p.heads + h) * p.queries + row
    statistics = array_at(p.statistics + at * 2 * size, 2 * rows, example)
    value = p.value + (b * p.value_batch + group * p.value_head + first * p.value_row) * size
    by_output = p.grad_output + at * p.value_dim * size
    into = gradient.ctypes.data
    if p.value_transposed != 0:
        padded = -(-p.keys // LANES) * LANES
        turned = p.value_transposed + ((b * p.kv_heads + group) * p.value_dim * padded + first) * size
        columns = -(-count // LANES) * LANES
        wide_product(rows, columns, p.value_dim, real(1), by_output, p.value_dim, 1, turned, padded, 0, into, width)
    else:
        product_with_transposed(
            p.gemm, rows, count, p.value_dim, real(1), by_output, p.value_dim, value, p.value_row, into, width
        )
    for r in range(rows):
        start, stop = row_span(p, b, h, row + r)
        low, high = min(max(start - first, 0), count), min(max(stop - first, 0), count)
        if high <= low:
            low, high = count, count
        weights[r, :low] = real(0)
        weights[r, high:count] = real(0)
        gradient[r, :low] = real(0)
        gradient[r, high:count] = real(0)
        mixed[r, :low] = real(0)
        mixed[r, high:count] = real(0)
        if high <= low:
            continue
        n = high - low
        seen, passed, mix = weights[r, low:high], gradient[r, low:high], mixed[r, low:high]
        if p.cap > 0:
            cap_slopes(p, seen, slopes)
        weigh_row_again(p, b, h, row + r, first, low, statistics[2 * r : 2 * r + 2], seen, gauss[:n])
        for j in range(n):
            mix[j] = seen[j]
        if p.center != 0:
            for j in range(n):
                mix[j] *= gauss[j]
        if p.threshold > 0:
            drop_row(p, b, h, row + r, first + low, mix)
            drop_row(p, b, h, row + r, first + low, passed)
        if p.grad_weights != 0:
            more = array_at(p.grad_weights + ((at + r) * p.keys + first + low) * size, n, real(0))
            for j in range(n):
                passed[j] += more[j]
        differentiate_row(p, b, h, row + r, first, low, statistics[2 * r : 2 * r + 2], seen, passed, gauss[:n])
        if p.grad_bias != 0:
            add_bias_gradient(p, chunk, b, h, row + r, first + low, passed)
        if p.cap > 0:
            for j in range(n):
                passed[j] *= slopes[j]
    head = (b * p.kv_heads + group) * p.chunks + chunk
    by_value = p.grad_value + (head * p.keys + first) * p.value_dim * size
    product_of_transposed(
        p.gemm, p.wide, count, p.value_dim, rows, real(1), mixed.ctypes.data, width, by_output, p.value_dim, 1,
        by_value, p.value_dim,
    )  # fmt: skip


@cache
def backward(dtype: torch.dtype) -> Kernel:
    """The kernel for float32 or float64."""
    zero = np.float32(0) if dtype == torch.float32 else np.float64(0)

    def attention_backward(address):
        p = arguments_at(address)
        threads = limit_threads(p.limit_threads, 1)
        real = type(zero)
        width = -(-p.keys // 16) * 16 + 16
        weights = np.empty((p.block, width), real)
        gradient = np.empty((p.block, width), real)
        mixed = np.empty((p.block, width), real)
        slopes = np.empty(width if p.cap > 0 else 0, real)
        gauss = np.empty(width if p.center != 0 else 0, real)
        even = (p.dim + p.dim % 2) if p.additive != 0 else 0
        powers = np.empty((p.block, even), real)
        sums = np.empty((p.block, even), real)
        turned = np.empty((even, TILE), real)
        extents = np.empty(p.block, real)
        blocks = -(-p.queries // p.block)
        per_chunk = -(-blocks // p.chunks)
        while True:
            task = fetch_add(address)
            if task >= p.tasks:
                break
            head, chunk = task // p.chunks, task % p.chunks
            b, group = head // p.kv_heads, head % p.kv_heads
            shared = p.heads // p.kv_heads
            for h in range(group * shared, (group + 1) * shared):
                weight = read_weight(p, h, zero)
                for block in range(chunk * per_chunk, min((chunk + 1) * per_chunk, blocks)):
                    row = block * p.block
                    rows = min(p.block, p.queries - row)
                    first, count = block_span(p, b, h, row, rows)
                    if count == 0:
                        continue
                    score_block(p, b, h, row, rows, first, count, weights, powers, extents, weight)
                    differentiate_block(
                        p, b, h, group, chunk, row, rows, first, count, weights, gradient, slopes, gauss, mixed
                    )
                    if p.additive != 0:
                        pass_to_additive(
                            p,
                            b,
                            h,
                            group,
                            chunk,
                            row,
                            rows,
                            first,
                            count,
                            gradient,
                            weight,
                            powers,
                            extents,
                            sums,
                            turned,
                        )
                    else:
                        pass_to_product(p, b, h, group, chunk, row, rows, first, count, gradient)
                    at = ((b * p.heads + h) * p.queries + row) * p.dim * size_of(zero)
                    report_nonfinite(p.nonfinite, array_at(p.grad_query + at, rows * p.dim, zero))
                if p.additive != 0:
                    at = ((b * p.heads + h) * p.chunks + chunk) * even * size_of(zero)
                    report_nonfinite(p.nonfinite, array_at(p.grad_weight + at, even, zero))
            keys = even * (-(-p.keys // LANES) * LANES) if p.additive != 0 else p.keys * p.dim
            report_nonfinite(p.nonfinite, array_at(p.grad_key + task * keys * size_of(zero), keys, zero))
            values = p.keys * p.value_dim
            report_nonfinite(p.nonfinite, array_at(p.grad_value + task * values * size_of(zero), values, zero))
        limit_threads(p.limit_threads, threads)

    attention_backward.__name__ += f"_{str(dtype).removeprefix('torch.')}"
    return Kernel(attention_backward)
