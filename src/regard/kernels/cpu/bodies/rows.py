"""Sparse normalizers on plain rows, and their gradients."""

from collections.abc import Callable

from regard.kernels.cpu.bodies.arguments import ZEROS, arguments_at
from regard.kernels.cpu.bodies.intrinsics import allocate, array_at, cache_line, copy, fetch_add, release, size_of
from regard.kernels.cpu.bodies.row_gradients import differentiate
from regard.kernels.cpu.bodies.row_normalizers import normalize, normalizer_reader
from regard.kernels.cpu.bodies.vectors import prefetch_line
from regard.kernels.cpu.sizes import CACHE_LINE

PREFETCHED_BYTES = 1 << 14
"""Maximum bytes of the next row that are prefetched into the second-level cache while a row is normalized: the search
for a threshold leaves the memory idle, and the processor's own prefetching stops at the end of a page."""


def entmax_rows(dtype: str, normalizer: str) -> Callable[[int], None]:
    """Returns the body that computes weights of ``queries`` rows of ``keys`` scores; a task has ``block`` rows."""
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
                scores = array_at(p.query + row * p.keys * size, p.keys, zero)
                output = array_at(p.output + row * p.keys * size, p.keys, zero)
                copy(scores, output)
                next_row = (row + 1) * p.keys * size
                for offset in range(next_row, next_row + min(p.keys * size, PREFETCHED_BYTES), CACHE_LINE):
                    prefetch_line(p.query + offset)
                    prefetch_line(p.output + offset)
                normalize(read_normalizer(p, 0, zero), output)

    return body


def entmax_rows_backward(dtype: str, normalizer: str) -> Callable[[int], None]:
    """Returns the body that computes the scores' gradient from the weights, at ``query``, and their gradient."""
    zero, read_normalizer = ZEROS[dtype], normalizer_reader(normalizer)

    def body(address: int) -> None:
        p = arguments_at(address)
        size = size_of(zero)
        memory = allocate(p, p.keys * size)
        if memory == 0:
            return
        weights = array_at(cache_line(memory), p.keys, zero)
        while True:
            task = fetch_add(address)
            if task >= p.tasks:
                break
            first = task * p.block
            for row in range(first, min(first + p.block, p.queries)):
                copy(array_at(p.query + row * p.keys * size, p.keys, zero), weights)
                output = array_at(p.output + row * p.keys * size, p.keys, zero)
                copy(array_at(p.grad_output + row * p.keys * size, p.keys, zero), output)
                differentiate(read_normalizer(p, 0, zero), weights, output)
        release(p, memory)

    return body
