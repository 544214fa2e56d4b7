"""Sparse normalizers on plain rows, and their gradient."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from collections.abc import Callable

from regard.kernels.cpu.bodies.arguments import ZEROS, arguments_at
from regard.kernels.cpu.bodies.intrinsics import allocate, array_at, cache_line, copy, fetch_add, release, size_of
from regard.kernels.cpu.bodies.row_gradients import differentiate
from regard.kernels.cpu.bodies.row_normalizers import normalize, normalizer_reader
from regard.kernels.cpu.bodies.vectors import prefetch_line
from regard.kernels.cpu.sizes import CACHE_LINE

AHEAD = 1 << 14
"""Bytes of the next row, at most, that are brought into the second cache while a row is normalized: the search for a
threshold reads no memory, and what reads ahead in processors ends with a page."""


def entmax_rows(dtype: str, normalizer: str) -> Callable[[int], None]:
    """The body of weights: ``queries`` rows of ``keys`` numbers, of which a task has ``block``."""
    zero, read_normalizer = ZEROS[dtype], normalizer_reader(normalizer)

    def body(address: int) -> None:
        p = arguments_at(address)
        size = size_of(zero)
        while True:
            task = fetch_add(address)
            if task >= p.tasks:
                break
            first = task * p.block
            for row in range(first, min(first + p.block, p.queries)):
                given = array_at(p.query + row * p.keys * size, p.keys, zero)
                output = array_at(p.output + row * p.keys * size, p.keys, zero)
                copy(given, output)
                following = (row + 1) * p.keys * size
                for offset in range(following, following + min(p.keys * size, AHEAD), CACHE_LINE):
                    prefetch_line(p.query + offset)
                    prefetch_line(p.output + offset)
                normalize(read_normalizer(p, 0, zero), output)

    return body


def entmax_rows_backward(dtype: str, normalizer: str) -> Callable[[int], None]:
    """The body of the scores' gradient, from the weights at ``query`` and their gradient."""
    zero, read_normalizer = ZEROS[dtype], normalizer_reader(normalizer)

    def body(address: int) -> None:
        p = arguments_at(address)
        size = size_of(zero)
        memory = allocate(p, p.keys * size)
        if memory == 0:
            return
        mobility = array_at(cache_line(memory), p.keys, zero)
        while True:
            task = fetch_add(address)
            if task >= p.tasks:
                break
            first = task * p.block
            for row in range(first, min(first + p.block, p.queries)):
                copy(array_at(p.query + row * p.keys * size, p.keys, zero), mobility)
                output = array_at(p.output + row * p.keys * size, p.keys, zero)
                copy(array_at(p.grad_output + row * p.keys * size, p.keys, zero), output)
                differentiate(read_normalizer(p, 0, zero), mobility, output)
        release(p, memory)

    return body
