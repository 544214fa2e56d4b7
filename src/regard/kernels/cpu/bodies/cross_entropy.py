"""What cross-entropy needs of a row of logits, in one pass while the row is in the cache."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from collections.abc import Callable
from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.arguments import ZERO, ZEROS, classes_at
from regard.kernels.cpu.bodies.elementary import exp
from regard.kernels.cpu.bodies.intrinsics import array_at, fetch_add, size_of
from regard.kernels.cpu.bodies.max_reduce import MAXIMA, largest_in
from regard.kernels.cpu.bodies.parts import inlined


@inlined
def _largest(address: int, row: Any) -> Any:
    """The largest number of a row, which lies at an address."""
    blocks = row.size // MAXIMA
    top = row.dtype.type(-np.inf)
    if blocks > 0:
        top = largest_in(address, blocks, top)
    for j in range(blocks * MAXIMA, row.size):
        top = row[j] if row[j] > top else top
    return top


def class_exponentials(dtype: str) -> Callable[[int], None]:
    """The body of `regard.kernels.cpu.cross_entropy.exponentials`, a row for each task."""
    zero = ZEROS[dtype]

    def body(address: int) -> None:
        p = classes_at(address)
        size, count, slope = size_of(zero), p.classes, type(zero)(p.slope)
        target = array_at(p.target, p.rows, ZERO)
        statistics = array_at(p.statistics, 3 * p.rows, zero)
        while True:
            row = fetch_add(address)
            if row >= p.rows:
                break
            place = p.logits + row * count * size
            logits = array_at(place, count, zero)
            if p.bias != 0:
                bias = array_at(p.bias, count, zero)
                for j in range(count):
                    logits[j] += bias[j]
            top, chosen = _largest(place, logits), logits[target[row]]
            mass = zero
            for j in range(count):
                power = exp(logits[j] - top)
                logits[j] = power
                mass += power
            logits[target[row]] += slope * mass
            statistics[row] = top
            statistics[p.rows + row] = mass
            statistics[2 * p.rows + row] = chosen

    return body
