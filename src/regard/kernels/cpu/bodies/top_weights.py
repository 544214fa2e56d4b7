"""The largest weights of a row."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.intrinsics import copy
from regard.kernels.cpu.bodies.max_reduce import row_maximum
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.sizes import ceil_div

GROUP = 32
"""Weights whose largest is looked at before themselves."""


@inlined
def take_nan(row: Any, weights: Any, indices: Any) -> Any:
    """Take the weights that are NaN before all others; how many are taken. They are −2 until `restore_nan`."""
    real, count = row.dtype.type, 0
    for j in range(row.size):
        if row[j] != row[j]:
            row[j] = real(-2)
            if count < weights.size:
                weights[count], indices[count] = real(np.nan), -1
                count += 1
    return count


@inlined
def restore_nan(row: Any) -> None:
    """Write NaN to where it was before `take_nan`."""
    real = row.dtype.type
    for j in range(row.size):
        row[j] = real(np.nan) if row[j] == real(-2) else row[j]


@inlined
def take_top(row: Any, weights: Any, indices: Any, maxima: Any) -> None:
    """The largest weights of a row, in falling order, of equal ones the first, and their places in it.

    Behind the last weight above 0 there are zeros and −1.

    Weights ``g, g + groups, g + 2 groups, …`` are group ``g``, so that the largest of each group is found for all
    groups at once, in vectors. Then the largest of all is removed and its group is searched again, as often as weights
    are wanted.
    """
    real, count = row.dtype.type, weights.size
    groups = ceil_div(row.size, GROUP)
    tops = maxima[:groups]
    copy(row, tops)
    for first in range(groups, row.size, groups):
        # A slice counts from 0: indices that could be negative would not vectorize.
        part = row[first : min(first + groups, row.size)]
        for g in range(part.size):
            tops[g] = part[g] if part[g] > tops[g] else tops[g]
    taken = 0
    while taken < count:
        top = row_maximum(tops)
        if not top > real(0):
            break
        place = row.size
        for g in range(groups):
            if tops[g] == top:
                j = g
                while row[j] != top:
                    j += groups
                place = min(place, j)
        weights[taken] = top
        indices[taken] = place
        taken += 1
        row[place] = real(-1)
        top = real(-1)
        for j in range(place % groups, row.size, groups):
            top = row[j] if row[j] > top else top
        tops[place % groups] = top
    for k in range(taken):
        row[indices[k]] = weights[k]
    for k in range(taken, count):
        weights[k] = real(0)
        indices[k] = -1
