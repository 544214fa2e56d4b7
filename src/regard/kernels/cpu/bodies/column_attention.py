"""Attention to listed keys, and its gradients: the rows of keys and values are read where they are, four at a time.

A list belongs to a few neighbouring queries, and to the query heads that share their keys: these are the rows of a
block. Keys of a list that a row does not see have the weight 0. A key that is listed twice is read once: each thread
marks the blocks of keys that the present list has named. The backward pass recomputes the weights from the scores and
their log-sum-exp; a task has all rows of one key head, or a chunk of them with sums of its own.
"""

from collections.abc import Callable
from functools import partial, reduce
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from regard.kernels.cpu.bodies.arguments import ZERO, columns_at, rows_at
from regard.kernels.cpu.bodies.elementary import exp_of, log
from regard.kernels.cpu.bodies.intrinsics import array_at, cache_line, fetch_add
from regard.kernels.cpu.bodies.parts import embedded, inlined
from regard.kernels.cpu.bodies.vectors import (
    CONTRACTION,
    broadcast,
    lane_max,
    lanes_of,
    load,
    max_of,
    one_register,
    prefetch_line,
    register_bytes,
    splat,
    store,
    sum_of,
)
from regard.kernels.cpu.bodies.wide_product import Matrix
from regard.kernels.cpu.sizes import CACHE_LINE, LANES, ceil_div, padded_length

AHEAD = 8
"""How many keys ahead of the sums their rows are prefetched."""

SINGLE: Any = np.float32(0)

_BYTES, _LANES = register_bytes(), register_bytes() // 4
_NUMBER, _VECTOR = ir.FloatType(), ir.VectorType(ir.FloatType(), _LANES)
_int64 = partial(ir.Constant, ir.IntType(64))


class ColumnScratch(NamedTuple):
    """Arrays in a thread's own memory.

    Attributes:
        marks: the number of the last list that named each block of keys, int32 ``[blocks of keys]``.
        keys: address of the keys of the present list, int64.
        queries, grad_outputs, targets: addresses of the rows of a block, and of those that it writes, int64 ``[rows]``.
        weights, grads: addresses of the scores, later weights, and of their gradients, ``[rows, listed keys]``, padded.
    """

    marks: Any
    keys: int
    queries: Any
    grad_outputs: Any
    targets: Any
    weights: int
    grads: int


class ListedRows(NamedTuple):
    """Rows that are computed together: some queries of some heads, which share keys and a list.

    Attributes:
        batch, group: the batch row, and the key head.
        head, heads: the first query head, and how many there are.
        row: the row of the index.
        first, queries: the first query, and how many there are.
    """

    batch: int
    group: int
    head: int
    heads: int
    row: int
    first: int
    queries: int


@inlined
def _scratch_at(p: Any, address: int) -> ColumnScratch:
    """Returns a thread's arrays from an address on: see `regard.kernels.cpu.column_attention.memory_size`."""
    blocks, width = ceil_div(p.keys, p.size), padded_length(p.listed_keys)
    rows = p.block * (p.heads // p.lists)
    keys = cache_line(address + 4 * blocks)
    queries = cache_line(keys + 8 * (width + LANES + AHEAD))
    weights = cache_line(queries + 3 * 8 * rows)
    return ColumnScratch(
        array_at(address, blocks, np.int32(0)),
        keys,
        array_at(queries, rows, ZERO),
        array_at(queries + 8 * rows, rows, ZERO),
        array_at(queries + 16 * rows, rows, ZERO),
        weights,
        weights + rows * width * 4,
    )


def _addresses(builder: Any, first: Any, step: Any, count: int) -> list[Any]:
    """Builds the addresses of some numbers or rows, ``step`` bytes from one to the next."""
    return [builder.add(first, builder.mul(step, _int64(index))) for index in range(count)]


def _load_each(builder: Any, addresses: list[Any], offset: Any, kind: Any) -> list[Any]:
    """Builds the loads of a number or a vector at each of some addresses, plus an offset."""
    pointers = (builder.inttoptr(builder.add(address, offset), kind.as_pointer()) for address in addresses)
    return [builder.load(pointer, align=4) for pointer in pointers]


def _store_sums(builder: Any, vectors: list[Any], factor: Any, address: Any) -> None:
    """Builds the store of ``factor`` times the sums of the lanes of four vectors to four adjacent numbers."""
    lanes, index = vectors[0].type.count, ir.IntType(32)

    def chosen(left: Any, right: Any, order: list[int]) -> Any:
        return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(index, len(order)), order))

    def add_neighbours(left: Any, right: Any) -> Any:
        halves = [
            [quad + n + other for quad in range(0, lanes, 4) for other in (0, lanes) for n in (part, part + 2)]
            for part in (0, 1)
        ]
        return builder.fadd(*(chosen(left, right, half) for half in halves))

    total = add_neighbours(add_neighbours(*vectors[:2]), add_neighbours(*vectors[2:]))
    while lanes > 4:
        lanes //= 2
        total = builder.fadd(*(chosen(total, total, list(range(s, s + lanes))) for s in (0, lanes)))
    scaled = builder.fmul(total, splat(builder, factor, 4))
    builder.store(scaled, builder.inttoptr(address, total.type.as_pointer()), align=4)


@intrinsic
def _write_sums(typing: Any, rows: Any, keys: Any, size: Any, factor: Any, numbers: Any, width: Any) -> Any:
    """Writes the products of `_write_tile` for the first ``size`` bytes of the rows, whole vectors."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row_starts, key_starts = (cgutils.unpack_tuple(builder, starts) for starts in arguments[:2])
        size, factor, numbers, width = arguments[2:]
        sums = [cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, None)) for _ in product(row_starts, key_starts)]
        with cgutils.for_range_slice(builder, _int64(0), size, _int64(len(row_starts) * _BYTES)) as (first, _):
            for offset in _addresses(builder, first, _int64(_BYTES), len(row_starts)):
                own = _load_each(builder, row_starts, offset, _VECTOR)
                for n, start in enumerate(key_starts):
                    (key,) = _load_each(builder, [start], offset, _VECTOR)
                    for row, total in zip(own, sums[n :: len(key_starts)], strict=True):
                        scaled = builder.fmul(row, key, flags=CONTRACTION)
                        builder.store(builder.fadd(builder.load(total), scaled, flags=CONTRACTION), total)
        for index, target in enumerate(_addresses(builder, numbers, width, len(row_starts))):
            _store_sums(builder, [builder.load(total) for total in sums[4 * index : 4 * index + 4]], factor, target)
        return context.get_dummy_value()

    return types.void(rows, keys, types.int64, types.float32, types.int64, types.int64), generate


@inlined
def _write_tile(rows: Any, keys: Any, depth: int, factor: Any, numbers: int, width: int) -> None:
    """Writes the scaled inner products of one row or two with four others.

    Args:
        rows, keys: addresses, as tuples; two rows are whole pairs of vectors.
        numbers: address of the products of the first row; those of the second one are ``width`` bytes further on.
    """
    whole = depth - (depth % _LANES if len(rows) == 1 else 0)
    _write_sums(rows, keys, 4 * whole, factor, numbers, width)
    for n in range(4 if whole < depth else 0):
        row, key = array_at(rows[0], depth, SINGLE), array_at(keys[n], depth, SINGLE)
        total = array_at(numbers + 4 * n, 1, SINGLE)
        for d in range(whole, depth):
            total[0] += factor * row[d] * key[d]


@intrinsic
def _add_tile(typing: Any, targets: Any, rows: Any, depth: Any, step: Any, numbers: Any, width: Any) -> Any:
    """Adds weighted rows to each of some others.

    Args:
        targets, rows: addresses, as tuples; two targets are whole pairs of vectors.
        numbers: address of the weights: the next row's is ``step`` bytes further on, and the next target's ``width``.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        targets, rows = (cgutils.unpack_tuple(builder, starts) for starts in arguments[:2])
        depth, step, numbers, width = arguments[2:]
        weights = [
            _load_each(builder, _addresses(builder, first, step, len(rows)), _int64(0), _NUMBER)
            for first in _addresses(builder, numbers, width, len(targets))
        ]
        factors = [[splat(builder, weight, _LANES) for weight in own] for own in weights]
        end, add = builder.mul(depth, _int64(4)), partial(builder.fadd, flags=CONTRACTION)
        whole = builder.sub(end, builder.srem(end, _int64(_BYTES))) if len(targets) == 1 else end

        def add_at(offset: Any, kind: Any, factors: list[list[Any]]) -> None:
            parts = _load_each(builder, rows, offset, kind)
            for target, own in zip(targets, factors, strict=True):
                products = [builder.fmul(*pair, flags=CONTRACTION) for pair in zip(own, parts, strict=True)]
                if len(targets) == 1 and kind == _VECTOR:
                    # The sum of the products comes first: it does not wait for that of the last rows.
                    products = [reduce(add, [reduce(add, products[n : n + 2]) for n in range(0, len(rows), 2)])]
                (old,) = _load_each(builder, [target], offset, kind)
                address = builder.inttoptr(builder.add(target, offset), kind.as_pointer())
                builder.store(reduce(add, products, old), address, align=4)

        with cgutils.for_range_slice(builder, _int64(0), whole, _int64(len(targets) * _BYTES)) as (start, _):
            for offset in _addresses(builder, start, _int64(_BYTES), len(targets)):
                add_at(offset, _VECTOR, factors)
        if len(targets) == 1:
            with cgutils.for_range_slice(builder, whole, end, _int64(4)) as (offset, _):
                add_at(offset, _NUMBER, weights)
        return context.get_dummy_value()

    return types.void(targets, rows, *[types.int64] * 4), generate


@embedded
def _four_rows(matrix: Matrix, keys: int, j: int) -> tuple[int, int, int, int]:
    """Returns the addresses of four rows of a matrix, from the ``j``-th key of a list at an address on."""
    four, start, row = array_at(keys + 8 * j, 4, ZERO), matrix.address, 4 * matrix.row
    return start + four[0] * row, start + four[1] * row, start + four[2] * row, start + four[3] * row


@inlined
def _prefetch(matrix: Matrix, keys: int, j: int, depth: int) -> None:
    """Prefetches four rows of a matrix, some keys after the ``j``-th one of a list."""
    a, b, c, d = _four_rows(matrix, keys, j + AHEAD)
    for offset in range(0, 4 * depth, CACHE_LINE):
        prefetch_line(a + offset)
        prefetch_line(b + offset)
        prefetch_line(c + offset)
        prefetch_line(d + offset)


def _over_keys(tile: Any) -> Any:
    """Returns a part that computes a tile for all rows with four listed rows of a matrix at a time.

    Its arguments are the addresses of the rows; the matrix, the address of a list and how many keys it has; the length
    of the rows, an option of the tile, the address of the first row's numbers, one for each key and for a few more, and
    the bytes to the next row's.
    """

    @inlined
    def run(rows: Any, matrix: Matrix, keys: int, size: int, depth: int, option: Any, numbers: int, width: int) -> None:
        in_pairs = depth % (2 * _LANES) == 0
        for j in range(0, size, 4):
            _prefetch(matrix, keys, j, depth)
            four, r, own = _four_rows(matrix, keys, j), 0, numbers + 4 * j
            while in_pairs and r + 2 <= rows.size:
                tile((rows[r], rows[r + 1]), four, depth, option, own, width)
                r, own = r + 2, own + 2 * width
            while r < rows.size:
                tile((rows[r],), four, depth, option, own, width)
                r, own = r + 1, own + width

    return run


_write_products, _add_mixtures = _over_keys(_write_tile), _over_keys(_add_tile)


@inlined
def _mix(rows: Any, matrix: Matrix, keys: int, size: int, depth: int, weights: int, width: int) -> None:
    """Writes sums of the listed rows of a matrix, weighted, to rows at these addresses."""
    for r in range(rows.size):
        array_at(rows[r], depth, SINGLE)[:] = SINGLE
    _add_mixtures(rows, matrix, keys, size, depth, 4, weights, width)


@inlined
def _scatter(rows: Any, matrix: Matrix, keys: int, size: int, depth: int, weights: int, width: int) -> None:
    """Adds weighted rows at these addresses to each listed row of a matrix."""
    for j in range(size):
        if j % 4 == 0:
            _prefetch(matrix, keys, j, depth)
        target, weight, r = (matrix.address + 4 * array_at(keys + 8 * j, 1, ZERO)[0] * matrix.row,), weights + 4 * j, 0
        while r + 4 <= rows.size:
            _add_tile(target, (rows[r], rows[r + 1], rows[r + 2], rows[r + 3]), depth, width, weight, 0)
            r, weight = r + 4, weight + 4 * width
        while r < rows.size:
            _add_tile(target, (rows[r],), depth, width, weight, 0)
            r, weight = r + 1, weight + width


@inlined
def _rows_at(p: Any, batch: int, group: int, unit: int, number: int) -> ListedRows:
    """Returns a block of rows of the ``unit``-th heads with a list of their own in a key head; it may be empty."""
    blocks, heads = ceil_div(p.query_size, p.block), p.heads // p.lists
    head = (group * (p.lists // p.kv_heads) + unit) * heads
    row = number // blocks
    first = row * p.query_size + number % blocks * p.block
    end = min((row + 1) * p.query_size, p.queries, first + p.block)
    return ListedRows(batch, group, head, heads, row, first, max(end - first, 0))


@embedded
def _place_of(rows: ListedRows, r: int) -> tuple[Any, Any]:
    """Returns the query head and the query of a row of a block."""
    return rows.head + r // rows.queries, rows.first + r % rows.queries


@embedded
def _lse_of(p: Any, rows: ListedRows, r: int) -> Any:
    """Returns the log-sum-exp of a row, as an array."""
    head, query = _place_of(rows, r)
    return array_at(p.lse + 4 * ((rows.batch * p.heads + head) * p.queries + query), 1, SINGLE)


@embedded
def _span_of(p: Any, rows: ListedRows, r: int) -> tuple[Any, Any]:
    """Returns the first key and the end of the keys that a row of a block may see at all."""
    if p.start.address == 0:
        return np.int64(0), np.int64(p.keys)
    head, query = _place_of(rows, r)
    start = rows_at(p.start, rows.batch, head, query).address
    stop = p.stop + (start - p.start.address)
    return np.int64(array_at(start, 1, np.int32(0))[0]), np.int64(array_at(stop, 1, np.int32(0))[0])


@inlined
def _list_keys(p: Any, rows: ListedRows, number: int, memory: ColumnScratch) -> Any:
    """Writes the keys that a row of the block may see, each once, and then the last one again, for whole vectors.

    Args:
        number: the number of this list, above 0.

    Returns:
        How many keys there are.
    """
    low, high = np.int64(p.keys), np.int64(0)
    for r in range(rows.heads * rows.queries):
        start, stop = _span_of(p, rows, r)
        if start < stop:
            low, high = min(low, start), max(high, stop)
    head = rows.head * p.index_heads // p.heads
    index = p.index.address + 8 * (rows.batch * p.index.batch + head * p.index.head + rows.row * p.index.row)
    first, stop = low // p.size, -(-high // p.size)
    marks, count = memory.marks, np.int64(0)
    for n in range(p.listed):
        listed = array_at(index + 8 * n, 1, ZERO)[0]
        if listed < first or listed >= stop or marks[np.uint64(listed)] == number:
            continue
        marks[np.uint64(listed)] = number
        if p.size == 1:
            array_at(memory.keys + 8 * count, 1, ZERO)[0] = listed
            count += 1
            continue
        for key in range(max(listed * p.size, low), min((listed + 1) * p.size, high)):
            array_at(memory.keys + 8 * count, 1, ZERO)[0] = key
            count += 1
    keys = array_at(memory.keys, count + LANES + AHEAD, ZERO)
    for n in range(count, keys.size):
        keys[n] = keys[count - 1] if count > 0 else 0
    return count


@inlined
def _write_rows(rows: ListedRows, tensor: Any, addresses: Any) -> Any:
    """Writes the addresses of a block's rows of a tensor; returns them."""
    for r in range(rows.heads * rows.queries):
        head, query = _place_of(rows, r)
        addresses[r] = rows_at(tensor, rows.batch, head, query).address
    return addresses[: rows.heads * rows.queries]


@inlined
def _fill(p: Any, rows: ListedRows, r: int, memory: ColumnScratch, size: int, row: Any, number: Any) -> None:
    """Writes a number where a row of a block has a key that it does not see, or none."""
    if rows.heads * rows.queries > 1:
        start, stop = _span_of(p, rows, r)
        keys = array_at(memory.keys, size, ZERO)
        for j in range(size):
            row[j] = number if keys[j] < start or keys[j] >= stop else row[j]
    for j in range(size, row.size):
        row[j] = number


@inlined
def _weigh(row: int, padded: int) -> Any:
    """Turns a row's scores into weights; returns their log-sum-exp."""
    zeros = one_register(SINGLE)
    maxima, total = broadcast(np.float32(-np.inf), zeros), zeros
    for offset in range(0, 4 * padded, 4 * lanes_of(zeros)):
        maxima = lane_max(load(row + offset, zeros), maxima)
    highest = max_of(maxima)
    # Scores of NaN alone have no maximum, and give weights of NaN.
    subtrahend = broadcast(highest if highest > np.float32(-np.inf) else SINGLE, zeros)
    for offset in range(0, 4 * padded, 4 * lanes_of(zeros)):
        exponential = exp_of(load(row + offset, zeros) - subtrahend)
        store(exponential, row + offset)
        total = total + exponential
    mass = sum_of(total)
    if mass == SINGLE:
        return np.float32(-np.inf)
    inverse = broadcast(np.float32(1) / mass, zeros)
    for offset in range(0, 4 * padded, 4 * lanes_of(zeros)):
        store(load(row + offset, zeros) * inverse, row + offset)
    return highest + log(mass)


@inlined
def _differentiate_row(row: int, gradient: int, padded: int, lse: Any, scale: Any) -> None:
    """Turns a row's scores into weights, and the gradient of the weights into that of the products, unscaled."""
    zeros = one_register(SINGLE)
    if lse == np.float32(-np.inf):
        array_at(row, padded, SINGLE)[:] = SINGLE
        array_at(gradient, padded, SINGLE)[:] = SINGLE
        return
    subtrahend, total = broadcast(lse, zeros), zeros
    for offset in range(0, 4 * padded, 4 * lanes_of(zeros)):
        weight = exp_of(load(row + offset, zeros) - subtrahend)
        store(weight, row + offset)
        total = total + weight * load(gradient + offset, zeros)
    mean, factor = broadcast(sum_of(total), zeros), broadcast(scale, zeros)
    for offset in range(0, 4 * padded, 4 * lanes_of(zeros)):
        weight = load(row + offset, zeros) * factor
        store(weight * (load(gradient + offset, zeros) - mean), gradient + offset)


@inlined
def _score(p: Any, rows: ListedRows, number: int, scratch: ColumnScratch, width: int) -> Any:
    """Lists the keys of some rows, and writes their scores; returns the addresses of the queries, and the keys."""
    size = _list_keys(p, rows, number, scratch)
    queries, key = _write_rows(rows, p.query, scratch.queries), rows_at(p.key, rows.batch, rows.group, 0)
    _write_products(queries, key, scratch.keys, size, p.dim, np.float32(p.scale), scratch.weights, width)
    for r in range(queries.size):
        row = array_at(scratch.weights + r * width, padded_length(size), SINGLE)
        _fill(p, rows, r, scratch, size, row, np.float32(-np.inf))
    return queries, size


@inlined
def _attend(p: Any, rows: ListedRows, number: int, scratch: ColumnScratch, task: int) -> None:
    """Writes the outputs and the log-sum-exp of some rows."""
    width = 4 * padded_length(p.listed_keys)
    queries, size = _score(p, rows, number, scratch, width)
    for r in range(queries.size):
        _lse_of(p, rows, r)[0] = _weigh(scratch.weights + r * width, padded_length(size))
    outputs, value = _write_rows(rows, p.output, scratch.targets), rows_at(p.value, rows.batch, rows.group, 0)
    _mix(outputs, value, scratch.keys, size, p.value_dim, scratch.weights, width)


@inlined
def _differentiate(p: Any, rows: ListedRows, number: int, scratch: ColumnScratch, task: int) -> None:
    """Writes the gradients of some queries, and adds those of the keys and values to the task's sums."""
    width, D, V, one = 4 * padded_length(p.listed_keys), p.dim, p.value_dim, np.float32(1)
    queries, size = _score(p, rows, number, scratch, width)
    grad_outputs = _write_rows(rows, p.grad_output, scratch.grad_outputs)
    key, value = rows_at(p.key, rows.batch, rows.group, 0), rows_at(p.value, rows.batch, rows.group, 0)
    _write_products(grad_outputs, value, scratch.keys, size, V, one, scratch.grads, width)
    for r in range(queries.size):
        gradient = scratch.grads + r * width
        _fill(p, rows, r, scratch, size, array_at(gradient, padded_length(size), SINGLE), SINGLE)
        lse, scale = _lse_of(p, rows, r)[0], np.float32(p.scale)
        _differentiate_row(scratch.weights + r * width, gradient, padded_length(size), lse, scale)
    _mix(_write_rows(rows, p.grad_query, scratch.targets), key, scratch.keys, size, D, scratch.grads, width)
    grad_key, grad_value = rows_at(p.grad_key, task, 0, 0), rows_at(p.grad_value, task, 0, 0)
    _scatter(queries, grad_key, scratch.keys, size, D, scratch.grads, width)
    _scatter(grad_outputs, grad_value, scratch.keys, size, V, scratch.weights, width)


def _over_tasks(compute: Any) -> Callable[[int], None]:
    """Returns the body that runs a part ``(arguments, rows, number of the list, scratch, task)`` for all rows."""

    def body(address: int) -> None:
        p = columns_at(address)
        thread, number = fetch_add(address + 8), np.int64(0)
        if thread >= p.threads:
            return
        scratch = _scratch_at(p, p.memory + thread * p.memory_size)
        scratch.marks[:] = np.int32(0)
        blocks, units = p.rows * ceil_div(p.query_size, p.block), p.lists // p.kv_heads
        part = ceil_div(blocks, p.chunks)
        while True:
            task = fetch_add(address)
            if task >= p.batch * p.kv_heads * p.chunks:
                break
            chunk, head = task % p.chunks, task // p.chunks
            for unit in range(units):
                for block in range(chunk * part, min((chunk + 1) * part, blocks)):
                    number += 1
                    compute(p, _rows_at(p, head // p.kv_heads, head % p.kv_heads, unit, block), number, scratch, task)

    return body


def column_attention(dtype: str) -> Callable[[int], None]:
    """Returns the body of `regard.kernels.cpu.column_attention.attend`; float32."""
    return _over_tasks(_attend)


def column_attention_gradients(dtype: str) -> Callable[[int], None]:
    """Returns the body of `regard.kernels.cpu.column_attention.gradients`; float32."""
    return _over_tasks(_differentiate)
