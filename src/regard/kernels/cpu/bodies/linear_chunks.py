"""Linear attention in chunks, with the state between them: a task is a batch row and a head.

The equations are those of `regard.linear.chunks`. All matrices of a chunk and the state fit in a core's second-level
cache. A chunk ends where the next multiple of `CHUNK` tokens begins, or a document.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from regard.kernels.cpu import linear_layout as at
from regard.kernels.cpu.bodies.arguments import ZEROS, linear_at, rows_at
from regard.kernels.cpu.bodies.intrinsics import array_at, copy, fetch_add
from regard.kernels.cpu.bodies.linear_decays import decay_chunk, decayed
from regard.kernels.cpu.bodies.linear_memory import (
    HeadMemory,
    clear,
    copy_rows,
    matrix,
    memory_of,
    multiply,
    read_rows,
    scale_rows,
    vector_at,
)
from regard.kernels.cpu.bodies.linear_pairs import pair_products, solve
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.wide_product import Matrix, Size, rows_from
from regard.kernels.cpu.linear_arguments import LINEAR_RECORD
from regard.kernels.cpu.linear_layout import BLOCK, CHUNK

ENTERED = LINEAR_RECORD.fields["entered"][1]  # type: ignore[index]
"""Where the record counts the threads that have come."""


@inlined
def begins_at(p: Any, batch: int, token: int) -> bool:
    """Whether a document begins with a token."""
    return (
        p.begins != 0
        and array_at(p.begins, (batch + 1) * p.begins_batch, np.int8(0))[batch * p.begins_batch + token] != 0
    )


@inlined
def end_of_chunk(p: Any, batch: int, start: int) -> int:
    """Returns the end of the chunk that begins with a token."""
    end = min(p.length, (start // CHUNK + 1) * CHUNK)
    for token in range(start + 1, end if p.begins != 0 else 0):
        if begins_at(p, batch, token):
            return token
    return end


@inlined
def write_positions(m: HeadMemory, zero: Any) -> None:
    """Writes 0, 1, 2, …"""
    positions = array_at(vector_at(m, at.POSITIONS), CHUNK, zero)
    for j in range(CHUNK):
        positions[j] = j


@inlined
def read_chunk(p: Any, m: HeadMemory, batch: int, head: int, start: int, tokens: int, zero: Any) -> None:
    """Reads queries, keys and strengths of a chunk, and computes decays and products of pairs."""
    query = rows_at(p.query, batch, head, start)
    key = rows_at(p.key, batch, head, start)
    read_rows(query, tokens, m.dim, matrix(m.of_features, at.QUERY), zero)
    read_rows(key, tokens, m.dim, matrix(m.of_features, at.KEY), zero)
    if m.is_delta != 0:
        source = rows_at(p.beta, batch, head, start)
        beta = array_at(vector_at(m, at.BETA), CHUNK, zero)
        for t in range(tokens):
            beta[t] = array_at(source.address + t * source.row * 4, 1, zero)[0]
    if m.gates != 0:
        decay_chunk(m, tokens, rows_at(p.log_decay, batch, head, start), zero)
    pair_products(p, m, tokens, zero)


@inlined
def decay_state(m: HeadMemory, state: Matrix, zero: Any) -> None:
    """Lets a state decay by a whole chunk."""
    shares = array_at(vector_at(m, at.KEPT_SHARE), m.features, zero)
    scale_rows(state, shares, state, m.features if m.gates != 0 else 0, m.columns, zero)


@inlined
def saved_state(p: Any, m: HeadMemory, task: int, start: int) -> int:
    """Returns the address of the saved state before the chunk that begins with a token."""
    return p.states + (task * p.slots + start // CHUNK) * m.features * m.columns * 4


@inlined
def _compute_chunk(p: Any, m: HeadMemory, tokens: int, zero: Any) -> None:
    """Computes the outputs and the state after a chunk, whose inputs are in memory."""
    state, value, output = (
        matrix(m.of_states, at.STATE),
        matrix(m.of_columns, at.VALUE),
        matrix(m.of_columns, at.OUTPUT),
    )
    size, update = Size(tokens, m.columns, m.dim), matrix(m.of_columns, at.UPDATE)
    if m.is_delta != 0:
        multiply(p, size, -1.0, decayed(m, at.ENTERED_KEY, at.KEY), state, value, 1)
        solve(p, m, tokens, value, update, zero)
    else:
        update = value
    multiply(p, size, 1.0, decayed(m, at.ENTERED_QUERY, at.QUERY), state, output, 0)
    for first in range(0, tokens, BLOCK):
        rows, end = min(BLOCK, tokens - first), min(first + BLOCK, tokens)
        reads = rows_from(matrix(m.of_pairs, at.READS), first)
        multiply(p, Size(rows, m.columns, end), 1.0, reads, update, rows_from(output, first), 1)
    decay_state(m, state, zero)
    key = decayed(m, at.LEAVING_KEY, at.KEY)
    multiply(p, Size(m.dim, m.columns, tokens), 1.0, Matrix(key.address, 1, m.features), update, state, 1)


def linear_chunks(dtype: str) -> Callable[[int], None]:
    """Returns the body of `regard.kernels.cpu.linear_attention.attend`; float32."""
    zero = ZEROS[dtype]

    def body(address: int) -> None:
        p = linear_at(address)
        m = memory_of(p, fetch_add(address + ENTERED))
        write_positions(m, zero)
        elements = m.features * m.columns
        state = matrix(m.of_states, at.STATE)
        while True:
            task = fetch_add(address)
            if task >= p.batch * p.heads:
                break
            batch, head = task // p.heads, task % p.heads
            clear(state.address, elements, zero)
            if p.initial != 0:
                initial = p.initial + task * m.dim * m.value_dim * 4
                copy_rows(Matrix(initial, m.value_dim, 1), m.dim, m.value_dim, state, zero)
            start = 0
            while start < p.length:
                if begins_at(p, batch, start):
                    clear(state.address, elements, zero)
                if p.states != 0 and start % CHUNK == 0:
                    copy(
                        array_at(state.address, elements, zero),
                        array_at(saved_state(p, m, task, start), elements, zero),
                    )
                tokens = end_of_chunk(p, batch, start) - start
                read_chunk(p, m, batch, head, start, tokens, zero)
                value = rows_at(p.value, batch, head, start)
                read_rows(value, tokens, m.value_dim, matrix(m.of_columns, at.VALUE), zero)
                _compute_chunk(p, m, tokens, zero)
                output = rows_at(p.output, batch, head, start)
                copy_rows(matrix(m.of_columns, at.OUTPUT), tokens, m.value_dim, output, zero)
                if p.residuals != 0:
                    residuals = p.residuals + (task * p.length + start) * m.columns * 4
                    copy(
                        array_at(matrix(m.of_columns, at.VALUE).address, tokens * m.columns, zero),
                        array_at(residuals, tokens * m.columns, zero),
                    )
                start += tokens
            if p.final != 0:
                final = p.final + task * m.dim * m.value_dim * 4
                copy_rows(state, m.dim, m.value_dim, Matrix(final, m.value_dim, 1), zero)

    return body
