"""Adjustments of a row: cap, function, bias, temperature and mask before normalization; Gaussian window and dropout
after it.

They depend on the keys of the scores, so they process one run of visible keys at a time.
"""

from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.arguments import function_at
from regard.kernels.cpu.bodies.block import QueryBlock
from regard.kernels.cpu.bodies.elementary import exp
from regard.kernels.cpu.bodies.intrinsics import address_of, array_at, call_kernel, stack_memory
from regard.kernels.cpu.bodies.parts import embedded, inlined
from regard.kernels.cpu.bodies.visible_keys import column_span, fill_gaps, range_at
from regard.kernels.cpu.kernel_arguments import FUNCTION_RECORD
from regard.kernels.kinds import DENSE_BIAS, DIAGONAL_BIAS

FUNCTION_SIZE = FUNCTION_RECORD.itemsize


@embedded
def adjust_row(p: Any, block: QueryBlock, r: int, runs: Any, scores: Any) -> Any:
    """Applies all adjustments before normalization to the visible scores of a block's row ``r``; writes −∞ between its
    runs.

    Args:
        runs: runs of the row, at least one.
        scores: all columns of the row.

    Returns:
        The columns from the first visible one to the last.
    """
    for n in range(runs.size):
        run = range_at(runs.ranges, n)
        adjust_run(p, block, r, run.first, scores[run.column : run.column + run.keys])
    fill_gaps(runs, scores, scores.dtype.type(-np.inf))
    low, high = column_span(runs)
    return scores[low:high]


@inlined
def adjust_run(p: Any, block: QueryBlock, r: int, begin: int, scores: Any) -> None:
    """Applies all adjustments before normalization to the scores of a block's row ``r`` for the keys from ``begin``
    on."""
    real = scores.dtype.type
    n = scores.size
    b, h, row = block.batch, block.head, block.row + r
    if p.cap > 0:
        cap, inverse = real(p.cap), real(2.0 / p.cap)
        for j in range(n):
            scores[j] = cap * tanh_of_half(scores[j] * inverse)
    if p.score_function != 0:
        call_function(p, p.score_function, p.score_data, block, 0, r, begin, scores, scores)
    if p.bias_kind == DENSE_BIAS:
        offset = b * p.bias_batch + h * p.bias_head + row * p.bias_row + begin * p.bias_key
        bias = array_at(p.bias + offset * scores.itemsize, (n - 1) * p.bias_key + 1 if n > 0 else 0, real(0))
        if p.bias_key == 1:
            for j in range(n):
                scores[j] += bias[j]
        else:
            for j in range(n):
                scores[j] += bias[j * p.bias_key]
    elif p.bias_kind == DIAGONAL_BIAS:
        offset = h * p.bias_head + begin - row + p.queries - 1
        bias = array_at(p.bias + offset * scores.itemsize, n, real(0))
        for j in range(n):
            scores[j] += bias[j]
    if p.inverse_temperature != 1.0:
        factor = real(p.inverse_temperature)
        for j in range(n):
            scores[j] *= factor
    if p.mask != 0:
        visible = array_at(p.mask + b * p.mask_batch + h * p.mask_head + row * p.mask_row + begin, n, np.int8(0))
        for j in range(n):
            scores[j] = scores[j] if visible[j] != 0 else real(-np.inf)
    if p.mask_function != 0:
        call_function(p, p.mask_function, p.mask_data, block, 0, r, begin, scores, scores)


@inlined
def call_function(
    p: Any, function: int, data: int, block: QueryBlock, chunk: int, r: int, begin: int, scores: Any, gradient: Any
) -> None:
    """Calls a function of a row of scores (`row_functions`) for the keys from ``begin`` on."""
    record = stack_memory(FUNCTION_SIZE)
    f = function_at(record)
    f.data, f.batch, f.head, f.group = data, block.batch, block.head, block.group
    f.row, f.chunk, f.first, f.keys = p.function_row + block.row + r, chunk, begin, scores.size
    f.scores, f.gradient = address_of(scores), address_of(gradient)
    call_kernel(function, record)


@inlined
def tanh_of_half(x: Any) -> Any:
    """Returns tanh(x / 2) = (1 − e^−x) / (1 + e^−x), evaluated for |x| to avoid overflow."""
    exponential = exp(-abs(x))
    magnitude = (type(x)(1) - exponential) / (type(x)(1) + exponential)
    return magnitude if x >= type(x)(0) else -magnitude


@inlined
def window_row(p: Any, block: QueryBlock, r: int, runs: Any, gauss: Any) -> Any:
    """Writes Luong's Gaussian of row ``r``: exp(−((j − center) / sigma)² / 2) for the keys of its runs, 0 between them.

    Args:
        runs: runs of the row, at least one.
        gauss: the output, as long as a row of scores.

    Returns:
        The columns from the first visible one to the last.
    """
    real = gauss.dtype.type
    offset = block.batch * p.window_batch + block.head * p.window_head + block.row + r
    center, sigma = array_at(p.center, offset + 1, real(0))[offset], array_at(p.sigma, offset + 1, real(0))[offset]
    for n in range(runs.size):
        run = range_at(runs.ranges, n)
        run_gauss = gauss[run.column : run.column + run.keys]
        for j in range(run_gauss.size):
            distance = (real(run.first + j) - center) / sigma
            run_gauss[j] = exp(real(-0.5) * distance * distance)
    fill_gaps(runs, gauss, real(0))
    low, high = column_span(runs)
    return gauss[low:high]


@inlined
def drop_row(p: Any, row: int, begin: int, weights: Any) -> None:
    """Drops some of a row's weights and scales up the others; the choice depends only on seed, row and key.

    It comes from a counter-based generator (Salmon et al. 2011): SplitMix64's output function of seed and row (Steele,
    Lea & Flood 2014), followed by MurmurHash3's 32-bit finalizer of that and the key; see
    docs/en/understand/derivations/dropout.md.

    Args:
        row: the row, counted through all batch rows and heads.
        begin: the first key.
        weights: weights, or their gradients, of the keys from ``begin`` on.
    """
    real = weights.dtype.type
    scale = real(p.dropout_scale)
    state = np.uint64(p.seed) + np.uint64((row + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    state ^= state >> np.uint64(30)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    low_bits = np.uint32(state & np.uint64(0xFFFFFFFF))
    high_bits = np.uint32(state >> np.uint64(32))
    threshold = np.uint32(p.threshold)
    for j in range(weights.size):
        bits = np.uint32(np.uint32(begin + j) * np.uint32(0x9E3779B1)) ^ low_bits
        bits = np.uint32((bits ^ np.uint32(bits >> np.uint32(16))) * np.uint32(0x85EBCA6B)) ^ high_bits
        bits = np.uint32((bits ^ np.uint32(bits >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        bits = bits ^ np.uint32(bits >> np.uint32(16))
        weights[j] = real(0) if bits < threshold else weights[j] * scale
