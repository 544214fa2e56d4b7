"""Readings of rows with few keys, side by side: each lane of a vector belongs to another query.

If a vector holds elements of one row, sums are reduced across lanes and logarithms taken one by one, which dominates
the time of rows with few keys. With the layout ``scores [keys, lanes]``, sums over keys are sums of vectors, and only
sums over queries are reduced across lanes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from regard.kernels.cpu.bodies.arguments import ZEROS, arguments_at
from regard.kernels.cpu.bodies.block import blocks_of_chunk
from regard.kernels.cpu.bodies.elementary import exp_of, log
from regard.kernels.cpu.bodies.intrinsics import (
    address_of,
    allocate,
    array_at,
    cache_line,
    copy,
    fetch_add,
    release,
    size_of,
)
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.transposing import transpose
from regard.kernels.cpu.bodies.vectors import (
    broadcast,
    broadcast_at,
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
from regard.kernels.cpu.bodies.visible_keys import run_of_row
from regard.kernels.cpu.bodies.wide_product import Matrix

KEYS = 4
"""Keys that are scored together: with fewer, each product would wait for the previous sum."""

LOWEST_SCORE = np.finfo(np.float32).min
"""The lowest finite number: the maximum of a row without a higher score, so that the exponential of −∞ is 0."""


class Lanes(NamedTuple):
    """Queries that are computed together, and a thread's memory for them.

    Attributes:
        batch, head: the batch row and the query head.
        row, rows: the first row, and the number of rows; the remaining lanes see no key.
        first, last: the first key that a row sees, and the end of the keys.
        queries: address of the transposed queries, ``[dim, lanes]``.
        scores: address of the scores, ``[keys, lanes]``.
        starts, stops: the run of visible keys of each row, as real numbers, ``[lanes]``.
        own_keys: the index of each query's own key, likewise.
        buffer: memory for one vector.
    """

    batch: int
    head: int
    row: int
    rows: int
    first: int
    last: int
    queries: int
    scores: int
    starts: Any
    stops: Any
    own_keys: Any
    buffer: Any


@inlined
def bytes_of_lanes(p: Any, zeros: Any, zero: Any) -> int:
    """Bytes of the memory of `lanes_at`."""
    return (p.dim + p.keys + 4) * lanes_of(zeros) * size_of(zero)


@inlined
def lanes_at(p: Any, memory: int, b: int, h: int, row: int, rows: int, zeros: Any, zero: Any) -> Lanes:
    """Transposes some queries, and finds the keys that they see, in memory from an address on."""
    real, width, size = type(zero), lanes_of(zeros), size_of(zero)
    scores = memory + p.dim * width * size
    vectors_address = scores + p.keys * width * size
    starts, stops, own_keys, buffer = (
        array_at(vectors_address, width, zero),
        array_at(vectors_address + width * size, width, zero),
        array_at(vectors_address + 2 * width * size, width, zero),
        array_at(vectors_address + 3 * width * size, width, zero),
    )
    offset = b * p.query_batch + h * p.query_head + row * p.query_row
    transpose(Matrix(p.query + offset * size, p.query_row, 1), rows, p.dim, Matrix(memory, width, 1), zero)
    for i in range(width):
        own_keys[i] = real(np.int32(row + i + p.key_offset))
        starts[i] = zero
        stops[i] = zero
    first, last = p.keys, np.int64(0)
    for i in range(rows):
        start, stop = run_of_row(p, b, h, row + i, 0)
        starts[i] = real(np.int32(start))
        stops[i] = real(np.int32(stop))
        first, last = min(first, start), max(last, stop)
    return Lanes(b, h, row, rows, min(first, last), last, memory, scores, starts, stops, own_keys, buffer)


@inlined
def multiply_keys(keys: Matrix, depth: int, lanes: Lanes, zeros: Any, zero: Any) -> None:
    """Writes ``scores[j] = Σ_d keys[j, d] · queries[d]`` for the visible keys.

    Args:
        keys: keys with contiguous features.
        depth: number of features.
        lanes: the queries, and the memory of the scores.
    """
    size, first, last = size_of(zero), lanes.first, lanes.last
    vector, step = lanes_of(zeros) * size, keys.row * size
    for j in range(first, last, KEYS):
        # The last key replaces missing ones.
        j1, j2, j3 = min(j + 1, last - 1), min(j + 2, last - 1), min(j + 3, last - 1)
        a0, a1, a2, a3 = (
            keys.address + j * step,
            keys.address + j1 * step,
            keys.address + j2 * step,
            keys.address + j3 * step,
        )
        s0, s1, s2, s3 = zeros, zeros, zeros, zeros
        for d in range(depth):
            query = load(lanes.queries + d * vector, zeros)
            s0 = s0 + broadcast_at(a0 + d * size, zeros) * query
            s1 = s1 + broadcast_at(a1 + d * size, zeros) * query
            s2 = s2 + broadcast_at(a2 + d * size, zeros) * query
            s3 = s3 + broadcast_at(a3 + d * size, zeros) * query
        store(s0, lanes.scores + j * vector)
        store(s1, lanes.scores + j1 * vector)
        store(s2, lanes.scores + j2 * vector)
        store(s3, lanes.scores + j3 * vector)


@inlined
def score_lanes(p: Any, lanes: Lanes, zeros: Any, zero: Any) -> Any:
    """Writes the scores of the visible keys; returns the maximum of each lane, at least `LOWEST_SCORE`."""
    real, vector = type(zero), lanes_of(zeros) * size_of(zero)
    offset = lanes.batch * p.key_batch + lanes.head // (p.heads // p.kv_heads) * p.key_head
    multiply_keys(Matrix(p.key + offset * size_of(zero), p.key_row, 1), p.dim, lanes, zeros, zero)
    scale, maxima = broadcast(real(p.scale), zeros), broadcast(real(LOWEST_SCORE), zeros)
    masked = p.start != 0 or lanes.rows < lanes_of(zeros)
    for j in range(lanes.first, lanes.last):
        score = scale * load(lanes.scores + j * vector, zeros)
        if masked:
            index, hidden = broadcast(real(np.int32(j)), zeros), broadcast(real(-np.inf), zeros)
            starts, stops = load(address_of(lanes.starts), zeros), load(address_of(lanes.stops), zeros)
            score = where_less(index, starts, hidden, where_less(index, stops, score, hidden))
        maxima = lane_max(score, maxima)
        store(score, lanes.scores + j * vector)
    return maxima


@inlined
def write_rows(address: int, vector: Any, p: Any, lanes: Lanes, zero: Any) -> None:
    """Writes one element for each existing row."""
    offset = address + ((lanes.batch * p.heads + lanes.head) * p.queries + lanes.row) * size_of(zero)
    if lanes.rows == lanes.buffer.size:
        store(vector, offset)
    else:
        store(vector, address_of(lanes.buffer))
        copy(lanes.buffer, array_at(offset, lanes.rows, zero))


@inlined
def flatten_nonfinite(lanes: Lanes, zeros: Any, zero: Any) -> Any:
    """Replaces all scores but −∞ by 0 in lanes with NaN or +∞; returns the sum of these scores in each lane, or 0."""
    real, vector = type(zero), lanes_of(zeros) * size_of(zero)
    infinite, hidden, nonfinite = broadcast(real(np.inf), zeros), broadcast(real(-np.inf), zeros), zeros
    for j in range(lanes.first, lanes.last):
        score = load(lanes.scores + j * vector, zeros)
        nonfinite = nonfinite + where_less(score, infinite, zeros, score)
    for j in range(lanes.first, lanes.last):
        score = load(lanes.scores + j * vector, zeros)
        visible = where_equal(score, hidden, hidden, zeros)
        store(where_equal(nonfinite, zeros, score, visible), lanes.scores + j * vector)
    return nonfinite


@inlined
def read_lanes(p: Any, lanes: Lanes, chunk: int, has_nonfinite: bool, zeros: Any, zero: Any) -> bool:
    """Computes all readings of these queries' weights: see `regard.kernels.cpu.bodies.readings`.

    Args:
        has_nonfinite: whether a score is known to be NaN or +∞.

    Returns:
        Whether such a score was detected only now. In that case nothing is written.
    """
    real, size = type(zero), size_of(zero)
    vector = lanes_of(zeros) * size
    one, lowest, own_keys = (
        broadcast(real(1), zeros),
        broadcast(real(-100), zeros),
        load(address_of(lanes.own_keys), zeros),
    )
    maxima, nonfinite = score_lanes(p, lanes, zeros, zero), zeros
    if has_nonfinite:
        nonfinite = flatten_nonfinite(lanes, zeros, zero)
        maxima = where_equal(nonfinite, zeros, maxima, zeros)
    total, other_terms, moment, distance = zeros, zeros, zeros, zeros
    for j in range(lanes.first, lanes.last):
        difference = load(lanes.scores + j * vector, zeros) - maxima
        exponential = exp_of(difference)
        other_terms = other_terms + where_equal(difference, zeros, zeros, exponential)
        total = total + exponential
        # The weight of −inf is 0, and 0 · −inf is NaN.
        moment = moment + exponential * where_less(difference, lowest, lowest, difference)
        store(exponential, lanes.scores + j * vector)
        if p.distance != 0:
            gap = own_keys - broadcast(real(np.int32(j)), zeros)
            distance = distance + exponential * lane_max(zeros - gap, gap)
    if has_nan(total):
        return True
    # ∞ − ∞ is NaN.
    inverse = where_equal(total, zeros, zeros, one / total) + (nonfinite - nonfinite)
    store(total, address_of(lanes.buffer))
    for i in range(lanes.buffer.size):
        lanes.buffer[i] = log(lanes.buffer[i])
    logarithm = load(address_of(lanes.buffer), zeros)
    negative_infinity = broadcast(real(-np.inf), zeros)
    write_rows(p.lse, where_equal(total, zeros, negative_infinity, maxima + logarithm) + nonfinite, p, lanes, zero)
    if p.entropy != 0:
        # One term is exactly 1; the sum of the others corrects the rounding of the total.
        corrected = logarithm + (other_terms - (total - one)) * inverse
        log_total = where_less(total, broadcast(real(1.5), zeros), corrected, logarithm)
        write_rows(p.entropy, where_equal(total, zeros, zeros, log_total - moment * inverse), p, lanes, zero)
    if p.peak != 0:
        # The largest exponential is 1.
        write_rows(p.peak, inverse, p, lanes, zero)
    if p.distance != 0:
        write_rows(p.distance, distance * inverse, p, lanes, zero)
    if p.received != 0:
        offset = ((lanes.batch * p.heads + lanes.head) * p.chunks + chunk) * p.keys
        sums = array_at(p.received + offset * size, p.keys, zero)
        for j in range(lanes.first, lanes.last):
            exponential = load(lanes.scores + j * vector, zeros)
            weight = exponential * inverse
            if has_nonfinite:
                # 0 · NaN is NaN.
                weight = where_equal(exponential, zeros, zeros, weight)
            sums[j] += sum_of(weight)
    return False


def lane_readings(dtype: str) -> Callable[[int], None]:
    """Returns the body for a dtype, for inner products, softmax, and at most one run of keys per row."""
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
                row, has_nonfinite = index * p.block, False
                while row < stop:
                    lanes = lanes_at(p, scratch, b, h, row, min(width, stop - row), zeros, zero)
                    has_nonfinite = read_lanes(p, lanes, chunk, has_nonfinite, zeros, zero)
                    row += 0 if has_nonfinite else width
        release(p, memory)

    return body
