"""Products of the pairs of tokens of a chunk of linear attention, and the triangular systems of the delta rule."""

from typing import Any

from regard.kernels.cpu import linear_layout as at
from regard.kernels.cpu.bodies.intrinsics import array_at
from regard.kernels.cpu.bodies.linear_memory import (
    HeadMemory,
    features_at,
    matrix,
    multiply,
    scale_row,
    scale_rows,
    transposed,
    vector_at,
)
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.transposing import transpose
from regard.kernels.cpu.bodies.vectors import broadcast, load, padded_zeros, store, sum_of, where_less
from regard.kernels.cpu.bodies.wide_product import Matrix, Size, columns_from, rows_from
from regard.kernels.cpu.linear_layout import BLOCK, CHUNK
from regard.kernels.cpu.sizes import LANES, ceil_div


@inlined
def pair_products(p: Any, m: HeadMemory, tokens: int, zero: Any) -> None:
    """Computes the decayed products of queries with keys, and for the delta rule those of keys with keys.

    Above the diagonal, within its blocks, they are 0; products of a key with itself as well.
    """
    if m.gates > 1:
        _by_blocks(p, m, tokens, zero)
        return
    keys = transposed(m.of_features, at.TRANSPOSED_KEY)
    transpose(matrix(m.of_features, at.KEY), ceil_div(tokens, BLOCK) * BLOCK, m.features, keys, zero)
    for first in range(0, tokens, BLOCK):
        _multiply_keys(p, m, first, Size(min(BLOCK, tokens - first), first + BLOCK, m.dim), at.QUERY)
    for side in range(1 + m.is_delta):
        decay_pairs(m, tokens, matrix(m.of_pairs, at.READS + side), 1 - side, zero)


@inlined
def _multiply_keys(p: Any, m: HeadMemory, first: int, size: Size, rows: int) -> None:
    """Computes products with the transposed keys: of queries, and for the delta rule of the keys in the next matrix.

    Args:
        first: the first token of the rows.
        rows: the matrix of queries.
    """
    keys = transposed(m.of_features, at.TRANSPOSED_KEY)
    for side in range(1 + m.is_delta):
        source, pairs = matrix(m.of_features, rows + side), matrix(m.of_pairs, at.READS + side)
        multiply(p, size, 1.0, rows_from(source, first), keys, rows_from(pairs, first), 0)


@inlined
def decay_pairs(m: HeadMemory, tokens: int, pairs: Matrix, diagonal: int, zero: Any) -> None:
    """Decays products with one decay a token, if there is one, and sets those above the diagonal to 0.

    Args:
        diagonal: 1 to keep the diagonal, 0 to set it to 0 too.
    """
    zeros, real = padded_zeros(zero), type(zero)
    decays, positions = matrix(m.of_pairs, at.DECAYS).address, vector_at(m, at.POSITIONS)
    for t in range(tokens):
        end, row = broadcast(real(t + diagonal), zeros), t * CHUNK * 4
        for j in range(0, (t // BLOCK + 1) * BLOCK * 4, LANES * 4):
            product = load(pairs.address + row + j, zeros)
            if m.gates == 1:
                product = product * load(decays + row + j, zeros)
            store(where_less(load(positions + j, zeros), end, product, zeros), pairs.address + row + j)


@inlined
def _by_blocks(p: Any, m: HeadMemory, tokens: int, zero: Any) -> None:
    """Computes the products with a decay for each feature.

    Earlier keys are kept decayed until the block begins, so that each block of rows has one product with all of them.
    """
    keys = transposed(m.of_features, at.TRANSPOSED_KEY)
    for first in range(0, tokens, BLOCK):
        rows, earlier = min(BLOCK, tokens - first), first - BLOCK
        if first > 0:
            left_after = features_at(m, at.SINCE_BLOCK) + (first - 1) * m.features * 4
            scale_rows(keys, array_at(left_after, m.dim, zero), keys, m.dim, earlier, zero)
            later = rows_from(matrix(m.of_features, at.LATER_KEY), earlier)
            transpose(later, BLOCK, m.features, columns_from(keys, earlier), zero)
            _multiply_keys(p, m, first, Size(rows, first, m.dim), at.BLOCK_QUERY)
        for side in range(1 + m.is_delta):
            _products_in_block(m, first, rows, side, zero)


@inlined
def _products_in_block(m: HeadMemory, first: int, rows: int, side: int, zero: Any) -> None:
    """Computes the products within a block on the diagonal: a row decays token by token, back to each key.

    Args:
        side: 0 for rows of queries, 1 for those of keys.
    """
    zeros, row_bytes, pairs = padded_zeros(zero), m.features * 4, matrix(m.of_pairs, at.READS + side)
    partial, source = vector_at(m, at.PARTIAL), features_at(m, at.QUERY + side)
    keys, decays = features_at(m, at.KEY), features_at(m, at.TOKEN_DECAY)
    for t in range(first, first + rows):
        result = array_at(pairs.address + (t * CHUNK + first) * 4, BLOCK, zero)
        for j in range(0, row_bytes, LANES * 4):
            row = load(source + t * row_bytes + j, zeros)
            for s in range(t, first - 1, -1):
                if s < t:
                    row = row * load(decays + (s + 1) * row_bytes + j, zeros)
                sums = partial + (s - first) * LANES * 4
                product = row * load(keys + s * row_bytes + j, zeros)
                store(product if j == 0 else product + load(sums, zeros), sums)
        for s in range(BLOCK):
            is_seen = first + s < t + 1 - side
            result[s] = sum_of(load(partial + s * LANES * 4, zeros)) if is_seen else zero


@inlined
def solve(p: Any, m: HeadMemory, tokens: int, residuals: Matrix, updates: Matrix, zero: Any) -> None:
    """Solves ``(I + R diag(β)) Y = X`` in place of X, for the residuals Y of values, and computes ``U = diag(β) Y``."""
    beta, recalls = array_at(vector_at(m, at.BETA), CHUNK, zero), matrix(m.of_pairs, at.RECALLS)
    for first in range(0, tokens, BLOCK):
        rows = min(BLOCK, tokens - first)
        if first > 0:
            size = Size(rows, m.columns, first)
            multiply(p, size, -1.0, rows_from(recalls, first), updates, rows_from(residuals, first), 1)
        for t in range(first, first + rows):
            factors = array_at(recalls.address + t * CHUNK * 4, CHUNK, zero)
            _subtract_rows(m, factors, 1, first, t, residuals, t, updates, zero)
            row = t * m.columns * 4
            scale_row(residuals.address + row, beta[t], updates.address + row, m.columns, zero)


@inlined
def solve_transposed(p: Any, m: HeadMemory, tokens: int, grads: Matrix, scaled: Matrix, zero: Any) -> None:
    """Solves ``(I + diag(β) R)ᵀ Z = dU`` in place of dU, and computes ``diag(β) Z``."""
    beta, recalls = array_at(vector_at(m, at.BETA), CHUNK, zero), matrix(m.of_pairs, at.RECALLS)
    for first in range((tokens - 1) // BLOCK * BLOCK, -1, -BLOCK):
        rows = min(BLOCK, tokens - first)
        if first + rows < tokens:
            below = recalls.address + ((first + rows) * CHUNK + first) * 4
            size = Size(rows, m.columns, tokens - first - rows)
            multiply(
                p, size, -1.0, Matrix(below, 1, CHUNK), rows_from(scaled, first + rows), rows_from(grads, first), 1
            )
        for s in range(first + rows - 1, first - 1, -1):
            factors = array_at(recalls.address + s * 4, CHUNK * CHUNK - s, zero)
            _subtract_rows(m, factors, CHUNK, s + 1, first + rows, grads, s, scaled, zero)
            row = s * m.columns * 4
            scale_row(grads.address + row, beta[s], scaled.address + row, m.columns, zero)


@inlined
def _subtract_rows(
    m: HeadMemory, factors: Any, step: int, start: int, stop: int, target: Matrix, row: int, source: Matrix, zero: Any
) -> None:
    """Subtracts rows ``start`` to ``stop`` of the source, each times its factor, from a row of the target."""
    zeros, row_bytes, size = padded_zeros(zero), m.columns * 4, LANES * 4
    result, j = target.address + row * m.columns * 4, 0
    # Four sums at a time, since each waits for its own previous term.
    while j + 4 * size <= row_bytes:
        first, second = load(result + j, zeros), load(result + j + size, zeros)
        third, fourth = load(result + j + 2 * size, zeros), load(result + j + 3 * size, zeros)
        for s in range(start, stop):
            factor, address = broadcast(factors[s * step], zeros), source.address + s * row_bytes + j
            first = first - factor * load(address, zeros)
            second = second - factor * load(address + size, zeros)
            third = third - factor * load(address + 2 * size, zeros)
            fourth = fourth - factor * load(address + 3 * size, zeros)
        store(first, result + j)
        store(second, result + j + size)
        store(third, result + j + 2 * size)
        store(fourth, result + j + 3 * size)
        j += 4 * size
    while j < row_bytes:
        first = load(result + j, zeros)
        for s in range(start, stop):
            first = first - broadcast(factors[s * step], zeros) * load(source.address + s * row_bytes + j, zeros)
        store(first, result + j)
        j += size
