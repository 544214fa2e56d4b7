"""What cross-entropy needs of a row of logits, in one pass while the row is in the cache."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from collections.abc import Callable

from regard.kernels.cpu.bodies.arguments import ZERO, ZEROS, classes_at
from regard.kernels.cpu.bodies.elementary import exp
from regard.kernels.cpu.bodies.intrinsics import array_at, fetch_add, size_of
from regard.kernels.cpu.bodies.max_reduce import largest


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
            logits = array_at(p.logits + row * count * size, count, zero)
            if p.bias != 0:
                bias = array_at(p.bias, count, zero)
                for j in range(count):
                    logits[j] += bias[j]
            top, chosen = largest(logits), logits[target[row]]
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
