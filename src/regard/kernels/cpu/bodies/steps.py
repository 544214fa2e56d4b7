"""Backward passes for a decoder that asks one cached memory step by step.

A step needs the gradient of its query at once, and returns that of its scores. The keys' gradient is a sum over all
steps, made in one pass at the end: so no step writes a gradient as large as the memory, but for the first one of a
backward pass with an additive score, which begins the sum in the pass over the keys that it makes anyway; see
docs/derivations/cached-memory.md. One head; rows are the queries of one step.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from collections.abc import Callable
from typing import Any

from regard.kernels.cpu.bodies.arguments import ZEROS, arguments_at
from regard.kernels.cpu.bodies.block import (
    PREPARATIONS,
    Block,
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
    p: Any, block: Block, routine: Routine, normalizer: Any, gradient: Any, weights: Any, memory: Any
) -> None:
    """From the gradients of a step's output and weights to those of its scores, ``gradient [queries, …]``.

    Args:
        weights: memory for the weights of a row.
        memory: for its runs.
    """
    zero = gradient.dtype.type(0)
    size, offset = size_of(zero), block.flat_row
    grad_output = Matrix(p.grad_output + offset * p.value_dim * size, p.value_dim, 1)
    for s in range(block.segment_count):
        part = range_at(block.segments, s)
        product_with_transposed(
            routine, Size(p.queries, part.keys, p.value_dim), gradient.dtype.type(1), grad_output,
            value_matrix(p, block, part, zero), column_matrix(gradient, part),
        )  # fmt: skip
    for row in range(p.queries):
        place = (offset + row) * p.keys * size
        given = array_at(p.returned_weights + place, p.keys, zero)
        out = array_at(p.grad_score + place, p.keys, zero)
        out[:] = zero
        if p.threshold > 0:
            mixed = array_at(p.mixed_weights + place, p.keys, zero)
            copy(given, mixed)
            drop_row(p, offset + row, 0, mixed)
        runs = runs_of_row(p, block, row, memory)
        clear_hidden(block, runs, gradient[row])
        # To the end, so that loops may run over whole vectors.
        gradient[row, block.columns :] = zero
        if runs.size == 0:
            continue
        fill_gaps(runs, weights, zero)
        for n in range(runs.size):
            run = range_at(runs.ranges, n)
            end = run.column + run.keys
            passed = gradient[row, run.column : end]
            copy(given[run.first :], weights[run.column : end])
            if p.threshold > 0:
                drop_row(p, offset + row, run.first, passed)
            if p.grad_weights != 0:
                more = array_at(p.grad_weights + place, p.keys, zero)[run.first : run.first + run.keys]
                for j in range(run.keys):
                    passed[j] += more[j]
        low, high = column_span(runs)
        differentiate(normalizer, weights[low:high], gradient[row, low:high])
        factor = gradient.dtype.type(p.inverse_temperature)
        for n in range(runs.size):
            run = range_at(runs.ranges, n)
            passed = gradient[row, run.column : run.column + run.keys]
            for j in range(run.keys):
                passed[j] *= factor
                out[run.first + j] = passed[j]


@inlined
def additive_query_gradients(p: Any, block: Block, queries: Queries, gradient: Any, weight: Any, sums: Any) -> None:
    """The gradient of a step's queries from that of its additive scores.

    Args:
        sums: memory for that of one query, ``[even dim]``.
    """
    zero = gradient.dtype.type(0)
    size, b = size_of(zero), block.batch
    keys = keys_of(p, b, 0, zero)
    for row in range(p.queries):
        exponentials, extent, own = queries.exponentials[row], queries.extents[row], gradient[row]
        query = queries.raw[row * queries.stride : row * queries.stride + p.dim]
        sums[:] = zero
        for s in range(block.segment_count):
            part = range_at(block.segments, s)
            stop = part.first + padded_length(part.keys)
            whole = KeyRange(part.first, stop - part.first, part.column)
            differentiate_query(exponentials, extent, keys, whole, weight, own, sums)
            for index in tiles_between(part.first, stop):
                if not extent <= exponent_limit(zero) - keys.extents[index]:
                    tile = clip_tile(index, part.first, min(stop, p.keys), part.column)
                    known = own[tile.column : tile.column + tile.keys]
                    differentiate_query_directly(query, keys, tile.first, weight, known, sums)
        copy(sums, array_at(p.grad_query + (b * p.queries + row) * p.dim * size, p.dim, zero))


@inlined
def query_gradients(p: Any, block: Block, routine: Routine, gradient: Any) -> None:
    """The same for inner products: ``dQ = dS K``; zeros where no key is visible."""
    zero = gradient.dtype.type(0)
    address = p.grad_query + block.flat_row * p.dim * size_of(zero)
    if block.segment_count == 0:
        array_at(address, p.queries * p.dim, zero)[:] = zero
    for s in range(block.segment_count):
        part = range_at(block.segments, s)
        size, key = Size(p.queries, p.dim, part.keys), key_matrix(p, block, part, zero)
        given, scale = column_matrix(gradient, part), gradient.dtype.type(p.scale)
        product(routine, size, scale, given, key, Matrix(address, p.dim, 1), min(s, 1))


@inlined
def grad_weight_of(p: Any, b: int, weight: Any) -> Any:
    """A batch row's part of the weight's gradient."""
    return array_at(p.grad_weight + b * weight.size * weight.itemsize, weight.size, weight[0])


def attention_step_backward(dtype: str, units: str, normalizer: str) -> Callable[[int], None]:
    """The body of one step, a batch row for each task, for a dtype, a score's units (no relu) and a normalizer. With an
    additive score it begins the gradients of `additive_keys_backward` where these are wanted."""
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
    """The body of all steps' gradient of an additive score's keys and weight, a batch row for each task.

    ``queries`` are those of all steps, ``grad_score`` theirs; their terms are added to ``grad_key [batch, keys, dim]``
    and ``grad_weight [batch, even dim]``, which the first step began.
    """
    zero = ZEROS[dtype]

    def body(address: int) -> None:
        p = arguments_at(address)
        size = size_of(zero)
        even_dim, padded = even_length(p.dim), padded_length(p.keys)
        rows, columns = p.queries * even_dim, p.queries * padded
        memory = allocate(p, (columns + even_dim * padded + 2 * rows + p.dim * TILE + p.queries + even_dim) * size)
        if memory == 0:
            return
        offset = cache_line(memory)
        array_at(offset, columns, zero)[:] = zero
        gradient = matrix_at(offset, p.queries, padded, zero)
        offset += columns * size
        key_sums = array_at(offset, even_dim * padded, zero)
        key_sums[:] = zero
        offset += even_dim * padded * size
        exponentials = matrix_at(offset, p.queries, even_dim, zero)
        offset += rows * size
        sums = matrix_at(offset, p.queries, even_dim, zero)
        offset += rows * size
        doubled_keys = matrix_at(offset, p.dim, TILE, zero)
        offset += p.dim * TILE * size
        extents, weight = array_at(offset, p.queries, zero), array_at(offset + p.queries * size, even_dim, zero)
        read_weight(p, 0, weight)
        while True:
            b = fetch_add(address)
            if b >= p.tasks:
                break
            raw = array_at(p.query + b * p.query_batch * size, (p.queries - 1) * p.query_row + p.dim, zero)
            queries, keys = Queries(exponentials, extents, raw, p.query_row), keys_of(p, b, 0, zero)
            begun, transposed = (
                Matrix(p.grad_key + b * p.keys * p.dim * size, p.dim, 1),
                Matrix(address_of(key_sums), padded, 1),
            )
            transpose(begun, p.keys, p.dim, transposed, zero)
            grad_weight = grad_weight_of(p, b, weight)
            gradients = Gradients(sums, key_sums, grad_weight, sums[:0])
            for row in range(p.queries):
                query = raw[row * p.query_row : row * p.query_row + p.dim]
                extents[row] = prepare_row(query, exponentials[row])
                given = array_at(p.grad_score + (b * p.queries + row) * p.keys * size, p.keys, zero)
                copy(given, gradient[row, : p.keys])
                total = zero
                for j in range(p.keys):
                    total += gradient[row, j]
                for d in range(p.dim):
                    grad_weight[d] += total
            differentiate_keys(queries, keys, KeyRange(0, padded, 0), weight, gradient, gradients)
            for index in tiles_between(0, padded):
                tile = clip_tile(index, 0, padded, 0)
                if exceeds_limit(queries, keys, tile):
                    known = clip_tile(index, 0, p.keys, 0)
                    differentiate_tile_directly(queries, keys, known, weight, gradient, gradients, doubled_keys)
            write_key_gradient(p, b, key_sums)
        release(p, memory)

    return body
