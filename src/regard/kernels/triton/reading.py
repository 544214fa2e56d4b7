"""Readings of the weights from the saved statistics of the rows, in one more pass over the keys."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
import triton
import triton.language as tl

from regard.kernels.triton.tiles import (
    LOG2E,
    SIZES,
    SOFTMAX,
    UNALIGNED,
    block_bounds,
    has_full_tiles,
    nth_full_block,
    nth_partial_block,
    saved_weights,
    tile_rows,
    tile_scores,
)


@triton.jit
def read_tile(
    highest, exponentials, entropies, largest, distances, queries, reference, summed, rows, columns, pair, query,
    query_powers, query_extent, key, key_powers, key_extent, weight, bias, start, stop, mask, Q, K, QP, KP, scale, cap,
    factor, shift, exponent, bias_row, bias_column, mask_row, mask_column, received, offset,
    D: tl.constexpr, UNITS: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    NORMALIZER: tl.constexpr, IS_UNITS: tl.constexpr, SCALED: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr,
    MASK: tl.constexpr, RUNS: tl.constexpr, PRECISION: tl.constexpr, SUMS: tl.constexpr, ENTROPY: tl.constexpr,
    PEAK: tl.constexpr, DISTANCE: tl.constexpr, RECEIVED: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """Adds a tile to the readings."""
    keys = tile_rows(key, columns, K, D, BLOCK_D, IS_UNITS)
    scores, seen, _ = tile_scores(
        queries, keys, rows, columns, query, query_powers, query_extent, key, key_powers, key_extent, weight, bias,
        start, stop, mask, Q, K, QP, KP, scale, cap, bias_row, bias_column, mask_row, mask_column, D, UNITS, BLOCK_Q,
        BLOCK_K, IS_UNITS, SCALED, CAP, BIAS, MASK, RUNS, PRECISION, FULL, False,
    )  # fmt: skip
    if SUMS:
        risen = tl.maximum(highest, tl.max(scores, 1))
        level = tl.where(risen == float("-inf"), 0.0, risen)
        shares = tl.exp2((scores - level[:, None]) * (factor * LOG2E))
        exponentials = exponentials * tl.exp2((highest - level) * (factor * LOG2E)) + tl.sum(shares, 1)
        highest = risen
    weights, _ = saved_weights(
        scores, seen, reference[:, None], summed[:, None], factor, shift, exponent, NORMALIZER, FULL
    )
    if ENTROPY:
        # With softmax, the logarithm of a weight is its score less the log-sum-exp, which is added at the end.
        logarithms = (scores - reference[:, None]) * factor if NORMALIZER == SOFTMAX else tl.log(weights)
        entropies -= tl.sum(tl.where(weights == 0.0, 0.0, weights * logarithms), 1)
    if PEAK:
        # A maximum of the device drops NaN, and a sum does not.
        noted = largest + tl.sum(weights, 1)
        largest = tl.where(noted == noted, tl.maximum(largest, tl.max(weights, 1)), float("nan"))
    if DISTANCE:
        gaps = tl.abs(rows[:, None] + offset - columns[None, :]).to(tl.float32)
        distances += tl.sum(weights * gaps, 1)
    if RECEIVED:
        visible = tl.where(rows[:, None] < Q, weights, 0.0)
        tl.atomic_add(received + pair * K + columns, tl.sum(visible, 0), mask=columns < K, sem="relaxed")
    return highest, exponentials, entropies, largest, distances


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=UNALIGNED)
def read_rows(
    query, query_powers, query_extent, key, key_powers, key_extent, value, weight, bias, sink, start, stop, mask, seed,
    rate, scale, cap, factor, shift, exponent, H, KV, Q, K, QP, KP, weight_head, sink_head, bias_batch, bias_head,
    bias_row, bias_column, mask_batch, mask_head, mask_row, mask_column, span_batch, span_head, block_batch, block_head,
    NQ, NK, order, bounds, maximum, total, lse, entropy, peak, distance, received, offset,
    D: tl.constexpr, V: tl.constexpr, UNITS: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr, NORMALIZER: tl.constexpr, IS_UNITS: tl.constexpr,
    SCALED: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr, MASK: tl.constexpr, RUNS: tl.constexpr,
    GAPS: tl.constexpr, SINK: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    ENTROPY: tl.constexpr, PEAK: tl.constexpr, DISTANCE: tl.constexpr, RECEIVED: tl.constexpr,
):  # fmt: skip
    row_block = tl.num_programs(0) - 1 - tl.program_id(0)
    pair = tl.program_id(1).to(tl.int64)
    batch = pair // H
    head = pair % H
    kv = batch * KV + head // (H // KV)
    rows = row_block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    query += pair * Q * D
    key += kv * K * D
    if IS_UNITS:
        query_powers += pair * QP * UNITS
        key_powers += kv * KP * UNITS
        query_extent += pair * QP
        key_extent += kv * KP
        weight += head * weight_head
    if BIAS:
        bias += batch * bias_batch + head * bias_head
    if MASK == 1:
        start += batch * span_batch + head * span_head
        stop += batch * span_batch + head * span_head
    if MASK == 2:
        mask += batch * mask_batch + head * mask_head
    list_index = (batch * block_batch + head * block_head) * NQ + row_block
    first, left, full, count = block_bounds(bounds, list_index, K, NK, BLOCK_K, MASK, BIAS)
    if GAPS:
        order += list_index * NK
    # The statistics of softmax without a sink are the log-sum-exp; others need a sum of exponentials of their own.
    SUMS: tl.constexpr = NORMALIZER != SOFTMAX or SINK
    queries = tile_rows(query, rows, Q, D, BLOCK_D, IS_UNITS)
    places = pair * Q + rows
    top = tl.load(maximum + places, mask=rows < Q, other=0.0)
    summed = tl.load(total + places, mask=rows < Q, other=1.0)
    reference = tl.where(top == float("-inf"), 0.0, top)
    row_total = summed
    if NORMALIZER == SOFTMAX:
        summed = 1.0 / tl.where(summed == 0.0, 1.0, summed)
    highest = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    exponentials = tl.zeros((BLOCK_Q,), tl.float32)
    entropies = tl.zeros((BLOCK_Q,), tl.float32)
    largest = tl.zeros((BLOCK_Q,), tl.float32)
    distances = tl.zeros((BLOCK_Q,), tl.float32)
    if has_full_tiles(MASK, BIAS):
        for index in range(full):
            columns = nth_full_block(order, first, left, index, GAPS) * BLOCK_K + tl.arange(0, BLOCK_K)
            highest, exponentials, entropies, largest, distances = read_tile(
                highest, exponentials, entropies, largest, distances, queries, reference, summed, rows, columns, pair,
                query, query_powers, query_extent, key, key_powers, key_extent, weight, bias, start, stop, mask, Q, K,
                QP, KP, scale, cap, factor, shift, exponent, bias_row, bias_column, mask_row, mask_column, received,
                offset, D, UNITS, BLOCK_Q, BLOCK_K, BLOCK_D, NORMALIZER, IS_UNITS, SCALED, CAP, BIAS, MASK, RUNS,
                PRECISION, SUMS, ENTROPY, PEAK, DISTANCE, RECEIVED, True,
            )  # fmt: skip
    for index in range(count - full):
        columns = nth_partial_block(order, first, left, full, index, GAPS) * BLOCK_K + tl.arange(0, BLOCK_K)
        highest, exponentials, entropies, largest, distances = read_tile(
            highest, exponentials, entropies, largest, distances, queries, reference, summed, rows, columns, pair,
            query, query_powers, query_extent, key, key_powers, key_extent, weight, bias, start, stop, mask, Q, K, QP,
            KP, scale, cap, factor, shift, exponent, bias_row, bias_column, mask_row, mask_column, received, offset, D,
            UNITS, BLOCK_Q, BLOCK_K, BLOCK_D, NORMALIZER, IS_UNITS, SCALED, CAP, BIAS, MASK, RUNS, PRECISION, SUMS,
            ENTROPY, PEAK, DISTANCE, RECEIVED, False,
        )  # fmt: skip
    logsumexp = highest * factor + tl.log(exponentials) if SUMS else top * factor + tl.log(row_total)
    tl.store(lse + places, logsumexp, mask=rows < Q)
    if ENTROPY:
        if NORMALIZER == SOFTMAX:
            whole = tl.where(top == float("-inf"), 0.0, 1.0)
            if SINK:
                whole = exponentials * tl.exp2((highest - reference) * (factor * LOG2E)) * summed
            entropies += tl.where(whole == 0.0, 0.0, whole * tl.log(row_total))
        tl.store(entropy + places, entropies, mask=rows < Q)
    if PEAK:
        tl.store(peak + places, largest, mask=rows < Q)
    if DISTANCE:
        tl.store(distance + places, distances, mask=rows < Q)
