"""Readings of the weights, block by block, with never more than a block of weights in memory.

Tasks are chunks of the rows of a query head, as in the backward pass: each chunk has its own sums over rows.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.arguments import ZERO, ZEROS, arguments_at
from regard.kernels.cpu.bodies.block import SCORES, QueryBlock, block_of, blocks_of_chunk, read_weight, scratch_at
from regard.kernels.cpu.bodies.elementary import exp, log
from regard.kernels.cpu.bodies.intrinsics import allocate, array_at, cache_line, fetch_add, release, size_of
from regard.kernels.cpu.bodies.max_reduce import row_maximum
from regard.kernels.cpu.bodies.parts import exact, inlined
from regard.kernels.cpu.bodies.products import limit_threads, routine_of
from regard.kernels.cpu.bodies.row_adjustments import adjust_row, window_row
from regard.kernels.cpu.bodies.row_normalizers import (
    clear_row,
    fill_nan,
    normalize,
    normalizer_reader,
    sum_of_nonfinite,
)
from regard.kernels.cpu.bodies.top_weights import GROUP, restore_nan, take_nan, take_top
from regard.kernels.cpu.bodies.visible_keys import COLUMN, fill_gaps, key_at, range_at, runs_of_row
from regard.kernels.cpu.sizes import ceil_div


@inlined
def softmax_with_entropy(row: Any, sink: Any, has_sink: bool) -> tuple[Any, Any]:
    """Turns scores into weights in place; returns log Σ exp of the scores and −Σ p ln p, without a logarithm for each
    weight.

    All results are NaN if a score is NaN or +∞. With t_j = s_j − max: −Σ p ln p = P · ln total − Σ p t, where total
    includes the sink and P = Σ p. All terms have the same sign, so nothing cancels. The keys' sum is relative to their
    maximum: relative to a large sink, it could vanish.
    """
    real = row.dtype.type
    maximum = row_maximum(row)
    if maximum == real(-np.inf):
        nan = clear_row(row, maximum)
        return maximum + nan, nan
    total, moment, others = real(0), real(0), real(0)
    for j in range(row.size):
        difference = row[j] - maximum
        exponential = exp(difference)
        others += real(0) if difference == real(0) else exponential
        # The weight of −inf is 0, and 0 · −inf is NaN.
        difference = real(-100) if difference < real(-100) else difference
        row[j] = exponential
        total += exponential
        moment += exponential * difference
    key_scale, sink_exponential = real(1), real(0)
    if has_sink and sink > maximum:
        # The sink's score becomes the reference: t_j decreases by sink − max, and e^t_j by this factor.
        key_scale, sink_exponential = exp(maximum - sink), real(1)
        # If the factor is 0, the difference may be infinite, and 0 · ∞ is NaN.
        moment = key_scale * (moment + (maximum - sink) * total) if key_scale > real(0) else key_scale
        others = key_scale * total
    elif has_sink:
        sink_exponential = exp(sink - maximum)
        others += real(0) if sink == maximum else sink_exponential
    total_with_sink = key_scale * total + sink_exponential
    inverse = real(1) / total_with_sink
    weight_scale = key_scale * inverse
    for j in range(row.size):
        row[j] *= weight_scale
    log_total = log(total_with_sink)
    if total_with_sink < real(1.5):
        # One term is exactly 1; the sum of the others corrects the rounding of the total.
        log_total = log(total_with_sink) + (others - (total_with_sink - real(1))) / total_with_sink
    entropy = total * weight_scale * log_total - moment * inverse
    return maximum + log(total), entropy


@inlined
def log_sum_exp(row: Any) -> Any:
    """Returns log Σ exp of a row of scores: −inf for an empty row, NaN if a score is NaN, else +inf if one is +inf."""
    real = row.dtype.type
    maximum = row_maximum(row)
    total = real(0)
    if maximum == real(-np.inf):
        for j in range(row.size):
            # 0, or NaN if a score is NaN.
            total += real(0) if row[j] == maximum else row[j]
        return maximum + total
    for j in range(row.size):
        total += exp(row[j] - maximum)
    result = maximum + log(total)
    # ∞ − ∞ is NaN.
    return result if result == result else sum_of_nonfinite(row)


@inlined
def entropy_of(row: Any) -> Any:
    """Returns −Σ p ln p."""
    real = row.dtype.type
    total = real(0)
    for j in range(row.size):
        positive = real(1) if row[j] <= real(0) else row[j]
        total -= positive * log(positive)
    return total


@exact
def without_sign(number: Any) -> Any:
    """Returns the number, with 0 for −0: adding 0 changes no other number."""
    return number + type(number)(0)


@inlined
def nan_or_zero(row: Any) -> Any:
    """Returns NaN if an element of the row is NaN, else 0."""
    total = row.dtype.type(0)
    for j in range(row.size):
        total += row.dtype.type(0) if row[j] == row[j] else row[j]
    return total


@inlined
def pool_row(p: Any, block: QueryBlock, chunk: int, r: int, begin: int, weights: Any) -> None:
    """Adds a row's weights to the cells of the coarse map."""
    zero = weights.dtype.type(0)
    size = size_of(zero)
    head = (block.batch * p.heads + block.head) * p.chunks + chunk
    offset = (head * p.pooled_rows + (block.row + r + p.first_row) * p.pooled_rows // p.all_rows) * p.pooled_columns
    sums = array_at(p.pooled_sum + offset * size, p.pooled_columns, zero)
    maxima = array_at(p.pooled_max + offset * size, p.pooled_columns, zero)
    j, n = 0, weights.size
    while j < n:
        cell = (begin + j) * p.pooled_columns // p.keys
        # The first key of the next cell.
        end = min(ceil_div((cell + 1) * p.keys, p.pooled_columns) - begin, n)
        total = zero
        for k in range(j, end):
            total += weights[k]
        sums[cell] += total
        # Comparisons ignore NaN, sums do not.
        maximum = row_maximum(weights[j:end]) if total == total else total
        maxima[cell] = maximum if maximum > maxima[cell] or maximum != maximum else maxima[cell]
        j = end


@inlined
def read_row(p: Any, block: QueryBlock, chunk: int, r: int, runs: Any, weights: Any, nan: Any, maxima: Any) -> None:
    """Computes all readings of one row's weights but log-sum-exp and entropy.

    Args:
        runs: runs of the row, at least one.
        weights: the row's columns from the first visible one to the last; 0 between the runs.
        nan: NaN if a weight is NaN, else 0.
    """
    real = weights.dtype.type
    zero = real(0)
    size, flat_row, low = size_of(zero), block.flat_row + r, runs.ranges[0, COLUMN]
    if p.peak != 0:
        # Comparisons ignore NaN.
        array_at(p.peak, flat_row + 1, zero)[flat_row] = max(row_maximum(weights), zero) + nan
    if p.top_k > 0:
        indices = array_at(p.top_indices + flat_row * p.top_k * 8, p.top_k, np.int64(0))
        top_weights, nan_count = array_at(p.top_weights + flat_row * p.top_k * size, p.top_k, zero), 0
        if nan != nan:
            nan_count = take_nan(weights, top_weights, indices)
        take_top(weights, top_weights[nan_count:], indices[nan_count:], maxima)
        if nan != nan:
            restore_nan(weights)
        for k in range(p.top_k):
            if indices[k] >= 0:
                indices[k] = key_at(runs, low + indices[k])
    for n in range(runs.size):
        run = range_at(runs.ranges, n)
        read_run(p, block, chunk, r, run.first, weights[run.column - low : run.column - low + run.keys])


@inlined
def read_run(p: Any, block: QueryBlock, chunk: int, r: int, begin: int, weights: Any) -> None:
    """Adds or stores one row's weights for the keys from ``begin`` on."""
    row, n = block.row + r, weights.size
    zero = weights.dtype.type(0)
    real, size, flat_row = type(zero), size_of(zero), block.flat_row + r
    if p.received != 0:
        offset = ((block.batch * p.heads + block.head) * p.chunks + chunk) * p.keys + begin
        sums = array_at(p.received + offset * size, n, zero)
        for j in range(n):
            sums[j] += weights[j]
    if p.distance != 0:
        own = real(row + p.key_offset - begin)
        total = zero
        for j in range(n):
            total += weights[j] * abs(own - real(np.int32(j)))
        array_at(p.distance, flat_row + 1, zero)[flat_row] += total
    if p.pooled_sum != 0:
        pool_row(p, block, chunk, r, begin, weights)
    if p.weights != 0:
        slot = array_at(p.row_slots, p.queries, np.int64(0))[row]
        if slot >= 0:
            low, high = max(begin, p.first_stored_key), min(begin + n, p.first_stored_key + p.stored_keys)
            offset = ((block.batch * p.heads + block.head) * p.stored_rows + slot) * p.stored_keys - p.first_stored_key
            stored = array_at(p.weights + (offset + low) * size, max(high - low, 0), zero)
            for j in range(high - low):
                stored[j] = weights[low - begin + j]


@inlined
def reads_block(p: Any, block: QueryBlock) -> bool:
    """Whether a block has a row that needs readings."""
    if p.only_stored == 0:
        return True
    slots = array_at(p.row_slots, p.queries, np.int64(0))
    is_read = False
    for r in range(block.row, block.row + block.rows):
        is_read = is_read or slots[r] >= 0
    return is_read


def attention_readings(dtype: str, units: str, normalizer: str) -> Callable[[int], None]:
    """Returns the body for a dtype, float32 or float64, a score's units and a normalizer."""
    zero, read_normalizer = ZEROS[dtype], normalizer_reader(normalizer)
    softmax, competing = normalizer == "softmax", normalizer not in ("sigmoid", "hard")
    additive, score = units != "product", SCORES[units]

    def body(address: int) -> None:
        p = arguments_at(address)
        scratch, size = scratch_at(p, ZERO, additive, zero), size_of(zero)
        groups = scratch.scores.shape[1] // GROUP + 1
        memory = allocate(p, scratch.end + groups * size)
        if memory == 0:
            return
        scratch = scratch_at(p, cache_line(memory), additive, zero)
        maxima = array_at(scratch.end, groups, zero)
        threads, real = limit_threads(p.limit_threads, 1), type(zero)
        routine = routine_of(p)
        while True:
            task = fetch_add(address)
            if task >= p.tasks:
                break
            head, chunk = task // p.chunks, task % p.chunks
            b, h = head // p.heads, head % p.heads
            read_weight(p, h, scratch.weight)
            normalizer = read_normalizer(p, h, zero)
            for index in blocks_of_chunk(p, chunk):
                block = block_of(p, b, h, index, scratch.segments)
                if block.segment_count == 0 or not reads_block(p, block):
                    continue
                # If a score is NaN or +∞, weights are 0 only at scores of −∞, which softmax has overwritten: a second
                # pass recomputes them.
                nan_rows, second_pass = 0, False
                while True:
                    score(p, block, routine, scratch)
                    for r in range(block.rows):
                        runs = runs_of_row(p, block, r, scratch.runs)
                        if runs.size == 0:
                            continue
                        visible = adjust_row(p, block, r, runs, scratch.scores[r])
                        entropy, nan = zero, zero
                        # The first operand is a constant of the compilation, so only one branch is compiled.
                        if softmax and p.center == 0:
                            if second_pass:
                                lse = sum_of_nonfinite(visible)
                                if lse == zero:
                                    continue
                                fill_nan(visible)
                                entropy, nan = real(np.nan), real(np.nan)
                            else:
                                lse, entropy = softmax_with_entropy(visible, normalizer.sink, normalizer.has_sink)
                                if lse != lse:
                                    nan_rows += 1
                                    continue
                        else:
                            lse = log_sum_exp(visible)
                            if competing and not lse < real(np.inf):
                                fill_nan(visible)
                            else:
                                normalize(normalizer, visible)
                            if p.center != 0:
                                window = window_row(p, block, r, runs, scratch.gauss)
                                for j in range(visible.size):
                                    visible[j] *= window[j]
                            if p.entropy != 0:
                                entropy = entropy_of(visible)
                            if p.center != 0 or not lse < real(np.inf):
                                nan = nan_or_zero(visible)
                        # A row of NaN has NaN in its gaps, too.
                        fill_gaps(runs, scratch.scores[r], zero)
                        flat_row = block.flat_row + r
                        if p.lse != 0:
                            array_at(p.lse, flat_row + 1, zero)[flat_row] = lse
                        if p.entropy != 0:
                            array_at(p.entropy, flat_row + 1, zero)[flat_row] = without_sign(entropy)
                        read_row(p, block, chunk, r, runs, visible, nan, maxima)
                    if second_pass or nan_rows == 0:
                        break
                    second_pass = True
        limit_threads(p.limit_threads, threads)
        release(p, memory)

    return body
