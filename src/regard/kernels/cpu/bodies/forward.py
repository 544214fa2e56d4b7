"""Attention forward: scores, weights and output of one block of rows after the other, in memory for one block."""

from collections.abc import Callable
from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.arguments import ZERO, ZEROS, arguments_at
from regard.kernels.cpu.bodies.block import (
    SCORES,
    QueryBlock,
    Scratch,
    block_of,
    column_matrix,
    read_weight,
    scratch_at,
    value_matrix,
)
from regard.kernels.cpu.bodies.compressing import can_compress
from regard.kernels.cpu.bodies.intrinsics import (
    allocate,
    array_at,
    cache_line,
    copy,
    fetch_add,
    is_single,
    release,
    size_of,
)
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.products import (
    Routine,
    are_few_rows,
    limit_threads,
    mixtures_of_few_rows,
    product,
    routine_of,
)
from regard.kernels.cpu.bodies.row_adjustments import adjust_row, drop_row, window_row
from regard.kernels.cpu.bodies.row_normalizers import fill_nan, normalize, normalizer_reader, sum_of_nonfinite
from regard.kernels.cpu.bodies.sparse_mixture import SPARSE_NORMALIZERS, are_few, are_finite, mix_sparsely
from regard.kernels.cpu.bodies.visible_keys import KeyRange, clear_hidden, range_at, runs_of_row
from regard.kernels.cpu.bodies.wide_product import Matrix, Size
from regard.kernels.cpu.kernel_arguments import FEW_ROWS, WIDE
from regard.kernels.cpu.sizes import LANES, ceil_div


@inlined
def weigh_block(
    p: Any, block: QueryBlock, scratch: Scratch, normalizer: Any, statistics: Any, second_pass: bool
) -> Any:
    """Turns a block's scores into weights before dropout, with zeros for hidden keys.

    Args:
        second_pass: whether rows with NaN or +∞ get the weight 0 at scores of −∞, as they must if keys compete.

    Returns:
        The number of rows that begin with NaN.
    """
    scores = scratch.scores
    real = scores.dtype.type
    nan_rows = np.int64(0)
    for r in range(block.rows):
        runs, row = runs_of_row(p, block, r, scratch.runs), scores[r]
        if runs.size > 0:
            visible = adjust_row(p, block, r, runs, row)
            if second_pass and sum_of_nonfinite(visible) != real(0):
                fill_nan(visible)
            else:
                statistics[2 * r], statistics[2 * r + 1] = normalize(normalizer, visible)
            nan_rows += np.int64(visible[0] != visible[0])
            if p.center != 0:
                window = window_row(p, block, r, runs, scratch.gauss)
                for j in range(visible.size):
                    visible[j] *= window[j]
        else:
            statistics[2 * r] = real(-np.inf)
            statistics[2 * r + 1] = real(-np.inf)
        clear_hidden(block, runs, row)
    return nan_rows


@inlined
def store_weights(p: Any, block: QueryBlock, weights: Any) -> None:
    """Copies a block's weights to the returned weights."""
    real = weights.dtype.type
    for r in range(block.rows):
        row = array_at(p.returned_weights + (block.flat_row + r) * p.keys * size_of(real(0)), p.keys, real(0))
        written = np.int64(0)
        for s in range(block.segment_count):
            segment = range_at(block.segments, s)
            row[written : segment.first] = real(0)
            written = segment.first + segment.keys
            copy(weights[r, segment.column :], row[segment.first : written])
        row[written:] = real(0)


@inlined
def mix_values(p: Any, block: QueryBlock, routine: Routine, weights: Any, sparse: bool) -> None:
    """Computes the output of a block with at least one segment.

    Args:
        sparse: whether weights of 0 may be skipped; see `can_mix_sparsely`.
    """
    real = weights.dtype.type
    result = Matrix(p.output + block.flat_row * p.value_dim * weights.itemsize, p.value_dim, 1)
    for s in range(block.segment_count):
        segment = range_at(block.segments, s)
        size, value = Size(block.rows, p.value_dim, segment.keys), value_matrix(p, block, segment)
        weight_matrix = column_matrix(weights, segment)
        if is_single(real(1)) and are_few_rows(routine, block.rows) and p.value_dim % LANES == 0:
            mixtures_of_few_rows(routine, size, real(1), weight_matrix, value, result, min(s, 1))
        elif sparse and are_few(size, weight_matrix, real(0)):
            mix_sparsely(size, weight_matrix, value, result, min(s, 1))
        else:
            product(routine, size, real(1), weight_matrix, value, result, min(s, 1))


@inlined
def has_finite_sum(numbers: Any) -> bool:
    """Whether all numbers are finite; False if their sum overflows."""
    total = numbers.dtype.type(0)
    for j in range(numbers.size):
        total += numbers[j]
    return total - total == numbers.dtype.type(0)


@inlined
def can_mix_sparsely(p: Any, block: QueryBlock, routine: Routine, zero: Any) -> bool:
    """Whether skipping weights of 0 leaves the output of a block's head unchanged, bit for bit."""
    if routine.method != WIDE or p.value_dim % LANES != 0:
        return False
    return are_finite(Size(p.keys, p.value_dim, 0), value_matrix(p, block, KeyRange(0, p.keys, 0)), zero)


def attention_forward(dtype: str, units: str, normalizer: str) -> Callable[[int], None]:
    """Returns the body for a dtype, float32 or float64, a score's units and a normalizer."""
    zero, read_normalizer = ZEROS[dtype], normalizer_reader(normalizer)
    additive, score, competing = units != "product", SCORES[units], normalizer not in ("sigmoid", "hard")
    may_be_sparse = dtype == "float32" and normalizer in SPARSE_NORMALIZERS and can_compress()

    def body(address: int) -> None:
        p = arguments_at(address)
        memory = allocate(p, scratch_at(p, ZERO, additive, zero).end)
        if memory == 0:
            return
        scratch = scratch_at(p, cache_line(memory), additive, zero)
        threads, routine = limit_threads(p.limit_threads, 1), routine_of(p)
        real = type(zero)
        scores = scratch.scores
        blocks = ceil_div(p.queries, p.block)
        checked_group, sparse = np.int64(-1), False
        while True:
            task = fetch_add(address)
            if task >= p.tasks:
                break
            h = task // blocks % p.heads
            # Under a causal mask the last blocks are the largest; they begin first.
            index = blocks - 1 - task % blocks
            block = block_of(p, task // blocks // p.heads, h, index, scratch.segments)
            rows = block.rows
            statistics = array_at(p.statistics + block.flat_row * 2 * size_of(zero), 2 * rows, zero)
            output = array_at(p.output + block.flat_row * p.value_dim * size_of(zero), rows * p.value_dim, zero)
            if block.segment_count == 0:
                output[:] = zero
                statistics[:] = real(-np.inf)
                if p.returned_weights != 0:
                    store_weights(p, block, scores)
                continue
            read_weight(p, h, scratch.weight)
            normalizer, second_pass = read_normalizer(p, h, zero), False
            while True:
                score(p, block, routine, scratch)
                nan_rows = weigh_block(p, block, scratch, normalizer, statistics, second_pass)
                # The weights have overwritten the scores, which tell where a weight is 0 instead of NaN.
                if not competing or second_pass or nan_rows == 0 or p.returned_weights == 0:
                    break
                second_pass = True
            if p.returned_weights != 0:
                store_weights(p, block, scores)
            if p.threshold > 0:
                for r in range(rows):
                    for index in range(block.segment_count):
                        segment = range_at(block.segments, index)
                        drop_row(
                            p,
                            block.flat_row + r,
                            segment.first,
                            scores[r, segment.column : segment.column + segment.keys],
                        )
            group = block.batch * p.kv_heads + block.group
            if may_be_sparse and rows > FEW_ROWS and group != checked_group:
                checked_group, sparse = group, can_mix_sparsely(p, block, routine, zero)
            mix_values(p, block, routine, scores, sparse)
            if not has_finite_sum(output):
                p.nonfinite = 1
        limit_threads(p.limit_threads, threads)
        release(p, memory)

    return body
