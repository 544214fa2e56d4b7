"""Sparsemax and entmax 1.5 of one row of scores, in place: weights are powers of the excess over a threshold.

Newton's method finds the threshold without sorting: the norm of the excess is a convex, decreasing function of the
threshold, so steps from the left never overshoot. The search ends when a step does not change the rounded threshold;
that last step corrects it. See docs/en/understand/derivations/sparse.md.
"""

import math
from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.compressing import can_compress, store_above
from regard.kernels.cpu.bodies.intrinsics import address_of, array_at, size_of, stack_memory
from regard.kernels.cpu.bodies.parts import exact, inlined
from regard.kernels.cpu.bodies.row_parameters import Entmax15Row, SparsemaxRow
from regard.kernels.cpu.bodies.vectors import (
    broadcast,
    four_registers,
    lane_max,
    lanes_of,
    load,
    one_register,
    store,
    sum_of,
    where_less,
)

MAX_CANDIDATES = 1024
"""Maximum number of candidates that are copied; a row with more is searched in place."""

BUFFER_SIZE = MAX_CANDIDATES + 128
"""Elements of the memory for candidates, with room for one more vector of four registers."""

BUFFER_BYTES = 8 * BUFFER_SIZE
"""Bytes of these elements in float64."""

_COPY_LIMIT = MAX_CANDIDATES if can_compress() else -1


@inlined
def find_candidates(row: Any, maximum: Any, factor: Any, memory: Any) -> Any:
    """Turns scores into ``factor (score − maximum)`` in place, and copies those above −1, which may have positive
    weights.

    Args:
        maximum: the row's maximum.
        memory: `BUFFER_SIZE` elements.

    Returns:
        The copies, including NaN, padded with −1 to whole vectors of four registers; or the row, if there are more
        than `MAX_CANDIDATES`, or if the processor cannot compress vectors.
    """
    real = row.dtype.type
    zeros, size, count = one_register(real(0)), size_of(maximum), np.int64(0)
    lowest, maxima, factors = broadcast(real(-1), zeros), broadcast(maximum, zeros), broadcast(factor, zeros)
    vector_end, j = row.size - row.size % lanes_of(zeros), np.int64(0)
    while j < vector_end and count <= _COPY_LIMIT:
        elements = (load(address_of(row) + j * size, zeros) - maxima) * factors
        store(elements, address_of(row) + j * size)
        count += store_above(elements, lowest, address_of(memory) + count * size)
        j += lanes_of(zeros)
    for i in range(j, row.size):
        row[i] = (row[i] - maximum) * factor
    if j < vector_end or count > _COPY_LIMIT:
        return row
    for i in range(vector_end, row.size):
        memory[count] = row[i]
        # The comparison is false for NaN.
        count += np.int64(0) if row[i] <= real(-1) else np.int64(1)
    width = lanes_of(four_registers(real(0)))
    store(broadcast(real(-1), four_registers(real(0))), address_of(memory) + count * size)
    return memory[: -(-count // width) * width]


@inlined
def count_and_sum_above(elements: Any, threshold: Any) -> tuple[Any, Any]:
    """Returns ``#{u > threshold}`` and ``Σ (u − threshold)₊``. The sum is NaN if an element is NaN."""
    real = elements.dtype.type
    zeros, size = four_registers(real(0)), size_of(threshold)
    thresholds, ones = broadcast(threshold, zeros), broadcast(real(1), zeros)
    counts, sums = zeros, zeros
    vector_end = elements.size - elements.size % lanes_of(zeros)
    for j in range(0, vector_end, lanes_of(zeros)):
        excess = lane_max(zeros, load(address_of(elements) + j * size, zeros) - thresholds)
        counts = counts + where_less(zeros, excess, ones, zeros)
        sums = sums + excess
    count, total = sum_of(counts), sum_of(sums)
    for j in range(vector_end, elements.size):
        excess = elements[j] - threshold
        count += real(1) if excess > real(0) else real(0)
        total += real(0) if excess <= real(0) else excess
    return count, total


@inlined
def sums_of_powers_above(elements: Any, threshold: Any) -> tuple[Any, Any]:
    """Returns ``Σ (u − threshold)₊`` and ``Σ (u − threshold)₊²``; NaN if an element is NaN."""
    real = elements.dtype.type
    zeros, size = four_registers(real(0)), size_of(threshold)
    thresholds, sums, squares = broadcast(threshold, zeros), zeros, zeros
    vector_end = elements.size - elements.size % lanes_of(zeros)
    for j in range(0, vector_end, lanes_of(zeros)):
        excess = lane_max(zeros, load(address_of(elements) + j * size, zeros) - thresholds)
        sums = sums + excess
        squares = squares + excess * excess
    total, square = sum_of(sums), sum_of(squares)
    for j in range(vector_end, elements.size):
        excess = elements[j] - threshold
        excess = real(0) if excess <= real(0) else excess
        total += excess
        square += excess * excess
    return total, square


@exact
def _excess(score: Any, maximum: Any, factor: Any, threshold: Any) -> Any:
    """Computes ``(score − maximum) · factor − threshold`` in this order: a large maximum would absorb the threshold."""
    return (score - maximum) * factor - threshold


@exact
def _positive_excess(score: Any, threshold: Any, correction: Any) -> Any:
    """Returns the excess over ``threshold + correction``, 0 below it, and NaN for NaN. The first difference is exact
    near the threshold."""
    excess = (score - threshold) - correction
    # The comparison is false for NaN, so NaN passes through.
    return type(score)(0) if excess <= type(score)(0) else excess


@inlined
def sparsemax_row(normalizer: SparsemaxRow, row: Any, maximum: Any) -> tuple[Any, Any]:
    """Computes (s − τ)₊ with sum 1; Martins & Astudillo 2016. Returns the maximum, and τ relative to it."""
    real = row.dtype.type
    candidates = find_candidates(row, maximum, real(1), array_at(stack_memory(BUFFER_BYTES), BUFFER_SIZE, real(0)))
    threshold = real(-1)
    while True:
        count, total = count_and_sum_above(candidates, threshold)
        step = (total - real(1)) / count
        if not (step > real(0) and threshold + step > threshold):
            break
        threshold += step
    for j in range(row.size):
        row[j] = _positive_excess(row[j], threshold, step)
    # In a row with NaN the search stops at once, and the threshold is NaN.
    return maximum, threshold + step


@inlined
def entmax15_row(normalizer: Entmax15Row, row: Any, maximum: Any) -> tuple[Any, Any]:
    """Computes (s/2 − τ)₊² with sum 1; Peters, Niculae & Martins 2019. Returns the maximum, and τ relative to half of
    it."""
    real = row.dtype.type
    candidates = find_candidates(row, maximum, real(0.5), array_at(stack_memory(BUFFER_BYTES), BUFFER_SIZE, real(0)))
    threshold = real(-1)
    while True:
        total, squares = sums_of_powers_above(candidates, threshold)
        norm = real(math.sqrt(squares))
        # Newton's step for the norm, (norm − 1) · norm / total, rewritten so that the only difference of numbers near 1
        # is that of the squares.
        step = (squares - real(1)) / total * (norm / (norm + real(1)))
        if not (step > real(0) and threshold + step > threshold):
            break
        threshold += step
    inverse = real(1) / (squares - real(2) * step * total)
    for j in range(row.size):
        excess = _positive_excess(row[j], threshold, step)
        row[j] = excess * excess * inverse
    return maximum, threshold + step


@inlined
def recompute_entmax15(normalizer: Entmax15Row, row: Any, maximum: Any, threshold: Any) -> None:
    real = row.dtype.type
    for j in range(row.size):
        excess = _excess(row[j], maximum, real(0.5), threshold)
        excess = real(0) if excess <= real(0) else excess
        row[j] = excess * excess


@inlined
def recompute_sparsemax(normalizer: SparsemaxRow, row: Any, maximum: Any, threshold: Any) -> None:
    real = row.dtype.type
    for j in range(row.size):
        excess = _excess(row[j], maximum, real(1), threshold)
        row[j] = real(0) if excess <= real(0) else excess
