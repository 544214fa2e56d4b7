"""Attention to listed keys, and its gradients: the rows of keys and values are read where they are, four at a time.

A list belongs to a few neighbouring queries, and to the query heads that share their keys: these are the rows of a
block. Keys of a list that a row does not see have the weight 0. A key that is listed twice is read once: each thread
marks the blocks of keys that the present list has named. The backward pass recomputes the weights from the scores and
their log-sum-exp; a task has all rows of one key head, or a chunk of them with sums of its own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from regard.kernels.cpu.bodies.arguments import columns_at
from regard.kernels.cpu.bodies.elementary import exp_of, log
from regard.kernels.cpu.bodies.intrinsics import array_at, cache_line, fetch_add
from regard.kernels.cpu.bodies.parts import embedded, inlined
from regard.kernels.cpu.bodies.vectors import (
    broadcast,
    lane_max,
    lanes_of,
    load,
    max_of,
    one_register,
    prefetch_line,
    store,
    sum_of,
)
from regard.kernels.cpu.sizes import CACHE_LINE, LANES, ceil_div, padded_length

AHEAD = 8
"""How many keys ahead of the sums their rows are prefetched."""

SINGLE: Any = np.float32(0)


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
    zero = np.int64(0)
    return ColumnScratch(
        array_at(address, blocks, np.int32(0)),
        keys,
        array_at(queries, rows, zero),
        array_at(queries + 8 * rows, rows, zero),
        array_at(queries + 16 * rows, rows, zero),
        weights,
        weights + rows * width * 4,
    )


@intrinsic
def _four_sums(typing: Any, a: Any, b: Any, c: Any, d: Any, factor: Any, address: Any) -> Any:
    """Writes ``factor`` times the sums of the lanes of four vectors to four adjacent numbers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *vectors, factor, address = arguments
        lanes, index = a.lanes, ir.IntType(32)

        def chosen(left: Any, right: Any, order: list[int]) -> Any:
            return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(index, len(order)), order))

        def add_neighbours(left: Any, right: Any) -> Any:
            halves = [
                [quad + n + other for quad in range(0, lanes, 4) for other in (0, lanes) for n in (part, part + 2)]
                for part in (0, 1)
            ]
            return builder.fadd(*(chosen(left, right, half) for half in halves))

        total = add_neighbours(add_neighbours(*vectors[:2]), add_neighbours(*vectors[2:]))
        width = lanes
        while width > 4:
            width //= 2
            total = builder.fadd(*(chosen(total, total, list(range(s, s + width))) for s in (0, width)))
        four = chosen(
            *[builder.insert_element(ir.Constant(total.type, ir.Undefined), factor, ir.Constant(index, 0))] * 2, [0] * 4
        )
        builder.store(builder.fmul(total, four), builder.inttoptr(address, total.type.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(a, b, c, d, types.float32, types.int64), generate


@embedded
def _number(address: int) -> Any:
    """Returns the number at an address."""
    return array_at(address, 1, SINGLE)[0]


@inlined
def _add_products(x: int, y: int, first: int, depth: int, factor: Any, target: int) -> None:
    """Adds the scaled products of the features from ``first`` on, which fill no vector."""
    left, right, total = array_at(x, depth, SINGLE), array_at(y, depth, SINGLE), array_at(target, 1, SINGLE)
    for d in range(first, depth):
        total[0] += factor * left[d] * right[d]


@inlined
def _products_of_one(x: int, keys: tuple[int, int, int, int], depth: int, factor: Any, target: int) -> None:
    """Writes the scaled inner products of a row with four others."""
    zeros, (k0, k1, k2, k3) = one_register(SINGLE), keys
    whole = depth - depth % lanes_of(zeros)
    a, b, c, d = zeros, zeros, zeros, zeros
    for offset in range(0, 4 * whole, 4 * lanes_of(zeros)):
        own = load(x + offset, zeros)
        a = a + own * load(k0 + offset, zeros)
        b = b + own * load(k1 + offset, zeros)
        c = c + own * load(k2 + offset, zeros)
        d = d + own * load(k3 + offset, zeros)
    _four_sums(a, b, c, d, factor, target)
    if whole < depth:
        for n in range(4):
            _add_products(x, keys[n], whole, depth, factor, target + 4 * n)


@embedded
def _add_products_of_two(x: int, y: int, keys: Any, offset: int, sums: Any) -> Any:
    """Returns sums of products of two rows with four others, with those of one vector of features more."""
    (k0, k1, k2, k3), (a, b, c, d, e, f, g, h) = keys, sums
    left, right = load(x + offset, a), load(y + offset, a)
    first, second = load(k0 + offset, a), load(k1 + offset, a)
    a, e, b, f = a + left * first, e + right * first, b + left * second, f + right * second
    first, second = load(k2 + offset, a), load(k3 + offset, a)
    return a, b, c + left * first, d + left * second, e, f, g + right * first, h + right * second


@inlined
def _products_of_two(x: int, y: int, keys: Any, depth: int, factor: Any, target: int, other: int) -> None:
    """Writes the scaled inner products of two rows, of whole pairs of vectors, with four others."""
    zeros = one_register(SINGLE)
    step = 4 * lanes_of(zeros)
    sums = zeros, zeros, zeros, zeros, zeros, zeros, zeros, zeros
    for offset in range(0, 4 * depth, 2 * step):
        sums = _add_products_of_two(x, y, keys, offset, sums)
        sums = _add_products_of_two(x, y, keys, offset + step, sums)
    a, b, c, d, e, f, g, h = sums
    _four_sums(a, b, c, d, factor, target)
    _four_sums(e, f, g, h, factor, other)


@inlined
def _add_four(target: int, rows: tuple[int, int, int, int], weights: tuple[Any, Any, Any, Any], depth: int) -> None:
    """Adds four weighted rows to a row."""
    zeros, (x0, x1, x2, x3), (w0, w1, w2, w3) = one_register(SINGLE), rows, weights
    whole = depth - depth % lanes_of(zeros)
    v0, v1, v2, v3 = broadcast(w0, zeros), broadcast(w1, zeros), broadcast(w2, zeros), broadcast(w3, zeros)
    for offset in range(0, 4 * whole, 4 * lanes_of(zeros)):
        # The sum of the products comes first: it does not wait for the sum of the last four rows.
        near = v0 * load(x0 + offset, zeros) + v1 * load(x1 + offset, zeros)
        far = v2 * load(x2 + offset, zeros) + v3 * load(x3 + offset, zeros)
        store(load(target + offset, zeros) + (near + far), target + offset)
    for offset in range(4 * whole, 4 * depth, 4):
        near, far = w0 * _number(x0 + offset) + w1 * _number(x1 + offset), w2 * _number(x2 + offset)
        array_at(target + offset, 1, SINGLE)[0] += near + far + w3 * _number(x3 + offset)


@embedded
def _add_weighted(target: int, a: Any, b: Any, c: Any, d: Any, weights: Any) -> None:
    """Adds four weighted vectors to the one at an address."""
    w0, w1, w2, w3 = weights
    store(load(target, a) + w0 * a + w1 * b + w2 * c + w3 * d, target)


@embedded
def _weights_at(address: int, zeros: Any) -> Any:
    """Returns four adjacent weights, each as a vector."""
    return (
        broadcast(_number(address), zeros),
        broadcast(_number(address + 4), zeros),
        broadcast(_number(address + 8), zeros),
        broadcast(_number(address + 12), zeros),
    )


@inlined
def _add_four_to_two(target: int, other: int, rows: Any, weights: int, width: int, depth: int) -> None:
    """Adds four rows of whole pairs of vectors, weighted, to two rows.

    Args:
        weights: address of the weights of the first row; those of the second one are ``width`` bytes further on.
    """
    zeros, (x0, x1, x2, x3) = one_register(SINGLE), rows
    own, others, step = _weights_at(weights, zeros), _weights_at(weights + width, zeros), 4 * lanes_of(zeros)
    for first in range(0, 4 * depth, 2 * step):
        for offset in (first, first + step):
            a, b = load(x0 + offset, zeros), load(x1 + offset, zeros)
            c, d = load(x2 + offset, zeros), load(x3 + offset, zeros)
            _add_weighted(target + offset, a, b, c, d, own)
            _add_weighted(other + offset, a, b, c, d, others)


@inlined
def _add_one(target: int, row: int, weight: Any, depth: int) -> None:
    """Adds a weighted row to a row."""
    zeros = one_register(SINGLE)
    whole = depth - depth % lanes_of(zeros)
    factor = broadcast(weight, zeros)
    for offset in range(0, 4 * whole, 4 * lanes_of(zeros)):
        store(load(target + offset, zeros) + factor * load(row + offset, zeros), target + offset)
    for offset in range(4 * whole, 4 * depth, 4):
        array_at(target + offset, 1, SINGLE)[0] += weight * _number(row + offset)


@embedded
def _four_rows(matrix: int, stride: int, keys: int, j: int) -> tuple[int, int, int, int]:
    """Returns the addresses of four rows of a matrix, from the ``j``-th key of a list at an address on."""
    four = array_at(keys + 8 * j, 4, np.int64(0))
    return (matrix + four[0] * stride, matrix + four[1] * stride, matrix + four[2] * stride, matrix + four[3] * stride)


@inlined
def _prefetch(rows: tuple[int, int, int, int], depth: int) -> None:
    """Prefetches four rows."""
    a, b, c, d = rows
    for offset in range(0, 4 * depth, CACHE_LINE):
        prefetch_line(a + offset)
        prefetch_line(b + offset)
        prefetch_line(c + offset)
        prefetch_line(d + offset)


@inlined
def _write_products(
    rows: Any, matrix: int, stride: int, keys: int, size: int, depth: int, factor: Any, target: int, width: int
) -> None:
    """Writes the scaled inner products of rows with the first ``size`` listed rows of a matrix, and of a few more.

    Args:
        rows: addresses of rows.
        stride, width: bytes from row to row of the matrix and of the products.
    """
    in_pairs = depth % (2 * lanes_of(one_register(SINGLE))) == 0
    for j in range(0, size, 4):
        _prefetch(_four_rows(matrix, stride, keys, j + AHEAD), depth)
        four, r, result = _four_rows(matrix, stride, keys, j), 0, target + 4 * j
        while in_pairs and r + 2 <= rows.size:
            _products_of_two(rows[r], rows[r + 1], four, depth, factor, result, result + width)
            r, result = r + 2, result + 2 * width
        while r < rows.size:
            _products_of_one(rows[r], four, depth, factor, result)
            r, result = r + 1, result + width


@inlined
def _mix(rows: Any, matrix: int, stride: int, keys: int, size: int, depth: int, weights: int, width: int) -> None:
    """Writes sums of the listed rows of a matrix, weighted, to rows at these addresses."""
    in_pairs = depth % (2 * lanes_of(one_register(SINGLE))) == 0
    for r in range(rows.size):
        array_at(rows[r], depth, SINGLE)[:] = SINGLE
    for j in range(0, size, 4):
        _prefetch(_four_rows(matrix, stride, keys, j + AHEAD), depth)
        four, weight, r = _four_rows(matrix, stride, keys, j), weights + 4 * j, 0
        while in_pairs and r + 2 <= rows.size:
            _add_four_to_two(rows[r], rows[r + 1], four, weight, width, depth)
            r, weight = r + 2, weight + 2 * width
        while r < rows.size:
            own = _number(weight), _number(weight + 4), _number(weight + 8), _number(weight + 12)
            _add_four(rows[r], four, own, depth)
            r, weight = r + 1, weight + width


@inlined
def _scatter(rows: Any, matrix: int, stride: int, keys: int, size: int, depth: int, weights: int, width: int) -> None:
    """Adds weighted rows at these addresses to each listed row of a matrix."""
    for j in range(size):
        if j % 4 == 0:
            _prefetch(_four_rows(matrix, stride, keys, j + AHEAD), depth)
        target, weight, r = matrix + array_at(keys + 8 * j, 1, np.int64(0))[0] * stride, weights + 4 * j, 0
        while r + 4 <= rows.size:
            own = (_number(weight), _number(weight + width), _number(weight + 2 * width), _number(weight + 3 * width))
            _add_four(target, (rows[r], rows[r + 1], rows[r + 2], rows[r + 3]), own, depth)
            r, weight = r + 4, weight + 4 * width
        while r < rows.size:
            _add_one(target, rows[r], _number(weight), depth)
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
def _lse_address(p: Any, rows: ListedRows, r: int) -> Any:
    """Returns the address of the log-sum-exp of a row."""
    head, query = rows.head + r // rows.queries, rows.first + r % rows.queries
    return p.lse + 4 * ((rows.batch * p.heads + head) * p.queries + query)


@embedded
def _span_of(p: Any, rows: ListedRows, r: int) -> tuple[Any, Any]:
    """Returns the first key and the end of the keys that a row of a block may see at all."""
    if p.start == 0:
        return np.int64(0), np.int64(p.keys)
    head, query = rows.head + r // rows.queries, rows.first + r % rows.queries
    offset = 4 * (rows.batch * p.span_batch + head * p.span_head + query * p.span_row)
    start, stop = array_at(p.start + offset, 1, np.int32(0))[0], array_at(p.stop + offset, 1, np.int32(0))[0]
    return np.int64(start), np.int64(stop)


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
    offset = rows.batch * p.index_batch + head * p.index_head + rows.row * p.index_row
    first, stop = low // p.size, -(-high // p.size)
    marks, count = memory.marks, np.int64(0)
    for n in range(p.listed):
        listed = array_at(p.index + 8 * (offset + n), 1, np.int64(0))[0]
        if listed < first or listed >= stop or marks[np.uint64(listed)] == number:
            continue
        marks[np.uint64(listed)] = number
        if p.size == 1:
            array_at(memory.keys + 8 * count, 1, np.int64(0))[0] = listed
            count += 1
            continue
        for key in range(max(listed * p.size, low), min((listed + 1) * p.size, high)):
            array_at(memory.keys + 8 * count, 1, np.int64(0))[0] = key
            count += 1
    keys = array_at(memory.keys, count + LANES + AHEAD, np.int64(0))
    for n in range(count, keys.size):
        keys[n] = keys[count - 1] if count > 0 else 0
    return count


@inlined
def _write_rows(rows: ListedRows, address: int, batch: int, head: int, row: int, addresses: Any) -> Any:
    """Writes the addresses of a block's rows of a tensor with these strides; returns them."""
    for r in range(rows.heads * rows.queries):
        own, query = rows.head + r // rows.queries, rows.first + r % rows.queries
        addresses[r] = address + 4 * (rows.batch * batch + own * head + query * row)
    return addresses[: rows.heads * rows.queries]


@inlined
def _fill(p: Any, rows: ListedRows, r: int, memory: ColumnScratch, size: int, row: Any, number: Any) -> None:
    """Writes a number where a row of a block has a key that it does not see, or none."""
    if rows.heads * rows.queries > 1:
        start, stop = _span_of(p, rows, r)
        keys = array_at(memory.keys, size, np.int64(0))
        for j in range(size):
            row[j] = number if keys[j] < start or keys[j] >= stop else row[j]
    for j in range(size, row.size):
        row[j] = number


@inlined
def _weigh(row: int, padded: int) -> Any:
    """Turns a row's scores into weights; returns their log-sum-exp."""
    zeros = one_register(SINGLE)
    lowest = broadcast(np.float32(-np.inf), zeros)
    maxima, total = lowest, zeros
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
    queries = _write_rows(rows, p.query, p.query_batch, p.query_head, p.query_row, scratch.queries)
    key = p.key + 4 * (rows.batch * p.key_batch + rows.group * p.key_head)
    factor = np.float32(p.scale)
    _write_products(queries, key, 4 * p.key_row, scratch.keys, size, p.dim, factor, scratch.weights, width)
    for r in range(queries.size):
        row = array_at(scratch.weights + r * width, padded_length(size), SINGLE)
        _fill(p, rows, r, scratch, size, row, np.float32(-np.inf))
    return queries, size


@inlined
def _attend(p: Any, rows: ListedRows, number: int, scratch: ColumnScratch, task: int) -> None:
    """Writes the outputs and the log-sum-exp of some rows."""
    width = 4 * padded_length(p.listed_keys)
    queries, size = _score(p, rows, number, scratch, width)
    outputs = _write_rows(rows, p.output, p.output_batch, p.output_head, p.output_row, scratch.targets)
    for r in range(queries.size):
        array_at(_lse_address(p, rows, r), 1, SINGLE)[0] = _weigh(scratch.weights + r * width, padded_length(size))
    value = p.value + 4 * (rows.batch * p.value_batch + rows.group * p.value_head)
    _mix(outputs, value, 4 * p.value_row, scratch.keys, size, p.value_dim, scratch.weights, width)


@inlined
def _differentiate(p: Any, rows: ListedRows, number: int, scratch: ColumnScratch, task: int) -> None:
    """Writes the gradients of some queries, and adds those of the keys and values to the task's sums."""
    width, D, V = 4 * padded_length(p.listed_keys), p.dim, p.value_dim
    queries, size = _score(p, rows, number, scratch, width)
    grad_outputs = _write_rows(
        rows, p.grad_output, p.grad_output_batch, p.grad_output_head, p.grad_output_row, scratch.grad_outputs
    )
    grad_queries = _write_rows(
        rows, p.grad_query, p.grad_query_batch, p.grad_query_head, p.grad_query_row, scratch.targets
    )
    key = p.key + 4 * (rows.batch * p.key_batch + rows.group * p.key_head)
    value = p.value + 4 * (rows.batch * p.value_batch + rows.group * p.value_head)
    one = np.float32(1)
    _write_products(grad_outputs, value, 4 * p.value_row, scratch.keys, size, V, one, scratch.grads, width)
    for r in range(queries.size):
        gradient, lse = scratch.grads + r * width, array_at(_lse_address(p, rows, r), 1, SINGLE)[0]
        _fill(p, rows, r, scratch, size, array_at(gradient, padded_length(size), SINGLE), SINGLE)
        _differentiate_row(scratch.weights + r * width, gradient, padded_length(size), lse, np.float32(p.scale))
    _mix(grad_queries, key, 4 * p.key_row, scratch.keys, size, D, scratch.grads, width)
    sums = p.grad_key + 4 * task * p.keys * D, p.grad_value + 4 * task * p.keys * V
    _scatter(queries, sums[0], 4 * D, scratch.keys, size, D, scratch.grads, width)
    _scatter(grad_outputs, sums[1], 4 * V, scratch.keys, size, V, scratch.weights, width)


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
