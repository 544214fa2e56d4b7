"""What happens to the scores of a row before and after they are normalized: cap, bias, temperature, mask; a Gaussian
window; dropout. Each needs to know which keys the scores belong to, so it runs on one run of visible keys at a time."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.block import Block
from regard.kernels.cpu.bodies.elementary import exp
from regard.kernels.cpu.bodies.intrinsics import array_at
from regard.kernels.cpu.bodies.parts import embedded, inlined
from regard.kernels.cpu.bodies.visible_keys import column_span, fill_gaps, range_at
from regard.kernels.kinds import DENSE_BIAS, DIAGONAL_BIAS


@embedded
def adjust_row(p: Any, block: Block, r: int, runs: Any, scores: Any) -> Any:
    """Cap, bias, temperature and mask of the visible scores of a block's row ``r``; −∞ between its runs.

    Args:
        runs: of the row, of which there is one.
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
def adjust_run(p: Any, block: Block, r: int, begin: int, scores: Any) -> None:
    """Cap, bias, temperature and mask of the scores of a block's row ``r`` for the keys from ``begin`` on."""
    real = scores.dtype.type
    n = scores.size
    b, h, row = block.batch, block.head, block.row + r
    if p.cap > 0:
        cap, inverse = real(p.cap), real(2.0 / p.cap)
        for j in range(n):
            scores[j] = cap * tanh_of_half(scores[j] * inverse)
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
def window_row(p: Any, block: Block, r: int, runs: Any, gauss: Any) -> Any:
    """Luong's Gaussian of row ``r``: exp(−((j − center) / sigma)² / 2) for the keys of its runs, 0 between them.

    Args:
        runs: of the row, of which there is one.
        gauss: as many numbers as a row has columns.

    Returns:
        The columns from the first visible one to the last.
    """
    real = gauss.dtype.type
    offset = block.batch * p.window_batch + block.head * p.window_head + block.row + r
    center, sigma = array_at(p.center, offset + 1, real(0))[offset], array_at(p.sigma, offset + 1, real(0))[offset]
    for n in range(runs.size):
        run = range_at(runs.ranges, n)
        part = gauss[run.column : run.column + run.keys]
        for j in range(part.size):
            distance = (real(run.first + j) - center) / sigma
            part[j] = exp(real(-0.5) * distance * distance)
    fill_gaps(runs, gauss, real(0))
    low, high = column_span(runs)
    return gauss[low:high]


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
    scale = real(p.dropout_scale)
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
        weights[j] = real(0) if bits < threshold else weights[j] * scale
