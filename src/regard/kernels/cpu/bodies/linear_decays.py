"""Decays within a chunk of linear attention, all at most 1.

With one log-decay a token, sums are kept as two numbers of float32 each, so that differences of large sums are exact.

With one for each feature, decays are products of those within blocks and of whole blocks. Those within a block are
products of the decays of its tokens; those of whole blocks come from sums in float64, since they enter the state.
"""

from typing import Any

import numpy as np

from regard.kernels.cpu import linear_layout as at
from regard.kernels.cpu.bodies.elementary import exp_of
from regard.kernels.cpu.bodies.intrinsics import array_at
from regard.kernels.cpu.bodies.linear_memory import (
    HeadMemory,
    feature_matrix,
    multiply_rows,
    pair_matrix,
    read_rows,
    scale_row,
    vector_at,
)
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.vectors import broadcast, load, padded_zeros, store, where_less
from regard.kernels.cpu.bodies.wide_product import Matrix
from regard.kernels.cpu.linear_arguments import LEAST_LOG_DECAY
from regard.kernels.cpu.linear_layout import BLOCK, CHUNK
from regard.kernels.cpu.sizes import LANES, ceil_div


@inlined
def decay_chunk(m: HeadMemory, tokens: int, log_decays: Matrix, zero: Any) -> None:
    """Computes all decays of a chunk, and its queries and keys decayed since the chunk began and until it ends.

    Without decays nothing is computed: see `decayed`.
    """
    if m.gates == 1:
        _decay_by_token(m, tokens, log_decays, zero)
    elif m.gates > 1:
        _decay_by_feature(m, tokens, log_decays, zero)


@inlined
def decayed(m: HeadMemory, index: int, plain: int) -> Matrix:
    """Returns a decayed matrix, or the plain one where nothing decays."""
    return feature_matrix(m, plain if m.gates == 0 else index)


@inlined
def _decay_by_token(m: HeadMemory, tokens: int, log_decays: Matrix, zero: Any) -> None:
    zeros, real = padded_zeros(zero), type(zero)
    high, low = array_at(vector_at(m, at.HIGH), CHUNK, zero), array_at(vector_at(m, at.LOW), CHUNK, zero)
    total = 0.0
    for t in range(tokens):
        log_decay = array_at(log_decays.address + t * log_decays.row * 4, 1, zero)[0]
        total += np.float64(real(LEAST_LOG_DECAY) if log_decay < real(LEAST_LOG_DECAY) else log_decay)
        high[t] = real(total)
        low[t] = real(total - np.float64(high[t]))
    last_high, last_low = broadcast(high[tokens - 1], zeros), broadcast(low[tokens - 1], zeros)
    for j in range(0, CHUNK * 4, LANES * 4):
        highs, lows = load(vector_at(m, at.HIGH) + j, zeros), load(vector_at(m, at.LOW) + j, zeros)
        store(exp_of(_at_most_zero(highs, zeros)), vector_at(m, at.SINCE) + j)
        store(exp_of(_at_most_zero((last_high - highs) + (last_low - lows), zeros)), vector_at(m, at.UNTIL) + j)
    since, until = array_at(vector_at(m, at.SINCE), CHUNK, zero), array_at(vector_at(m, at.UNTIL), CHUNK, zero)
    shares = array_at(vector_at(m, at.KEPT_SHARE), m.features, zero)
    for d in range(m.features):
        shares[d] = since[tokens - 1]
    query, key, leaving_key = _address(m, at.QUERY), _address(m, at.KEY), _address(m, at.LEAVING_KEY)
    entered_query, entered_key = _address(m, at.ENTERED_QUERY), _address(m, at.ENTERED_KEY)
    for t in range(tokens):
        row = t * m.features * 4
        scale_row(query + row, since[t], entered_query + row, m.features, zero)
        scale_row(key + row, until[t], leaving_key + row, m.features, zero)
        if m.is_delta != 0:
            scale_row(key + row, since[t], entered_key + row, m.features, zero)
    decays = pair_matrix(m, at.DECAYS)
    for t in range(tokens):
        own_high, own_low = broadcast(high[t], zeros), broadcast(low[t], zeros)
        row = decays.address + t * CHUNK * 4
        for j in range(0, (t // BLOCK + 1) * BLOCK * 4, LANES * 4):
            difference = (own_high - load(vector_at(m, at.HIGH) + j, zeros)) + (
                own_low - load(vector_at(m, at.LOW) + j, zeros)
            )
            store(exp_of(_at_most_zero(difference, zeros)), row + j)


@inlined
def _address(m: HeadMemory, index: int) -> int:
    return feature_matrix(m, index).address


@inlined
def _at_most_zero(numbers: Any, zeros: Any) -> Any:
    return where_less(zeros, numbers, zeros, numbers)


@inlined
def _decay_by_feature(m: HeadMemory, tokens: int, log_decays: Matrix, zero: Any) -> None:
    zeros, real = padded_zeros(zero), type(zero)
    row_bytes = m.features * 4
    decay, since, until = _address(m, at.TOKEN_DECAY), _address(m, at.SINCE_BLOCK), _address(m, at.UNTIL_BLOCK)
    read_rows(log_decays, tokens, m.dim, feature_matrix(m, at.TOKEN_DECAY), zero)
    least = broadcast(real(LEAST_LOG_DECAY), zeros)
    for j in range(0, tokens * row_bytes, LANES * 4):
        numbers = load(decay + j, zeros)
        store(where_less(numbers, least, least, numbers), decay + j)
    blocks = ceil_div(tokens, BLOCK)
    for block in range(blocks):
        sums = array_at(vector_at(m, at.SUMS + 2 * block), m.features, 0.0)
        if block == 0:
            for d in range(m.features):
                sums[d] = 0.0
        else:
            earlier = array_at(vector_at(m, at.SUMS + 2 * block - 2), m.features, 0.0)
            for d in range(m.features):
                sums[d] = earlier[d]
        for t in range(block * BLOCK, min(tokens, (block + 1) * BLOCK)):
            row = array_at(decay + t * row_bytes, m.features, zero)
            for d in range(m.features):
                sums[d] += np.float64(row[d])
    total = array_at(vector_at(m, at.SUMS + 2 * blocks - 2), m.features, 0.0)
    for block in range(blocks):
        sums = array_at(vector_at(m, at.SUMS + 2 * block), m.features, 0.0)
        earlier = array_at(vector_at(m, at.SUMS + 2 * max(block - 1, 0)), m.features, 0.0)
        before = array_at(vector_at(m, at.BEFORE_BLOCK + block), m.features, zero)
        after = array_at(vector_at(m, at.AFTER_BLOCK + block), m.features, zero)
        for d in range(m.features):
            before[d] = real(earlier[d] if block > 0 else 0.0)
            after[d] = real(total[d] - sums[d])
        _exponentials(vector_at(m, at.BEFORE_BLOCK + block), m.features, zero)
        _exponentials(vector_at(m, at.AFTER_BLOCK + block), m.features, zero)
    shares = array_at(vector_at(m, at.KEPT_SHARE), m.features, zero)
    for d in range(m.features):
        shares[d] = real(total[d])
    _exponentials(vector_at(m, at.KEPT_SHARE), m.features, zero)
    _exponentials(decay, tokens * m.features, zero)
    ones = broadcast(real(1), zeros)
    for block in range(blocks):
        first, last = block * BLOCK, min(tokens, (block + 1) * BLOCK)
        for j in range(0, row_bytes, LANES * 4):
            kept_since = ones
            for t in range(first, last):
                kept_since = kept_since * load(decay + t * row_bytes + j, zeros)
                store(kept_since, since + t * row_bytes + j)
            kept_until = ones
            for t in range(last - 1, first - 1, -1):
                store(kept_until, until + t * row_bytes + j)
                kept_until = kept_until * load(decay + t * row_bytes + j, zeros)
    query, key = _address(m, at.QUERY), _address(m, at.KEY)
    block_query, block_key, later_key = (
        _address(m, at.BLOCK_QUERY),
        _address(m, at.BLOCK_KEY),
        _address(m, at.LATER_KEY),
    )
    entered_query, entered_key, leaving_key = (
        _address(m, at.ENTERED_QUERY), _address(m, at.ENTERED_KEY), _address(m, at.LEAVING_KEY),
    )  # fmt: skip
    for t in range(tokens):
        row = t * row_bytes
        before, after = vector_at(m, at.BEFORE_BLOCK + t // BLOCK), vector_at(m, at.AFTER_BLOCK + t // BLOCK)
        multiply_rows(query + row, since + row, block_query + row, m.features, zero)
        multiply_rows(block_query + row, before, entered_query + row, m.features, zero)
        multiply_rows(key + row, until + row, later_key + row, m.features, zero)
        multiply_rows(later_key + row, after, leaving_key + row, m.features, zero)
        if m.is_delta != 0:
            multiply_rows(key + row, since + row, block_key + row, m.features, zero)
            multiply_rows(block_key + row, before, entered_key + row, m.features, zero)
    for t in range(tokens, blocks * BLOCK):
        for j in range(0, row_bytes, LANES * 4):
            store(zeros, later_key + t * row_bytes + j)


@inlined
def _exponentials(address: int, count: int, zero: Any) -> None:
    """Replaces numbers, a multiple of LANES, by their exponentials; those above 0 by 1."""
    zeros = padded_zeros(zero)
    for j in range(0, count * 4, LANES * 4):
        store(exp_of(_at_most_zero(load(address + j, zeros), zeros)), address + j)
