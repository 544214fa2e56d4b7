"""The scores of a row whose weight may be above 0, side by side: what a search for a threshold looks at."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.compressing import can_compress, store_above
from regard.kernels.cpu.bodies.intrinsics import address_of, size_of
from regard.kernels.cpu.bodies.parts import inlined
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

LIMIT = 1024
"""Candidates that are copied; of a row with more, all scores are looked at."""

ROOM = LIMIT + 128
"""Numbers of the memory for them, with room for a vector of four registers behind them."""

BYTES = 8 * ROOM
"""Bytes of that many float64 values."""

_LIMIT = LIMIT if can_compress() else -1


@inlined
def find_candidates(row: Any, top: Any, factor: Any, memory: Any) -> Any:
    """Turn scores into ``factor (score − top)`` in place, and copy those above −1, and NaN, side by side.

    Args:
        top: the largest score.
        memory: `ROOM` numbers.

    Returns:
        The copies, with −1 behind them up to the end of a vector of four registers; or the row, if there are more than
        `LIMIT`, or if the processor can't choose lanes of a vector.
    """
    real = row.dtype.type
    zeros, size, count = one_register(real(0)), size_of(top), np.int64(0)
    lowest, tops, factors = broadcast(real(-1), zeros), broadcast(top, zeros), broadcast(factor, zeros)
    whole, j = row.size - row.size % lanes_of(zeros), np.int64(0)
    while j < whole and count <= _LIMIT:
        numbers = (load(address_of(row) + j * size, zeros) - tops) * factors
        store(numbers, address_of(row) + j * size)
        count += store_above(numbers, lowest, address_of(memory) + count * size)
        j += lanes_of(zeros)
    for i in range(j, row.size):
        row[i] = (row[i] - top) * factor
    if j < whole or count > _LIMIT:
        return row
    for i in range(whole, row.size):
        memory[count] = row[i]
        # NaN is not at most −1.
        count += np.int64(0) if row[i] <= real(-1) else np.int64(1)
    width = lanes_of(four_registers(real(0)))
    store(broadcast(real(-1), four_registers(real(0))), address_of(memory) + count * size)
    return memory[: -(-count // width) * width]


@inlined
def count_and_sum_above(numbers: Any, threshold: Any) -> tuple[Any, Any]:
    """``#{u > threshold}`` and ``Σ (u − threshold)₊``. NaN stays NaN in the sum."""
    real = numbers.dtype.type
    zeros, size = four_registers(real(0)), size_of(threshold)
    thresholds, ones = broadcast(threshold, zeros), broadcast(real(1), zeros)
    counts, sums = zeros, zeros
    whole = numbers.size - numbers.size % lanes_of(zeros)
    for j in range(0, whole, lanes_of(zeros)):
        above = lane_max(zeros, load(address_of(numbers) + j * size, zeros) - thresholds)
        counts = counts + where_less(zeros, above, ones, zeros)
        sums = sums + above
    count, total = sum_of(counts), sum_of(sums)
    for j in range(whole, numbers.size):
        above = numbers[j] - threshold
        count += real(1) if above > real(0) else real(0)
        total += real(0) if above <= real(0) else above
    return count, total


@inlined
def sums_of_powers_above(numbers: Any, threshold: Any) -> tuple[Any, Any]:
    """``Σ (u − threshold)₊`` and ``Σ (u − threshold)₊²``. NaN stays NaN."""
    real = numbers.dtype.type
    zeros, size = four_registers(real(0)), size_of(threshold)
    thresholds, sums, squares = broadcast(threshold, zeros), zeros, zeros
    whole = numbers.size - numbers.size % lanes_of(zeros)
    for j in range(0, whole, lanes_of(zeros)):
        above = lane_max(zeros, load(address_of(numbers) + j * size, zeros) - thresholds)
        sums = sums + above
        squares = squares + above * above
    total, square = sum_of(sums), sum_of(squares)
    for j in range(whole, numbers.size):
        above = numbers[j] - threshold
        above = real(0) if above <= real(0) else above
        total += above
        square += above * above
    return total, square
