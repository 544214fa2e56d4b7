"""Products of the pairs of tokens of a chunk of linear attention, and the triangular systems of the delta rule."""

from typing import Any

from regard.kernels.cpu import linear_layout as at
from regard.kernels.cpu.bodies.intrinsics import array_at
from regard.kernels.cpu.bodies.linear_memory import (
    HeadMemory,
    feature_matrix,
    multiply,
    pair_matrix,
    scale_row,
    transposed_keys,
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
    transposed = transposed_keys(m, at.TRANSPOSED_KEY)
    transpose(feature_matrix(m, at.KEY), ceil_div(tokens, BLOCK) * BLOCK, m.features, transposed, zero)
    for first in range(0, tokens, BLOCK):
        size = Size(min(BLOCK, tokens - first), first + BLOCK, m.dim)
        multiply(
            p,
            size,
            1.0,
            rows_from(feature_matrix(m, at.QUERY), first),
            transposed,
            rows_from(pair_matrix(m, at.READS), first),
            0,
        )
        if m.is_delta != 0:
            recalls = rows_from(pair_matrix(m, at.RECALLS), first)
            multiply(p, size, 1.0, rows_from(feature_matrix(m, at.KEY), first), transposed, recalls, 0)
    decay_pairs(m, tokens, pair_matrix(m, at.READS), 1, zero)
    if m.is_delta != 0:
        decay_pairs(m, tokens, pair_matrix(m, at.RECALLS), 0, zero)


@inlined
def decay_pairs(m: HeadMemory, tokens: int, pairs: Matrix, diagonal: int, zero: Any) -> None:
    """Decays products with one decay a token, if there is one, and sets those above the diagonal to 0.

    Args:
        diagonal: 1 to keep the diagonal, 0 to set it to 0 too.
    """
    zeros, real = padded_zeros(zero), type(zero)
    decays, positions = pair_matrix(m, at.DECAYS).address, vector_at(m, at.POSITIONS)
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
    transposed = transposed_keys(m, at.TRANSPOSED_KEY)
    for first in range(0, tokens, BLOCK):
        rows = min(BLOCK, tokens - first)
        if first > 0:
            decay_transposed_keys(m, first - BLOCK, zero)
            source = rows_from(feature_matrix(m, at.LATER_KEY), first - BLOCK)
            transpose(source, BLOCK, m.features, columns_from(transposed, first - BLOCK), zero)
            size = Size(rows, first, m.dim)
            query = rows_from(feature_matrix(m, at.BLOCK_QUERY), first)
            reads = rows_from(pair_matrix(m, at.READS), first)
            multiply(p, size, 1.0, query, transposed, reads, 0)
            if m.is_delta != 0:
                key = rows_from(feature_matrix(m, at.BLOCK_KEY), first)
                multiply(p, size, 1.0, key, transposed, rows_from(pair_matrix(m, at.RECALLS), first), 0)
        _products_in_block(m, first, rows, at.QUERY, 1, pair_matrix(m, at.READS), zero)
        if m.is_delta != 0:
            _products_in_block(m, first, rows, at.KEY, 0, pair_matrix(m, at.RECALLS), zero)


@inlined
def decay_transposed_keys(m: HeadMemory, block: int, zero: Any) -> None:
    """Lets the transposed keys before a block decay until it ends.

    Args:
        block: the first token of the block.
    """
    transposed = transposed_keys(m, at.TRANSPOSED_KEY)
    factors = array_at(feature_matrix(m, at.SINCE_BLOCK).address + (block + BLOCK - 1) * m.features * 4, m.dim, zero)
    for d in range(m.dim if block > 0 else 0):
        row = transposed.address + d * CHUNK * 4
        scale_row(row, factors[d], row, block, zero)


@inlined
def _products_in_block(
    m: HeadMemory, first: int, rows: int, index: int, diagonal: int, pairs: Matrix, zero: Any
) -> None:
    """Computes the products within a block on the diagonal: a row decays token by token, back to each key."""
    zeros, row_bytes = padded_zeros(zero), m.features * 4
    partial = vector_at(m, at.PARTIAL)
    source, keys = feature_matrix(m, index).address, feature_matrix(m, at.KEY).address
    decays = feature_matrix(m, at.TOKEN_DECAY).address
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
            is_seen = first + s < t + diagonal
            result[s] = sum_of(load(partial + s * LANES * 4, zeros)) if is_seen else zero


@inlined
def solve(p: Any, m: HeadMemory, tokens: int, residuals: Matrix, updates: Matrix, zero: Any) -> None:
    """Solves ``(I + R diag(β)) Y = X`` in place of X, for the residuals Y of values, and computes ``U = diag(β) Y``."""
    beta, recalls = array_at(vector_at(m, at.BETA), CHUNK, zero), pair_matrix(m, at.RECALLS)
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
    beta, recalls = array_at(vector_at(m, at.BETA), CHUNK, zero), pair_matrix(m, at.RECALLS)
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
