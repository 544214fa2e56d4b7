"""Attention forward: scores, weights and mixture of one block of rows after the other; nothing larger than a block."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from functools import cache
from typing import Any

import numpy as np
import torch

from regard.kernels.cpu.block import (
    Block,
    Scratch,
    adjust_row,
    block_matrix,
    block_of,
    drop_row,
    read_weight,
    score_additive,
    score_product,
    scratch_of,
    value_matrix,
    visible_columns,
    window_row,
)
from regard.kernels.cpu.compiled import Kernel, inlined
from regard.kernels.cpu.intrinsics import array_at, fetch_add, size_of
from regard.kernels.cpu.kernel_arguments import arguments_at, named_kernel
from regard.kernels.cpu.products import Blas, Microkernel, limit_threads, product
from regard.kernels.cpu.row_normalizers import NORMALIZERS, head_number, normalize
from regard.kernels.cpu.sizes import ceil_div
from regard.kernels.cpu.wide_product import Matrix, Size


@inlined
def weigh_block(p: Any, block: Block, scratch: Scratch, normalizer: Any, statistics: Any) -> None:
    """Turn a block's scores into weights, before dropout; zeros where nothing is visible."""
    scores = scratch.scores
    real = scores.dtype.type
    for r in range(block.rows):
        low, high = visible_columns(p, block, r)
        scores[r, :low] = real(0)
        scores[r, high : block.keys] = real(0)
        if high > low:
            visible = scores[r, low:high]
            adjust_row(p, block, r, low, visible)
            statistics[2 * r], statistics[2 * r + 1] = normalize(normalizer, visible)
            if p.center != 0:
                window = scratch.gauss[: high - low]
                window_row(p, block, r, low, window)
                for j in range(high - low):
                    visible[j] *= window[j]
        else:
            statistics[2 * r] = real(-np.inf)
            statistics[2 * r + 1] = real(-np.inf)


@inlined
def store_weights(p: Any, block: Block, weights: Any) -> None:
    """Copy a block's weights to those that are returned."""
    real = weights.dtype.type
    first, count = block.first, block.keys
    for r in range(block.rows):
        row = array_at(p.returned_weights + (block.at + r) * p.keys * size_of(real(0)), p.keys, real(0))
        row[:first] = real(0)
        row[first : first + count] = weights[r, :count]
        row[first + count :] = real(0)


@cache
def forward(dtype: torch.dtype, additive: bool, kind: int, wide: bool) -> Kernel:
    """The kernel of a dtype, float32 or float64, a score's primitive, a normalizer and a routine for products."""
    zero = np.float32(0) if dtype == torch.float32 else np.float64(0)
    Normalizer, Routine = NORMALIZERS[kind], Microkernel if wide else Blas

    def attention_forward(address: int) -> None:
        p = arguments_at(address)
        threads = limit_threads(p.limit_threads, 1)
        routine = Routine(p.gemm)
        real = type(zero)
        scratch = scratch_of(p, additive, zero)
        scores = scratch.scores
        blocks = ceil_div(p.queries, p.block)
        while True:
            task = fetch_add(address)
            if task >= p.tasks:
                break
            h = task // blocks % p.heads
            block = block_of(p, task // blocks // p.heads, h, task % blocks)
            rows = block.rows
            statistics = array_at(p.statistics + block.at * 2 * size_of(zero), 2 * rows, zero)
            output = array_at(p.output + block.at * p.value_dim * size_of(zero), rows * p.value_dim, zero)
            if block.keys == 0:
                output[:] = zero
                statistics[:] = real(-np.inf)
                if p.returned_weights != 0:
                    store_weights(p, block, scores)
                continue
            if additive:
                score_additive(p, block, scratch, read_weight(p, h, zero))
            else:
                score_product(p, block, routine, scores)
            sink, shift = head_number(p.sink, h, p.sink_head, zero), head_number(p.shift, h, p.shift_head, zero)
            weigh_block(p, block, scratch, Normalizer(p.alpha, sink, p.sink != 0, shift), statistics)
            if p.returned_weights != 0:
                store_weights(p, block, scores)
            if p.threshold > 0:
                for r in range(rows):
                    drop_row(p, block.at + r, block.first, scores[r, : block.keys])
            result = Matrix(output.ctypes.data, p.value_dim, 1)
            size = Size(rows, p.value_dim, block.keys)
            product(routine, size, real(1), block_matrix(scores), value_matrix(p, block, zero), result, 0)
        limit_threads(p.limit_threads, threads)

    return named_kernel(
        attention_forward, dtype, "additive" if additive else "product", Normalizer.__name__, Routine.__name__
    )
