"""Backward passes for a decoder that looks at one memory step by step.

A step needs the gradient of its query at once, and hands on that of its scores. What all steps pass to the keys is
summed in one pass at the end, over all queries at once: so no step writes a gradient as large as the memory.
One head; rows are the queries of one step.
"""

from functools import cache

import numpy as np
import torch

from regard.kernels.cpu.block import block_span, drop_row, read_weight, row_span, rows_at
from regard.kernels.cpu.compiled import Kernel, inlined
from regard.kernels.cpu.intrinsics import array_at, fetch_add, matrix_at, size_of
from regard.kernels.cpu.kernel_arguments import arguments_at
from regard.kernels.cpu.nonfinite import report_nonfinite
from regard.kernels.cpu.products import limit_threads, product, product_with_transposed
from regard.kernels.cpu.row_normalizers import differentiate
from regard.kernels.cpu.tanh_sum import (
    LANES,
    TILE,
    any_beyond,
    differentiate_keys,
    differentiate_query,
    differentiate_query_directly,
    differentiate_tile_directly,
    prepare_query,
    reach,
)

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.


@inlined
def differentiate_scores(p, b, first, count, gradient, weights):
    """From the gradients of a step's output and weights to those of its scores, ``gradient [queries, …]``."""
    zero = gradient.dtype.type(0)
    size, width = size_of(zero), gradient.shape[1]
    at = b * p.queries
    by_output = p.grad_output + at * p.value_dim * size
    value = p.value + (b * p.value_batch + first * p.value_row) * size
    product_with_transposed(
        p.gemm, p.queries, count, p.value_dim, gradient.dtype.type(1), by_output, p.value_dim, value, p.value_row,
        gradient.ctypes.data, width,
    )  # fmt: skip
    for row in range(p.queries):
        place = (at + row) * p.keys * size
        kept = array_at(p.returned_weights + place, p.keys, zero)
        out = array_at(p.grad_score + place, p.keys, zero)
        out[:] = zero
        start, stop = row_span(p, b, 0, row)
        n = max(stop - start, 0)
        low = start - first if n > 0 else 0
        passed, seen = gradient[row, low : low + n], weights[:n]
        seen[:] = kept[start : start + n]
        if p.threshold > 0:
            mixed = array_at(p.mixed_weights + place, p.keys, zero)
            mixed[:] = kept
            drop_row(p, b, 0, row, 0, mixed)
            drop_row(p, b, 0, row, start, passed)
        if p.grad_weights != 0:
            more = array_at(p.grad_weights + place, p.keys, zero)[start : start + n]
            for j in range(n):
                passed[j] += more[j]
        differentiate(p.normalizer, seen, passed, p.alpha)
        factor = gradient.dtype.type(p.inverse_temperature)
        for j in range(n):
            passed[j] *= factor
            out[start + j] = passed[j]
        gradient[row, :low] = zero
        # To the end, so that loops may run over whole vectors.
        gradient[row, low + n :] = zero


@inlined
def pass_to_queries(p, b, first, count, gradient, weight, powers):
    """The gradient of a step's queries from that of its scores."""
    zero = gradient.dtype.type(0)
    size = size_of(zero)
    by_query = p.grad_query + b * p.queries * p.dim * size
    if p.additive == 0:
        key = p.key + (b * p.key_batch + first * p.key_row) * size
        product(
            p.gemm, p.wide, p.queries, p.dim, count, gradient.dtype.type(p.scale), gradient.ctypes.data,
            gradient.shape[1], key, p.key_row, 0, by_query, p.dim,
        )  # fmt: skip
        return
    even, padded, tiles = weight.size, -(-p.keys // LANES) * LANES, -(-p.keys // TILE)
    key_powers = array_at(p.exponentials + b * even * padded * size, even * padded, zero)
    extents = array_at(p.extents + b * tiles * size, tiles, zero)
    raw = rows_at(p.query, p.query_batch, p.query_head, p.query_row, b, 0, 0, p.queries, p.dim, zero)
    key = rows_at(p.key, p.key_batch, p.key_head, p.key_row, b, 0, 0, p.keys, p.dim, zero)
    sums = np.zeros(even, type(zero))
    for row in range(p.queries):
        query = raw[row * p.query_row : row * p.query_row + p.dim]
        extent = prepare_query(query, p.dim, powers)
        sums[:] = zero
        at, end = first, first + -(-count // LANES) * LANES
        while at < end:
            tile = at // TILE
            stop = min((tile + 1) * TILE, end)
            part = gradient[row, at - first : stop - first]
            if extent <= reach(zero) - extents[tile]:
                differentiate_query(powers, key_powers, padded, at, weight, part, sums)
            else:
                known = gradient[row, at - first : min(stop, p.keys) - first]
                differentiate_query_directly(query, key, p.key_row, at, weight, p.dim, known, sums)
            at = stop
        array_at(by_query + row * p.dim * size, p.dim, zero)[:] = sums[: p.dim]


@cache
def step_backward(dtype: torch.dtype) -> Kernel:
    """The kernel of one step, a batch row for each task; float32 or float64."""
    zero = np.float32(0) if dtype == torch.float32 else np.float64(0)

    def attention_step_backward(address):
        p = arguments_at(address)
        threads = limit_threads(p.limit_threads, 1)
        width = -(-p.keys // LANES) * LANES
        gradient = np.empty((p.queries, width), type(zero))
        weights = np.empty(width, type(zero))
        weight = read_weight(p, 0, zero)
        powers = np.empty(weight.size, type(zero))
        while True:
            b = fetch_add(address)
            if b >= p.tasks:
                break
            first, count = block_span(p, b, 0, 0, p.queries)
            differentiate_scores(p, b, first, count, gradient, weights)
            pass_to_queries(p, b, first, count, gradient, weight, powers)
            size = p.queries * p.dim
            report_nonfinite(p.nonfinite, array_at(p.grad_query + b * size * size_of(zero), size, zero))
        limit_threads(p.limit_threads, threads)

    attention_step_backward.__name__ += f"_{str(dtype).removeprefix('torch.')}"
    return Kernel(attention_step_backward)


@cache
def keys_backward(dtype: torch.dtype) -> Kernel:
    """The kernel of all steps' gradient of an additive score's keys and weight, a batch row for each task.

    ``queries`` are those of all steps, ``grad_score`` theirs; sums go to ``grad_key [batch, even dim, padded
    keys]``, and to ``grad_weight [batch, even dim]``, which begins as zeros.
    """
    zero = np.float32(0) if dtype == torch.float32 else np.float64(0)

    def additive_keys_backward(address):
        p = arguments_at(address)
        size = size_of(zero)
        weight = read_weight(p, 0, zero)
        even, padded, tiles = weight.size, -(-p.keys // LANES) * LANES, -(-p.keys // TILE)
        powers = np.empty((p.queries, even), type(zero))
        sums = np.empty((p.queries, even), type(zero))
        extents = np.empty(p.queries, type(zero))
        turned = np.empty((even, TILE), type(zero))
        gradient = np.zeros((p.queries, padded), type(zero))
        while True:
            b = fetch_add(address)
            if b >= p.tasks:
                break
            raw = rows_at(p.query, p.query_batch, p.query_head, p.query_row, b, 0, 0, p.queries, p.dim, zero)
            key = rows_at(p.key, p.key_batch, p.key_head, p.key_row, b, 0, 0, p.keys, p.dim, zero)
            key_powers = array_at(p.exponentials + b * even * padded * size, even * padded, zero)
            key_extents = array_at(p.extents + b * tiles * size, tiles, zero)
            given = matrix_at(p.grad_score + b * p.queries * p.keys * size, p.queries, p.keys, zero)
            gradient[:, : p.keys] = given
            by_keys = array_at(p.grad_key + b * even * padded * size, even * padded, zero)
            by_weight = array_at(p.grad_weight + b * even * size, even, zero)
            # Zeros here, and not beforehand: so they are still in cache when they are added to.
            by_keys[:] = zero
            first, count = block_span(p, b, 0, 0, p.queries)
            for row in range(p.queries):
                query = raw[row * p.query_row : row * p.query_row + p.dim]
                extents[row] = prepare_query(query, p.dim, powers[row])
                total = zero
                for j in range(first, first + count):
                    total += gradient[row, j]
                for d in range(p.dim):
                    by_weight[d] += total
            at, end = first, first + -(-count // LANES) * LANES
            while at < end:
                tile = at // TILE
                stop = min((tile + 1) * TILE, end)
                bound = reach(zero) - key_extents[tile]
                differentiate_keys(
                    powers, extents, bound, key_powers, padded, at, weight, gradient, at, stop - at, sums, by_keys,
                    by_weight,
                )  # fmt: skip
                if any_beyond(extents, bound):
                    differentiate_tile_directly(
                        raw, p.query_row, extents, bound, key, p.key_row, p.dim, padded, at, weight, gradient, at,
                        min(stop, p.keys) - at, turned, sums, by_keys, by_weight,
                    )  # fmt: skip
                at = stop
            report_nonfinite(p.nonfinite, by_keys)
            report_nonfinite(p.nonfinite, by_weight)

    additive_keys_backward.__name__ += f"_{str(dtype).removeprefix('torch.')}"
    return Kernel(additive_keys_backward)
