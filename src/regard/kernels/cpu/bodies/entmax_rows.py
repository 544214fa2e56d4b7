"""Entmax with any alpha of one row of scores, in place; see docs/en/understand/derivations/sparse.md."""

from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.elementary import exp, log
from regard.kernels.cpu.bodies.intrinsics import array_at, size_of, stack_memory
from regard.kernels.cpu.bodies.parts import embedded, exact, inlined
from regard.kernels.cpu.bodies.row_parameters import EntmaxRow
from regard.kernels.cpu.sizes import LANES, padded_length

NEWTON_STEPS = 32
"""Newton's method takes three to ten steps, twenty if many weights leave 0 together. After this many, the bracket is
halved until its ends are neighbouring numbers."""

ROUNDINGS = 8.0
"""A sum that differs from 1 by so many roundings counts as 1."""

MAX_GATHERED = 1024
"""Maximum number of scores that are gathered, if all others have weight 0."""

BUFFER_SIZE = MAX_GATHERED + LANES
"""Elements of the memory for gathered scores, with room for one more vector."""

BUFFER_BYTES = 8 * BUFFER_SIZE
"""Bytes of these elements in float64."""

SCORES_PER_GATHERED = 4
"""Scores are gathered if at most one in so many has a positive weight."""

MIN_SCORES = 128
"""Minimum scores of a row for which gathering pays off."""


@exact
def _rounding(base: Any, step: Any) -> Any:
    """Returns the rounding error of the sum ``base = 1 + step``."""
    return step - (base - type(step)(1))


@embedded
def entmax_ratio(difference: Any, steepness: Any, power: Any) -> tuple[Any, Any]:
    """Returns (1 + a (s − s₁) q^−a)₊^{1/a}: a weight divided by the largest one, q. Also returns the positive base."""
    real = type(difference)
    step = difference * steepness
    step = real(-1) if step <= real(-1) else step
    base = real(1) + step
    # log(1 + step), corrected by the rounding error of the sum.
    positive_base = real(1) if base <= real(0) else base
    exponent = (log(positive_base) + _rounding(base, step) / positive_base) / power
    return (real(0) if base <= real(0) else exp(exponent)), positive_base


@inlined
def gather(row: Any, steepness: Any, scores: Any, indices: Any) -> Any:
    """Copies the scores with positive weights, and their indices; returns their number, 0 if they are not few.

    The copies are padded with scores of weight 0 to the end of a vector.
    """
    real = row.dtype.type
    positive_count = real(0)
    for j in range(row.size):
        positive_count += real(1) if row[j] * steepness > real(-1) else real(0)
    if positive_count * real(SCORES_PER_GATHERED) > real(row.size) or positive_count > real(MAX_GATHERED):
        return 0
    count = np.int64(0)
    for j in range(row.size):
        # Without a branch, which would often be mispredicted.
        scores[count] = row[j]
        indices[count] = j
        count += np.int64(row[j] * steepness > real(-1))
    for j in range(count, padded_length(int(count))):
        scores[j] = real(-1e30)
    return count


@inlined
def scatter(row: Any, weights: Any, indices: Any, count: int) -> None:
    """Writes gathered weights to their indices in the row, and 0 elsewhere."""
    for j in range(row.size):
        row[j] = row.dtype.type(0)
    for j in range(count):
        row[indices[j]] = weights[j]


@inlined
def entmax_row(normalizer: EntmaxRow, row: Any, maximum: Any) -> tuple[Any, Any]:
    """Computes entmax with any alpha above 1, by its largest weight q; see
    `regard.normalizers.thresholds.entmax_by_root`."""
    real = row.dtype.type
    power = real(normalizer.alpha - 1.0)
    for j in range(row.size):
        row[j] -= maximum
    rounding = real(np.finfo(np.float32).eps) if row.itemsize == 4 else real(np.finfo(np.float64).eps)
    close = real(ROUNDINGS) * rounding
    # The bracket is open: the root is 1/n for a row of equal scores, and 1 for one with a single weight.
    low, high = (real(1) - close) / real(row.size), real(1) + close
    largest, distance = real(1), real(np.inf)
    # Weights of 0 stay 0 for smaller q. If few others are left, the search uses only these.
    gathered = array_at(stack_memory(BUFFER_BYTES), BUFFER_SIZE, real(0))
    indices = array_at(stack_memory(BUFFER_BYTES), BUFFER_SIZE, np.int32(0))
    ratios = array_at(stack_memory(BUFFER_BYTES), BUFFER_SIZE, real(0))
    searched, count = row, np.int64(0)
    steps = np.int64(0)
    while True:
        total, slope = _sums(searched, entmax_steepness(largest, power), power, ratios)
        mass = largest * total
        if mass > real(1):
            high = largest
        else:
            low = largest
        converged = abs(mass - real(1)) <= close
        middle = real(0.5) * (low + high)
        # A row with NaN also ends with a bracket that cannot be halved.
        if converged or not (middle > low and middle < high):
            break
        if mass > real(1) and count == 0 and largest < real(1) and row.size >= MIN_SCORES:
            count = gather(row, entmax_steepness(largest, power), gathered, indices)
            if count > 0:
                searched = gathered[: padded_length(count)]
        # Newton's step by log q for log q + log Σ = 0, which is nearly linear; at kinks, halve the bracket.
        logarithm = log(mass)
        candidate = largest * exp(-logarithm * total / slope)
        accepts_newton = (
            steps < NEWTON_STEPS and abs(logarithm) <= real(0.5) * distance and candidate > low and candidate < high
        )
        largest = candidate if accepts_newton else middle
        distance = abs(logarithm)
        steps += 1
    if not converged:
        # One rounding of q changes the sum by more than the sum's own roundings.
        largest = _interpolate(searched, power, low, high)
    else:
        inverse = real(1) / total
        if searched.size <= BUFFER_SIZE:
            for j in range(searched.size):
                searched[j] = ratios[j] * inverse
        else:
            steepness = entmax_steepness(largest, power)
            for j in range(searched.size):
                searched[j] = entmax_ratio(searched[j], steepness, power)[0] * inverse
        largest = inverse
    if count > 0:
        scatter(row, searched, indices, count)
    return maximum, largest


@inlined
def _sums(scores: Any, steepness: Any, power: Any, ratios: Any) -> tuple[Any, Any]:
    """Returns the sum of all weights divided by the largest one, and its slope by log q. Stores the last ratios."""
    real = scores.dtype.type
    total, slope = real(0), real(0)
    for first in range(0, scores.size, BUFFER_SIZE):
        chunk = scores[first : min(first + BUFFER_SIZE, scores.size)]
        for j in range(chunk.size):
            ratio, base = entmax_ratio(chunk[j], steepness, power)
            ratios[j] = ratio
            total += ratio
            slope += ratio / base
    return total, slope


@inlined
def _interpolate(row: Any, power: Any, low: Any, high: Any) -> Any:
    """Interpolates the weights with sum 1 between two neighbouring q: see `entmax_by_root`. Returns the maximum."""
    real = row.dtype.type
    steepness, steepness_of_high = entmax_steepness(low, power), entmax_steepness(high, power)
    low_sum, high_sum = real(0), real(0)
    for j in range(row.size):
        low_sum += low * entmax_ratio(row[j], steepness, power)[0]
        high_sum += high * entmax_ratio(row[j], steepness_of_high, power)[0]
    # Comparisons are false for NaN, so NaN passes through.
    fraction = (real(1) - low_sum) / (high_sum - low_sum) if not high_sum <= low_sum else real(0)
    fraction = real(0) if fraction <= real(0) else (real(1) if fraction >= real(1) else fraction)
    inverse = real(1) / (low_sum + fraction * (high_sum - low_sum))
    for j in range(row.size):
        small = low * entmax_ratio(row[j], steepness, power)[0]
        large = high * entmax_ratio(row[j], steepness_of_high, power)[0]
        row[j] = (small + fraction * (large - small)) * inverse
    return (low + fraction * (high - low)) * inverse


@embedded
def entmax_steepness(largest: Any, power: Any) -> Any:
    """Returns a q^−a, limited to finite values, so that its product with the maximum's 0 is 0."""
    real = type(largest)
    exponent = -power * log(largest)
    limit = real(80) if size_of(largest) == 4 else real(700)
    return power * exp(limit if exponent > limit else exponent)


@inlined
def recompute_entmax(normalizer: EntmaxRow, row: Any, maximum: Any, largest: Any) -> None:
    real = row.dtype.type
    power = real(normalizer.alpha - 1.0)
    if power > real(1):
        # The statistic does not determine these weights: its rounding changes the smallest.
        entmax_row(normalizer, row, maximum)
        return
    steepness = entmax_steepness(largest, power)
    for j in range(row.size):
        ratio, _ = entmax_ratio(row[j] - maximum, steepness, power)
        row[j] = largest * ratio
