"""Backward passes for a decoder that attends to one cached memory step by step.

A step returns the gradients of its query and of its scores. The gradient of the keys is a sum over all steps, computed
in one pass at the end, so that no step writes a gradient as large as the memory. The exception is the first step of a
backward pass with an additive score: it passes over all keys anyway, and starts the sum; see
docs/en/understand/derivations/cached-memory.md. There is one head; rows are the queries of one step.
"""

from collections.abc import Callable
from typing import Any

from regard.kernels.cpu.bodies.arguments import ZEROS, arguments_at
from regard.kernels.cpu.bodies.block import (
    PREPARATIONS,
    QueryBlock,
    block_of,
    column_matrix,
    key_matrix,
    read_weight,
    value_matrix,
)
from regard.kernels.cpu.bodies.block_gradients import DIFFERENTIATIONS, gradient_memory, write_key_gradient
from regard.kernels.cpu.bodies.intrinsics import (
    address_of,
    allocate,
    array_at,
    cache_line,
    copy,
    fetch_add,
    matrix_at,
    release,
    size_of,
)
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.products import Routine, limit_threads, product, product_with_transposed, routine_of
from regard.kernels.cpu.bodies.row_adjustments import drop_row
from regard.kernels.cpu.bodies.row_gradients import differentiate
from regard.kernels.cpu.bodies.row_normalizers import normalizer_reader
from regard.kernels.cpu.bodies.tanh_gradients import (
    differentiate_keys,
    differentiate_query,
    differentiate_query_directly,
    differentiate_tile_directly,
)
from regard.kernels.cpu.bodies.tanh_sum import (
    Gradients,
    Queries,
    clip_tile,
    exceeds_limit,
    exponent_limit,
    keys_of,
    prepare_row,
    tiles_between,
)
from regard.kernels.cpu.bodies.transposing import transpose
from regard.kernels.cpu.bodies.visible_keys import KeyRange, clear_hidden, column_span, fill_gaps, range_at, runs_of_row
from regard.kernels.cpu.bodies.wide_product import Matrix, Size
from regard.kernels.cpu.sizes import TILE, even_length, padded_length


@inlined
def differentiate_scores(
    p: Any, block: QueryBlock, routine: Routine, normalizer: Any, gradient: Any, weights: Any, memory: Any
) -> None:
    """Computes the gradients of a step's scores, ``gradient [queries, …]``, from those of its output and weights.

    Args:
        weights: memory for the weights of a row.
        memory: memory for the runs of a row.
    """
    zero = gradient.dtype.type(0)
    size, flat_row = size_of(zero), block.flat_row
    grad_output = Matrix(p.grad_output + flat_row * p.value_dim * size, p.value_dim, 1)
    for s in range(block.segment_count):
        segment = range_at(block.segments, s)
        product_with_transposed(
            routine, Size(p.queries, segment.keys, p.value_dim), gradient.dtype.type(1), grad_output,
            value_matrix(p, block, segment), column_matrix(gradient, segment),
        )  # fmt: skip
    for row in range(p.queries):
        row_offset = (flat_row + row) * p.keys * size
        row_weights = array_at(p.returned_weights + row_offset, p.keys, zero)
        grad_score = array_at(p.grad_score + row_offset, p.keys, zero)
        grad_score[:] = zero
        if p.threshold > 0:
            mixed = array_at(p.mixed_weights + row_offset, p.keys, zero)
            copy(row_weights, mixed)
            drop_row(p, flat_row + row, 0, mixed)
        runs = runs_of_row(p, block, row, memory)
        clear_hidden(block, runs, gradient[row])
        # Also the padding, so that loops can run over whole vectors.
        gradient[row, block.columns :] = zero
        if runs.size == 0:
            continue
        fill_gaps(runs, weights, zero)
        for n in range(runs.size):
            run = range_at(runs.ranges, n)
            end = run.column + run.keys
            run_gradient = gradient[row, run.column : end]
            copy(row_weights[run.first :], weights[run.column : end])
            if p.threshold > 0:
                drop_row(p, flat_row + row, run.first, run_gradient)
            if p.grad_weights != 0:
                grad_weights = array_at(p.grad_weights + row_offset, p.keys, zero)[run.first : run.first + run.keys]
                for j in range(run.keys):
                    run_gradient[j] += grad_weights[j]
        low, high = column_span(runs)
        differentiate(normalizer, weights[low:high], gradient[row, low:high])
        factor = gradient.dtype.type(p.inverse_temperature)
        for n in range(runs.size):
            run = range_at(runs.ranges, n)
            run_gradient = gradient[row, run.column : run.column + run.keys]
            for j in range(run.keys):
                run_gradient[j] *= factor
                grad_score[run.first + j] = run_gradient[j]


@inlined
def additive_query_gradients(
    p: Any, block: QueryBlock, queries: Queries, gradient: Any, weight: Any, sums: Any
) -> None:
    """Writes the gradient of a step's queries from that of its additive scores.

    Args:
        sums: memory for the gradient of one query, ``[even dim]``.
    """
    zero = gradient.dtype.type(0)
    size, b = size_of(zero), block.batch
    keys = keys_of(p, b, 0, zero)
    for row in range(p.queries):
        exponentials, extent, row_gradient = queries.exponentials[row], queries.extents[row], gradient[row]
        query = queries.raw[row * queries.stride : row * queries.stride + p.dim]
        sums[:] = zero
        for s in range(block.segment_count):
            segment = range_at(block.segments, s)
            stop = segment.first + padded_length(segment.keys)
            padded_segment = KeyRange(segment.first, stop - segment.first, segment.column)
            differentiate_query(exponentials, extent, keys, padded_segment, weight, row_gradient, sums)
            for index in tiles_between(segment.first, stop):
                if not extent <= exponent_limit(zero) - keys.extents[index]:
                    tile = clip_tile(index, segment.first, min(stop, p.keys), segment.column)
                    tile_gradient = row_gradient[tile.column : tile.column + tile.keys]
                    differentiate_query_directly(query, keys, tile.first, weight, tile_gradient, sums)
        copy(sums, array_at(p.grad_query + (b * p.queries + row) * p.dim * size, p.dim, zero))


@inlined
def query_gradients(p: Any, block: QueryBlock, routine: Routine, gradient: Any) -> None:
    """Writes the gradient of a step's queries for inner products: ``dQ = dS K``, 0 where no key is visible."""
    zero = gradient.dtype.type(0)
    address = p.grad_query + block.flat_row * p.dim * size_of(zero)
    if block.segment_count == 0:
        array_at(address, p.queries * p.dim, zero)[:] = zero
    for s in range(block.segment_count):
        segment = range_at(block.segments, s)
        size, key = Size(p.queries, p.dim, segment.keys), key_matrix(p, block, segment)
        grad_scores, scale = column_matrix(gradient, segment), gradient.dtype.type(p.scale)
        product(routine, size, scale, grad_scores, key, Matrix(address, p.dim, 1), min(s, 1))


@inlined
def grad_weight_of(p: Any, b: int, weight: Any) -> Any:
    """Returns a batch row's terms of the weight's gradient."""
    return array_at(p.grad_weight + b * weight.size * weight.itemsize, weight.size, weight[0])


def attention_step_backward(dtype: str, units: str, normalizer: str) -> Callable[[int], None]:
    """Returns the body of one step's backward pass, for a dtype, a score's units (not relu) and a normalizer.

    A task is a batch row. With an additive score, and if ``grad_key`` is given, it also starts the sums of
    `additive_keys_backward`.
    """
    zero, read_normalizer = ZEROS[dtype], normalizer_reader(normalizer)
    additive, prepare, differentiate_units = units != "product", PREPARATIONS[units], DIFFERENTIATIONS[units]

    def body(address: int) -> None:
        p = arguments_at(address)
        memory, scratch, gradients = gradient_memory(p, additive, zero)
        if memory == 0:
            return
        gradient, weight = gradients.gradient, scratch.weight
        read_weight(p, 0, weight)
        threads, routine = limit_threads(p.limit_threads, 1), routine_of(p)
        while True:
            b = fetch_add(address)
            if b >= p.tasks:
                break
            block = block_of(p, b, 0, 0, scratch.segments)
            differentiate_scores(
                p, block, routine, read_normalizer(p, 0, zero), gradient, scratch.scores[0], scratch.runs
            )
            if additive:
                queries = prepare(p, block, scratch)
                if p.grad_key != 0:
                    gradients.key_sums[:] = zero
                    grad_weight_of(p, b, weight)[:] = zero
                    differentiate_units(p, block, 0, routine, scratch, gradients)
                    write_key_gradient(p, b, gradients.key_sums)
                else:
                    additive_query_gradients(p, block, queries, gradient, weight, gradients.sums[0])
            else:
                query_gradients(p, block, routine, gradient)
        limit_threads(p.limit_threads, threads)
        release(p, memory)

    return body


def additive_keys_backward(dtype: str) -> Callable[[int], None]:
    """Returns the body that adds all steps' gradients of an additive score's keys and weight; a task is a batch row.

    ``query`` and ``grad_score`` have the rows of all steps. Terms are added to ``grad_key [batch, keys, dim]`` and
    ``grad_weight [batch, even dim]``, which the first step started.
    """
    zero = ZEROS[dtype]

    def body(address: int) -> None:
        p = arguments_at(address)
        size = size_of(zero)
        even_dim, padded = even_length(p.dim), padded_length(p.keys)
        query_size, score_size = p.queries * even_dim, p.queries * padded
        memory = allocate(
            p, (score_size + even_dim * padded + 2 * query_size + p.dim * TILE + p.queries + even_dim) * size
        )
        if memory == 0:
            return
        position = cache_line(memory)
        array_at(position, score_size, zero)[:] = zero
        gradient = matrix_at(position, p.queries, padded, zero)
        position += score_size * size
        key_sums = array_at(position, even_dim * padded, zero)
        key_sums[:] = zero
        position += even_dim * padded * size
        exponentials = matrix_at(position, p.queries, even_dim, zero)
        position += query_size * size
        sums = matrix_at(position, p.queries, even_dim, zero)
        position += query_size * size
        doubled_keys = matrix_at(position, p.dim, TILE, zero)
        position += p.dim * TILE * size
        extents, weight = array_at(position, p.queries, zero), array_at(position + p.queries * size, even_dim, zero)
        read_weight(p, 0, weight)
        while True:
            b = fetch_add(address)
            if b >= p.tasks:
                break
            raw = array_at(p.query + b * p.query_batch * size, (p.queries - 1) * p.query_row + p.dim, zero)
            queries, keys = Queries(exponentials, extents, raw, p.query_row), keys_of(p, b, 0, zero)
            started = Matrix(p.grad_key + b * p.keys * p.dim * size, p.dim, 1)
            transpose(started, p.keys, p.dim, Matrix(address_of(key_sums), padded, 1), zero)
            grad_weight = grad_weight_of(p, b, weight)
            gradients = Gradients(sums, key_sums, grad_weight, sums[:0])
            for row in range(p.queries):
                query = raw[row * p.query_row : row * p.query_row + p.dim]
                extents[row] = prepare_row(query, exponentials[row])
                grad_score = array_at(p.grad_score + (b * p.queries + row) * p.keys * size, p.keys, zero)
                copy(grad_score, gradient[row, : p.keys])
                total = zero
                for j in range(p.keys):
                    total += gradient[row, j]
                for d in range(p.dim):
                    grad_weight[d] += total
            differentiate_keys(queries, keys, KeyRange(0, padded, 0), weight, gradient, gradients)
            for index in tiles_between(0, padded):
                tile = clip_tile(index, 0, padded, 0)
                if exceeds_limit(queries, keys, tile):
                    unpadded_tile = clip_tile(index, 0, p.keys, 0)
                    differentiate_tile_directly(queries, keys, unpadded_tile, weight, gradient, gradients, doubled_keys)
            write_key_gradient(p, b, key_sums)
        release(p, memory)

    return body
