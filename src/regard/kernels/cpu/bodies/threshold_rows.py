"""Sparsemax and entmax 1.5 of one row of scores in place: weights are powers of what is above a threshold.

Thresholds are found by Newton's method and not by sorting: the norm of what is above the threshold is a convex,
decreasing function of it, so steps from its left never overshoot. They end where a
step changes no digit of the threshold; the step itself is what these digits do not hold. See
docs/derivations/sparse.md.
"""

# pyright: reportCallIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

import math
from typing import Any

from regard.kernels.cpu.bodies.candidates import (
    BYTES,
    ROOM,
    count_and_sum_above,
    find_candidates,
    sums_of_powers_above,
)
from regard.kernels.cpu.bodies.intrinsics import array_at, stack_memory
from regard.kernels.cpu.bodies.parts import exact, inlined
from regard.kernels.cpu.bodies.row_parameters import Entmax15, Sparsemax


@exact
def _above(score: Any, top: Any, factor: Any, threshold: Any) -> Any:
    """``(score − top) · factor − threshold``, in this order: beside a large ``top`` the threshold would be lost."""
    return (score - top) * factor - threshold


@exact
def _weight(score: Any, threshold: Any, rest: Any) -> Any:
    """What is above the threshold, of which ``rest`` is the part that its last digit does not hold; 0 below, and NaN
    for NaN. In this order: the first difference is exact near the threshold."""
    above = (score - threshold) - rest
    # The comparison that NaN fails lets it through.
    return type(score)(0) if above <= type(score)(0) else above


@inlined
def sparsemax_row(normalizer: Sparsemax, row: Any, top: Any) -> tuple[Any, Any]:
    """(s − τ)₊ with sum 1; Martins & Astudillo 2016. Returns the maximum and τ, counted from it."""
    real = row.dtype.type
    candidates = find_candidates(row, top, real(1), array_at(stack_memory(BYTES), ROOM, real(0)))
    threshold = real(-1)
    while True:
        count, total = count_and_sum_above(candidates, threshold)
        step = (total - real(1)) / count
        if not (step > real(0) and threshold + step > threshold):
            break
        threshold += step
    for j in range(row.size):
        row[j] = _weight(row[j], threshold, step)
    # Newton's method takes no step in a row with NaN; its threshold is NaN.
    return top, threshold + step


@inlined
def entmax15_row(normalizer: Entmax15, row: Any, top: Any) -> tuple[Any, Any]:
    """(s/2 − τ)₊² with sum 1; Peters, Niculae & Martins 2019. Returns the maximum and τ, counted from half of it."""
    real = row.dtype.type
    candidates = find_candidates(row, top, real(0.5), array_at(stack_memory(BYTES), ROOM, real(0)))
    threshold = real(-1)
    while True:
        total, squares = sums_of_powers_above(candidates, threshold)
        norm = real(math.sqrt(squares))
        # Newton's step for the norm, (norm − 1) · norm / total, without the difference of two numbers near 1 but for
        # that of the squares.
        step = (squares - real(1)) / total * (norm / (norm + real(1)))
        if not (step > real(0) and threshold + step > threshold):
            break
        threshold += step
    inverse = real(1) / (squares - real(2) * step * total)
    for j in range(row.size):
        above = _weight(row[j], threshold, step)
        row[j] = above * above * inverse
    return top, threshold + step


@inlined
def recompute_entmax15(normalizer: Entmax15, row: Any, first: Any, second: Any) -> None:
    real = row.dtype.type
    for j in range(row.size):
        above = _above(row[j], first, real(0.5), second)
        above = real(0) if above <= real(0) else above
        row[j] = above * above


@inlined
def recompute_sparsemax(normalizer: Sparsemax, row: Any, first: Any, second: Any) -> None:
    real = row.dtype.type
    for j in range(row.size):
        above = _above(row[j], first, real(1), second)
        row[j] = real(0) if above <= real(0) else above
