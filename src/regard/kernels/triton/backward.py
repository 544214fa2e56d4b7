"""The backward pass: for blocks of query rows, then for blocks of keys. No program writes where another one does.

With g the derivative of a weight by its own score and p' the gradient of a weight, the gradient of a score is
g (p' − δ): δ of a row is Σ g p' / Σ g, or 0 for the sigmoid, and comes from the forward pass.
"""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
import triton
import triton.language as tl

from regard.kernels.triton.tiles import (
    SIGMOID,
    SIZES,
    SOFTMAX,
    UNALIGNED,
    are_small,
    entmax_parts,
    kept_pairs,
    loaded_rows,
    nth_block,
    tile_rows,
    tile_scores,
    unit_denominators,
)


@triton.jit
def score_gradients(
    scores, seen, capped, queries_gradient, values, dropout, top, summed, delta, shift, exponent, inverse_temperature,
    NORMALIZER: tl.constexpr, CAP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Returns the weights and the gradients of the scores, before and after the bias was added."""
    passed = tl.dot(queries_gradient, tl.trans(values), input_precision=PRECISION) * dropout
    reference = tl.where(top == float("-inf"), 0.0, top)
    if NORMALIZER == SOFTMAX:
        weights = tl.exp(scores - reference[:, None]) / tl.where(summed == 0.0, 1.0, summed)[:, None]
        slopes = weights * inverse_temperature
    elif NORMALIZER == SIGMOID:
        weights = tl.where(seen, 1.0 / (1.0 + tl.exp(-(scores + shift))), 0.0)
        slopes = weights * (1.0 - weights)
    else:
        weights, slopes = entmax_parts(scores, summed, reference, exponent, NORMALIZER)
    biased = tl.where(seen & (slopes != 0.0), slopes * (passed - delta[:, None]), 0.0)
    gradients = biased
    if CAP:
        gradients = biased * (1.0 - capped * capped)
    return weights, biased, gradients


@triton.jit
def add_unit_gradients(
    gradients, query, query_powers, query_extent, key, key_powers, key_extent, weight, rows, columns, Q, K, UNITS,
    sums, weight_sums, BY_ROWS: tl.constexpr,
):  # fmt: skip
    """Adds Σ gradient · w · 4 r (1 − r), r = 1 / (1 + e^(2 (a + b))), of each unit to its rows or columns.

    By rows, Σ gradient · r of the tile is added to ``weight_sums``. Only this program adds there, so the order of the
    sums is always the same.
    """
    if are_small(query_extent, key_extent, rows, columns, Q, K):
        for unit in range(0, UNITS, 2):
            left = unit_denominators(unit, query_powers, key_powers, rows, columns, Q, K, True)
            right = unit_denominators(unit + 1, query_powers, key_powers, rows, columns, Q, K, True)
            shared = 1.0 / (left * right)
            add_unit(gradients, right * shared, unit, weight, rows, columns, Q, K, sums, weight_sums, BY_ROWS)
            add_unit(gradients, left * shared, unit + 1, weight, rows, columns, Q, K, sums, weight_sums, BY_ROWS)
    else:
        for unit in range(UNITS):
            inverse = 1.0 / unit_denominators(unit, query, key, rows, columns, Q, K, False)
            add_unit(gradients, inverse, unit, weight, rows, columns, Q, K, sums, weight_sums, BY_ROWS)


@triton.jit
def add_unit(gradients, inverse, unit, weight, rows, columns, Q, K, sums, weight_sums, BY_ROWS: tl.constexpr):
    first = gradients * inverse
    second = first - first * inverse
    factor = 4.0 * tl.load(weight + unit)
    if BY_ROWS:
        tl.atomic_add(sums + unit * Q + rows, tl.sum(second, 1) * factor, mask=rows < Q, sem="relaxed")
        tl.atomic_add(weight_sums + unit, tl.sum(tl.sum(first, 1), 0), sem="relaxed")
    else:
        tl.atomic_add(sums + unit * K + columns, tl.sum(second, 0) * factor, mask=columns < K, sem="relaxed")


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=UNALIGNED)
def backward_rows(
    query, query_powers, query_extent, key, key_powers, key_extent, value, weight, bias, sink, start, stop, mask, seed,
    rate, scale, cap, inverse_temperature, shift, exponent, H, KV, Q, K, weight_head, sink_head, bias_batch,
    bias_head, bias_row, bias_column, mask_batch, mask_head, mask_row, mask_column, span_batch, span_head, block_batch,
    block_head, NQ, NK,
    blocks, first, counts, maximum, total, delta, grad_output, grad_query, grad_bias, grad_weight, grad_bias_batch,
    grad_bias_head, grad_bias_row, grad_bias_column,
    D: tl.constexpr, V: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr, NORMALIZER: tl.constexpr, IS_UNITS: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr,
    MASK: tl.constexpr, RUNS: tl.constexpr, GAPS: tl.constexpr, SINK: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
    WITH_BIAS: tl.constexpr,
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
    grad_query += pair * Q * D
    if IS_UNITS:
        query_powers += pair * Q * D
        key_powers += kv * K * D
        query_extent += pair * Q
        key_extent += kv * K
        weight += head * weight_head
        grad_weight += (pair * NQ + row_block) * (D + 1)
    if BIAS:
        bias += batch * bias_batch + head * bias_head
    if WITH_BIAS:
        grad_bias += batch * grad_bias_batch + head * grad_bias_head
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
    queries_gradient = loaded_rows(grad_output + pair * Q * V, rows, Q, V, BLOCK_V)
    top = tl.load(maximum + pair * Q + rows, mask=rows < Q, other=0.0)
    summed = tl.load(total + pair * Q + rows, mask=rows < Q, other=1.0)
    row_delta = tl.load(delta + pair * Q + rows, mask=rows < Q, other=0.0)
    gathered = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    whole = tl.zeros((BLOCK_Q,), tl.float32)
    for index in range(count):
        columns = nth_block(blocks, begin, index, GAPS) * BLOCK_K + tl.arange(0, BLOCK_K)
        keys = tile_rows(key, columns, K, D, BLOCK_D, IS_UNITS)
        scores, seen, capped = tile_scores(
            queries, keys, rows, columns, query, query_powers, query_extent, key, key_powers, key_extent,
            weight, bias, start, stop, mask, Q, K, D, scale, cap, inverse_temperature, bias_row,
            bias_column, mask_row, mask_column, BLOCK_Q, BLOCK_K, IS_UNITS, CAP, BIAS, MASK, RUNS,
            PRECISION,
        )  # fmt: skip
        values = loaded_rows(value, columns, K, V, BLOCK_V)
        dropout = 1.0
        if DROPOUT:
            dropout = kept_pairs(seed, pair, rows, columns, K, rate)
        _, biased, gradients = score_gradients(
            scores, seen, capped, queries_gradient, values, dropout, top, summed, row_delta, shift, exponent,
            inverse_temperature, NORMALIZER, CAP, PRECISION,
        )  # fmt: skip
        if WITH_BIAS:
            places = rows.to(tl.int64)[:, None] * grad_bias_row + columns.to(tl.int64)[None, :] * grad_bias_column
            tl.atomic_add(grad_bias + places, biased, mask=seen, sem="relaxed")
        if IS_UNITS:
            whole += tl.sum(gradients, 1)
            add_unit_gradients(
                gradients, query, query_powers, query_extent, key, key_powers, key_extent, weight, rows, columns, Q, K,
                D, grad_query, grad_weight, True,
            )  # fmt: skip
        else:
            gathered += tl.dot(gradients.to(keys.dtype), keys, input_precision=PRECISION)
    if IS_UNITS:
        tl.store(grad_weight + D, tl.sum(whole, 0))
    else:
        features = tl.arange(0, BLOCK_D)
        tl.store(
            grad_query + rows[:, None] * D + features[None, :],
            (gathered * scale).to(grad_query.dtype.element_ty),
            mask=(rows[:, None] < Q) & (features[None, :] < D),
        )


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=UNALIGNED)
def backward_columns(
    query, query_powers, query_extent, key, key_powers, key_extent, value, weight, bias, sink, start, stop, mask, seed,
    rate, scale, cap, inverse_temperature, shift, exponent, H, KV, Q, K, weight_head, sink_head, bias_batch,
    bias_head, bias_row, bias_column, mask_batch, mask_head, mask_row, mask_column, span_batch, span_head, block_batch,
    block_head, NQ, NK,
    blocks, first, counts, maximum, total, delta, grad_output, grad_key, grad_value,
    D: tl.constexpr, V: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr, NORMALIZER: tl.constexpr, IS_UNITS: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr,
    MASK: tl.constexpr, RUNS: tl.constexpr, GAPS: tl.constexpr, SINK: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    column_block = tl.program_id(0)
    kv = tl.program_id(1).to(tl.int64)
    batch = kv // KV
    group = H // KV
    columns = column_block * BLOCK_K + tl.arange(0, BLOCK_K)
    key += kv * K * D
    if IS_UNITS:
        key_powers += kv * K * D
        key_extent += kv * K
    grad_key += kv * K * D
    keys = tile_rows(key, columns, K, D, BLOCK_D, IS_UNITS)
    values = loaded_rows(value + kv * K * V, columns, K, V, BLOCK_V)
    key_sums = tl.zeros((BLOCK_K, BLOCK_D), tl.float32)
    value_sums = tl.zeros((BLOCK_K, BLOCK_V), tl.float32)
    for member in range(group):
        head = (kv % KV) * group + member
        pair = batch * H + head
        own_query = query + pair * Q * D
        own_powers = query_powers
        own_extent = query_extent
        own_weight = weight
        own_bias = bias
        own_start = start
        own_stop = stop
        own_mask = mask
        own_blocks = blocks
        if IS_UNITS:
            own_powers = query_powers + pair * Q * D
            own_extent = query_extent + pair * Q
            own_weight = weight + head * weight_head
        if BIAS:
            own_bias = bias + batch * bias_batch + head * bias_head
        if MASK == 1:
            own_start = start + batch * span_batch + head * span_head
            own_stop = stop + batch * span_batch + head * span_head
        if MASK == 2:
            own_mask = mask + batch * mask_batch + head * mask_head
        begin = 0
        count = NQ
        if MASK > 0:
            list_index = (batch * block_batch + head * block_head) * NK + column_block
            begin = tl.load(first + list_index)
            count = tl.load(counts + list_index)
            own_blocks = blocks + list_index * NQ
        for index in range(count):
            rows = nth_block(own_blocks, begin, index, GAPS) * BLOCK_Q + tl.arange(0, BLOCK_Q)
            queries = tile_rows(own_query, rows, Q, D, BLOCK_D, IS_UNITS)
            scores, seen, capped = tile_scores(
                queries, keys, rows, columns, own_query, own_powers, own_extent, key, key_powers, key_extent,
                own_weight, own_bias, own_start, own_stop, own_mask, Q, K, D, scale, cap, inverse_temperature, bias_row,
                bias_column, mask_row, mask_column, BLOCK_Q, BLOCK_K, IS_UNITS, CAP, BIAS, MASK, RUNS,
                PRECISION,
            )  # fmt: skip
            queries_gradient = loaded_rows(grad_output + pair * Q * V, rows, Q, V, BLOCK_V)
            top = tl.load(maximum + pair * Q + rows, mask=rows < Q, other=0.0)
            summed = tl.load(total + pair * Q + rows, mask=rows < Q, other=1.0)
            row_delta = tl.load(delta + pair * Q + rows, mask=rows < Q, other=0.0)
            dropout = 1.0
            if DROPOUT:
                dropout = kept_pairs(seed, pair, rows, columns, K, rate)
            weights, _, gradients = score_gradients(
                scores, seen, capped, queries_gradient, values, dropout, top, summed, row_delta, shift, exponent,
                inverse_temperature, NORMALIZER, CAP, PRECISION,
            )  # fmt: skip
            mixing = tl.trans(weights * dropout).to(queries_gradient.dtype)
            value_sums += tl.dot(mixing, queries_gradient, input_precision=PRECISION)
            if IS_UNITS:
                add_unit_gradients(
                    gradients, own_query, own_powers, own_extent, key, key_powers, key_extent, own_weight, rows,
                    columns, Q, K, D, grad_key, grad_key, False,
                )  # fmt: skip
            else:
                key_sums += tl.dot(tl.trans(gradients).to(queries.dtype), queries, input_precision=PRECISION)
    if not IS_UNITS:
        features = tl.arange(0, BLOCK_D)
        tl.store(
            grad_key + columns[:, None] * D + features[None, :],
            (key_sums * scale).to(grad_key.dtype.element_ty),
            mask=(columns[:, None] < K) & (features[None, :] < D),
        )
    channels = tl.arange(0, BLOCK_V)
    tl.store(
        grad_value + (kv * K + columns)[:, None] * V + channels[None, :],
        value_sums.to(grad_value.dtype.element_ty),
        mask=(columns[:, None] < K) & (channels[None, :] < V),
    )
