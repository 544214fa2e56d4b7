"""Finding out whether results are finite, while they are still in cache.

A kernel multiplies what a mask hides with zeros, and 0 · NaN is NaN. So hidden numbers that are not finite make results
that are not finite, and the caller, who sees the flag, calculates those another way.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

import numpy as np

from regard.kernels.cpu.compiled import inlined
from regard.kernels.cpu.intrinsics import array_at, size_of


@inlined
def largest_sum(example):
    """Up to which a sum of sizes counts as finite; sums of such sums over chunks and rows are finite too."""
    return 1e30 if size_of(example) == 4 else 1e300


@inlined
def report_nonfinite(flag, numbers):
    """Store 1 at the address ``flag`` if one of these numbers is not finite; no flag, no work.

    Every thread stores the same number, so their order does not matter. Numbers are summed: those whose sum is beyond
    `largest_sum` are taken for infinite.
    """
    if flag != 0:
        total = numbers.dtype.type(0)
        for j in range(numbers.size):
            total += abs(numbers[j])
        # NaN fails the comparison.
        if not total <= largest_sum(total):
            array_at(flag, 1, np.int64(0))[0] = 1


@inlined
def report_nonfinite_number(flag, number):
    """As `report_nonfinite`, of one number that may be −∞."""
    if flag != 0 and not number <= largest_sum(number):
        array_at(flag, 1, np.int64(0))[0] = 1
