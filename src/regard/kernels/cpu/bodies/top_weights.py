"""The largest weights of a row."""

from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.intrinsics import copy
from regard.kernels.cpu.bodies.max_reduce import row_maximum
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.sizes import ceil_div

GROUP = 32
"""Weights of a group, whose maximum is compared first."""


@inlined
def take_nan(row: Any, weights: Any, indices: Any) -> Any:
    """Takes the weights that are NaN first; returns their number. They are replaced by −2 until `restore_nan`."""
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
    """Restores the NaN that `take_nan` replaced."""
    real = row.dtype.type
    for j in range(row.size):
        row[j] = real(np.nan) if row[j] == real(-2) else row[j]


@inlined
def take_top(row: Any, weights: Any, indices: Any, maxima: Any) -> None:
    """Writes the largest weights of a row in descending order, the first of equal ones first, and their indices.

    After the last weight above 0, weights are 0 and indices −1.

    Weights ``g, g + groups, g + 2 groups, …`` are group ``g``, so that the maxima of all groups are computed at once,
    in vectors. Then the largest weight is removed and the maximum of its group recomputed, once for each result.
    """
    real, count = row.dtype.type, weights.size
    groups = ceil_div(row.size, GROUP)
    group_maxima = maxima[:groups]
    copy(row, group_maxima)
    for first in range(groups, row.size, groups):
        # A slice, because indices that could be negative do not vectorize.
        part = row[first : min(first + groups, row.size)]
        for g in range(part.size):
            group_maxima[g] = part[g] if part[g] > group_maxima[g] else group_maxima[g]
    rank = 0
    while rank < count:
        maximum = row_maximum(group_maxima)
        if not maximum > real(0):
            break
        index = row.size
        for g in range(groups):
            if group_maxima[g] == maximum:
                j = g
                while row[j] != maximum:
                    j += groups
                index = min(index, j)
        weights[rank] = maximum
        indices[rank] = index
        rank += 1
        row[index] = real(-1)
        maximum = real(-1)
        for j in range(index % groups, row.size, groups):
            maximum = row[j] if row[j] > maximum else maximum
        group_maxima[index % groups] = maximum
    for k in range(rank):
        row[indices[k]] = weights[k]
    for k in range(rank, count):
        weights[k] = real(0)
        indices[k] = -1
