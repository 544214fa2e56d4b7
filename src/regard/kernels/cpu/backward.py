"""Attention backward: a block's weights are made again from its scores and statistics, and its gradients from them.

Query rows of one key-and-value head are cut into chunks. A task is one chunk; it sums the gradients that its rows give
to keys, values, weights and biases in sums of its own, which the caller adds up. So no two threads write to one place,
and the order of summation is the same for any number of threads. docs/derivations/statistics.md derives the rows.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from regard.kernels.cpu.block import (
    Block,
    Scratch,
    additive_queries,
    adjust_row,
    block_matrix,
    block_of,
    blocks_of_chunk,
    drop_row,
    key_matrix,
    query_matrix,
    read_weight,
    score_additive,
    score_product,
    scratch_of,
    tanh_of_half,
    transposed_matrix,
    value_matrix,
    visible_columns,
    window_row,
)
from regard.kernels.cpu.compiled import Kernel, inlined
from regard.kernels.cpu.elementary import exp
from regard.kernels.cpu.intrinsics import array_at, fetch_add, size_of
from regard.kernels.cpu.kernel_arguments import arguments_at, named_kernel
from regard.kernels.cpu.products import (
    Blas,
    Microkernel,
    limit_threads,
    product,
    product_of_transposed,
    product_with_keys,
)
from regard.kernels.cpu.row_gradients import differentiate
from regard.kernels.cpu.row_normalizers import NORMALIZERS, head_number, log_weight, normalize_again
from regard.kernels.cpu.sizes import TILE, even_length, padded_length
from regard.kernels.cpu.tanh_sum import (
    Gradients,
    any_beyond,
    differentiate_tile,
    differentiate_tile_directly,
    keys_of,
    part_of_tile,
    tiles_between,
)
from regard.kernels.cpu.wide_product import Matrix, Size
from regard.kernels.kinds import DENSE_BIAS


class GradientScratch(NamedTuple):
    """A thread's own memory for a block's gradients.

    Attributes:
        gradient: of weights, then of scores, ``[rows, width]``.
        mixed: weights as they mixed the values: after window and dropout, ``[rows, width]``.
        slopes: of the cap, ``[width]``, or empty.
        sums: of an additive score's query gradients, ``[rows, even dim]``.
        doubled_keys: for `differentiate_tile_directly`, ``[dim, TILE]``.
    """

    gradient: Any
    mixed: Any
    slopes: Any
    sums: Any
    doubled_keys: Any


@inlined
def gradient_scratch_of(p: Any, additive: bool, scores: Any) -> GradientScratch:
    """Unfilled memory for the largest block."""
    real, width = scores.dtype.type, scores.shape[1]
    return GradientScratch(
        np.empty((p.block, width), real),
        np.empty((p.block, width), real),
        np.empty(width if p.cap > 0 else 0, real),
        np.empty((p.block, even_length(p.dim) if additive else 0), real),
        np.empty((p.dim if additive else 0, TILE), real),
    )


@inlined
def cap_slopes(p: Any, scores: Any, slopes: Any) -> None:
    """The derivative of the cap at each score: 1 − tanh²."""
    real = scores.dtype.type
    inverse = real(2.0 / p.cap)
    for j in range(scores.size):
        capped = tanh_of_half(scores[j] * inverse)
        slopes[j] = real(1) - capped * capped


@inlined
def differentiate_window(p: Any, block: Block, r: int, low: int, weights: Any, gauss: Any, gradient: Any) -> None:
    """Gradients of a row's center and sigma; the gradient of the weights that the window was laid over."""
    real, begin = weights.dtype.type, block.first + low
    at = block.batch * p.window_batch + block.head * p.window_head + block.row + r
    center, sigma = array_at(p.center, at + 1, real(0))[at], array_at(p.sigma, at + 1, real(0))[at]
    grad_center, grad_sigma = real(0), real(0)
    for j in range(weights.size):
        distance = (real(begin + j) - center) / sigma
        gradient[j] *= gauss[j]
        pull = gradient[j] * weights[j] * distance
        grad_center += pull
        grad_sigma += pull * distance
    at = block.at + r
    array_at(p.grad_center, at + 1, real(0))[at] = grad_center / sigma
    array_at(p.grad_sigma, at + 1, real(0))[at] = grad_sigma / sigma


@inlined
def differentiate_row(p: Any, at: int, normalizer: Any, statistics: Any, weights: Any, gradient: Any) -> None:
    """Turn the gradient of one row's weights into that of its biased scores.

    Args:
        at: the row counted through all batch rows and heads; its sink's or shift's gradient goes there.
        normalizer: made the weights.
        statistics: two, of this row.
    """
    real = weights.dtype.type
    total = differentiate(normalizer, weights, gradient)
    if p.sink != 0 and statistics[0] > real(-np.inf):
        weight = exp(log_weight(real(normalizer.sink), statistics[0], statistics[1]))
        array_at(p.grad_sink, at + 1, real(0))[at] = -total * weight
    if p.shift != 0:
        array_at(p.grad_shift, at + 1, real(0))[at] = total
    if p.inverse_temperature != 1.0:
        factor = real(p.inverse_temperature)
        for j in range(gradient.size):
            gradient[j] *= factor


@inlined
def add_bias_gradient(p: Any, block: Block, chunk: int, r: int, low: int, gradient: Any) -> None:
    """Add a row's gradient to that of the bias: to its place among the pairs, or to its diagonals."""
    n, begin = gradient.size, block.first + low
    size = size_of(gradient[0])
    if p.bias_kind == DENSE_BIAS:
        at = (block.at + r) * p.keys + begin
    else:
        head = (block.batch * p.heads + block.head) * p.chunks + chunk
        at = head * (p.queries + p.keys - 1) + begin - (block.row + r) + p.queries - 1
    sums = array_at(p.grad_bias + at * size, n, gradient[0])
    for j in range(n):
        sums[j] += gradient[j]


@inlined
def differentiate_additive(
    p: Any, block: Block, chunk: int, scratch: Scratch, gradients: GradientScratch, weight: Any
) -> None:
    """From the gradient of a block's additive scores to that of its queries, and the chunk's of keys and weight."""
    gradient, rows, count = gradients.gradient, block.rows, block.keys
    example = gradient[0, 0]
    real, size, even = gradient.dtype.type, size_of(gradient[0, 0]), weight.size
    keys, queries = keys_of(p, block.batch, block.group, example), additive_queries(p, block, scratch)
    head = (block.batch * p.kv_heads + block.group) * p.chunks + chunk
    grad_keys = array_at(p.grad_key + head * keys.powers.size * size, keys.powers.size, example)
    head = (block.batch * p.heads + block.head) * p.chunks + chunk
    grad_weight = array_at(p.grad_weight + head * even * size, even, example)
    sums = Gradients(gradients.sums, grad_keys, grad_weight)
    sums.query[:rows] = real(0)
    stop = block.first + padded_length(count)
    # Zeros up to whole vectors.
    gradient[:rows, count : stop - block.first] = real(0)
    for r in range(rows):
        total = real(0)
        for j in range(count):
            total += gradient[r, j]
        for d in range(p.dim):
            grad_weight[d] += total
    for index in tiles_between(block.first, stop):
        tile = part_of_tile(index, block.first, stop)
        differentiate_tile(queries, keys, tile, weight, gradient, sums)
        if any_beyond(queries, keys, tile):
            known = part_of_tile(index, block.first, min(stop, p.keys))
            differentiate_tile_directly(queries, keys, known, weight, gradient, sums, gradients.doubled_keys)
    grad_query = array_at(p.grad_query + block.at * p.dim * size, rows * p.dim, example)
    for r in range(rows):
        for d in range(p.dim):
            grad_query[r * p.dim + d] = sums.query[r, d]


@inlined
def differentiate_product(p: Any, block: Block, chunk: int, routine: Any, gradient: Any) -> None:
    """The same for inner products: ``dQ = dS K``, ``dK += dSᵀ Q``."""
    example = gradient[0, 0]
    size, given, scale = size_of(example), block_matrix(gradient), gradient.dtype.type(p.scale)
    grad_query = Matrix(p.grad_query + block.at * p.dim * size, p.dim, 1)
    product(routine, Size(block.rows, p.dim, block.keys), scale, given, key_matrix(p, block, example), grad_query, 0)
    head = (block.batch * p.kv_heads + block.group) * p.chunks + chunk
    grad_key = Matrix(p.grad_key + (head * p.keys + block.first) * p.dim * size, p.dim, 1)
    query = query_matrix(p, block, example)
    product_of_transposed(routine, Size(block.keys, p.dim, block.rows), scale, given, query, grad_key, 1)


@inlined
def differentiate_mixture(p: Any, block: Block, routine: Any, gradient: Any) -> None:
    """The gradient of a block's weights as they mixed the values: ``dP = dO Vᵀ``."""
    example = gradient[0, 0]
    grad_output = Matrix(p.grad_output + block.at * p.value_dim * size_of(example), p.value_dim, 1)
    transposed = transposed_matrix(p.value_transposed, p, block, p.value_dim, example)
    size, one = Size(block.rows, block.keys, p.value_dim), gradient.dtype.type(1)
    value = value_matrix(p, block, example)
    product_with_keys(routine, size, one, grad_output, value, transposed, block_matrix(gradient))


@inlined
def differentiate_block(
    p: Any, block: Block, chunk: int, scratch: Scratch, gradients: GradientScratch, normalizer: Any, routine: Any
) -> None:
    """From a block's scores to its weights, the gradient that they give to the values, and that of the scores."""
    weights, gradient, mixed, slopes = scratch.scores, gradients.gradient, gradients.mixed, gradients.slopes
    example = gradient[0, 0]
    real, size = gradient.dtype.type, size_of(gradient[0, 0])
    statistics = array_at(p.statistics + block.at * 2 * size, 2 * block.rows, example)
    differentiate_mixture(p, block, routine, gradient)
    for r in range(block.rows):
        low, high = visible_columns(p, block, r)
        weights[r, :low] = real(0)
        weights[r, high : block.keys] = real(0)
        gradient[r, :low] = real(0)
        gradient[r, high : block.keys] = real(0)
        mixed[r, :low] = real(0)
        mixed[r, high : block.keys] = real(0)
        if high <= low:
            continue
        n, begin = high - low, block.first + low
        seen, passed, mix = weights[r, low:high], gradient[r, low:high], mixed[r, low:high]
        own, window = statistics[2 * r : 2 * r + 2], scratch.gauss[:n]
        if p.cap > 0:
            cap_slopes(p, seen, slopes)
        adjust_row(p, block, r, low, seen)
        normalize_again(normalizer, seen, own[0], own[1])
        for j in range(n):
            mix[j] = seen[j]
        if p.center != 0:
            window_row(p, block, r, low, window)
            for j in range(n):
                mix[j] *= window[j]
        if p.threshold > 0:
            drop_row(p, block.at + r, begin, mix)
            drop_row(p, block.at + r, begin, passed)
        if p.grad_weights != 0:
            more = array_at(p.grad_weights + ((block.at + r) * p.keys + begin) * size, n, real(0))
            for j in range(n):
                passed[j] += more[j]
        if p.center != 0:
            differentiate_window(p, block, r, low, seen, window, passed)
        differentiate_row(p, block.at + r, normalizer, own, seen, passed)
        if p.grad_bias != 0:
            add_bias_gradient(p, block, chunk, r, low, passed)
        if p.cap > 0:
            for j in range(n):
                passed[j] *= slopes[j]
    head = (block.batch * p.kv_heads + block.group) * p.chunks + chunk
    grad_value = Matrix(p.grad_value + (head * p.keys + block.first) * p.value_dim * size, p.value_dim, 1)
    grad_output = Matrix(p.grad_output + block.at * p.value_dim * size, p.value_dim, 1)
    product_of_transposed(
        routine, Size(block.keys, p.value_dim, block.rows), real(1), block_matrix(mixed), grad_output, grad_value, 1
    )


@cache
def backward(dtype: torch.dtype, additive: bool, kind: int, wide: bool) -> Kernel:
    """The kernel of a dtype, float32 or float64, a score's primitive, a normalizer and a routine for products."""
    zero = np.float32(0) if dtype == torch.float32 else np.float64(0)
    Normalizer, Routine = NORMALIZERS[kind], Microkernel if wide else Blas

    def attention_backward(address: int) -> None:
        p = arguments_at(address)
        threads = limit_threads(p.limit_threads, 1)
        routine = Routine(p.gemm)
        scratch = scratch_of(p, additive, zero)
        gradients = gradient_scratch_of(p, additive, scratch.scores)
        while True:
            task = fetch_add(address)
            if task >= p.tasks:
                break
            head, chunk = task // p.chunks, task % p.chunks
            b, group = head // p.kv_heads, head % p.kv_heads
            shared = p.heads // p.kv_heads
            for h in range(group * shared, (group + 1) * shared):
                weight = read_weight(p, h, zero)
                sink, shift = head_number(p.sink, h, p.sink_head, zero), head_number(p.shift, h, p.shift_head, zero)
                normalizer = Normalizer(p.alpha, sink, p.sink != 0, shift)
                for index in blocks_of_chunk(p, chunk):
                    block = block_of(p, b, h, index)
                    if block.keys == 0:
                        continue
                    if additive:
                        score_additive(p, block, scratch, weight)
                    else:
                        score_product(p, block, routine, scratch.scores)
                    differentiate_block(p, block, chunk, scratch, gradients, normalizer, routine)
                    if additive:
                        differentiate_additive(p, block, chunk, scratch, gradients, weight)
                    else:
                        differentiate_product(p, block, chunk, routine, gradients.gradient)
        limit_threads(p.limit_threads, threads)

    return named_kernel(
        attention_backward, dtype, "additive" if additive else "product", Normalizer.__name__, Routine.__name__
    )
