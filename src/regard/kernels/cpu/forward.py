"""Attention forward: scores, weights and mixture of one block of rows after the other; nothing larger than a block."""

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
    score_block,
    window_row,
)
from regard.kernels.cpu.compiled import Kernel, inlined
from regard.kernels.cpu.intrinsics import array_at, fetch_add, size_of
from regard.kernels.cpu.kernel_arguments import arguments_at
from regard.kernels.cpu.nonfinite import report_nonfinite
from regard.kernels.cpu.products import limit_threads, product
from regard.kernels.cpu.row_normalizers import normalize


@inlined
def weigh_block(p, b, h, row, rows, first, count, scores, statistics, gauss):
    """Turn a block's scores into weights, before dropout; zeros where nothing is visible."""
    real = scores.dtype.type
    sink, shift = head_number(p.sink, h, p.sink_head, real(0)), head_number(p.shift, h, p.shift_head, real(0))
    for r in range(rows):
        start, stop = row_span(p, b, h, row + r)
        low, high = min(max(start - first, 0), count), min(max(stop - first, 0), count)
        if high <= low:
            low, high = count, count
        for j in range(low):
            scores[r, j] = real(0)
        for j in range(high, count):
            scores[r, j] = real(0)
        if high > low:
            visible = scores[r, low:high]
            adjust_row(p, b, h, row + r, first, low, visible)
            one, two = normalize(p.normalizer, visible, p.alpha, sink, p.sink != 0, shift)
            statistics[2 * r] = one
            statistics[2 * r + 1] = two
            if p.center != 0:
                window = gauss[: high - low]
                window_row(p, b, h, row + r, first + low, window)
                for j in range(high - low):
                    visible[j] *= window[j]
        else:
            statistics[2 * r] = real(-np.inf)
            statistics[2 * r + 1] = real(-np.inf)


@inlined
def keep_weights(p, at, rows, first, count, weights):
    """Copy a block's weights to the weights that are returned; ``at`` counts rows of the whole problem."""
    real = weights.dtype.type
    for r in range(rows):
        kept = array_at(p.returned_weights + (at + r) * p.keys * size_of(real(0)), p.keys, real(0))
        kept[:first] = real(0)
        kept[first : first + count] = weights[r, :count]
        kept[first + count :] = real(0)
        report_nonfinite(p.nonfinite, weights[r, :count])


@cache
def forward(dtype: torch.dtype) -> Kernel:
    """The kernel for float32 or float64."""
    zero = np.float32(0) if dtype == torch.float32 else np.float64(0)

    def attention_forward(address):
        p = arguments_at(address)
        threads = limit_threads(p.limit_threads, 1)
        real = type(zero)
        width = -(-p.keys // 16) * 16 + 16
        scores = np.empty((p.block, width), real)
        gauss = np.empty(width if p.center != 0 else 0, real)
        powers = np.empty((p.block, (p.dim + p.dim % 2) if p.additive != 0 else 0), real)
        extents = np.empty(p.block, real)
        blocks = -(-p.queries // p.block)
        while True:
            task = fetch_add(address)
            if task >= p.tasks:
                break
            b, h, row = task // blocks // p.heads, task // blocks % p.heads, task % blocks * p.block
            rows = min(p.block, p.queries - row)
            at = (b * p.heads + h) * p.queries + row
            statistics = array_at(p.statistics + at * 2 * size_of(zero), 2 * rows, zero)
            output = array_at(p.output + at * p.value_dim * size_of(zero), rows * p.value_dim, zero)
            first, count = block_span(p, b, h, row, rows)
            if count == 0:
                output[:] = zero
                statistics[:] = real(-np.inf)
                if p.returned_weights != 0:
                    keep_weights(p, at, rows, first, count, scores)
                continue
            weight = read_weight(p, h, zero)
            score_block(p, b, h, row, rows, first, count, scores, powers, extents, weight)
            weigh_block(p, b, h, row, rows, first, count, scores, statistics, gauss)
            if p.returned_weights != 0:
                keep_weights(p, at, rows, first, count, scores)
            if p.threshold > 0:
                for r in range(rows):
                    drop_row(p, b, h, row + r, first, scores[r, :count])
            group = h // (p.heads // p.kv_heads)
            value = p.value + (b * p.value_batch + group * p.value_head + first * p.value_row) * size_of(zero)
            product(
                p.gemm, p.wide, rows, p.value_dim, count, real(1), scores.ctypes.data, width, value, p.value_row, 0,
                output.ctypes.data, p.value_dim,
            )  # fmt: skip
            report_nonfinite(p.nonfinite, output)
        limit_threads(p.limit_threads, threads)

    attention_forward.__name__ += f"_{str(dtype).removeprefix('torch.')}"
    return Kernel(attention_forward)
