"""Readings of rows with few keys, which stand side by side: see `regard.kernels.cpu.bodies.lanes`."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from collections.abc import Callable
from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.arguments import ZEROS, arguments_at
from regard.kernels.cpu.bodies.block import blocks_of_chunk
from regard.kernels.cpu.bodies.elementary import log
from regard.kernels.cpu.bodies.intrinsics import address_of, allocate, array_at, cache_line, fetch_add, release, size_of
from regard.kernels.cpu.bodies.lanes import Lanes, bytes_of_lanes, lanes_at, score_lanes, write_rows
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.vector_exp import exp_of
from regard.kernels.cpu.bodies.vectors import (
    broadcast,
    has_nan,
    lane_max,
    lanes_of,
    load,
    one_register,
    store,
    sum_of,
    where_equal,
    where_less,
)


@inlined
def flatten_nonfinite(lanes: Lanes, zeros: Any, zero: Any) -> Any:
    """Write 0 for all scores but −∞ to the lanes that have NaN or +∞; the sum of these numbers in each lane, or 0."""
    real, vector = type(zero), lanes_of(zeros) * size_of(zero)
    infinite, hidden, beyond = broadcast(real(np.inf), zeros), broadcast(real(-np.inf), zeros), zeros
    for j in range(lanes.first, lanes.last):
        score = load(lanes.scores + j * vector, zeros)
        beyond = beyond + where_less(score, infinite, zeros, score)
    for j in range(lanes.first, lanes.last):
        score = load(lanes.scores + j * vector, zeros)
        seen = where_equal(score, hidden, hidden, zeros)
        store(where_equal(beyond, zeros, score, seen), lanes.scores + j * vector)
    return beyond


@inlined
def read_lanes(p: Any, lanes: Lanes, chunk: int, spoilt: bool, zeros: Any, zero: Any) -> bool:
    """Everything that is read of these queries' weights: see `regard.kernels.cpu.bodies.readings`.

    Args:
        spoilt: whether a score is known to be NaN or +∞.

    Returns:
        Whether that was found now. Then nothing is written.
    """
    real, size = type(zero), size_of(zero)
    vector = lanes_of(zeros) * size
    one, least, own = broadcast(real(1), zeros), broadcast(real(-100), zeros), load(address_of(lanes.own), zeros)
    top, beyond = score_lanes(p, lanes, zeros, zero), zeros
    if spoilt:
        beyond = flatten_nonfinite(lanes, zeros, zero)
        top = where_equal(beyond, zeros, top, zeros)
    total, rest, moment, distance = zeros, zeros, zeros, zeros
    for j in range(lanes.first, lanes.last):
        below = load(lanes.scores + j * vector, zeros) - top
        power = exp_of(below)
        rest = rest + where_equal(below, zeros, zeros, power)
        total = total + power
        # −inf has weight 0, and 0 · −inf is NaN.
        moment = moment + power * where_less(below, least, least, below)
        store(power, lanes.scores + j * vector)
        if p.distance != 0:
            gap = own - broadcast(real(np.int32(j)), zeros)
            distance = distance + power * lane_max(zeros - gap, gap)
    if has_nan(total):
        return True
    # ∞ − ∞ is NaN.
    inverse = where_equal(total, zeros, zeros, one / total) + (beyond - beyond)
    store(total, address_of(lanes.numbers))
    for i in range(lanes.numbers.size):
        lanes.numbers[i] = log(lanes.numbers[i])
    logarithm = load(address_of(lanes.numbers), zeros)
    nothing = broadcast(real(-np.inf), zeros)
    write_rows(p.lse, where_equal(total, zeros, nothing, top + logarithm) + beyond, p, lanes, zero)
    if p.entropy != 0:
        # One term is 1, so the others are what log(1 + rest) needs.
        nearer = logarithm + (rest - (total - one)) * inverse
        size_of_all = where_less(total, broadcast(real(1.5), zeros), nearer, logarithm)
        write_rows(p.entropy, where_equal(total, zeros, zeros, size_of_all - moment * inverse), p, lanes, zero)
    if p.peak != 0:
        # The largest of all powers is 1.
        write_rows(p.peak, inverse, p, lanes, zero)
    if p.distance != 0:
        write_rows(p.distance, distance * inverse, p, lanes, zero)
    if p.received != 0:
        place = ((lanes.batch * p.heads + lanes.head) * p.chunks + chunk) * p.keys
        sums = array_at(p.received + place * size, p.keys, zero)
        for j in range(lanes.first, lanes.last):
            power = load(lanes.scores + j * vector, zeros)
            weight = power * inverse
            if spoilt:
                # 0 · NaN is NaN.
                weight = where_equal(power, zeros, zeros, weight)
            sums[j] += sum_of(weight)
    return False


def lane_readings(dtype: str) -> Callable[[int], None]:
    """The body for a dtype: of inner products, softmax, and at most one run of keys a row."""
    zero = ZEROS[dtype]

    def body(address: int) -> None:
        p = arguments_at(address)
        zeros = one_register(zero)
        width = lanes_of(zeros)
        memory = allocate(p, bytes_of_lanes(p, zeros, zero))
        if memory == 0:
            return
        scratch = cache_line(memory)
        while True:
            task = fetch_add(address)
            if task >= p.tasks:
                break
            head, chunk = task // p.chunks, task % p.chunks
            b, h = head // p.heads, head % p.heads
            for index in blocks_of_chunk(p, chunk):
                stop = min((index + 1) * p.block, p.queries)
                row, spoilt = index * p.block, False
                while row < stop:
                    lanes = lanes_at(p, scratch, b, h, row, min(width, stop - row), zeros, zero)
                    spoilt = read_lanes(p, lanes, chunk, spoilt, zeros, zero)
                    row += 0 if spoilt else width
        release(p, memory)

    return body
