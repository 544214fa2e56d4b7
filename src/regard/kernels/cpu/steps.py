"""Backward passes for a decoder that asks one cached memory step by step.

A step needs the gradient of its query at once, and returns that of its scores. The keys' gradient is a sum over all
steps, made in one pass at the end: so no step writes a gradient as large as the memory; see
docs/derivations/cached-memory.md. One head; rows are the queries of one step.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from functools import cache
from typing import Any

import numpy as np
import torch

from regard.kernels.cpu.block import Block, block_of, drop_row, key_matrix, read_weight, row_span, value_matrix
from regard.kernels.cpu.block import block_matrix as matrix_of
from regard.kernels.cpu.compiled import Kernel, inlined
from regard.kernels.cpu.intrinsics import array_at, fetch_add, matrix_at, size_of
from regard.kernels.cpu.kernel_arguments import arguments_at, named_kernel
from regard.kernels.cpu.products import Blas, Microkernel, limit_threads, product, product_with_transposed
from regard.kernels.cpu.row_gradients import differentiate
from regard.kernels.cpu.row_normalizers import NORMALIZERS
from regard.kernels.cpu.sizes import TILE, even_length, padded_length
from regard.kernels.cpu.tanh_sum import (
    Gradients,
    Queries,
    any_beyond,
    differentiate_keys,
    differentiate_query,
    differentiate_query_directly,
    differentiate_tile_directly,
    keys_of,
    part_of_tile,
    prepare_query,
    reach,
    tiles_between,
)
from regard.kernels.cpu.wide_product import Matrix, Size


@inlined
def differentiate_scores(p: Any, block: Block, normalizer: Any, gradient: Any, weights: Any) -> None:
    """From the gradients of a step's output and weights to those of its scores, ``gradient [queries, …]``."""
    zero = gradient.dtype.type(0)
    size, b, at, first = size_of(zero), block.batch, block.at, block.first
    grad_output = Matrix(p.grad_output + at * p.value_dim * size, p.value_dim, 1)
    product_with_transposed(
        p.gemm, Size(p.queries, block.keys, p.value_dim), gradient.dtype.type(1), grad_output,
        value_matrix(p, block, zero), matrix_of(gradient),
    )  # fmt: skip
    for row in range(p.queries):
        place = (at + row) * p.keys * size
        given = array_at(p.returned_weights + place, p.keys, zero)
        out = array_at(p.grad_score + place, p.keys, zero)
        out[:] = zero
        start, stop = row_span(p, b, 0, row)
        n = max(stop - start, 0)
        low = start - first if n > 0 else 0
        passed, seen = gradient[row, low : low + n], weights[:n]
        seen[:] = given[start : start + n]
        if p.threshold > 0:
            mixed = array_at(p.mixed_weights + place, p.keys, zero)
            mixed[:] = given
            drop_row(p, at + row, 0, mixed)
            drop_row(p, at + row, start, passed)
        if p.grad_weights != 0:
            more = array_at(p.grad_weights + place, p.keys, zero)[start : start + n]
            for j in range(n):
                passed[j] += more[j]
        differentiate(normalizer, seen, passed)
        factor = gradient.dtype.type(p.inverse_temperature)
        for j in range(n):
            passed[j] *= factor
            out[start + j] = passed[j]
        gradient[row, :low] = zero
        # To the end, so that loops may run over whole vectors.
        gradient[row, low + n :] = zero


@inlined
def differentiate_queries(p: Any, block: Block, gradient: Any, weight: Any, powers: Any) -> None:
    """The gradient of a step's queries from that of its additive scores."""
    zero = gradient.dtype.type(0)
    size, b, first = size_of(zero), block.batch, block.first
    keys = keys_of(p, b, 0, zero)
    sums = np.zeros(weight.size, type(zero))
    for row in range(p.queries):
        at = b * p.query_batch + row * p.query_row
        query = array_at(p.query + at * size, p.dim, zero)
        extent = prepare_query(query, powers)
        sums[:] = zero
        stop = first + padded_length(block.keys)
        for index in tiles_between(first, stop):
            tile = part_of_tile(index, first, stop)
            part = gradient[row, tile.column : tile.column + tile.keys]
            if extent <= reach(zero) - keys.extents[index]:
                differentiate_query(powers, keys, tile.first, weight, part, sums)
            else:
                known = part[: min(tile.keys, p.keys - tile.first)]
                differentiate_query_directly(query, keys, tile.first, weight, known, sums)
        array_at(p.grad_query + (b * p.queries + row) * p.dim * size, p.dim, zero)[:] = sums[: p.dim]


@cache
def step_backward(dtype: torch.dtype, additive: bool, kind: int, wide: bool) -> Kernel:
    """The kernel of one step, a batch row for each task, for a dtype, a score's primitive, a normalizer
    and a routine for products."""
    zero = np.float32(0) if dtype == torch.float32 else np.float64(0)
    Normalizer, Routine = NORMALIZERS[kind], Microkernel if wide else Blas

    def attention_step_backward(address: int) -> None:
        p = arguments_at(address)
        threads = limit_threads(p.limit_threads, 1)
        width = padded_length(p.keys)
        gradient = np.empty((p.queries, width), type(zero))
        weights = np.empty(width, type(zero))
        weight = read_weight(p, 0, zero)
        powers = np.empty(weight.size, type(zero))
        while True:
            b = fetch_add(address)
            if b >= p.tasks:
                break
            block = block_of(p, b, 0, 0)
            differentiate_scores(p, block, Normalizer(p.alpha, zero, False, zero), gradient, weights)
            grad_query = Matrix(p.grad_query + block.at * p.dim * size_of(zero), p.dim, 1)
            if additive:
                differentiate_queries(p, block, gradient, weight, powers)
            else:
                size, scale = Size(p.queries, p.dim, block.keys), type(zero)(p.scale)
                product(Routine(p.gemm), size, scale, matrix_of(gradient), key_matrix(p, block, zero), grad_query, 0)
        limit_threads(p.limit_threads, threads)

    return named_kernel(
        attention_step_backward, dtype, "additive" if additive else "product", Normalizer.__name__, Routine.__name__
    )


@cache
def keys_backward(dtype: torch.dtype) -> Kernel:
    """The kernel of all steps' gradient of an additive score's keys and weight, a batch row for each task.

    ``queries`` are those of all steps, ``grad_score`` theirs; sums go to ``grad_key [batch, even dim, padded keys]``,
    and to ``grad_weight [batch, even dim]``, which begins as zeros.
    """
    zero = np.float32(0) if dtype == torch.float32 else np.float64(0)

    def additive_keys_backward(address: int) -> None:
        p = arguments_at(address)
        size, real = size_of(zero), type(zero)
        weight = read_weight(p, 0, zero)
        even, padded = even_length(p.dim), padded_length(p.keys)
        powers, sums = np.empty((p.queries, even), real), np.empty((p.queries, even), real)
        extents, doubled_keys = np.empty(p.queries, real), np.empty((p.dim, TILE), real)
        gradient = np.zeros((p.queries, padded), real)
        while True:
            b = fetch_add(address)
            if b >= p.tasks:
                break
            raw = array_at(p.query + b * p.query_batch * size, (p.queries - 1) * p.query_row + p.dim, zero)
            queries, keys = Queries(powers, extents, raw, p.query_row), keys_of(p, b, 0, zero)
            gradient[:, : p.keys] = matrix_at(p.grad_score + b * p.queries * p.keys * size, p.queries, p.keys, zero)
            grad_keys = array_at(p.grad_key + b * even * padded * size, even * padded, zero)
            grad_weight = array_at(p.grad_weight + b * even * size, even, zero)
            gradients = Gradients(sums, grad_keys, grad_weight)
            # Zeros here, and not beforehand: so they are still in cache when they are added to.
            grad_keys[:] = zero
            for row in range(p.queries):
                query = raw[row * p.query_row : row * p.query_row + p.dim]
                extents[row] = prepare_query(query, powers[row])
                total = zero
                for j in range(p.keys):
                    total += gradient[row, j]
                for d in range(p.dim):
                    grad_weight[d] += total
            for index in tiles_between(0, padded):
                tile = part_of_tile(index, 0, padded)
                differentiate_keys(queries, keys, tile, weight, gradient, gradients)
                if any_beyond(queries, keys, tile):
                    known = part_of_tile(index, 0, p.keys)
                    differentiate_tile_directly(queries, keys, known, weight, gradient, gradients, doubled_keys)

    return named_kernel(additive_keys_backward, dtype)
