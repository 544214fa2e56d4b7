"""Attention backward: a block's weights are recomputed from its scores and statistics, and its gradients follow.
If the forward pass saved the weights of an additive score, they are read instead.

The query rows of a key-and-value head are cut into chunks. A task is one chunk; it sums the gradients of keys, values,
weights and biases over its rows separately, and the caller adds the chunks up. So no two threads write to the same
element, and the order of summation does not depend on the number of threads. The rows are derived
in docs/en/understand/derivations/statistics.md.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.arguments import ZEROS, arguments_at
from regard.kernels.cpu.bodies.block import (
    PREPARATIONS,
    SCORES,
    QueryBlock,
    Scratch,
    block_of,
    blocks_of_chunk,
    read_weight,
)
from regard.kernels.cpu.bodies.block_gradients import (
    DIFFERENTIATIONS,
    GradientScratch,
    clear_sums,
    differentiate_mixture,
    differentiate_values,
    gradient_memory,
    write_key_gradient,
)
from regard.kernels.cpu.bodies.elementary import exp
from regard.kernels.cpu.bodies.intrinsics import array_at, copy, fetch_add, release, size_of
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.products import Routine, limit_threads, routine_of
from regard.kernels.cpu.bodies.row_adjustments import adjust_row, call_function, drop_row, tanh_of_half, window_row
from regard.kernels.cpu.bodies.row_gradients import differentiate
from regard.kernels.cpu.bodies.row_normalizers import log_weight, normalizer_reader, recompute_weights
from regard.kernels.cpu.bodies.visible_keys import COLUMN, clear_hidden, column_span, fill_gaps, range_at, runs_of_row
from regard.kernels.kinds import DENSE_BIAS


@inlined
def cap_slopes(p: Any, scores: Any, slopes: Any) -> None:
    """Writes the derivative of the cap at each score: 1 − tanh²."""
    real = scores.dtype.type
    inverse = real(2.0 / p.cap)
    for j in range(scores.size):
        capped = tanh_of_half(scores[j] * inverse)
        slopes[j] = real(1) - capped * capped


@inlined
def differentiate_window(p: Any, block: QueryBlock, r: int, runs: Any, weights: Any, gauss: Any, gradient: Any) -> None:
    """Writes the gradients of a row's center and sigma; ``gradient`` becomes that of the weights before the window.

    Args:
        runs: runs of the row; ``weights``, ``gauss`` and ``gradient`` are its columns from the first visible one on.
    """
    real = weights.dtype.type
    offset = block.batch * p.window_batch + block.head * p.window_head + block.row + r
    center, sigma = array_at(p.center, offset + 1, real(0))[offset], array_at(p.sigma, offset + 1, real(0))[offset]
    grad_center, grad_sigma = real(0), real(0)
    for n in range(runs.size):
        run = range_at(runs.ranges, n)
        begin = run.column - runs.ranges[0, COLUMN]
        end = begin + run.keys
        run_weights, window, run_gradient = weights[begin:end], gauss[begin:end], gradient[begin:end]
        for j in range(run.keys):
            distance = (real(run.first + j) - center) / sigma
            run_gradient[j] *= window[j]
            slope = run_gradient[j] * run_weights[j] * distance
            grad_center += slope
            grad_sigma += slope * distance
    offset = block.flat_row + r
    array_at(p.grad_center, offset + 1, real(0))[offset] = grad_center / sigma
    array_at(p.grad_sigma, offset + 1, real(0))[offset] = grad_sigma / sigma


@inlined
def differentiate_row(p: Any, flat_row: int, normalizer: Any, statistics: Any, weights: Any, gradient: Any) -> None:
    """Turns the gradient of one row's weights into that of its biased scores.

    Args:
        flat_row: the row, counted through all batch rows and heads: the index of its sink's, shift's or alpha's
            gradient.
        normalizer: the normalizer of the weights.
        statistics: the two statistics of this row.
    """
    real = weights.dtype.type
    total = differentiate(normalizer, weights, gradient)
    if p.sink != 0 and statistics[0] > real(-np.inf):
        weight = exp(log_weight(real(normalizer.sink), statistics[0], statistics[1]))
        array_at(p.grad_sink, flat_row + 1, real(0))[flat_row] = -total * weight
    if p.shift != 0:
        array_at(p.grad_shift, flat_row + 1, real(0))[flat_row] = total
    if p.alphas != 0:
        array_at(p.grad_alphas, flat_row + 1, real(0))[flat_row] = total
    if p.inverse_temperature != 1.0:
        factor = real(p.inverse_temperature)
        for j in range(gradient.size):
            gradient[j] *= factor


@inlined
def add_bias_gradient(p: Any, block: QueryBlock, chunk: int, r: int, begin: int, gradient: Any) -> None:
    """Adds a row's gradient for the keys from ``begin`` on to the gradient of the dense or diagonal bias."""
    n = gradient.size
    size = size_of(gradient[0])
    if p.bias_kind == DENSE_BIAS:
        offset = (block.flat_row + r) * p.keys + begin
    else:
        head = (block.batch * p.heads + block.head) * p.chunks + chunk
        offset = head * (p.queries + p.keys - 1) + begin - (block.row + r) + p.queries - 1
    sums = array_at(p.grad_bias + offset * size, n, gradient[0])
    for j in range(n):
        sums[j] += gradient[j]


@inlined
def differentiate_dropout(p: Any, block: QueryBlock, r: int, runs: Any, mixed: Any, gradient: Any) -> None:
    """Drops a row's weights as the forward pass did, and their gradients; adds the gradient of the returned weights.

    Args:
        runs: runs of the row.
        mixed, gradient: all columns of the row.
    """
    size = size_of(gradient[0])
    for n in range(runs.size):
        run = range_at(runs.ranges, n)
        end = run.column + run.keys
        run_gradient = gradient[run.column : end]
        if p.threshold > 0:
            drop_row(p, block.flat_row + r, run.first, mixed[run.column : end])
            drop_row(p, block.flat_row + r, run.first, run_gradient)
        if p.grad_weights != 0:
            grad_weights = array_at(
                p.grad_weights + ((block.flat_row + r) * p.keys + run.first) * size, run.keys, gradient[0]
            )
            for j in range(run.keys):
                run_gradient[j] += grad_weights[j]


@inlined
def load_weights(p: Any, block: QueryBlock, weights: Any) -> None:
    """Copies a block's weights from the weights that the forward pass returned."""
    real = weights.dtype.type
    for r in range(block.rows):
        row = array_at(p.returned_weights + (block.flat_row + r) * p.keys * size_of(real(0)), p.keys, real(0))
        for s in range(block.segment_count):
            segment = range_at(block.segments, s)
            copy(row[segment.first :], weights[r, segment.column : segment.column + segment.keys])


@inlined
def differentiate_block(
    p: Any,
    block: QueryBlock,
    chunk: int,
    scratch: Scratch,
    gradients: GradientScratch,
    normalizer: Any,
    routine: Routine,
) -> None:
    """Computes the gradient of a block's scores and adds that of the values, from its scores or saved weights."""
    weights, gradient, mixed = scratch.scores, gradients.gradient, gradients.mixed
    example = gradient[0, 0]
    statistics = array_at(p.statistics + block.flat_row * 2 * size_of(example), 2 * block.rows, example)
    differentiate_mixture(p, block, routine, gradient)
    for r in range(block.rows):
        runs = runs_of_row(p, block, r, scratch.runs)
        clear_hidden(block, runs, gradient[r])
        clear_hidden(block, runs, mixed[r])
        if runs.size == 0:
            continue
        low, high = column_span(runs)
        n, row_statistics = high - low, statistics[2 * r : 2 * r + 2]
        slopes, visible_gradient, visible_mixed = gradients.slopes[:n], gradient[r, low:high], mixed[r, low:high]
        if p.cap > 0:
            cap_slopes(p, weights[r, low:high], slopes)
        elif p.gradient_function != 0:
            copy(weights[r, low:high], slopes)
        visible = weights[r, low:high]
        if p.returned_weights == 0:
            adjust_row(p, block, r, runs, weights[r])
            recompute_weights(normalizer, visible, row_statistics[0], row_statistics[1])
        fill_gaps(runs, weights[r], visible.dtype.type(0))
        copy(visible, visible_mixed)
        window = scratch.gauss[:0]
        if p.center != 0:
            window = window_row(p, block, r, runs, scratch.gauss)
            for j in range(n):
                visible_mixed[j] *= window[j]
        differentiate_dropout(p, block, r, runs, mixed[r], gradient[r])
        if p.center != 0:
            differentiate_window(p, block, r, runs, visible, window, visible_gradient)
        differentiate_row(p, block.flat_row + r, normalizer, row_statistics, visible, visible_gradient)
        if p.grad_bias != 0:
            for number in range(runs.size):
                run = range_at(runs.ranges, number)
                add_bias_gradient(p, block, chunk, r, run.first, gradient[r, run.column : run.column + run.keys])
        if p.cap > 0:
            for j in range(n):
                visible_gradient[j] *= slopes[j]
        elif p.gradient_function != 0:
            for number in range(runs.size):
                run = range_at(runs.ranges, number)
                run_scores = slopes[run.column - low : run.column - low + run.keys]
                run_gradient = gradient[r, run.column : run.column + run.keys]
                call_function(
                    p, p.gradient_function, p.score_data, block, chunk, r, run.first, run_scores, run_gradient
                )
        # The slopes in gaps belong to hidden scores.
        fill_gaps(runs, gradient[r], visible_gradient.dtype.type(0))
    differentiate_values(p, block, chunk, routine, mixed)


def attention_backward(dtype: str, units: str, normalizer: str) -> Callable[[int], None]:
    """Returns the body for a dtype, float32 or float64, a score's units and a normalizer."""
    zero, read_normalizer = ZEROS[dtype], normalizer_reader(normalizer)
    additive, score, differentiate_scores = units != "product", SCORES[units], DIFFERENTIATIONS[units]
    prepare = PREPARATIONS[units]

    def body(address: int) -> None:
        p = arguments_at(address)
        memory, scratch, gradients = gradient_memory(p, additive, zero)
        if memory == 0:
            return
        threads, routine = limit_threads(p.limit_threads, 1), routine_of(p)
        while True:
            task = fetch_add(address)
            if task >= p.tasks:
                break
            head, chunk = task // p.chunks, task % p.chunks
            b, group = head // p.kv_heads, head % p.kv_heads
            shared = p.heads // p.kv_heads
            clear_sums(p, task, gradients.key_sums)
            for h in range(group * shared, (group + 1) * shared):
                read_weight(p, h, scratch.weight)
                normalizer = read_normalizer(p, h, zero)
                for index in blocks_of_chunk(p, chunk):
                    block = block_of(p, b, h, index, scratch.segments)
                    if block.segment_count == 0:
                        size = block.rows * p.dim
                        array_at(p.grad_query + block.flat_row * p.dim * size_of(zero), size, zero)[:] = zero
                        continue
                    if p.returned_weights == 0:
                        score(p, block, routine, scratch)
                    else:
                        prepare(p, block, scratch)
                        load_weights(p, block, scratch.scores)
                    differentiate_block(p, block, chunk, scratch, gradients, normalizer, routine)
                    differentiate_scores(p, block, chunk, routine, scratch, gradients)
            if additive:
                write_key_gradient(p, task, gradients.key_sums)
        limit_threads(p.limit_threads, threads)
        release(p, memory)

    return body
