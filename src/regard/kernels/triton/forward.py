"""The forward pass: one program for each block of query rows and head, in memory that grows with queries and keys.

Softmax keeps a running maximum and sum. The entmax family reads the keys in several passes: the row's maximum, Newton
steps to the threshold, the weighted sum. Hidden blocks of keys are skipped. For the backward pass of the entmax family
the weighted sum is taken a second time, with the derivatives of the weights.
"""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
import triton
import triton.language as tl

from regard.kernels.triton.tiles import (
    SIGMOID,
    SIZES,
    SOFTMAX,
    UNALIGNED,
    entmax_parts,
    kept_pairs,
    loaded_rows,
    nth_block,
    tile_rows,
    tile_scores,
)

STEPS = tl.constexpr(64)
"""Steps of the search for a threshold: Newton's, then halvings of its bracket, which is exhausted long before."""

NEWTON_STEPS = tl.constexpr(24)

TOLERANCE = tl.constexpr(1e-6)
"""Distance of a row's sum from 1 at which its search ends: a few roundings of float32."""


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=UNALIGNED)
def forward(
    query, query_powers, query_extent, key, key_powers, key_extent, value, weight, bias, sink, start, stop, mask, seed,
    rate, scale, cap, inverse_temperature, shift, exponent, H, KV, Q, K, weight_head, sink_head, bias_batch,
    bias_head, bias_row, bias_column, mask_batch, mask_head, mask_row, mask_column, span_batch, span_head, block_batch,
    block_head, NQ, NK,
    blocks, first, counts, output, maximum, total, sloped, slope_total,
    D: tl.constexpr, V: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr, NORMALIZER: tl.constexpr, IS_UNITS: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr,
    MASK: tl.constexpr, RUNS: tl.constexpr, GAPS: tl.constexpr, SINK: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
    WITH_SLOPES: tl.constexpr,
):  # fmt: skip
    row_block = tl.program_id(0)
    pair = tl.program_id(1).to(tl.int64)
    batch = pair // H
    head = pair % H
    kv = batch * KV + head // (H // KV)
    rows = row_block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    query += pair * Q * D
    key += kv * K * D
    value += kv * K * V
    if IS_UNITS:
        query_powers += pair * Q * D
        key_powers += kv * K * D
        query_extent += pair * Q
        key_extent += kv * K
        weight += head * weight_head
    if BIAS:
        bias += batch * bias_batch + head * bias_head
    if MASK == 1:
        start += batch * span_batch + head * span_head
        stop += batch * span_batch + head * span_head
    if MASK == 2:
        mask += batch * mask_batch + head * mask_head
    begin = 0
    count = NK
    if MASK > 0:
        list_index = (batch * block_batch + head * block_head) * NQ + row_block
        begin = tl.load(first + list_index)
        count = tl.load(counts + list_index)
        blocks += list_index * NK
    queries = tile_rows(query, rows, Q, D, BLOCK_D, IS_UNITS)
    top = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    summed = tl.zeros((BLOCK_Q,), tl.float32)
    if NORMALIZER == SOFTMAX:
        if SINK:
            top = summed + tl.load(sink + head * sink_head)
            summed += 1.0
    elif NORMALIZER != SIGMOID:
        for index in range(count):
            columns = nth_block(blocks, begin, index, GAPS) * BLOCK_K + tl.arange(0, BLOCK_K)
            keys = tile_rows(key, columns, K, D, BLOCK_D, IS_UNITS)
            scores, _, _ = tile_scores(
                queries, keys, rows, columns, query, query_powers, query_extent, key, key_powers, key_extent,
                weight, bias, start, stop, mask, Q, K, D, scale, cap, inverse_temperature, bias_row,
                bias_column, mask_row, mask_column, BLOCK_Q, BLOCK_K, IS_UNITS, CAP, BIAS, MASK, RUNS,
                PRECISION,
            )  # fmt: skip
            top = tl.maximum(top, tl.max(scores, 1))
        # From below, Newton's method on the norm of [z − τ]₊, which is convex, never passes the solution.
        reference = tl.where(top == float("-inf"), 0.0, top)
        high = tl.zeros((BLOCK_Q,), tl.float32)
        summed = high - 1.0
        low = summed
        step = 0
        is_searching = count > 0
        while is_searching:
            sums = tl.zeros((BLOCK_Q,), tl.float32)
            slopes = tl.zeros((BLOCK_Q,), tl.float32)
            for index in range(count):
                columns = nth_block(blocks, begin, index, GAPS) * BLOCK_K + tl.arange(0, BLOCK_K)
                keys = tile_rows(key, columns, K, D, BLOCK_D, IS_UNITS)
                scores, _, _ = tile_scores(
                    queries, keys, rows, columns, query, query_powers, query_extent, key, key_powers, key_extent,
                    weight, bias, start, stop, mask, Q, K, D, scale, cap, inverse_temperature, bias_row,
                    bias_column, mask_row, mask_column, BLOCK_Q, BLOCK_K, IS_UNITS, CAP, BIAS, MASK, RUNS,
                    PRECISION,
                )  # fmt: skip
                weights, slope = entmax_parts(scores, summed, reference, exponent, NORMALIZER)
                sums += tl.sum(weights, 1)
                slopes += tl.sum(slope, 1)
            is_below = sums >= 1.0
            low = tl.where(is_below, summed, low)
            high = tl.where(is_below, high, summed)
            newton = summed + (sums - tl.exp2(tl.log2(sums) * (1.0 - exponent))) / slopes
            is_inside = (newton > low) & (newton < high) & (step < NEWTON_STEPS)
            following = tl.where(is_inside, newton, 0.5 * (low + high))
            # A row without visible keys has the sum 0; NaN ends the search of its row.
            is_open = (tl.abs(sums - 1.0) > TOLERANCE) & (top > float("-inf")) & (following > low) & (following < high)
            summed = tl.where(is_open, following, summed)
            step += 1
            is_searching = (tl.max(is_open.to(tl.int32)) > 0) & (step < STEPS)
    reference = tl.where(top == float("-inf"), 0.0, top)
    channels = tl.arange(0, BLOCK_V)
    mixed = tl.zeros((BLOCK_Q, BLOCK_V), tl.float32)
    slopes_mixed = tl.zeros((BLOCK_Q, BLOCK_V), tl.float32)
    slopes_summed = tl.zeros((BLOCK_Q,), tl.float32)
    for index in range(count):
        columns = nth_block(blocks, begin, index, GAPS) * BLOCK_K + tl.arange(0, BLOCK_K)
        keys = tile_rows(key, columns, K, D, BLOCK_D, IS_UNITS)
        scores, seen, _ = tile_scores(
            queries, keys, rows, columns, query, query_powers, query_extent, key, key_powers, key_extent,
            weight, bias, start, stop, mask, Q, K, D, scale, cap, inverse_temperature, bias_row,
            bias_column, mask_row, mask_column, BLOCK_Q, BLOCK_K, IS_UNITS, CAP, BIAS, MASK, RUNS,
            PRECISION,
        )  # fmt: skip
        values = loaded_rows(value, columns, K, V, BLOCK_V)
        dropout = 1.0
        if DROPOUT:
            dropout = kept_pairs(seed, pair, rows, columns, K, rate)
        if NORMALIZER == SOFTMAX:
            risen = tl.maximum(top, tl.max(scores, 1))
            reference = tl.where(risen == float("-inf"), 0.0, risen)
            factor = tl.exp(top - reference)
            weights = tl.exp(scores - reference[:, None])
            summed = summed * factor + tl.sum(weights, 1)
            mixed = mixed * factor[:, None]
            top = risen
        elif NORMALIZER == SIGMOID:
            weights = tl.where(seen, 1.0 / (1.0 + tl.exp(-(scores + shift))), 0.0)
        else:
            weights, slope = entmax_parts(scores, summed, reference, exponent, NORMALIZER)
            if WITH_SLOPES:
                slopes_summed += tl.sum(slope, 1)
                slopes_mixed += tl.dot((slope * dropout).to(values.dtype), values, input_precision=PRECISION)
        mixed += tl.dot((weights * dropout).to(values.dtype), values, input_precision=PRECISION)
    if NORMALIZER == SOFTMAX:
        mixed = mixed / tl.where(summed == 0.0, 1.0, summed)[:, None]
    places = pair * Q + rows
    inside = (rows[:, None] < Q) & (channels[None, :] < V)
    tl.store(output + places[:, None] * V + channels[None, :], mixed.to(output.dtype.element_ty), mask=inside)
    tl.store(maximum + places, top, mask=rows < Q)
    tl.store(total + places, summed, mask=rows < Q)
    if WITH_SLOPES:
        tl.store(sloped + places[:, None] * V + channels[None, :], slopes_mixed, mask=inside)
        tl.store(slope_total + places, slopes_summed, mask=rows < Q)
