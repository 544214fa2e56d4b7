"""Compiled loops that measure the peak rate of one operation; needs Numba."""

from collections.abc import Callable

import numpy as np

from regard.kernels.cpu.bodies.arguments import arguments_at
from regard.kernels.cpu.bodies.elementary import exp
from regard.kernels.cpu.bodies.intrinsics import array_at
from regard.kernels.cpu.bodies.microkernel import tile
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.wide_product import Matrix
from regard.kernels.cpu.kernel import Kernel

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# A call of an intrinsic has one argument less than its definition, whose first argument is Numba's typing context.

NUMBERS = 4096
"""Numbers of a buffer; two buffers fit into the L1 cache."""

ROUNDS = 20_000
"""Passes over the buffer in one call."""

_DEPTH = 32
MULTIPLY_ADDS = 6 * 64 * _DEPTH
"""Multiply-adds of one round of `multiply_add`."""

_tile = tile(6, 4)


@inlined
def _multiply_add(source: int, target: int, rounds: int) -> None:
    """Repeat a register tile of a matrix product."""
    one = np.float32(1)
    left, right, result = Matrix(source, _DEPTH, 1), Matrix(source, 64, 1), Matrix(target, 64, 1)
    for _ in range(rounds):
        _tile(left, right, result, _DEPTH, one, 0)


@inlined
def _divide(source: int, target: int, rounds: int) -> None:
    """Compute reciprocals."""
    numbers, results = array_at(source, NUMBERS, np.float32(0)), array_at(target, NUMBERS, np.float32(0))
    for turn in range(rounds):
        shift = np.float32(turn)
        for j in range(NUMBERS):
            results[j] = np.float32(1) / (numbers[j] + shift)


@inlined
def _exponentiate(source: int, target: int, rounds: int) -> None:
    """Compute exponentials."""
    numbers, results = array_at(source, NUMBERS, np.float32(0)), array_at(target, NUMBERS, np.float32(0))
    for turn in range(rounds):
        shift = np.float32(turn) * np.float32(0.001)
        for j in range(NUMBERS):
            results[j] = exp(numbers[j] - shift)


_LOOPS = {"multiply_add": _multiply_add, "divide": _divide, "exponentiate": _exponentiate}


def repeated(name: str) -> Callable[[int], None]:
    """The body of a loop: it reads numbers at ``query``, writes them at ``output``, ``queries`` times."""
    loop = _LOOPS[name]

    def body(address: int) -> None:
        p = arguments_at(address)
        loop(p.query, p.output, p.queries)

    return body


multiply_add, divide, exponentiate = (Kernel(__name__, repeated.__name__, name) for name in _LOOPS)
