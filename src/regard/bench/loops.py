"""Compiled loops that keep one kind of vector unit busy; needs Numba."""

import numpy as np

from regard.kernels.cpu.compiled import inlined
from regard.kernels.cpu.elementary import exp
from regard.kernels.cpu.intrinsics import array_at
from regard.kernels.cpu.microkernel import tile

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

NUMBERS = 4096
"""Of one buffer; two of them stay in a core's first cache."""

ROUNDS = 20_000
"""How often a loop goes over its buffer in one call."""

_DEPTH = 32
MULTIPLY_ADDS = 6 * 64 * _DEPTH
"""Of one round of `multiply_add`."""

_tile = tile(6, 4)


@inlined
def multiply_add(source, target, rounds):
    """A register tile of a matrix product, again and again."""
    one = np.float32(1)
    for _ in range(rounds):
        _tile(source, _DEPTH, 1, source, 64, target, 64, _DEPTH, one, 0)


@inlined
def divide(source, target, rounds):
    """Reciprocals."""
    numbers, results = array_at(source, NUMBERS, np.float32(0)), array_at(target, NUMBERS, np.float32(0))
    for turn in range(rounds):
        shift = np.float32(turn)
        for j in range(NUMBERS):
            results[j] = np.float32(1) / (numbers[j] + shift)


@inlined
def exponentiate(source, target, rounds):
    """Exponentials."""
    numbers, results = array_at(source, NUMBERS, np.float32(0)), array_at(target, NUMBERS, np.float32(0))
    for turn in range(rounds):
        shift = np.float32(turn) * np.float32(0.001)
        for j in range(NUMBERS):
            results[j] = exp(numbers[j] - shift)
