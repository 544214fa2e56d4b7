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
    clear,
    features_at,
    matrix,
    multiply_rows,
    read_rows,
    scale_rows,
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
    return matrix(m.of_features, plain if m.gates == 0 else index)


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
    key, leaving_key = matrix(m.of_features, at.KEY), matrix(m.of_features, at.LEAVING_KEY)
    scale_rows(key, until, leaving_key, tokens, m.features, zero)
    for side in range(1 + m.is_delta):
        source, entered = matrix(m.of_features, at.QUERY + side), matrix(m.of_features, at.ENTERED_QUERY + side)
        scale_rows(source, since, entered, tokens, m.features, zero)
    decays = matrix(m.of_pairs, at.DECAYS)
    for t in range(tokens):
        own_high, own_low = broadcast(high[t], zeros), broadcast(low[t], zeros)
        row = decays.address + t * CHUNK * 4
        for j in range(0, (t // BLOCK + 1) * BLOCK * 4, LANES * 4):
            difference = (own_high - load(vector_at(m, at.HIGH) + j, zeros)) + (
                own_low - load(vector_at(m, at.LOW) + j, zeros)
            )
            store(exp_of(_at_most_zero(difference, zeros)), row + j)


@inlined
def _at_most_zero(numbers: Any, zeros: Any) -> Any:
    return where_less(zeros, numbers, zeros, numbers)


@inlined
def _decay_by_feature(m: HeadMemory, tokens: int, log_decays: Matrix, zero: Any) -> None:
    zeros, real = padded_zeros(zero), type(zero)
    row_bytes = m.features * 4
    decay, since, until = features_at(m, at.TOKEN_DECAY), features_at(m, at.SINCE_BLOCK), features_at(m, at.UNTIL_BLOCK)
    read_rows(log_decays, tokens, m.dim, matrix(m.of_features, at.TOKEN_DECAY), zero)
    least = broadcast(real(LEAST_LOG_DECAY), zeros)
    for j in range(0, tokens * row_bytes, LANES * 4):
        numbers = load(decay + j, zeros)
        store(where_less(numbers, least, least, numbers), decay + j)
    blocks = ceil_div(tokens, BLOCK)
    clear(vector_at(m, at.SUMS), m.features, 0.0)
    for block in range(blocks):
        earlier, sums = _sums_before(m, block), _sums_before(m, block + 1)
        for d in range(m.features):
            sums[d] = earlier[d]
        for t in range(block * BLOCK, min(tokens, (block + 1) * BLOCK)):
            row = array_at(decay + t * row_bytes, m.features, zero)
            for d in range(m.features):
                sums[d] += np.float64(row[d])
    for block in range(blocks):
        _write_kept(m, 0, block, at.BEFORE_BLOCK + block, zero)
        _write_kept(m, block + 1, blocks, at.AFTER_BLOCK + block, zero)
    _write_kept(m, 0, blocks, at.KEPT_SHARE, zero)
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
    _decay_matrix(m, tokens, at.KEY, at.UNTIL_BLOCK, at.LATER_KEY, at.AFTER_BLOCK, at.LEAVING_KEY, zero)
    for side in range(1 + m.is_delta):
        decayed_here, entered = at.BLOCK_QUERY + side, at.ENTERED_QUERY + side
        _decay_matrix(m, tokens, at.QUERY + side, at.SINCE_BLOCK, decayed_here, at.BEFORE_BLOCK, entered, zero)
    clear(features_at(m, at.LATER_KEY) + tokens * row_bytes, (blocks * BLOCK - tokens) * m.features, zero)


@inlined
def _sums_before(m: HeadMemory, block: int) -> Any:
    """Returns for each feature the sum of the log-decays before a block."""
    return array_at(vector_at(m, at.SUMS + 2 * block), m.features, 0.0)


@inlined
def _write_kept(m: HeadMemory, start: int, end: int, target: int, zero: Any) -> None:
    """Writes for each feature what is left after the blocks from ``start`` to ``end`` to a vector."""
    before, after, address = _sums_before(m, start), _sums_before(m, end), vector_at(m, target)
    shares = array_at(address, m.features, zero)
    for d in range(m.features):
        shares[d] = type(zero)(after[d] - before[d])
    _exponentials(address, m.features, zero)


@inlined
def _decay_matrix(
    m: HeadMemory, tokens: int, source: int, decays: int, in_blocks: int, of_blocks: int, target: int, zero: Any
) -> None:
    """Computes a matrix decayed within its blocks, and from that one decayed by whole blocks too.

    Args:
        source, decays, in_blocks, target: matrices: the plain one, its decays within blocks, and both results.
        of_blocks: the first vector of the decays of whole blocks.
    """
    for t in range(tokens):
        row, result = t * m.features * 4, features_at(m, in_blocks) + t * m.features * 4
        multiply_rows(features_at(m, source) + row, features_at(m, decays) + row, result, m.features, zero)
        multiply_rows(result, vector_at(m, of_blocks + t // BLOCK), features_at(m, target) + row, m.features, zero)


@inlined
def _exponentials(address: int, count: int, zero: Any) -> None:
    """Replaces numbers, a multiple of LANES, by their exponentials; those above 0 by 1."""
    zeros = padded_zeros(zero)
    for j in range(0, count * 4, LANES * 4):
        store(exp_of(_at_most_zero(load(address + j, zeros), zeros)), address + j)
