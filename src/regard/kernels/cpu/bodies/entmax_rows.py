"""Entmax of any alpha of one row of scores in place; see docs/derivations/sparse.md."""

# pyright: reportCallIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.elementary import exp, log
from regard.kernels.cpu.bodies.intrinsics import array_at, size_of, stack_memory
from regard.kernels.cpu.bodies.parts import embedded, exact, inlined
from regard.kernels.cpu.bodies.row_parameters import Entmax
from regard.kernels.cpu.sizes import LANES, padded_length

NEWTON_STEPS = 32
"""Newton's method takes three to ten steps, twenty where many weights leave 0 together. After so many the bracket is
halved until its ends are neighbouring numbers."""

ROUNDINGS = 8.0
"""A sum that differs from 1 by so many roundings is 1."""

FEW = 1024
"""Scores that are gathered where all others have weight 0."""

PART = FEW + LANES
"""Numbers of the memory for them, with room for a vector behind them."""

BYTES = 8 * PART
"""Bytes of that many float64 values."""

FEW_OF = 4
"""At most one of so many is worth being looked at alone."""

MANY = 128
"""Scores of a row from which on gathering is worth its time."""


@exact
def _rounding(base: Any, step: Any) -> Any:
    """What the sum ``base = 1 + step`` lost by rounding."""
    return step - (base - type(step)(1))


@embedded
def entmax_ratio(difference: Any, steepness: Any, power: Any) -> tuple[Any, Any]:
    """(1 + a (s − s₁) q^−a)₊^{1/a}: a weight over the largest one, q."""
    real = type(difference)
    step = difference * steepness
    step = real(-1) if step <= real(-1) else step
    base = real(1) + step
    # log(1 + step) with the rounding of the sum put back.
    inside = real(1) if base <= real(0) else base
    exponent = (log(inside) + _rounding(base, step) / inside) / power
    return (real(0) if base <= real(0) else exp(exponent)), inside


@inlined
def gather(row: Any, steepness: Any, scores: Any, indices: Any) -> Any:
    """Copy the scores whose weight is above 0, and where they stand; how many they are, 0 if they are not few.

    Behind them stand scores of weight 0, to the end of a vector.
    """
    real = row.dtype.type
    few = real(0)
    for j in range(row.size):
        few += real(1) if row[j] * steepness > real(-1) else real(0)
    if few * real(FEW_OF) > real(row.size) or few > real(FEW):
        return 0
    count = np.int64(0)
    for j in range(row.size):
        # Without a branch, which would be foreseen wrongly for every other score that is kept.
        scores[count] = row[j]
        indices[count] = j
        count += np.int64(row[j] * steepness > real(-1))
    for j in range(count, padded_length(int(count))):
        scores[j] = real(-1e30)
    return count


@inlined
def scatter(row: Any, weights: Any, indices: Any, count: int) -> None:
    """Write gathered weights to their places, and zeros to all others."""
    for j in range(row.size):
        row[j] = row.dtype.type(0)
    for j in range(count):
        row[indices[j]] = weights[j]


@inlined
def entmax_row(normalizer: Entmax, row: Any, top: Any) -> tuple[Any, Any]:
    """Entmax for any alpha above 1, by the largest weight q; see `regard.normalizers.thresholds.entmax_by_root`."""
    real = row.dtype.type
    power = real(normalizer.alpha - 1.0)
    for j in range(row.size):
        row[j] -= top
    rounding = real(np.finfo(np.float32).eps) if row.itemsize == 4 else real(np.finfo(np.float64).eps)
    close = real(ROUNDINGS) * rounding
    # The bracket is open: a row of equal scores has its root at 1/n, and one with a single weight at 1.
    low, high = (real(1) - close) / real(row.size), real(1) + close
    best, distance = real(1), real(np.inf)
    # Weights of 0 stay 0 for smaller q. Where few others are left, only these are looked at.
    gathered = array_at(stack_memory(BYTES), PART, real(0))
    indices = array_at(stack_memory(BYTES), PART, np.int32(0))
    ratios = array_at(stack_memory(BYTES), PART, real(0))
    looked_at, count = row, np.int64(0)
    steps = np.int64(0)
    while True:
        total, slope = _sums(looked_at, entmax_steepness(best, power), power, ratios)
        mass = best * total
        if mass > real(1):
            high = best
        else:
            low = best
        arrived = abs(mass - real(1)) <= close
        middle = real(0.5) * (low + high)
        # NaN, too, ends with a bracket that can't be halved.
        if arrived or not (middle > low and middle < high):
            break
        if mass > real(1) and count == 0 and best < real(1) and row.size >= MANY:
            count = gather(row, entmax_steepness(best, power), gathered, indices)
            if count > 0:
                looked_at = gathered[: padded_length(count)]
        # Newton's step for log q + log Σ = 0, by log q: nearly a straight line. Where kinks bend it, halve the bracket.
        logarithm = log(mass)
        better = best * exp(-logarithm * total / slope)
        straight = steps < NEWTON_STEPS and abs(logarithm) <= real(0.5) * distance and better > low and better < high
        best = better if straight else middle
        distance = abs(logarithm)
        steps += 1
    if not arrived:
        # One rounding of q moves the sum by more than its own roundings.
        best = _between(looked_at, power, low, high)
    else:
        inverse = real(1) / total
        if looked_at.size <= PART:
            for j in range(looked_at.size):
                looked_at[j] = ratios[j] * inverse
        else:
            steepness = entmax_steepness(best, power)
            for j in range(looked_at.size):
                looked_at[j] = entmax_ratio(looked_at[j], steepness, power)[0] * inverse
        best = inverse
    if count > 0:
        scatter(row, looked_at, indices, count)
    return top, best


@inlined
def _sums(scores: Any, steepness: Any, power: Any, ratios: Any) -> tuple[Any, Any]:
    """The sum of all weights over the largest one, and its slope by log q; the last `PART` ratios at most are kept."""
    real = scores.dtype.type
    total, slope = real(0), real(0)
    for first in range(0, scores.size, PART):
        part = scores[first : min(first + PART, scores.size)]
        for j in range(part.size):
            ratio, base = entmax_ratio(part[j], steepness, power)
            ratios[j] = ratio
            total += ratio
            slope += ratio / base
    return total, slope


@inlined
def _between(row: Any, power: Any, low: Any, high: Any) -> Any:
    """The weights with sum 1 between those of two neighbouring q: see `entmax_by_root`. Returns the largest weight."""
    real = row.dtype.type
    steepness, steepness_of_high = entmax_steepness(low, power), entmax_steepness(high, power)
    least, most = real(0), real(0)
    for j in range(row.size):
        least += low * entmax_ratio(row[j], steepness, power)[0]
        most += high * entmax_ratio(row[j], steepness_of_high, power)[0]
    # The comparison that NaN fails lets it through.
    part = (real(1) - least) / (most - least) if not most <= least else real(0)
    part = real(0) if part <= real(0) else (real(1) if part >= real(1) else part)
    inverse = real(1) / (least + part * (most - least))
    for j in range(row.size):
        small = low * entmax_ratio(row[j], steepness, power)[0]
        large = high * entmax_ratio(row[j], steepness_of_high, power)[0]
        row[j] = (small + part * (large - small)) * inverse
    return (low + part * (high - low)) * inverse


@embedded
def entmax_steepness(best: Any, power: Any) -> Any:
    """a q^−a, kept finite, so that the largest score's 0 stays 0 in a product with it."""
    real = type(best)
    exponent = -power * log(best)
    limit = real(80) if size_of(best) == 4 else real(700)
    return power * exp(limit if exponent > limit else exponent)


@inlined
def recompute_entmax(normalizer: Entmax, row: Any, first: Any, second: Any) -> None:
    real = row.dtype.type
    power = real(normalizer.alpha - 1.0)
    if power > real(1):
        # One number does not hold these weights: a rounding of it moves the smallest.
        entmax_row(normalizer, row, first)
        return
    steepness = entmax_steepness(second, power)
    for j in range(row.size):
        ratio, _ = entmax_ratio(row[j] - first, steepness, power)
        row[j] = second * ratio
