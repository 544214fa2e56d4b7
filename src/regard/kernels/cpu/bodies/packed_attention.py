"""Attention on packed rows of short sequences, and its gradients: a task is a sequence and a key head.

All scores of a head fit in the first-level cache. The rows of a head have the stride of the projection that it is a
part of, so only the transposed keys and values of a head are copied. The backward pass recomputes the weights.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from regard.kernels.cpu.bodies.arguments import ZEROS, packed_at
from regard.kernels.cpu.bodies.elementary import exp_of
from regard.kernels.cpu.bodies.intrinsics import array_at, copy, fetch_add, size_of, stack_memory
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.products import Routine, product
from regard.kernels.cpu.bodies.row_adjustments import drop_row
from regard.kernels.cpu.bodies.transposing import transpose
from regard.kernels.cpu.bodies.vectors import (
    broadcast,
    lane_max,
    lanes_of,
    load,
    max_of,
    one_register,
    store,
    sum_of,
    where_less,
)
from regard.kernels.cpu.bodies.wide_product import Matrix, Size, columns_from, rows_from
from regard.kernels.cpu.kernel_arguments import WIDE
from regard.kernels.cpu.sizes import PACKED_FEATURES, PACKED_LENGTH, padded_length

_POSITION_BYTES = PACKED_LENGTH * 4
_SCORE_BYTES = PACKED_LENGTH * PACKED_LENGTH * 4
_FEATURE_BYTES = PACKED_FEATURES * PACKED_LENGTH * 4


class Sequence(NamedTuple):
    """The sequence and the head of a task.

    Attributes:
        query, key: index of the first packed row.
        queries, keys: number of rows.
        head: the key head.
    """

    query: int
    queries: int
    key: int
    keys: int
    head: int


@inlined
def _sequence_of(p: Any, task: int) -> Sequence:
    index, zero = task // p.kv_heads, np.int64(0)
    starts, counts = array_at(p.query_starts, p.batch, zero), array_at(p.query_counts, p.batch, zero)
    key_starts, key_counts = array_at(p.key_starts, p.batch, zero), array_at(p.key_counts, p.batch, zero)
    return Sequence(starts[index], counts[index], key_starts[index], key_counts[index], task % p.kv_heads)


@inlined
def _head_features(address: int, row_stride: int, row: int, head: int, width: int) -> Matrix:
    """Returns a head's features in a matrix of packed rows, from ``row`` on."""
    return columns_from(rows_from(Matrix(address, row_stride, 1), row), head * width)


@inlined
def _transposed(source: Matrix, keys: int, features: int, scratch: int, target: int, zero: Any) -> Matrix:
    """Transposes rows ``[keys, features]`` to ``[features, padded keys]``, padded with zeros.

    Args:
        scratch: address of memory for the padded rows.
        target: address of the output.
    """
    size, padded = size_of(zero), padded_length(keys)
    for j in range(padded):
        row = array_at(scratch + j * features * size, features, zero)
        if j < keys:
            copy(array_at(source.address + j * source.row * size, features, zero), row)
        else:
            for d in range(features):
                row[d] = zero
    rows, columns = Matrix(scratch, features, 1), Matrix(target, padded, 1)
    transpose(rows, padded, features, columns, zero)
    return columns


@inlined
def _hide(elements: Any, positions: Any, first: Any, end: Any, hidden: Any) -> Any:
    """Replaces elements outside of the positions from ``first`` to ``end`` by ``hidden``."""
    return where_less(positions, first, hidden, where_less(positions, end, elements, hidden))


@inlined
def _visible(p: Any, sequence: Sequence, i: int) -> tuple[int, int]:
    """Returns the first key that a query sees, and the end of the keys."""
    return max(0, i - p.before), min(sequence.keys, i + 1 + p.after)


@inlined
def _weigh(p: Any, sequence: Sequence, scores: Matrix, positions: int, zero: Any) -> None:
    """Turns the scores ``[queries, padded keys]`` into weights."""
    zeros, size = one_register(zero), size_of(zero)
    lanes, real = lanes_of(zeros), type(zero)
    lowest = broadcast(real(-np.inf), zeros)
    for i in range(sequence.queries):
        row = scores.address + i * scores.row * size
        low, high = _visible(p, sequence, i)
        first, end = broadcast(real(low), zeros), broadcast(real(high), zeros)
        maxima = lowest
        for j in range(0, scores.row, lanes):
            masked = _hide(load(row + j * size, zeros), load(positions + j * size, zeros), first, end, lowest)
            maxima = lane_max(masked, maxima)
        maximum = broadcast(max_of(maxima), zeros)
        total = zeros
        for j in range(0, scores.row, lanes):
            exponential = exp_of(load(row + j * size, zeros) - maximum)
            exponential = _hide(exponential, load(positions + j * size, zeros), first, end, zeros)
            store(exponential, row + j * size)
            total = total + exponential
        mass = sum_of(total)
        inverse = broadcast(real(0) if low >= high else real(1) / mass, zeros)
        for j in range(0, scores.row, lanes):
            store(load(row + j * size, zeros) * inverse, row + j * size)


@inlined
def _drop(p: Any, sequence: Sequence, head: int, weights: Matrix, zero: Any) -> None:
    """Drops some of the weights, or of their gradients: see `drop_row`."""
    size = size_of(zero)
    for i in range(sequence.queries):
        row = array_at(weights.address + i * weights.row * size, sequence.keys, zero)
        drop_row(p, (sequence.query + i) * p.heads + head, 0, row)


@inlined
def _differentiate(p: Any, sequence: Sequence, weights: Matrix, grads: Matrix, positions: int, zero: Any) -> None:
    """Turns the weights' gradients into those of the scores: ``weight · (gradient − Σ weight · gradient)``."""
    zeros, size = one_register(zero), size_of(zero)
    lanes, real = lanes_of(zeros), type(zero)
    for i in range(sequence.queries):
        row, gradient_row = weights.address + i * weights.row * size, grads.address + i * grads.row * size
        low, high = _visible(p, sequence, i)
        first, end = broadcast(real(low), zeros), broadcast(real(high), zeros)
        total = zeros
        for j in range(0, weights.row, lanes):
            # A hidden gradient may be NaN, and 0 · NaN is NaN.
            visible_gradient = _hide(
                load(gradient_row + j * size, zeros), load(positions + j * size, zeros), first, end, zeros
            )
            store(visible_gradient, gradient_row + j * size)
            total = total + visible_gradient * load(row + j * size, zeros)
        mean = broadcast(sum_of(total), zeros)
        for j in range(0, weights.row, lanes):
            gradient = load(row + j * size, zeros) * (load(gradient_row + j * size, zeros) - mean)
            store(_hide(gradient, load(positions + j * size, zeros), first, end, zeros), gradient_row + j * size)


@inlined
def _write_positions(positions: int, zero: Any) -> None:
    """Writes 0, 1, 2, … to an address."""
    elements = array_at(positions, PACKED_LENGTH, zero)
    for j in range(PACKED_LENGTH):
        elements[j] = j


def packed_attention(dtype: str) -> Callable[[int], None]:
    """Returns the body of `regard.kernels.cpu.packed_attention.attend`; float32."""
    zero = ZEROS[dtype]

    def body(address: int) -> None:
        p = packed_at(address)
        one, routine, D, V = type(zero)(1), Routine(WIDE, 0, p.multiply), p.dim, p.value_dim
        positions, scratch = stack_memory(_POSITION_BYTES), stack_memory(_FEATURE_BYTES)
        keys, scores = stack_memory(_FEATURE_BYTES), stack_memory(_SCORE_BYTES)
        _write_positions(positions, zero)
        group = p.heads // p.kv_heads
        while True:
            task = fetch_add(address)
            if task >= p.batch * p.kv_heads:
                break
            sequence = _sequence_of(p, task)
            key = _head_features(p.key, p.key_row, sequence.key, sequence.head, D)
            value = _head_features(p.value, p.value_row, sequence.key, sequence.head, V)
            columns = _transposed(key, sequence.keys, D, scratch, keys, zero)
            weights = Matrix(scores, columns.row, 1)
            for member in range(group):
                head = sequence.head * group + member
                query = _head_features(p.query, p.query_row, sequence.query, head, D)
                output = _head_features(p.output, p.output_row, sequence.query, head, V)
                size = Size(sequence.queries, columns.row, D)
                product(routine, size, type(zero)(p.scale), query, columns, weights, 0)
                _weigh(p, sequence, weights, positions, zero)
                if p.threshold > 0:
                    _drop(p, sequence, head, weights, zero)
                product(routine, Size(sequence.queries, V, sequence.keys), one, weights, value, output, 0)

    return body


def packed_attention_gradients(dtype: str) -> Callable[[int], None]:
    """Returns the body of `regard.kernels.cpu.packed_attention.gradients`; float32."""
    zero = ZEROS[dtype]

    def body(address: int) -> None:
        p = packed_at(address)
        one, scale = type(zero)(1), type(zero)(p.scale)
        routine, D, V = Routine(WIDE, 0, p.multiply), p.dim, p.value_dim
        positions, scratch = stack_memory(_POSITION_BYTES), stack_memory(_FEATURE_BYTES)
        keys, values = stack_memory(_FEATURE_BYTES), stack_memory(_FEATURE_BYTES)
        scores, grads, dropped = stack_memory(_SCORE_BYTES), stack_memory(_SCORE_BYTES), stack_memory(_SCORE_BYTES)
        _write_positions(positions, zero)
        group = p.heads // p.kv_heads
        while True:
            task = fetch_add(address)
            if task >= p.batch * p.kv_heads:
                break
            sequence = _sequence_of(p, task)
            key = _head_features(p.key, p.key_row, sequence.key, sequence.head, D)
            value = _head_features(p.value, p.value_row, sequence.key, sequence.head, V)
            grad_key = _head_features(p.grad_key, p.grad_key_row, sequence.key, sequence.head, D)
            grad_value = _head_features(p.grad_value, p.grad_value_row, sequence.key, sequence.head, V)
            key_columns = _transposed(key, sequence.keys, D, scratch, keys, zero)
            value_columns = _transposed(value, sequence.keys, V, scratch, values, zero)
            padded, queries = key_columns.row, sequence.queries
            weights, grad_scores, mixed = Matrix(scores, padded, 1), Matrix(grads, padded, 1), Matrix(scores, padded, 1)
            for member in range(group):
                head = sequence.head * group + member
                query = _head_features(p.query, p.query_row, sequence.query, head, D)
                grad_output = _head_features(p.grad_output, p.grad_output_row, sequence.query, head, V)
                grad_query = _head_features(p.grad_query, p.grad_query_row, sequence.query, head, D)
                product(routine, Size(queries, padded, D), scale, query, key_columns, weights, 0)
                _weigh(p, sequence, weights, positions, zero)
                product(routine, Size(queries, padded, V), one, grad_output, value_columns, grad_scores, 0)
                if p.threshold > 0:
                    mixed = Matrix(dropped, padded, 1)
                    copy(array_at(scores, queries * padded, zero), array_at(dropped, queries * padded, zero))
                    _drop(p, sequence, head, mixed, zero)
                    _drop(p, sequence, head, grad_scores, zero)
                _differentiate(p, sequence, weights, grad_scores, positions, zero)
                product(routine, Size(queries, D, sequence.keys), scale, grad_scores, key, grad_query, 0)
                transposed, beta = Matrix(grads, 1, padded), 0 if member == 0 else 1
                product(routine, Size(sequence.keys, D, queries), scale, transposed, query, grad_key, beta)
                transposed = Matrix(mixed.address, 1, padded)
                product(routine, Size(sequence.keys, V, queries), one, transposed, grad_output, grad_value, beta)

    return body
