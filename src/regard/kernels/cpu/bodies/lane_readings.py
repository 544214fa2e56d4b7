"""Readings of rows with few keys: each vector holds a number of as many queries as it has lanes.

Where a vector holds numbers of one row, each row's sums are taken across its lanes and its logarithm alone, which takes
longer than all else where a row has few keys. Here rows stand side by side, ``scores [keys, lanes]``: sums over keys
are sums of vectors, and only what is summed over queries is taken across lanes.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from regard.kernels.cpu.bodies.arguments import ZEROS, arguments_at
from regard.kernels.cpu.bodies.block import blocks_of_chunk
from regard.kernels.cpu.bodies.elementary import log
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
from regard.kernels.cpu.bodies.vector_exp import exp_of
from regard.kernels.cpu.bodies.vectors import (
    broadcast,
    broadcast_at,
    lanes_of,
    larger,
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
"""Keys that are scored together: with fewer, each product would wait for the sum before it."""


LOWEST = np.finfo(np.float32).min
"""The lowest finite number: the largest score of a row that sees none above. Below it −∞ has the exponential 0."""


class Lanes(NamedTuple):
    """Queries that are read together, and a thread's memory for them.

    Attributes:
        batch, head: whose they are.
        row, rows: the first one, and how many; lanes behind them see nothing.
        queries: address of ``[dim, lanes]``.
        scores: address of ``[keys, lanes]``, then their exponentials.
        starts, stops: the run of keys that each sees, as real numbers ``[lanes]``.
        own: the key that each stands at, likewise.
        total: room for a number of each.
    """

    batch: int
    head: int
    row: int
    rows: int
    queries: int
    scores: int
    starts: Any
    stops: Any
    own: Any
    total: Any


@inlined
def lanes_at(p: Any, memory: int, b: int, h: int, row: int, rows: int, zeros: Any, zero: Any) -> Lanes:
    """Queries, with memory from an address on."""
    lanes, size = lanes_of(zeros), size_of(zero)
    scores = memory + p.dim * lanes * size
    first = scores + p.keys * lanes * size
    starts, stops, own, total = (
        array_at(first, lanes, zero),
        array_at(first + lanes * size, lanes, zero),
        array_at(first + 2 * lanes * size, lanes, zero),
        array_at(first + 3 * lanes * size, lanes, zero),
    )
    return Lanes(b, h, row, rows, memory, scores, starts, stops, own, total)


@inlined
def bytes_of_lanes(p: Any, zeros: Any, zero: Any) -> int:
    """What `lanes_at` takes."""
    return (p.dim + p.keys + 4) * lanes_of(zeros) * size_of(zero)


@inlined
def place_lanes(p: Any, lanes: Lanes, zero: Any) -> None:
    """Write what each lane's query is, where it stands and what it sees."""
    real, size, width = type(zero), size_of(zero), lanes.own.size
    at = lanes.batch * p.query_batch + lanes.head * p.query_head + lanes.row * p.query_row
    transpose(Matrix(p.query + at * size, p.query_row, 1), lanes.rows, p.dim, Matrix(lanes.queries, width, 1), zero)
    for i in range(width):
        lanes.own[i] = real(np.int32(lanes.row + i + p.key_offset))
        lanes.starts[i] = zero
        lanes.stops[i] = zero
    for i in range(lanes.rows):
        start, stop = run_of_row(p, lanes.batch, lanes.head, lanes.row + i, 0)
        lanes.starts[i] = real(np.int32(start))
        lanes.stops[i] = real(np.int32(stop))


@inlined
def visible_score(score: Any, number: Any, lanes: Lanes, zeros: Any) -> Any:
    """A key's scores; −∞ in lanes that do not see it."""
    key, hidden = broadcast(number, zeros), broadcast(type(number)(-np.inf), zeros)
    starts, stops = load(address_of(lanes.starts), zeros), load(address_of(lanes.stops), zeros)
    return where_less(key, starts, hidden, where_less(key, stops, score, hidden))


@inlined
def score_lanes(p: Any, lanes: Lanes, zeros: Any, zero: Any) -> Any:
    """Write the scores of all keys; the largest of each lane, the lowest finite number where it sees none above."""
    real, size = type(zero), size_of(zero)
    vector = lanes_of(zeros) * size
    group = lanes.head // (p.heads // p.kv_heads)
    key, step = p.key + (lanes.batch * p.key_batch + group * p.key_head) * size, p.key_row * size
    scale, top = broadcast(real(p.scale), zeros), broadcast(real(LOWEST), zeros)
    limited = p.start != 0 or lanes.rows < lanes_of(zeros)
    for j in range(0, p.keys, KEYS):
        # The last keys of all stand for those that are not there.
        k1, k2, k3 = min(j + 1, p.keys - 1), min(j + 2, p.keys - 1), min(j + 3, p.keys - 1)
        a0, a1, a2, a3 = key + j * step, key + k1 * step, key + k2 * step, key + k3 * step
        s0, s1, s2, s3 = zeros, zeros, zeros, zeros
        for d in range(p.dim):
            query = load(lanes.queries + d * vector, zeros)
            s0 = s0 + broadcast_at(a0 + d * size, zeros) * query
            s1 = s1 + broadcast_at(a1 + d * size, zeros) * query
            s2 = s2 + broadcast_at(a2 + d * size, zeros) * query
            s3 = s3 + broadcast_at(a3 + d * size, zeros) * query
        s0, s1, s2, s3 = scale * s0, scale * s1, scale * s2, scale * s3
        if limited:
            s0 = visible_score(s0, real(np.int32(j)), lanes, zeros)
            s1 = visible_score(s1, real(np.int32(k1)), lanes, zeros)
            s2 = visible_score(s2, real(np.int32(k2)), lanes, zeros)
            s3 = visible_score(s3, real(np.int32(k3)), lanes, zeros)
        top = larger(s3, larger(s2, larger(s1, larger(s0, top))))
        store(s0, lanes.scores + j * vector)
        store(s1, lanes.scores + k1 * vector)
        store(s2, lanes.scores + k2 * vector)
        store(s3, lanes.scores + k3 * vector)
    return top


@inlined
def write_rows(address: int, vector: Any, lanes: Lanes, p: Any, zero: Any) -> None:
    """Write one number of each row that there is."""
    at = address + ((lanes.batch * p.heads + lanes.head) * p.queries + lanes.row) * size_of(zero)
    if lanes.rows == lanes.total.size:
        store(vector, at)
    else:
        store(vector, address_of(lanes.total))
        copy(lanes.total, array_at(at, lanes.rows, zero))


@inlined
def read_lanes(p: Any, lanes: Lanes, chunk: int, zeros: Any, zero: Any) -> None:
    """Everything that is read of these queries' weights: see `regard.kernels.cpu.bodies.readings`."""
    real, size = type(zero), size_of(zero)
    vector = lanes_of(zeros) * size
    place_lanes(p, lanes, zero)
    top = score_lanes(p, lanes, zeros, zero)
    one, least, own = broadcast(real(1), zeros), broadcast(real(-100), zeros), load(address_of(lanes.own), zeros)
    total, rest, moment, distance = zeros, zeros, zeros, zeros
    for j in range(p.keys):
        below = load(lanes.scores + j * vector, zeros) - top
        power = exp_of(below)
        rest = rest + where_equal(below, zeros, zeros, power)
        total = total + power
        # −inf has weight 0, and 0 · −inf is NaN.
        moment = moment + power * where_less(below, least, least, below)
        store(power, lanes.scores + j * vector)
        if p.distance != 0:
            gap = own - broadcast(real(np.int32(j)), zeros)
            distance = distance + power * larger(zeros - gap, gap)
    inverse = where_equal(total, zeros, zeros, one / total)
    store(total, address_of(lanes.total))
    for i in range(lanes.total.size):
        lanes.total[i] = log(lanes.total[i])
    logarithm = load(address_of(lanes.total), zeros)
    nothing = broadcast(real(-np.inf), zeros)
    write_rows(p.lse, where_equal(total, zeros, nothing, top + logarithm), lanes, p, zero)
    if p.entropy != 0:
        # One term is 1, so the others are what log(1 + rest) needs.
        nearer = logarithm + (rest - (total - one)) * inverse
        size_of_all = where_less(total, broadcast(real(1.5), zeros), nearer, logarithm)
        write_rows(p.entropy, where_equal(total, zeros, zeros, size_of_all - moment * inverse), lanes, p, zero)
    if p.peak != 0:
        # The largest of all powers is 1.
        write_rows(p.peak, inverse, lanes, p, zero)
    if p.distance != 0:
        write_rows(p.distance, distance * inverse, lanes, p, zero)
    if p.received != 0:
        place = ((lanes.batch * p.heads + lanes.head) * p.chunks + chunk) * p.keys
        sums = array_at(p.received + place * size, p.keys, zero)
        for j in range(p.keys):
            sums[j] += sum_of(load(lanes.scores + j * vector, zeros) * inverse)


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
                for row in range(index * p.block, stop, width):
                    rows = min(width, stop - row)
                    read_lanes(p, lanes_at(p, scratch, b, h, row, rows, zeros, zero), chunk, zeros, zero)
        release(p, memory)

    return body
