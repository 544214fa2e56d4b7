"""The gradients of a block's queries, keys and values from those of its scores and weights, segment by segment.

Gradients of keys, values and weight are added to the sums of the block's chunk. The gradients of an additive score's
keys stay transposed, the layout in which its kernels read keys, until the chunk ends.
"""

from typing import Any, NamedTuple

from regard.kernels.cpu.bodies.arguments import ZERO
from regard.kernels.cpu.bodies.block import (
    QueryBlock,
    Scratch,
    additive_queries,
    column_matrix,
    key_matrix,
    query_matrix,
    scratch_at,
    transposed_matrix,
    value_matrix,
)
from regard.kernels.cpu.bodies.intrinsics import address_of, allocate, array_at, cache_line, matrix_at, size_of
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.products import Routine, product, product_of_transposed, product_with_keys
from regard.kernels.cpu.bodies.relu_sum import differentiate_rectified
from regard.kernels.cpu.bodies.tanh_gradients import differentiate_tanh, differentiate_tile_directly, partial_sums
from regard.kernels.cpu.bodies.tanh_sum import Gradients, clip_tile, exceeds_limit, keys_of, tiles_between
from regard.kernels.cpu.bodies.transposing import transpose
from regard.kernels.cpu.bodies.visible_keys import KeyRange, range_at
from regard.kernels.cpu.bodies.wide_product import Matrix, Size
from regard.kernels.cpu.sizes import LANES, REGISTER, TILE, even_length, padded_length


class GradientScratch(NamedTuple):
    """Arrays for a block's gradients in a thread's own memory, see `Scratch`.

    Attributes:
        gradient: gradient of the weights, later of the scores, ``[rows, width]``.
        mixed: the weights that mixed the values, after window and dropout, ``[rows, width]``.
        slopes: derivative of the cap, or scores before a function changes them, ``[width]``, or empty.
        sums: gradients of an additive score's queries, ``[rows, even dim]``.
        key_sums: gradients of its keys, ``[even dim · padded keys]``, summed over the blocks of a chunk.
        partial: see `partial_sums`.
        doubled_keys: scratch of `differentiate_tile_directly`, ``[dim, TILE]``.
        end: end address of the memory.
    """

    gradient: Any
    mixed: Any
    slopes: Any
    sums: Any
    key_sums: Any
    partial: Any
    doubled_keys: Any
    end: int


@inlined
def gradient_scratch_at(p: Any, gradient: int, additive: bool, example: Any) -> GradientScratch:
    """Returns unfilled memory for the largest block, see `scratch_at`."""
    size, width, even_dim = size_of(example), padded_length(p.keys) + LANES, even_length(p.dim) if additive else 0
    capped = width if p.cap > 0 or p.gradient_function != 0 else 0
    dim, padded = p.dim if additive else 0, padded_length(p.keys)
    mixed = gradient + p.block * width * size
    slopes = mixed + p.block * width * size
    sums = slopes + capped * size
    key_sums = cache_line(sums + p.block * even_dim * size)
    partial = key_sums + even_dim * padded * size
    partials = p.block if additive else 0
    doubled_keys = partial + partials * 2 * REGISTER
    return GradientScratch(
        matrix_at(gradient, p.block, width, example),
        matrix_at(mixed, p.block, width, example),
        array_at(slopes, capped, example),
        matrix_at(sums, p.block, even_dim, example),
        array_at(key_sums, even_dim * padded, example),
        partial_sums(partial, partials, example),
        matrix_at(doubled_keys, dim, TILE, example),
        cache_line(doubled_keys + dim * TILE * size),
    )


@inlined
def gradient_memory(p: Any, additive: bool, example: Any) -> tuple[int, Scratch, GradientScratch]:
    """Allocates a thread's memory; returns its address (0 if there is none) and the two scratches in it."""
    size = gradient_scratch_at(p, scratch_at(p, ZERO, additive, example).end, additive, example).end
    memory = allocate(p, size)
    scratch = scratch_at(p, cache_line(memory), additive, example)
    return memory, scratch, gradient_scratch_at(p, scratch.end, additive, example)


@inlined
def add_sum(p: Any, rows: int, columns: KeyRange, gradient: Any, grad_weight: Any) -> None:
    """Adds Σ gradient over a segment to the gradient of each unit's weight."""
    total = gradient.dtype.type(0)
    for r in range(rows):
        row = gradient[r]
        for j in range(columns.column, columns.column + columns.keys):
            total += row[j]
    for d in range(p.dim):
        grad_weight[d] += total


def _differentiate_units(relu: bool) -> Any:
    """Returns the part that differentiates rectified units, or tanh."""

    @inlined
    def differentiate(
        p: Any, block: QueryBlock, chunk: int, routine: Routine, scratch: Scratch, gradients: GradientScratch
    ) -> None:
        """Writes the gradient of a block's queries, and adds to the sums of keys and weight, for additive scores."""
        gradient, weight, rows = gradients.gradient, scratch.weight, block.rows
        example = gradient[0, 0]
        real, size, even_dim = gradient.dtype.type, size_of(gradient[0, 0]), weight.size
        keys, queries = keys_of(p, block.batch, block.group, example), additive_queries(p, block, scratch)
        head = (block.batch * p.heads + block.head) * p.chunks + chunk
        grad_weight = array_at(p.grad_weight + head * even_dim * size, even_dim, example)
        sums = Gradients(gradients.sums, gradients.key_sums, grad_weight, gradients.partial)
        sums.query[:rows] = real(0)
        for s in range(block.segment_count):
            segment = range_at(block.segments, s)
            stop = segment.first + padded_length(segment.keys)
            end = segment.column + segment.keys
            # Fill the last vector with zeros.
            gradient[:rows, end : segment.column + stop - segment.first] = real(0)
            if not relu:
                add_sum(p, rows, segment, gradient, grad_weight)
                padded_segment = KeyRange(segment.first, stop - segment.first, segment.column)
                differentiate_tanh(queries, keys, padded_segment, weight, gradient, sums)
            for index in tiles_between(segment.first, stop):
                tile = clip_tile(index, segment.first, stop, segment.column)
                if relu:
                    differentiate_rectified(queries, keys, tile, weight, gradient, sums)
                elif exceeds_limit(queries, keys, tile):
                    unpadded_tile = clip_tile(index, segment.first, min(stop, p.keys), segment.column)
                    differentiate_tile_directly(
                        queries, keys, unpadded_tile, weight, gradient, sums, gradients.doubled_keys
                    )
        grad_query = array_at(p.grad_query + block.flat_row * p.dim * size, rows * p.dim, example)
        for r in range(rows):
            for d in range(p.dim):
                grad_query[r * p.dim + d] = sums.query[r, d]

    return differentiate


@inlined
def clear_sums(p: Any, task: int, key_sums: Any) -> None:
    """Clears a task's sums of keys and values, just before use, so that they are in cache.

    Args:
        task: index into ``grad_key [task, keys, dim]`` and ``grad_value [task, keys, value dim]``.
        key_sums: the sums that an additive score uses instead of ``grad_key``; empty for inner products.
    """
    zero = key_sums.dtype.type(0)
    key_sums[:] = zero
    if key_sums.size == 0:
        size = p.keys * p.dim
        array_at(p.grad_key + task * size * size_of(zero), size, zero)[:] = zero
    size = p.keys * p.value_dim
    array_at(p.grad_value + task * size * size_of(zero), size, zero)[:] = zero


@inlined
def write_key_gradient(p: Any, head: int, sums: Any) -> None:
    """Writes the gradient of keys from an additive score's sums.

    Args:
        head: index into ``grad_key [head, keys, dim]``.
        sums: ``[even dim · padded keys]``.
    """
    size, padded = sums.itemsize, padded_length(p.keys)
    target = Matrix(p.grad_key + head * p.keys * p.dim * size, p.dim, 1)
    transpose(Matrix(address_of(sums), padded, 1), p.dim, p.keys, target, sums.dtype.type(0))


@inlined
def _differentiate_product(
    p: Any, block: QueryBlock, chunk: int, routine: Routine, scratch: Scratch, gradients: GradientScratch
) -> None:
    """Writes the gradient of a block's queries and adds that of its keys, for inner products: ``dQ = dS K``, ``dK +=
    dSᵀ Q``."""
    gradient = gradients.gradient
    example = gradient[0, 0]
    size, scale = size_of(example), gradient.dtype.type(p.scale)
    grad_query = Matrix(p.grad_query + block.flat_row * p.dim * size, p.dim, 1)
    head = (block.batch * p.kv_heads + block.group) * p.chunks + chunk
    query = query_matrix(p, block, example)
    for s in range(block.segment_count):
        segment = range_at(block.segments, s)
        grad_scores, key = column_matrix(gradient, segment), key_matrix(p, block, segment)
        product(routine, Size(block.rows, p.dim, segment.keys), scale, grad_scores, key, grad_query, min(s, 1))
        grad_key = Matrix(p.grad_key + (head * p.keys + segment.first) * p.dim * size, p.dim, 1)
        product_of_transposed(routine, Size(segment.keys, p.dim, block.rows), scale, grad_scores, query, grad_key, 1)


DIFFERENTIATIONS = {
    "product": _differentiate_product,
    "tanh": _differentiate_units(relu=False),
    "relu": _differentiate_units(relu=True),
}
"""Parts that differentiate a block's scores, by a score's units: ``(arguments, block, chunk, routine for products,
scratch, gradient scratch)``."""


@inlined
def grad_output_matrix(p: Any, block: QueryBlock, example: Any) -> Matrix:
    """Returns the gradient of a block's output."""
    return Matrix(p.grad_output + block.flat_row * p.value_dim * size_of(example), p.value_dim, 1)


@inlined
def differentiate_mixture(p: Any, block: QueryBlock, routine: Routine, gradient: Any) -> None:
    """Writes the gradient of the weights that mixed the values: ``dP = dO Vᵀ``."""
    example = gradient[0, 0]
    grad_output, one = grad_output_matrix(p, block, example), gradient.dtype.type(1)
    for s in range(block.segment_count):
        segment = range_at(block.segments, s)
        transposed = transposed_matrix(p.value_transposed, p, block, segment, p.value_dim, example)
        size, value = Size(block.rows, segment.keys, p.value_dim), value_matrix(p, block, segment)
        product_with_keys(routine, size, one, grad_output, value, transposed, column_matrix(gradient, segment))


@inlined
def differentiate_values(p: Any, block: QueryBlock, chunk: int, routine: Routine, mixed: Any) -> None:
    """Adds a block's terms to the gradient of the values: ``dV += Pᵀ dO``."""
    example = mixed[0, 0]
    head, one = (block.batch * p.kv_heads + block.group) * p.chunks + chunk, mixed.dtype.type(1)
    grad_output = grad_output_matrix(p, block, example)
    for s in range(block.segment_count):
        segment = range_at(block.segments, s)
        offset = (head * p.keys + segment.first) * p.value_dim * size_of(example)
        grad_value = Matrix(p.grad_value + offset, p.value_dim, 1)
        size = Size(segment.keys, p.value_dim, block.rows)
        product_of_transposed(routine, size, one, column_matrix(mixed, segment), grad_output, grad_value, 1)
