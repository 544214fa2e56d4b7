"""From the gradients of a block's scores and weights to those of its queries, keys and values, segment by segment.

Gradients of keys, values and weights are added to the sums of the block's chunk. Those of an additive score's keys are
held transposed, as its kernels read keys, until the chunk ends.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any, NamedTuple

from regard.kernels.cpu.bodies.arguments import ZERO
from regard.kernels.cpu.bodies.block import (
    Block,
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
    """A thread's own memory for a block's gradients, as `Scratch`.

    Attributes:
        gradient: of weights, then of scores, ``[rows, width]``.
        mixed: weights as they mixed the values: after window and dropout, ``[rows, width]``.
        slopes: of the cap, ``[width]``, or empty.
        sums: of an additive score's query gradients, ``[rows, even dim]``.
        key_sums: of its keys' gradients, ``[even dim · padded keys]``; they outlast a block.
        partial: `partial_sums`.
        doubled_keys: for `differentiate_tile_directly`, ``[dim, TILE]``.
        end: the address behind it.
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
    """Unfilled memory for the largest block, as `scratch_at`."""
    size, width, even_dim = size_of(example), padded_length(p.keys) + LANES, even_length(p.dim) if additive else 0
    capped, dim, padded = width if p.cap > 0 else 0, p.dim if additive else 0, padded_length(p.keys)
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
    """A thread's own memory, for `release`, and both scratches that lie in it; 0 if there is none."""
    size = gradient_scratch_at(p, scratch_at(p, ZERO, additive, example).end, additive, example).end
    memory = allocate(p, size)
    scratch = scratch_at(p, cache_line(memory), additive, example)
    return memory, scratch, gradient_scratch_at(p, scratch.end, additive, example)


@inlined
def add_sum(p: Any, rows: int, columns: KeyRange, gradient: Any, grad_weight: Any) -> None:
    """Add Σ gradient of a segment, which each unit's weight gets once."""
    total = gradient.dtype.type(0)
    for r in range(rows):
        row = gradient[r]
        for j in range(columns.column, columns.column + columns.keys):
            total += row[j]
    for d in range(p.dim):
        grad_weight[d] += total


def _differentiate_units(relu: bool) -> Any:
    """Makes the part that differentiates rectified units, or tanh."""

    @inlined
    def differentiate(
        p: Any, block: Block, chunk: int, routine: Routine, scratch: Scratch, gradients: GradientScratch
    ) -> None:
        """From the gradient of a block's additive scores to that of its queries, and the sums of keys and weight."""
        gradient, weight, rows = gradients.gradient, scratch.weight, block.rows
        example = gradient[0, 0]
        real, size, even_dim = gradient.dtype.type, size_of(gradient[0, 0]), weight.size
        keys, queries = keys_of(p, block.batch, block.group, example), additive_queries(p, block, scratch)
        head = (block.batch * p.heads + block.head) * p.chunks + chunk
        grad_weight = array_at(p.grad_weight + head * even_dim * size, even_dim, example)
        sums = Gradients(gradients.sums, gradients.key_sums, grad_weight, gradients.partial)
        sums.query[:rows] = real(0)
        for s in range(block.segment_count):
            part = range_at(block.segments, s)
            stop = part.first + padded_length(part.keys)
            end = part.column + part.keys
            # Zeros up to whole vectors.
            gradient[:rows, end : part.column + stop - part.first] = real(0)
            if not relu:
                add_sum(p, rows, part, gradient, grad_weight)
                whole = KeyRange(part.first, stop - part.first, part.column)
                differentiate_tanh(queries, keys, whole, weight, gradient, sums)
            for index in tiles_between(part.first, stop):
                tile = clip_tile(index, part.first, stop, part.column)
                if relu:
                    differentiate_rectified(queries, keys, tile, weight, gradient, sums)
                elif exceeds_limit(queries, keys, tile):
                    known = clip_tile(index, part.first, min(stop, p.keys), part.column)
                    differentiate_tile_directly(queries, keys, known, weight, gradient, sums, gradients.doubled_keys)
        grad_query = array_at(p.grad_query + block.flat_row * p.dim * size, rows * p.dim, example)
        for r in range(rows):
            for d in range(p.dim):
                grad_query[r * p.dim + d] = sums.query[r, d]

    return differentiate


@inlined
def clear_sums(p: Any, task: int, key_sums: Any) -> None:
    """Zeros for a task's sums of keys and values: here and not beforehand, so that they are in cache when added to.

    Args:
        task: which of ``grad_key [task, keys, dim]`` and ``grad_value [task, keys, value dim]``.
        key_sums: of an additive score, which stand for those of ``grad_key``; empty for inner products.
    """
    zero = key_sums.dtype.type(0)
    key_sums[:] = zero
    if key_sums.size == 0:
        numbers = p.keys * p.dim
        array_at(p.grad_key + task * numbers * size_of(zero), numbers, zero)[:] = zero
    numbers = p.keys * p.value_dim
    array_at(p.grad_value + task * numbers * size_of(zero), numbers, zero)[:] = zero


@inlined
def write_key_gradient(p: Any, head: int, sums: Any) -> None:
    """The gradient of keys, from an additive score's sums.

    Args:
        head: which of ``grad_key [head, keys, dim]``.
        sums: ``[even dim · padded keys]``.
    """
    size, padded = sums.itemsize, padded_length(p.keys)
    target = Matrix(p.grad_key + head * p.keys * p.dim * size, p.dim, 1)
    transpose(Matrix(address_of(sums), padded, 1), p.dim, p.keys, target, sums.dtype.type(0))


@inlined
def _differentiate_product(
    p: Any, block: Block, chunk: int, routine: Routine, scratch: Scratch, gradients: GradientScratch
) -> None:
    """The same for inner products: ``dQ = dS K``, ``dK += dSᵀ Q``."""
    gradient = gradients.gradient
    example = gradient[0, 0]
    size, scale = size_of(example), gradient.dtype.type(p.scale)
    grad_query = Matrix(p.grad_query + block.flat_row * p.dim * size, p.dim, 1)
    head = (block.batch * p.kv_heads + block.group) * p.chunks + chunk
    query = query_matrix(p, block, example)
    for s in range(block.segment_count):
        part = range_at(block.segments, s)
        given, key = column_matrix(gradient, part), key_matrix(p, block, part, example)
        product(routine, Size(block.rows, p.dim, part.keys), scale, given, key, grad_query, min(s, 1))
        grad_key = Matrix(p.grad_key + (head * p.keys + part.first) * p.dim * size, p.dim, 1)
        product_of_transposed(routine, Size(part.keys, p.dim, block.rows), scale, given, query, grad_key, 1)


DIFFERENTIATIONS = {
    "product": _differentiate_product,
    "tanh": _differentiate_units(relu=False),
    "relu": _differentiate_units(relu=True),
}
"""From the gradient of a block's scores to that of its queries and keys, for a score's units: ``(arguments, block,
chunk, routine for products, scratch, gradient scratch)``."""


@inlined
def grad_output_matrix(p: Any, block: Block, example: Any) -> Matrix:
    """The gradient of a block's output."""
    return Matrix(p.grad_output + block.flat_row * p.value_dim * size_of(example), p.value_dim, 1)


@inlined
def differentiate_mixture(p: Any, block: Block, routine: Routine, gradient: Any) -> None:
    """The gradient of a block's weights as they mixed the values: ``dP = dO Vᵀ``."""
    example = gradient[0, 0]
    grad_output, one = grad_output_matrix(p, block, example), gradient.dtype.type(1)
    for s in range(block.segment_count):
        part = range_at(block.segments, s)
        transposed = transposed_matrix(p.value_transposed, p, block, part, p.value_dim, example)
        size, value = Size(block.rows, part.keys, p.value_dim), value_matrix(p, block, part, example)
        product_with_keys(routine, size, one, grad_output, value, transposed, column_matrix(gradient, part))


@inlined
def differentiate_values(p: Any, block: Block, chunk: int, routine: Routine, mixed: Any) -> None:
    """Add a block's gradient to that of the values: ``dV += Pᵀ dO``."""
    example = mixed[0, 0]
    head, one = (block.batch * p.kv_heads + block.group) * p.chunks + chunk, mixed.dtype.type(1)
    grad_output = grad_output_matrix(p, block, example)
    for s in range(block.segment_count):
        part = range_at(block.segments, s)
        offset = (head * p.keys + part.first) * p.value_dim * size_of(example)
        grad_value = Matrix(p.grad_value + offset, p.value_dim, 1)
        size = Size(part.keys, p.value_dim, block.rows)
        product_of_transposed(routine, size, one, column_matrix(mixed, part), grad_output, grad_value, 1)
