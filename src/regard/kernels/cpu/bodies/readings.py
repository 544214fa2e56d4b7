"""Readings of the weights, block by block: what was looked at, without ever holding more than a block of weights.

Tasks are chunks of rows of one query head, as in the backward pass: sums over rows are made apart in each chunk.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from collections.abc import Callable
from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.arguments import ZERO, ZEROS, arguments_at
from regard.kernels.cpu.bodies.block import (
    SCORES,
    Block,
    block_of,
    blocks_of_chunk,
    read_weight,
    scratch_at,
)
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
    """Weights in place; log Σ exp of the scores, and −Σ p ln p, without a logarithm for each weight. All
    of them are NaN if a score is NaN or +∞.

    With t_j = s_j − max: −Σ p ln p = P · ln total − Σ p t, where total includes the sink and P = Σ p. All terms have
    one sign, so nothing cancels. The keys' own sum is taken below their own maximum: below a sink it could vanish.
    """
    real = row.dtype.type
    top = row_maximum(row)
    if top == real(-np.inf):
        seen = clear_row(row, top)
        return top + seen, seen
    total, moment, rest = real(0), real(0), real(0)
    for j in range(row.size):
        below = row[j] - top
        power = exp(below)
        rest += real(0) if below == real(0) else power
        # −inf has weight 0, and 0 · −inf is NaN.
        below = real(-100) if below < real(-100) else below
        row[j] = power
        total += power
        moment += power * below
    fade, of_sink = real(1), real(0)
    if has_sink and sink > top:
        # Now everything counts from the sink's score: t_j is smaller by sink − max, e^t_j by this factor.
        fade, of_sink = exp(top - sink), real(1)
        # A gap that leaves nothing of the keys may be infinite, and 0 · ∞ is NaN.
        moment = fade * (moment + (top - sink) * total) if fade > real(0) else fade
        rest = fade * total
    elif has_sink:
        of_sink = exp(sink - top)
        rest += real(0) if sink == top else of_sink
    everything = fade * total + of_sink
    inverse = real(1) / everything
    share = fade * inverse
    for j in range(row.size):
        row[j] *= share
    size = log(everything)
    if everything < real(1.5):
        # One term is 1, so the others are what log(1 + rest) needs.
        size = log(everything) + (rest - (everything - real(1))) / everything
    entropy = total * share * size - moment * inverse
    return top + log(total), entropy


@inlined
def log_sum_exp(row: Any) -> Any:
    """log Σ exp of a row of scores: −inf for an empty one, NaN for one with NaN, else +inf for one with +inf."""
    real = row.dtype.type
    top = row_maximum(row)
    total = real(0)
    if top == real(-np.inf):
        for j in range(row.size):
            # 0, or NaN if there is any.
            total += real(0) if row[j] == top else row[j]
        return top + total
    for j in range(row.size):
        total += exp(row[j] - top)
    result = top + log(total)
    # ∞ − ∞ is NaN.
    return result if result == result else sum_of_nonfinite(row)


@inlined
def entropy_of(row: Any) -> Any:
    """−Σ p ln p."""
    real = row.dtype.type
    total = real(0)
    for j in range(row.size):
        inside = real(1) if row[j] <= real(0) else row[j]
        total -= inside * log(inside)
    return total


@exact
def without_sign(number: Any) -> Any:
    """The number, but 0 for −0: adding 0 changes no other."""
    return number + type(number)(0)


@inlined
def nan_or_zero(row: Any) -> Any:
    """NaN if a number of a row is NaN, else 0."""
    total = row.dtype.type(0)
    for j in range(row.size):
        total += row.dtype.type(0) if row[j] == row[j] else row[j]
    return total


@inlined
def pool_row(p: Any, block: Block, chunk: int, r: int, begin: int, weights: Any) -> None:
    """Add a row's weights to the cells of the coarse map."""
    zero = weights.dtype.type(0)
    size = size_of(zero)
    head = (block.batch * p.heads + block.head) * p.chunks + chunk
    offset = (head * p.pooled_rows + (block.row + r + p.first_row) * p.pooled_rows // p.all_rows) * p.pooled_columns
    sums = array_at(p.pooled_sum + offset * size, p.pooled_columns, zero)
    tops = array_at(p.pooled_max + offset * size, p.pooled_columns, zero)
    j, n = 0, weights.size
    while j < n:
        cell = (begin + j) * p.pooled_columns // p.keys
        # The first key of the next cell.
        end = min(ceil_div((cell + 1) * p.keys, p.pooled_columns) - begin, n)
        total = zero
        for k in range(j, end):
            total += weights[k]
        sums[cell] += total
        # Comparisons pass over NaN, sums do not.
        top = row_maximum(weights[j:end]) if total == total else total
        tops[cell] = top if top > tops[cell] or top != top else tops[cell]
        j = end


@inlined
def read_row(p: Any, block: Block, chunk: int, r: int, runs: Any, weights: Any, unknown: Any, maxima: Any) -> None:
    """Everything that is read of one row's weights but log-sum-exp and entropy.

    Args:
        runs: of the row, of which there is one.
        weights: its columns from the first visible one to the last; 0 between the runs.
        unknown: NaN if a weight is, else 0.
    """
    real = weights.dtype.type
    zero = real(0)
    size, offset, low = size_of(zero), block.flat_row + r, runs.ranges[0, COLUMN]
    if p.peak != 0:
        # Comparisons pass over NaN.
        array_at(p.peak, offset + 1, zero)[offset] = max(row_maximum(weights), zero) + unknown
    if p.top_k > 0:
        indices = array_at(p.top_indices + offset * p.top_k * 8, p.top_k, np.int64(0))
        tops, taken = array_at(p.top_weights + offset * p.top_k * size, p.top_k, zero), 0
        if unknown != unknown:
            taken = take_nan(weights, tops, indices)
        take_top(weights, tops[taken:], indices[taken:], maxima)
        if unknown != unknown:
            restore_nan(weights)
        for k in range(p.top_k):
            if indices[k] >= 0:
                indices[k] = key_at(runs, low + indices[k])
    for n in range(runs.size):
        run = range_at(runs.ranges, n)
        read_run(p, block, chunk, r, run.first, weights[run.column - low : run.column - low + run.keys])


@inlined
def read_run(p: Any, block: Block, chunk: int, r: int, begin: int, weights: Any) -> None:
    """What is summed or stored of one row's weights for the keys from ``begin`` on."""
    row, n = block.row + r, weights.size
    zero = weights.dtype.type(0)
    real, size, offset = type(zero), size_of(zero), block.flat_row + r
    if p.received != 0:
        place = ((block.batch * p.heads + block.head) * p.chunks + chunk) * p.keys + begin
        sums = array_at(p.received + place * size, n, zero)
        for j in range(n):
            sums[j] += weights[j]
    if p.distance != 0:
        own = real(row + p.key_offset - begin)
        total = zero
        for j in range(n):
            total += weights[j] * abs(own - real(np.int32(j)))
        array_at(p.distance, offset + 1, zero)[offset] += total
    if p.pooled_sum != 0:
        pool_row(p, block, chunk, r, begin, weights)
    if p.weights != 0:
        slot = array_at(p.row_slots, p.queries, np.int64(0))[row]
        if slot >= 0:
            low, high = max(begin, p.first_stored_key), min(begin + n, p.first_stored_key + p.stored_keys)
            place = ((block.batch * p.heads + block.head) * p.stored_rows + slot) * p.stored_keys - p.first_stored_key
            copy = array_at(p.weights + (place + low) * size, max(high - low, 0), zero)
            for j in range(high - low):
                copy[j] = weights[low - begin + j]


@inlined
def reads_block(p: Any, block: Block) -> bool:
    """Whether a block holds a row of those to which readings are confined."""
    if p.only_stored == 0:
        return True
    slots = array_at(p.row_slots, p.queries, np.int64(0))
    wanted = False
    for r in range(block.row, block.row + block.rows):
        wanted = wanted or slots[r] >= 0
    return wanted


def attention_readings(dtype: str, units: str, normalizer: str) -> Callable[[int], None]:
    """The body for a dtype, float32 or float64, a score's units and a normalizer."""
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
                # Where a score is NaN or +∞, weights are 0 at scores of −∞ alone, which softmax wrote over: they are
                # computed again.
                spoilt, again = 0, False
                while True:
                    score(p, block, routine, scratch)
                    for r in range(block.rows):
                        runs = runs_of_row(p, block, r, scratch.runs)
                        if runs.size == 0:
                            continue
                        visible = adjust_row(p, block, r, runs, scratch.scores[r])
                        entropy, unknown = zero, zero
                        # What is known when a kernel is compiled comes first: only one branch is compiled then.
                        if softmax and p.center == 0:
                            if again:
                                lse = sum_of_nonfinite(visible)
                                if lse == zero:
                                    continue
                                fill_nan(visible)
                                entropy, unknown = real(np.nan), real(np.nan)
                            else:
                                lse, entropy = softmax_with_entropy(visible, normalizer.sink, normalizer.has_sink)
                                if lse != lse:
                                    spoilt += 1
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
                                unknown = nan_or_zero(visible)
                        # A row of NaN has them in its gaps too.
                        fill_gaps(runs, scratch.scores[r], zero)
                        offset = block.flat_row + r
                        if p.lse != 0:
                            array_at(p.lse, offset + 1, zero)[offset] = lse
                        if p.entropy != 0:
                            array_at(p.entropy, offset + 1, zero)[offset] = without_sign(entropy)
                        read_row(p, block, chunk, r, runs, visible, unknown, maxima)
                    if again or spoilt == 0:
                        break
                    again = True
        limit_threads(p.limit_threads, threads)
        release(p, memory)

    return body
