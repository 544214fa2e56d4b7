"""Readings of the weights from the saved statistics of the rows, in one more pass over the keys."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
import triton
import triton.language as tl

from regard.kernels.triton.tiles import (
    SIGMOID,
    SIZES,
    SOFTMAX,
    UNALIGNED,
    entmax_parts,
    nth_block,
    tile_rows,
    tile_scores,
)


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=UNALIGNED)
def read_rows(
    query, query_powers, query_extent, key, key_powers, key_extent, value, weight, bias, sink, start, stop, mask, seed,
    rate, scale, cap, inverse_temperature, shift, exponent, H, KV, Q, K, weight_head, sink_head, bias_batch,
    bias_head, bias_row, bias_column, mask_batch, mask_head, mask_row, mask_column, span_batch, span_head, block_batch,
    block_head, NQ, NK,
    blocks, first, counts, maximum, total, lse, entropy, peak, distance, received, offset,
    D: tl.constexpr, V: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr, NORMALIZER: tl.constexpr, IS_UNITS: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr,
    MASK: tl.constexpr, RUNS: tl.constexpr, GAPS: tl.constexpr, SINK: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
    ENTROPY: tl.constexpr, PEAK: tl.constexpr, DISTANCE: tl.constexpr, RECEIVED: tl.constexpr,
):  # fmt: skip
    row_block = tl.program_id(0)
    pair = tl.program_id(1).to(tl.int64)
    batch = pair // H
    head = pair % H
    kv = batch * KV + head // (H // KV)
    rows = row_block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    query += pair * Q * D
    key += kv * K * D
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
    places = pair * Q + rows
    top = tl.load(maximum + places, mask=rows < Q, other=0.0)
    summed = tl.load(total + places, mask=rows < Q, other=1.0)
    reference = tl.where(top == float("-inf"), 0.0, top)
    highest = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    exponentials = tl.zeros((BLOCK_Q,), tl.float32)
    entropies = tl.zeros((BLOCK_Q,), tl.float32)
    largest = tl.zeros((BLOCK_Q,), tl.float32)
    distances = tl.zeros((BLOCK_Q,), tl.float32)
    for index in range(count):
        columns = nth_block(blocks, begin, index, GAPS) * BLOCK_K + tl.arange(0, BLOCK_K)
        keys = tile_rows(key, columns, K, D, BLOCK_D, IS_UNITS)
        scores, seen, _ = tile_scores(
            queries, keys, rows, columns, query, query_powers, query_extent, key, key_powers, key_extent,
            weight, bias, start, stop, mask, Q, K, D, scale, cap, inverse_temperature, bias_row,
            bias_column, mask_row, mask_column, BLOCK_Q, BLOCK_K, IS_UNITS, CAP, BIAS, MASK, RUNS,
            PRECISION,
        )  # fmt: skip
        risen = tl.maximum(highest, tl.max(scores, 1))
        level = tl.where(risen == float("-inf"), 0.0, risen)
        exponentials = exponentials * tl.exp(highest - level) + tl.sum(tl.exp(scores - level[:, None]), 1)
        highest = risen
        if NORMALIZER == SOFTMAX:
            weights = tl.exp(scores - reference[:, None]) / tl.where(summed == 0.0, 1.0, summed)[:, None]
        elif NORMALIZER == SIGMOID:
            weights = tl.where(seen, 1.0 / (1.0 + tl.exp(-(scores + shift))), 0.0)
        else:
            weights, _ = entmax_parts(scores, summed, reference, exponent, NORMALIZER)
        weights = tl.where(rows[:, None] < Q, weights, 0.0)
        if ENTROPY:
            entropies -= tl.sum(tl.where(weights == 0.0, 0.0, weights * tl.log(weights)), 1)
        if PEAK:
            largest = tl.maximum(largest, tl.max(weights, 1))
        if DISTANCE:
            gaps = tl.abs(rows[:, None] + offset - columns[None, :]).to(tl.float32)
            distances += tl.sum(weights * gaps, 1)
        if RECEIVED:
            tl.atomic_add(received + pair * K + columns, tl.sum(weights, 0), mask=columns < K, sem="relaxed")
    tl.store(lse + places, highest + tl.log(exponentials), mask=rows < Q)
    if ENTROPY:
        tl.store(entropy + places, entropies, mask=rows < Q)
    if PEAK:
        tl.store(peak + places, largest, mask=rows < Q)
    if DISTANCE:
        tl.store(distance + places, distances, mask=rows < Q)
