"""Rows with few keys: each vector holds a number of as many queries as it has lanes.

Where a vector holds numbers of one row, each row's sums are taken across its lanes and its logarithm alone, which takes
longer than all else where a row has few keys. Here rows stand side by side, ``scores [keys, lanes]``: sums over keys
are sums of vectors, and only what is summed over queries is taken across lanes.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any, NamedTuple

import numpy as np

from regard.kernels.cpu.bodies.intrinsics import address_of, array_at, copy, size_of
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.transposing import transpose
from regard.kernels.cpu.bodies.vectors import broadcast, broadcast_at, lane_max, lanes_of, load, store, where_less
from regard.kernels.cpu.bodies.visible_keys import run_of_row
from regard.kernels.cpu.bodies.wide_product import Matrix

KEYS = 4
"""Keys that are scored together: with fewer, each product would wait for the sum before it."""

LOWEST = np.finfo(np.float32).min
"""The lowest finite number: the largest score of a row that sees none above. Below it −∞ has the exponential 0."""


class Lanes(NamedTuple):
    """Queries that are calculated together, and a thread's memory for them.

    Attributes:
        batch, head: whose they are.
        row, rows: the first one, and how many; lanes behind them see nothing.
        first, last: the first key that one of them sees, and the end of those.
        queries: address of ``[dim, lanes]``.
        scores: address of ``[keys, lanes]``.
        starts, stops: the run of keys that each sees, as real numbers ``[lanes]``.
        own: the key that each stands at, likewise.
        numbers: room for a number of each.
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
    own: Any
    numbers: Any


@inlined
def bytes_of_lanes(p: Any, zeros: Any, zero: Any) -> int:
    """The memory of `lanes_at`."""
    return (p.dim + p.keys + 4) * lanes_of(zeros) * size_of(zero)


@inlined
def lanes_at(p: Any, memory: int, b: int, h: int, row: int, rows: int, zeros: Any, zero: Any) -> Lanes:
    """Some queries, transposed, and what they see; with memory from an address on."""
    real, width, size = type(zero), lanes_of(zeros), size_of(zero)
    scores = memory + p.dim * width * size
    rest = scores + p.keys * width * size
    starts, stops, own, numbers = (
        array_at(rest, width, zero),
        array_at(rest + width * size, width, zero),
        array_at(rest + 2 * width * size, width, zero),
        array_at(rest + 3 * width * size, width, zero),
    )
    offset = b * p.query_batch + h * p.query_head + row * p.query_row
    transpose(Matrix(p.query + offset * size, p.query_row, 1), rows, p.dim, Matrix(memory, width, 1), zero)
    for i in range(width):
        own[i] = real(np.int32(row + i + p.key_offset))
        starts[i] = zero
        stops[i] = zero
    first, last = p.keys, np.int64(0)
    for i in range(rows):
        start, stop = run_of_row(p, b, h, row + i, 0)
        starts[i] = real(np.int32(start))
        stops[i] = real(np.int32(stop))
        first, last = min(first, start), max(last, stop)
    return Lanes(b, h, row, rows, min(first, last), last, memory, scores, starts, stops, own, numbers)


@inlined
def multiply_keys(keys: Matrix, depth: int, lanes: Lanes, zeros: Any, zero: Any) -> None:
    """``scores[j] = Σ_d keys[j, d] · queries[d]`` for the keys that are seen.

    Args:
        keys: features side by side.
        depth: features.
        lanes: what is multiplied, and what is written to.
    """
    size, first, last = size_of(zero), lanes.first, lanes.last
    vector, step = lanes_of(zeros) * size, keys.row * size
    for j in range(first, last, KEYS):
        # The last key stands for those that are not there.
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
    """Write the scores of the keys that are seen; the largest of each lane, `LOWEST` where it sees none above."""
    real, vector = type(zero), lanes_of(zeros) * size_of(zero)
    offset = lanes.batch * p.key_batch + lanes.head // (p.heads // p.kv_heads) * p.key_head
    multiply_keys(Matrix(p.key + offset * size_of(zero), p.key_row, 1), p.dim, lanes, zeros, zero)
    scale, top = broadcast(real(p.scale), zeros), broadcast(real(LOWEST), zeros)
    masked = p.start != 0 or lanes.rows < lanes_of(zeros)
    for j in range(lanes.first, lanes.last):
        score = scale * load(lanes.scores + j * vector, zeros)
        if masked:
            number, hidden = broadcast(real(np.int32(j)), zeros), broadcast(real(-np.inf), zeros)
            starts, stops = load(address_of(lanes.starts), zeros), load(address_of(lanes.stops), zeros)
            score = where_less(number, starts, hidden, where_less(number, stops, score, hidden))
        top = lane_max(score, top)
        store(score, lanes.scores + j * vector)
    return top


@inlined
def write_rows(address: int, vector: Any, p: Any, lanes: Lanes, zero: Any) -> None:
    """Write one number of each row that there is."""
    offset = address + ((lanes.batch * p.heads + lanes.head) * p.queries + lanes.row) * size_of(zero)
    if lanes.rows == lanes.numbers.size:
        store(vector, offset)
    else:
        store(vector, address_of(lanes.numbers))
        copy(lanes.numbers, array_at(offset, lanes.rows, zero))
