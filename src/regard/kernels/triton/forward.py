"""The forward pass: one program for each block of query rows and head, in memory that grows with queries and keys.

Softmax keeps a running maximum and sum. The entmax family reads the keys in several passes: the row's maximum, steps to
the threshold, the weighted sum. Hidden blocks of keys are skipped. For the backward pass of the entmax family the
weighted sum is taken a second time, with the derivatives of the weights.
"""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
import triton
import triton.language as tl

from regard.kernels.triton.tiles import (
    ENTMAX15,
    LOG2E,
    SIGMOID,
    SIZES,
    SOFTMAX,
    SPARSEMAX,
    UNALIGNED,
    block_bounds,
    entmax_parts,
    finite,
    has_full_tiles,
    hides,
    is_finite,
    kept_pairs,
    loaded_rows,
    nth_full_block,
    nth_partial_block,
    tile_rows,
    tile_scores,
)

STEPS = tl.constexpr(64)
"""Steps of the search for a threshold: Newton's, then halvings of its bracket, which is exhausted long before."""

NEWTON_STEPS = tl.constexpr(24)

TOLERANCE = tl.constexpr(1e-6)
"""Distance of a row's sum from 1 at which its search ends: a few roundings of float32."""

LAST_STEP = tl.constexpr(2e-4)
"""Length of a step for α up to 1.5 after which the search ends: what is left is of the order of its square."""


@triton.jit
def add_norm(
    tops, sums, slopes, counts, threshold, queries, keys, rows, columns, query, query_powers, query_extent, key,
    key_powers, key_extent, weight, bias, start, stop, mask, Q, K, QP, KP, scale, cap, factor, exponent, bias_row,
    bias_column, mask_row, mask_column,
    D: tl.constexpr, UNITS: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, NORMALIZER: tl.constexpr,
    IS_UNITS: tl.constexpr, SCALED: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr, MASK: tl.constexpr,
    RUNS: tl.constexpr, PRECISION: tl.constexpr, FULL: tl.constexpr, FIRST: tl.constexpr,
):  # fmt: skip
    """Adds a tile to the rows' maxima (``FIRST``), or to the sums of the weights at a threshold, and of their slopes.

    For α = 1.5 the number of positive weights is counted as well.
    """
    scores, _, _ = tile_scores(
        queries, keys, rows, columns, query, query_powers, query_extent, key, key_powers, key_extent, weight, bias,
        start, stop, mask, Q, K, QP, KP, scale, cap, bias_row, bias_column, mask_row, mask_column, D, UNITS, BLOCK_Q,
        BLOCK_K, IS_UNITS, SCALED, CAP, BIAS, MASK, RUNS, PRECISION, FULL, False,
    )  # fmt: skip
    if FIRST:
        return tl.maximum(tops, tl.max(scores, 1)), sums, slopes, counts
    weights, slope = entmax_parts(scores, threshold[:, None], tops[:, None], exponent, factor, NORMALIZER)
    if NORMALIZER == ENTMAX15:
        counts += tl.sum(tl.where(slope > 0.0, 1.0, 0.0), 1)
    return tops, sums + tl.sum(weights, 1), slopes + tl.sum(slope, 1), counts


@triton.jit
def next_threshold(threshold, sums, slopes, counts, exponent, NORMALIZER: tl.constexpr):
    """Returns a better threshold, from the sums of the weights at the last one.

    For α = 1.5 it is exact if the same weights stay positive: n δ² − 2 δ Σu + Σu² = 1. Else it is a step of Newton's
    method on the norm of [z − τ]₊, which is convex, so that the steps never pass the solution from below.
    """
    if NORMALIZER == ENTMAX15:
        spread = slopes * slopes - counts * (sums - 1.0)
        return threshold + (sums - 1.0) / (slopes + tl.sqrt(tl.maximum(spread, 0.0)))
    elif NORMALIZER == SPARSEMAX:
        return threshold + (sums - 1.0) / slopes
    else:
        return threshold + (sums - tl.exp2(tl.log2(sums) * (1.0 - exponent))) / slopes


@triton.jit
def add_tile(
    top, summed, mixed, slopes_mixed, slopes_summed, queries, keys, rows, columns, pair, query, query_powers,
    query_extent, key, key_powers, key_extent, value, weight, bias, start, stop, mask, seed, rate, Q, K, QP, KP, scale,
    cap, factor, shift, exponent, bias_row, bias_column, mask_row, mask_column,
    D: tl.constexpr, V: tl.constexpr, UNITS: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr, NORMALIZER: tl.constexpr, IS_UNITS: tl.constexpr, SCALED: tl.constexpr, CAP: tl.constexpr,
    BIAS: tl.constexpr, MASK: tl.constexpr, RUNS: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    WITH_SLOPES: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """Adds the weighted values of a tile to those of its rows."""
    values = loaded_rows(value, columns, K, V, BLOCK_V)
    scores, seen, _ = tile_scores(
        queries, keys, rows, columns, query, query_powers, query_extent, key, key_powers, key_extent, weight, bias,
        start, stop, mask, Q, K, QP, KP, scale, cap, bias_row, bias_column, mask_row, mask_column, D, UNITS, BLOCK_Q,
        BLOCK_K, IS_UNITS, SCALED, CAP, BIAS, MASK, RUNS, PRECISION, FULL, False,
    )  # fmt: skip
    if NORMALIZER == SOFTMAX:
        risen = tl.maximum(top, tl.max(scores, 1))
        reference = tl.where(risen == float("-inf"), 0.0, risen)
        fallen = tl.exp2((top - reference) * (factor * LOG2E))
        weights = tl.exp2((scores - reference[:, None]) * (factor * LOG2E))
        summed = summed * fallen + tl.sum(weights, 1)
        mixed = mixed * fallen[:, None]
        top = risen
    elif NORMALIZER == SIGMOID:
        weights = 1.0 / (1.0 + tl.exp2(-LOG2E * (scores * factor + shift)))
    else:
        reference = tl.where(top == float("-inf"), 0.0, top)
        weights, slope = entmax_parts(scores, summed[:, None], reference[:, None], exponent, factor, NORMALIZER)
        if WITH_SLOPES:
            slopes_summed += tl.sum(slope, 1)
            if DROPOUT:
                slope = slope * kept_pairs(seed, pair, rows, columns, K, rate, False)
    if DROPOUT:
        weights = weights * kept_pairs(seed, pair, rows, columns, K, rate, False)
    if hides(FULL, MASK, BIAS):
        # Hidden values, times 0, add nothing only if they are finite. A visible one that is not makes its feature NaN.
        is_bad = tl.where(is_finite(values), 0.0, 1.0)
        if tl.max(tl.max(is_bad, 1), 0) > 0.0:
            bad = tl.dot(tl.where(seen, 1.0, 0.0).to(values.dtype), is_bad.to(values.dtype))
            mixed = tl.where(bad > 0.0, float("nan"), mixed)
        values = finite(values)
    mixed += tl.dot(weights.to(values.dtype), values, input_precision=PRECISION)
    if WITH_SLOPES:
        slopes_mixed += tl.dot(slope.to(values.dtype), values, input_precision=PRECISION)
    return top, summed, mixed, slopes_mixed, slopes_summed


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=UNALIGNED)
def forward(
    query, query_powers, query_extent, key, key_powers, key_extent, value, weight, bias, sink, start, stop, mask, seed,
    rate, scale, cap, factor, shift, exponent, H, KV, Q, K, QP, KP, weight_head, sink_head, bias_batch, bias_head,
    bias_row, bias_column, mask_batch, mask_head, mask_row, mask_column, span_batch, span_head, block_batch, block_head,
    NQ, NK, order, bounds, output, maximum, total, sloped, slope_total,
    D: tl.constexpr, V: tl.constexpr, UNITS: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr, NORMALIZER: tl.constexpr, IS_UNITS: tl.constexpr,
    SCALED: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr, MASK: tl.constexpr, RUNS: tl.constexpr,
    GAPS: tl.constexpr, SINK: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    WITH_SLOPES: tl.constexpr,
):  # fmt: skip
    # Later rows often see more keys, and begin first.
    row_block = tl.num_programs(0) - 1 - tl.program_id(0)
    pair = tl.program_id(1).to(tl.int64)
    batch = pair // H
    head = pair % H
    kv = batch * KV + head // (H // KV)
    rows = row_block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    query += pair * Q * D
    key += kv * K * D
    value += kv * K * V
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
    queries = tile_rows(query, rows, Q, D, BLOCK_D, IS_UNITS)
    top = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    summed = tl.zeros((BLOCK_Q,), tl.float32)
    if NORMALIZER == SOFTMAX:
        if SINK:
            top = summed + tl.load(sink + head * sink_head) / factor
            summed += 1.0
    elif NORMALIZER != SIGMOID:
        none = tl.zeros((BLOCK_Q,), tl.float32)
        if has_full_tiles(MASK, BIAS):
            for index in range(full):
                columns = nth_full_block(order, first, left, index, GAPS) * BLOCK_K + tl.arange(0, BLOCK_K)
                keys = tile_rows(key, columns, K, D, BLOCK_D, IS_UNITS)
                top, _, _, _ = add_norm(
                    top, none, none, none, none, queries, keys, rows, columns, query, query_powers, query_extent, key,
                    key_powers, key_extent, weight, bias, start, stop, mask, Q, K, QP, KP, scale, cap, factor,
                    exponent, bias_row, bias_column, mask_row, mask_column, D, UNITS, BLOCK_Q, BLOCK_K, NORMALIZER,
                    IS_UNITS, SCALED, CAP, BIAS, MASK, RUNS, PRECISION, True, True,
                )  # fmt: skip
        for index in range(count - full):
            columns = nth_partial_block(order, first, left, full, index, GAPS) * BLOCK_K + tl.arange(0, BLOCK_K)
            keys = tile_rows(key, columns, K, D, BLOCK_D, IS_UNITS)
            top, _, _, _ = add_norm(
                top, none, none, none, none, queries, keys, rows, columns, query, query_powers, query_extent, key,
                key_powers, key_extent, weight, bias, start, stop, mask, Q, K, QP, KP, scale, cap, factor, exponent,
                bias_row, bias_column, mask_row, mask_column, D, UNITS, BLOCK_Q, BLOCK_K, NORMALIZER, IS_UNITS, SCALED,
                CAP, BIAS, MASK, RUNS, PRECISION, False, True,
            )  # fmt: skip
        reference = tl.where(top == float("-inf"), 0.0, top)
        high = none
        summed = none - 1.0
        low = summed
        step = 0
        is_searching = count > 0
        while is_searching:
            sums, slopes, counts = none, none, none
            if has_full_tiles(MASK, BIAS):
                for index in range(full):
                    columns = nth_full_block(order, first, left, index, GAPS) * BLOCK_K + tl.arange(0, BLOCK_K)
                    keys = tile_rows(key, columns, K, D, BLOCK_D, IS_UNITS)
                    _, sums, slopes, counts = add_norm(
                        reference, sums, slopes, counts, summed, queries, keys, rows, columns, query, query_powers,
                        query_extent, key, key_powers, key_extent, weight, bias, start, stop, mask, Q, K, QP, KP, scale,
                        cap, factor, exponent, bias_row, bias_column, mask_row, mask_column, D, UNITS, BLOCK_Q, BLOCK_K,
                        NORMALIZER, IS_UNITS, SCALED, CAP, BIAS, MASK, RUNS, PRECISION, True, False,
                    )  # fmt: skip
            for index in range(count - full):
                columns = nth_partial_block(order, first, left, full, index, GAPS) * BLOCK_K + tl.arange(0, BLOCK_K)
                keys = tile_rows(key, columns, K, D, BLOCK_D, IS_UNITS)
                _, sums, slopes, counts = add_norm(
                    reference, sums, slopes, counts, summed, queries, keys, rows, columns, query, query_powers,
                    query_extent, key, key_powers, key_extent, weight, bias, start, stop, mask, Q, K, QP, KP, scale,
                    cap, factor, exponent, bias_row, bias_column, mask_row, mask_column, D, UNITS, BLOCK_Q, BLOCK_K,
                    NORMALIZER, IS_UNITS, SCALED, CAP, BIAS, MASK, RUNS, PRECISION, False, False,
                )  # fmt: skip
            is_below = sums >= 1.0
            low = tl.where(is_below, summed, low)
            high = tl.where(is_below, high, summed)
            newton = next_threshold(summed, sums, slopes, counts, exponent, NORMALIZER)
            is_inside = (newton > low) & (newton < high) & (step < NEWTON_STEPS)
            following = tl.where(is_inside, newton, 0.5 * (low + high))
            # A row without visible keys has the sum 0; NaN ends the search of its row, whose threshold is NaN.
            is_open = (tl.abs(sums - 1.0) > TOLERANCE) & (top > float("-inf")) & (following > low) & (following < high)
            is_last = is_inside & (tl.abs(following - summed) < LAST_STEP) & (exponent <= 0.5)
            summed = tl.where(sums == sums, tl.where(is_open, following, summed), sums)
            step += 1
            is_searching = (tl.max((is_open & (is_last == 0)).to(tl.int32)) > 0) & (step < STEPS)
    mixed = tl.zeros((BLOCK_Q, BLOCK_V), tl.float32)
    slopes_mixed = tl.zeros((BLOCK_Q, BLOCK_V), tl.float32)
    slopes_summed = tl.zeros((BLOCK_Q,), tl.float32)
    if has_full_tiles(MASK, BIAS):
        for index in range(full):
            columns = nth_full_block(order, first, left, index, GAPS) * BLOCK_K + tl.arange(0, BLOCK_K)
            keys = tile_rows(key, columns, K, D, BLOCK_D, IS_UNITS)
            top, summed, mixed, slopes_mixed, slopes_summed = add_tile(
                top, summed, mixed, slopes_mixed, slopes_summed, queries, keys, rows, columns, pair, query,
                query_powers, query_extent, key, key_powers, key_extent, value, weight, bias, start, stop, mask, seed,
                rate, Q, K, QP, KP, scale, cap, factor, shift, exponent, bias_row, bias_column, mask_row, mask_column,
                D, V, UNITS, BLOCK_Q, BLOCK_K, BLOCK_V, NORMALIZER, IS_UNITS, SCALED, CAP, BIAS, MASK, RUNS, DROPOUT,
                PRECISION, WITH_SLOPES, True,
            )  # fmt: skip
    for index in range(count - full):
        columns = nth_partial_block(order, first, left, full, index, GAPS) * BLOCK_K + tl.arange(0, BLOCK_K)
        keys = tile_rows(key, columns, K, D, BLOCK_D, IS_UNITS)
        top, summed, mixed, slopes_mixed, slopes_summed = add_tile(
            top, summed, mixed, slopes_mixed, slopes_summed, queries, keys, rows, columns, pair, query, query_powers,
            query_extent, key, key_powers, key_extent, value, weight, bias, start, stop, mask, seed, rate, Q, K, QP,
            KP, scale, cap, factor, shift, exponent, bias_row, bias_column, mask_row, mask_column, D, V, UNITS,
            BLOCK_Q, BLOCK_K, BLOCK_V, NORMALIZER, IS_UNITS, SCALED, CAP, BIAS, MASK, RUNS, DROPOUT, PRECISION,
            WITH_SLOPES, False,
        )  # fmt: skip
    if NORMALIZER == SOFTMAX:
        mixed = mixed / tl.where(summed == 0.0, 1.0, summed)[:, None]
    channels = tl.arange(0, BLOCK_V)
    places = pair * Q + rows
    inside = (rows[:, None] < Q) & (channels[None, :] < V)
    tl.store(output + places[:, None] * V + channels[None, :], mixed.to(output.dtype.element_ty), mask=inside)
    tl.store(maximum + places, top, mask=rows < Q)
    tl.store(total + places, summed, mask=rows < Q)
    if WITH_SLOPES:
        tl.store(sloped + places[:, None] * V + channels[None, :], slopes_mixed, mask=inside)
        tl.store(slope_total + places, slopes_summed, mask=rows < Q)
