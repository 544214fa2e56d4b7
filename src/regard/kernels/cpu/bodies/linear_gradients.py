"""The gradients of linear attention in chunks, from the last chunk to the first: a task is a batch row and a head.

States before chunks were saved. The products of pairs are computed again. For a decay, with rows the tokens that read
and columns those that are read, the gradient of a sum of log-decays is that of the row times the row minus that of the
column times the column; products of a token with itself do not decay and are left out.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from regard.kernels.cpu import linear_layout as at
from regard.kernels.cpu.bodies.arguments import ZEROS, linear_at, rows_at
from regard.kernels.cpu.bodies.intrinsics import array_at, fetch_add
from regard.kernels.cpu.bodies.linear_chunks import (
    ENTERED,
    begins_at,
    decay_state,
    read_chunk,
    saved_state,
    write_positions,
)
from regard.kernels.cpu.bodies.linear_decays import decayed
from regard.kernels.cpu.bodies.linear_memory import (
    HeadMemory,
    clear,
    copy_rows,
    features_at,
    matrix,
    memory_of,
    multiply,
    multiply_rows,
    read_rows,
    scale_rows,
    transposed,
    vector_at,
)
from regard.kernels.cpu.bodies.linear_pairs import decay_pairs, solve_transposed
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.transposing import transpose
from regard.kernels.cpu.bodies.vectors import broadcast, load, padded_zeros, store, sum_of
from regard.kernels.cpu.bodies.wide_product import Matrix, Size, rows_from
from regard.kernels.cpu.linear_arguments import LEAST_LOG_DECAY
from regard.kernels.cpu.linear_layout import BLOCK, CHUNK
from regard.kernels.cpu.sizes import LANES, ceil_div


@inlined
def start_of_chunk(p: Any, batch: int, end: int) -> int:
    """Returns the first token of the chunk before a token."""
    first = (end - 1) // CHUNK * CHUNK
    for token in range(end - 1, first if p.begins != 0 else end, -1):
        if begins_at(p, batch, token):
            return token
    return first


@inlined
def _decay_matrix(m: HeadMemory, index: int, tokens: int, since: int, zero: Any) -> None:
    """Multiplies a matrix by what is left since the chunk began, or until it ends."""
    zeros, row_bytes, rows = padded_zeros(zero), m.features * 4, matrix(m.of_features, index)
    if m.gates == 1:
        factors = array_at(vector_at(m, at.SINCE if since != 0 else at.UNTIL), CHUNK, zero)
        scale_rows(rows, factors, rows, tokens, m.features, zero)
        return
    decays = features_at(m, at.SINCE_BLOCK if since != 0 else at.UNTIL_BLOCK)
    for t in range(tokens if m.gates != 0 else 0):
        row = rows.address + t * row_bytes
        block = vector_at(m, (at.BEFORE_BLOCK if since != 0 else at.AFTER_BLOCK) + t // BLOCK)
        for j in range(0, row_bytes, LANES * 4):
            decay = load(decays + t * row_bytes + j, zeros) * load(block + j, zeros)
            store(load(row + j, zeros) * decay, row + j)


@inlined
def _differentiate_updates(p: Any, m: HeadMemory, tokens: int, batch: int, head: int, start: int, zero: Any) -> None:
    """Computes the gradients of updates, values, strengths and products of pairs."""
    update, grad_output = matrix(m.of_columns, at.UPDATE), matrix(m.of_columns, at.GRAD_OUTPUT)
    grads, grad_value = matrix(m.of_columns, at.GRAD_UPDATE), matrix(m.of_columns, at.GRAD_VALUE)
    reads = matrix(m.of_pairs, at.READS).address
    size = Size(tokens, m.columns, m.dim)
    multiply(p, size, 1.0, decayed(m, at.LEAVING_KEY, at.KEY), matrix(m.of_states, at.GRAD_STATE), grads, 0)
    for first in range(0, tokens, BLOCK):
        size = Size(min(BLOCK, tokens - first), m.columns, tokens - first)
        of_columns = Matrix(reads + (first * CHUNK + first) * 4, 1, CHUNK)
        multiply(p, size, 1.0, of_columns, rows_from(grad_output, first), rows_from(grads, first), 1)
    updates = transposed(m.of_columns, at.TRANSPOSED_UPDATE)
    transpose(update, ceil_div(tokens, BLOCK) * BLOCK, m.columns, updates, zero)
    _multiply_pairs(p, m, tokens, 1.0, grad_output, updates, matrix(m.of_pairs, at.GRAD_READS))
    own_gradients, grad_reads = array_at(vector_at(m, at.OWN_GRADIENT), CHUNK, zero), matrix(m.of_pairs, at.GRAD_READS)
    for t in range(tokens):
        own_gradients[t] = array_at(grad_reads.address + (t * CHUNK + t) * 4, 1, zero)[0]
    decay_pairs(m, tokens, grad_reads, 0, zero)
    if m.is_delta == 0:
        return
    solve_transposed(p, m, tokens, grads, grad_value, zero)
    _multiply_pairs(p, m, tokens, -1.0, grad_value, updates, matrix(m.of_pairs, at.GRAD_RECALLS))
    decay_pairs(m, tokens, matrix(m.of_pairs, at.GRAD_RECALLS), 0, zero)
    residual, zeros = matrix(m.of_columns, at.RESIDUAL).address, padded_zeros(zero)
    grad_beta = rows_at(p.grad_beta, batch, head, start)
    for t in range(tokens if p.grad_beta.address != 0 else 0):
        total = zeros
        for j in range(t * m.columns * 4, (t + 1) * m.columns * 4, LANES * 4):
            total = total + load(grads.address + j, zeros) * load(residual + j, zeros)
        array_at(grad_beta.address + t * grad_beta.row * 4, 1, zero)[0] = sum_of(total)


@inlined
def _multiply_pairs(
    p: Any, m: HeadMemory, tokens: int, factor: float, a: Matrix, transposed: Matrix, pairs: Matrix
) -> None:
    """Computes the products of rows of columns with all up to their own block."""
    for first in range(0, tokens, BLOCK):
        size = Size(min(BLOCK, tokens - first), first + BLOCK, m.value_dim)
        multiply(p, size, factor, rows_from(a, first), transposed, rows_from(pairs, first), 0)


@inlined
def _differentiate_states(p: Any, m: HeadMemory, tokens: int, zero: Any) -> None:
    """Computes the gradients that reach queries, keys and decays through the states, and that of the state before."""
    state, grad_state = matrix(m.of_states, at.STATE), matrix(m.of_states, at.GRAD_STATE)
    states, size = transposed(m.of_states, at.TRANSPOSED_STATE), Size(tokens, m.features, m.value_dim)
    transpose(state, m.features, m.columns, states, zero)
    for side in range(1 + m.is_delta):
        multiply(
            p, size, 1.0 - 2.0 * side, _grad_columns(m, side), states, matrix(m.of_features, at.GRAD_QUERY + side), 0
        )
        _decay_matrix(m, at.GRAD_QUERY + side, tokens, 1, zero)
    transpose(grad_state, m.features, m.columns, states, zero)
    multiply(p, size, 1.0, matrix(m.of_columns, at.UPDATE), states, matrix(m.of_features, at.GRAD_COLUMN), 0)
    _decay_matrix(m, at.GRAD_COLUMN, tokens, 0, zero)
    if m.gates != 0 and p.grad_log_decay.address != 0:
        _differentiate_sums(m, tokens, zero)
    decay_state(m, grad_state, zero)
    size = Size(m.dim, m.columns, tokens)
    for side in range(1 + m.is_delta):
        entered = Matrix(decayed(m, at.ENTERED_QUERY + side, at.QUERY + side).address, 1, m.features)
        multiply(p, size, 1.0 - 2.0 * side, entered, _grad_columns(m, side), grad_state, 1)


@inlined
def _grad_columns(m: HeadMemory, side: int) -> Matrix:
    """Returns the gradients of what queries read, or for side 1 of what keys recall, which is subtracted."""
    return matrix(m.of_columns, at.GRAD_OUTPUT if side == 0 else at.GRAD_VALUE)


@inlined
def _differentiate_sums(m: HeadMemory, tokens: int, zero: Any) -> None:
    """Computes the gradients of the sums of a chunk's log-decays: of the state, and of keys that enter the next one."""
    zeros = padded_zeros(zero)
    sums, shares = (
        array_at(vector_at(m, at.SUM_GRADIENT), m.features, zero),
        array_at(vector_at(m, at.KEPT_SHARE), m.features, zero),
    )
    state, grad_state = matrix(m.of_states, at.STATE).address, matrix(m.of_states, at.GRAD_STATE).address
    for d in range(m.features):
        total = zeros
        for j in range(d * m.columns * 4, (d + 1) * m.columns * 4, LANES * 4):
            total = total + load(state + j, zeros) * load(grad_state + j, zeros)
        sums[d] = shares[d] * sum_of(total)
    key, grad = features_at(m, at.KEY), features_at(m, at.GRAD_COLUMN)
    for j in range(0, m.features * 4, LANES * 4):
        total = load(vector_at(m, at.SUM_GRADIENT) + j, zeros)
        for t in range(tokens):
            row = t * m.features * 4 + j
            total = total + load(key + row, zeros) * load(grad + row, zeros)
        store(total, vector_at(m, at.SUM_GRADIENT) + j)


@inlined
def _differentiate_pairs(p: Any, m: HeadMemory, tokens: int) -> None:
    """Adds the gradients of products of pairs, which are decayed already, to those of queries and keys."""
    key, grad_column = matrix(m.of_features, at.KEY), matrix(m.of_features, at.GRAD_COLUMN)
    for first in range(0, tokens, BLOCK):
        rows, end = min(BLOCK, tokens - first), min(first + BLOCK, tokens)
        for side in range(1 + m.is_delta):
            pairs, source = matrix(m.of_pairs, at.GRAD_READS + side), matrix(m.of_features, at.QUERY + side)
            target, size = matrix(m.of_features, at.GRAD_QUERY + side), Size(rows, m.features, end)
            multiply(p, size, 1.0, rows_from(pairs, first), key, rows_from(target, first), 1)
            columns = Matrix(pairs.address + (first * CHUNK + first) * 4, 1, CHUNK)
            size = Size(rows, m.features, tokens - first)
            multiply(p, size, 1.0, columns, rows_from(source, first), rows_from(grad_column, first), 1)


@inlined
def _differentiate_blocks(p: Any, m: HeadMemory, tokens: int, zero: Any) -> None:
    """Adds the gradients of products of pairs with a decay for each feature to those of queries and keys."""
    later, product = matrix(m.of_features, at.LATER_KEY), matrix(m.of_features, at.PRODUCT)
    grad_column = matrix(m.of_features, at.GRAD_COLUMN)
    for first in range(0, tokens, BLOCK):
        rows = min(BLOCK, tokens - first)
        _differentiate_block(m, first, rows, zero)
        if first > 0:
            _decay_rows(m, later, first - BLOCK, zero)
        for side in range(1 + m.is_delta if first > 0 else 0):
            pairs, target = matrix(m.of_pairs, at.GRAD_READS + side), matrix(m.of_features, at.GRAD_QUERY + side)
            multiply(p, Size(rows, m.features, first), 1.0, rows_from(pairs, first), later, product, 0)
            decays = rows_from(matrix(m.of_features, at.SINCE_BLOCK), first)
            _add_products(decays, product, rows_from(target, first), rows * m.features, zero)
    last = (tokens - 1) // BLOCK * BLOCK
    clear(product.address, last * m.features, zero)
    for first in range(last, 0, -BLOCK):
        size, block = Size(first, m.features, min(BLOCK, tokens - first)), first - BLOCK
        for side in range(1 + m.is_delta):
            columns = Matrix(matrix(m.of_pairs, at.GRAD_READS + side).address + first * CHUNK * 4, 1, CHUNK)
            source = rows_from(matrix(m.of_features, at.BLOCK_QUERY + side), first)
            multiply(p, size, 1.0, columns, source, product, 1)
        decays = rows_from(matrix(m.of_features, at.UNTIL_BLOCK), block)
        _add_products(decays, rows_from(product, block), rows_from(grad_column, block), BLOCK * m.features, zero)
        _decay_rows(m, product, block, zero)


@inlined
def _decay_rows(m: HeadMemory, rows: Matrix, block: int, zero: Any) -> None:
    """Multiplies the rows before a block by what is left after it; ``block`` is its first token."""
    decays = features_at(m, at.SINCE_BLOCK) + (block + BLOCK - 1) * m.features * 4
    for row in range(rows.address, rows.address + block * m.features * 4, m.features * 4):
        multiply_rows(decays, row, row, m.features, zero)


@inlined
def _add_products(a: Matrix, b: Matrix, target: Matrix, count: int, zero: Any) -> None:
    """Adds ``a · b`` to the target, element by element."""
    zeros = padded_zeros(zero)
    for j in range(0, count * 4, LANES * 4):
        product = load(a.address + j, zeros) * load(b.address + j, zeros)
        store(load(target.address + j, zeros) + product, target.address + j)


@inlined
def _differentiate_block(m: HeadMemory, first: int, rows: int, zero: Any) -> None:
    """Adds the gradients of the products within a block on the diagonal: decays are multiplied token by token."""
    zeros, real, row_bytes = padded_zeros(zero), type(zero), m.features * 4
    query, key = features_at(m, at.QUERY), features_at(m, at.KEY)
    decays = features_at(m, at.TOKEN_DECAY)
    grad_query, grad_row = features_at(m, at.GRAD_QUERY), features_at(m, at.GRAD_ROW)
    grad_column = features_at(m, at.GRAD_COLUMN)
    for t in range(first + 1, first + rows):
        pairs = t * CHUNK * 4
        of_reads = array_at(matrix(m.of_pairs, at.GRAD_READS).address + pairs, CHUNK, zero)
        of_recalls = array_at(matrix(m.of_pairs, at.GRAD_RECALLS).address + pairs, CHUNK, zero)
        for j in range(0, row_bytes, LANES * 4):
            row = t * row_bytes + j
            decay, own_query, own_key = broadcast(real(1), zeros), load(query + row, zeros), load(key + row, zeros)
            to_query, to_key = load(grad_query + row, zeros), load(grad_row + row, zeros)
            for s in range(t - 1, first - 1, -1):
                column = s * row_bytes + j
                decay = decay * load(decays + column + row_bytes, zeros)
                factor, decayed_key = broadcast(of_reads[s], zeros), decay * load(key + column, zeros)
                to_query = to_query + factor * decayed_key
                read = factor * own_query
                if m.is_delta != 0:
                    factor = broadcast(of_recalls[s], zeros)
                    to_key = to_key + factor * decayed_key
                    read = read + factor * own_key
                store(load(grad_column + column, zeros) + decay * read, grad_column + column)
            store(to_query, grad_query + row)
            if m.is_delta != 0:
                store(to_key, grad_row + row)


@inlined
def _write_decays(m: HeadMemory, tokens: int, log_decays: Matrix, is_empty: bool, target: Matrix, zero: Any) -> None:
    """Writes the gradients of log-decays: sums over all later tokens of the chunk of those of sums of log-decays.

    They are 0 where nothing is left of the state, or none was there; their sums would be what rounding left.

    Args:
        is_empty: whether the state before the chunk is 0.
    """
    zeros, row_bytes = padded_zeros(zero), m.features * 4
    query, key = features_at(m, at.QUERY), features_at(m, at.KEY)
    grad_query, grad_row = features_at(m, at.GRAD_QUERY), features_at(m, at.GRAD_ROW)
    grad_column = features_at(m, at.GRAD_COLUMN)
    sums, total = vector_at(m, at.SUM_GRADIENT), 0.0
    if m.gates == 1:
        for value in array_at(sums, m.dim, zero):
            total += np.float64(value)
    for t in range(tokens - 1, -1, -1):
        lanes = zeros
        for j in range(0, row_bytes, LANES * 4):
            row = t * row_bytes + j
            of_key = zeros - load(grad_column + row, zeros)
            if m.is_delta != 0:
                of_key = of_key + load(grad_row + row, zeros)
            change = load(query + row, zeros) * load(grad_query + row, zeros) + load(key + row, zeros) * of_key
            if m.gates == 1:
                lanes = lanes + change
            else:
                store(load(sums + j, zeros) + change, sums + j)
        if m.gates == 1:
            total += np.float64(sum_of(lanes))
            array_at(sums, 1, zero)[0] = type(zero)(total)
        values, output = array_at(sums, m.gates, zero), array_at(target.address + t * target.row * 4, m.gates, zero)
        log_decay = array_at(log_decays.address + t * log_decays.row * 4, m.gates, zero)
        for d in range(m.gates):
            is_zero = log_decay[d] < type(zero)(LEAST_LOG_DECAY) or (is_empty and t == 0)
            output[d] = zero if is_zero else values[d]


@inlined
def _write_features(p: Any, m: HeadMemory, tokens: int, batch: int, head: int, start: int, zero: Any) -> None:
    """Adds the gradients of tokens' products with themselves, and writes the gradients of queries and keys."""
    zeros, row_bytes = padded_zeros(zero), m.features * 4
    query, key = features_at(m, at.QUERY), features_at(m, at.KEY)
    grad_query, grad_column = matrix(m.of_features, at.GRAD_QUERY), matrix(m.of_features, at.GRAD_COLUMN)
    grad_row = features_at(m, at.GRAD_ROW)
    own_gradients = array_at(vector_at(m, at.OWN_GRADIENT), CHUNK, zero)
    for t in range(tokens):
        factor = broadcast(own_gradients[t], zeros)
        for j in range(t * row_bytes, (t + 1) * row_bytes, LANES * 4):
            of_query = load(grad_query.address + j, zeros) + factor * load(key + j, zeros)
            of_key = load(grad_column.address + j, zeros) + factor * load(query + j, zeros)
            if m.is_delta != 0:
                of_key = of_key + load(grad_row + j, zeros)
            store(of_query, grad_query.address + j)
            store(of_key, grad_column.address + j)
    target = rows_at(p.grad_query, batch, head, start)
    copy_rows(grad_query, tokens, m.dim, target, zero)
    target = rows_at(p.grad_key, batch, head, start)
    copy_rows(grad_column, tokens, m.dim, target, zero)


@inlined
def _read_updates(p: Any, m: HeadMemory, task: int, tokens: int, start: int, zero: Any) -> None:
    """Reads the updates of a chunk: values, or residuals times their strengths."""
    batch, head = task // p.heads, task % p.heads
    update, residual = matrix(m.of_columns, at.UPDATE), matrix(m.of_columns, at.RESIDUAL)
    if m.is_delta == 0:
        value = rows_at(p.value, batch, head, start)
        read_rows(value, tokens, m.value_dim, update, zero)
        return
    beta = array_at(vector_at(m, at.BETA), CHUNK, zero)
    saved = Matrix(p.residuals + (task * p.length + start) * m.columns * 4, m.columns, 1)
    read_rows(saved, tokens, m.columns, residual, zero)
    clear(update.address, ceil_div(tokens, BLOCK) * BLOCK * m.columns, zero)
    scale_rows(residual, beta, update, tokens, m.columns, zero)


def linear_gradients(dtype: str) -> Callable[[int], None]:
    """Returns the body of `regard.kernels.cpu.linear_attention.gradients`; float32."""
    zero = ZEROS[dtype]

    def body(address: int) -> None:
        p = linear_at(address)
        m = memory_of(p, fetch_add(address + ENTERED))
        write_positions(m, zero)
        elements = m.features * m.columns
        state, grad_state = matrix(m.of_states, at.STATE), matrix(m.of_states, at.GRAD_STATE)
        while True:
            task = fetch_add(address)
            if task >= p.batch * p.heads:
                break
            batch, head = task // p.heads, task % p.heads
            clear(grad_state.address, elements, zero)
            if p.grad_final != 0:
                final = p.grad_final + task * m.dim * m.value_dim * 4
                copy_rows(Matrix(final, m.value_dim, 1), m.dim, m.value_dim, grad_state, zero)
            end = p.length
            while end > 0:
                start = start_of_chunk(p, batch, end)
                tokens, is_first = end - start, begins_at(p, batch, start)
                if is_first:
                    clear(state.address, elements, zero)
                else:
                    saved = Matrix(saved_state(p, m, task, start), m.columns, 1)
                    copy_rows(saved, m.features, m.columns, state, zero)
                read_chunk(p, m, batch, head, start, tokens, zero)
                _read_updates(p, m, task, tokens, start, zero)
                grad_output = rows_at(p.grad_output, batch, head, start)
                read_rows(grad_output, tokens, m.value_dim, matrix(m.of_columns, at.GRAD_OUTPUT), zero)
                _differentiate_updates(p, m, tokens, batch, head, start, zero)
                grad_value = rows_at(p.grad_value, batch, head, start)
                computed = matrix(m.of_columns, at.GRAD_VALUE if m.is_delta != 0 else at.GRAD_UPDATE)
                copy_rows(computed, tokens, m.value_dim, grad_value, zero)
                _differentiate_states(p, m, tokens, zero)
                if m.gates > 1:
                    _differentiate_blocks(p, m, tokens, zero)
                else:
                    _differentiate_pairs(p, m, tokens)
                if m.gates != 0 and p.grad_log_decay.address != 0:
                    log_decays = rows_at(p.log_decay, batch, head, start)
                    is_empty = is_first or (start == 0 and p.initial == 0)
                    target = rows_at(p.grad_log_decay, batch, head, start)
                    _write_decays(m, tokens, log_decays, is_empty, target, zero)
                _write_features(p, m, tokens, batch, head, start, zero)
                if is_first:
                    clear(grad_state.address, elements, zero)
                end = start
            if p.grad_initial != 0:
                initial = p.grad_initial + task * m.dim * m.value_dim * 4
                copy_rows(grad_state, m.dim, m.value_dim, Matrix(initial, m.value_dim, 1), zero)

    return body
