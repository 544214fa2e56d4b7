"""The backward pass: for blocks of query rows, then for blocks of keys.

No program writes where another one does, but for the gradient of a bias, to which several programs may add.

With g the derivative of a weight by its own score and p' the gradient of a weight, the gradient of a score is
g (p' − δ): δ of a row is Σ g p' / Σ g, or 0 for the sigmoid, and comes from the forward pass.

Tiles of products lie so that the sums of their program are the rows of every product. Tiles of units lie across, so
that each thread sums what it has computed.
"""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
import triton
import triton.language as tl

from regard.kernels.triton.tiles import (
    SIZES,
    SOFTMAX,
    UNALIGNED,
    are_small,
    block_bounds,
    denominators,
    finite,
    has_full_tiles,
    hides,
    is_finite,
    kept_pairs,
    loaded_rows,
    nth_full_block,
    nth_partial_block,
    over_columns,
    over_rows,
    reciprocal,
    saved_weights,
    small_denominators,
    tile_rows,
    tile_scores,
)


@triton.jit
def score_gradients(
    scores, seen, capped, row_gradients, values, dropout, reference, total, delta, factor, shift, exponent,
    NORMALIZER: tl.constexpr, CAP: tl.constexpr, PRECISION: tl.constexpr, FULL: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """Returns the weights and the gradients of the scores, but for their factor, before and after the bias was added.

    Args:
        reference, total, delta: of the rows; see `saved_weights`.
        row_gradients: gradients of the rows' outputs.
        dropout: factors of the weights.
    """
    if TRANSPOSED:
        passed = tl.dot(values, tl.trans(row_gradients), input_precision=PRECISION)
    else:
        passed = tl.dot(row_gradients, tl.trans(values), input_precision=PRECISION)
    weights, slopes = saved_weights(
        scores, seen, over_rows(reference, TRANSPOSED), over_rows(total, TRANSPOSED), factor, shift, exponent,
        NORMALIZER, FULL,
    )  # fmt: skip
    biased = slopes * (passed * dropout - over_rows(delta, TRANSPOSED))
    if NORMALIZER != SOFTMAX:
        biased = tl.where(slopes == 0.0, 0.0, biased)
    if not FULL:
        biased = tl.where(seen, biased, 0.0)
    gradients = biased
    if CAP:
        gradients = biased * (1.0 - capped * capped)
    return weights, biased, gradients


@triton.jit
def add_unit_gradients(
    gradients, seen, query, query_powers, query_extent, key, key_powers, key_extent, weight, rows, columns, Q, K, QP,
    KP, sums, weight_sums, D: tl.constexpr, UNITS: tl.constexpr, HIDES: tl.constexpr, BY_ROWS: tl.constexpr,
):  # fmt: skip
    """Adds Σ gradient · w · 4 r (1 − r), r = 1 / (1 + e^(2 (a + b))), of each unit to its rows or columns.

    By rows, Σ gradient · r of each row is added to ``weight_sums``. Only this program adds there, so the order of the
    sums is always the same.
    """
    if are_small(query_extent, key_extent, rows, columns):
        for unit in range(0, UNITS, 2):
            left = small_denominators(unit, query_powers, key_powers, rows, columns, QP, KP, BY_ROWS)
            right = small_denominators(unit + 1, query_powers, key_powers, rows, columns, QP, KP, BY_ROWS)
            shared = reciprocal(left * right)
            first, second = right * shared, left * shared
            add_unit(gradients, seen, first, unit, weight, rows, columns, QP, KP, sums, weight_sums, HIDES, BY_ROWS)
            add_unit(
                gradients, seen, second, unit + 1, weight, rows, columns, QP, KP, sums, weight_sums, HIDES, BY_ROWS
            )
    else:
        for unit in range(D):
            inverse = 1.0 / denominators(unit, query, key, rows, columns, Q, K, D, BY_ROWS)
            add_unit(gradients, seen, inverse, unit, weight, rows, columns, QP, KP, sums, weight_sums, HIDES, BY_ROWS)


@triton.jit
def add_unit(
    gradients, seen, inverse, unit, weight, rows, columns, QP, KP, sums, weight_sums, HIDES: tl.constexpr,
    BY_ROWS: tl.constexpr,
):  # fmt: skip
    if HIDES:
        inverse = tl.where(seen, inverse, 0.0)
    first = gradients * inverse
    second = tl.sum(first - first * inverse, 0) * (4.0 * tl.load(weight + unit))
    if BY_ROWS:
        tl.atomic_add(sums + unit * QP + rows, second, sem="relaxed")
        tl.atomic_add(weight_sums + unit * QP + rows, tl.sum(first, 0), sem="relaxed")
    else:
        tl.atomic_add(sums + unit * KP + columns, second, sem="relaxed")


@triton.jit
def loaded_statistics(maximum, total, delta, pair, rows, Q, NORMALIZER: tl.constexpr):
    """Returns the statistics of rows, as `saved_weights` takes them, and δ."""
    top = tl.load(maximum + pair * Q + rows, mask=rows < Q, other=0.0)
    summed = tl.load(total + pair * Q + rows, mask=rows < Q, other=1.0)
    if NORMALIZER == SOFTMAX:
        summed = 1.0 / tl.where(summed == 0.0, 1.0, summed)
    reference = tl.where(top == float("-inf"), 0.0, top)
    return reference, summed, tl.load(delta + pair * Q + rows, mask=rows < Q, other=0.0)


@triton.jit
def add_to_rows(
    gathered, whole, queries, row_gradients, reference, summed, row_delta, rows, columns, pair, query, query_powers,
    query_extent, key, key_powers, key_extent, value, weight, bias, start, stop, mask, seed, rate, Q, K, QP, KP, scale,
    cap, factor, shift, exponent, bias_row, bias_column, mask_row, mask_column, grad_query, grad_bias, grad_weight,
    grad_bias_row, grad_bias_column,
    D: tl.constexpr, V: tl.constexpr, UNITS: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, NORMALIZER: tl.constexpr, IS_UNITS: tl.constexpr, SCALED: tl.constexpr,
    CAP: tl.constexpr, BIAS: tl.constexpr, MASK: tl.constexpr, RUNS: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr, WITH_BIAS: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """Adds a tile to the gradients of its queries, and of the weights and the bias."""
    keys = tile_rows(key, columns, K, D, BLOCK_D, IS_UNITS)
    values = loaded_rows(value, columns, K, V, BLOCK_V)
    scores, seen, capped = tile_scores(
        queries, keys, rows, columns, query, query_powers, query_extent, key, key_powers, key_extent, weight, bias,
        start, stop, mask, Q, K, QP, KP, scale, cap, bias_row, bias_column, mask_row, mask_column, D, UNITS, HEIGHT,
        WIDTH, IS_UNITS, SCALED, CAP, BIAS, MASK, RUNS, PRECISION, FULL, IS_UNITS,
    )  # fmt: skip
    dropout = 1.0
    if DROPOUT:
        dropout = kept_pairs(seed, pair, rows, columns, K, rate, IS_UNITS)
    _, biased, gradients = score_gradients(
        scores, seen, capped, row_gradients, values, dropout, reference, summed, row_delta, factor, shift, exponent,
        NORMALIZER, CAP, PRECISION, FULL, IS_UNITS,
    )  # fmt: skip
    if WITH_BIAS:
        row, column = over_rows(rows, IS_UNITS).to(tl.int64), over_columns(columns, IS_UNITS).to(tl.int64)
        places = row * grad_bias_row + column * grad_bias_column
        tl.atomic_add(grad_bias + places, biased * factor, mask=seen, sem="relaxed")
    if IS_UNITS:
        gradients = gradients * factor
        whole += tl.sum(gradients, 0)
        add_unit_gradients(
            gradients, seen, query, query_powers, query_extent, key, key_powers, key_extent, weight, rows, columns, Q,
            K, QP, KP, grad_query, grad_weight, D, UNITS, hides(FULL, MASK, BIAS), True,
        )  # fmt: skip
    else:
        if hides(FULL, MASK, BIAS):
            # A visible key that is not finite makes the gradients of its rows NaN.
            is_bad = tl.max(tl.where(is_finite(keys), 0.0, 1.0), 1)
            bad = tl.max(tl.where(seen, is_bad[None, :], 0.0), 1)
            gathered = tl.where(bad[:, None] > 0.0, float("nan"), gathered)
            keys = finite(keys)
        gathered += tl.dot(gradients.to(keys.dtype), keys, input_precision=PRECISION)
    return gathered, whole


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=UNALIGNED)
def backward_rows(
    query, query_powers, query_extent, key, key_powers, key_extent, value, weight, bias, sink, start, stop, mask, seed,
    rate, scale, cap, factor, shift, exponent, H, KV, Q, K, QP, KP, weight_head, sink_head, bias_batch, bias_head,
    bias_row, bias_column, mask_batch, mask_head, mask_row, mask_column, span_batch, span_head, block_batch, block_head,
    NQ, NK, order, bounds, maximum, total, delta, grad_output, grad_query, grad_bias, grad_weight, grad_bias_batch,
    grad_bias_head, grad_bias_row, grad_bias_column,
    D: tl.constexpr, V: tl.constexpr, UNITS: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr, NORMALIZER: tl.constexpr, IS_UNITS: tl.constexpr,
    SCALED: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr, MASK: tl.constexpr, RUNS: tl.constexpr,
    GAPS: tl.constexpr, SINK: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    WITH_BIAS: tl.constexpr,
):  # fmt: skip
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
        grad_query += pair * QP * UNITS
        grad_weight += pair * QP * (UNITS + 1)
    else:
        grad_query += pair * Q * D
    if BIAS:
        bias += batch * bias_batch + head * bias_head
    if WITH_BIAS:
        grad_bias += batch * grad_bias_batch + head * grad_bias_head
    if MASK == 1:
        start += batch * span_batch + head * span_head
        stop += batch * span_batch + head * span_head
    if MASK == 2:
        mask += batch * mask_batch + head * mask_head
    list_index = (batch * block_batch + head * block_head) * NQ + row_block
    first, left, full, count = block_bounds(bounds, list_index, K, NK, BLOCK_K, MASK, BIAS)
    if GAPS:
        order += list_index * NK
    HEIGHT: tl.constexpr = BLOCK_K if IS_UNITS else BLOCK_Q
    WIDTH: tl.constexpr = BLOCK_Q if IS_UNITS else BLOCK_K
    queries = tile_rows(query, rows, Q, D, BLOCK_D, IS_UNITS)
    row_gradients = loaded_rows(grad_output + pair * Q * V, rows, Q, V, BLOCK_V)
    reference, summed, row_delta = loaded_statistics(maximum, total, delta, pair, rows, Q, NORMALIZER)
    gathered = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    whole = tl.zeros((BLOCK_Q,), tl.float32)
    if has_full_tiles(MASK, BIAS):
        for index in range(full):
            columns = nth_full_block(order, first, left, index, GAPS) * BLOCK_K + tl.arange(0, BLOCK_K)
            gathered, whole = add_to_rows(
                gathered, whole, queries, row_gradients, reference, summed, row_delta, rows, columns, pair, query,
                query_powers, query_extent, key, key_powers, key_extent, value, weight, bias, start, stop, mask, seed,
                rate, Q, K, QP, KP, scale, cap, factor, shift, exponent, bias_row, bias_column, mask_row, mask_column,
                grad_query, grad_bias, grad_weight, grad_bias_row, grad_bias_column, D, V, UNITS, BLOCK_D, BLOCK_V,
                HEIGHT, WIDTH, NORMALIZER, IS_UNITS, SCALED, CAP, BIAS, MASK, RUNS, DROPOUT, PRECISION, WITH_BIAS,
                True,
            )  # fmt: skip
    for index in range(count - full):
        columns = nth_partial_block(order, first, left, full, index, GAPS) * BLOCK_K + tl.arange(0, BLOCK_K)
        gathered, whole = add_to_rows(
            gathered, whole, queries, row_gradients, reference, summed, row_delta, rows, columns, pair, query,
            query_powers, query_extent, key, key_powers, key_extent, value, weight, bias, start, stop, mask, seed, rate,
            Q, K, QP, KP, scale, cap, factor, shift, exponent, bias_row, bias_column, mask_row, mask_column, grad_query,
            grad_bias, grad_weight, grad_bias_row, grad_bias_column, D, V, UNITS, BLOCK_D, BLOCK_V, HEIGHT, WIDTH,
            NORMALIZER, IS_UNITS, SCALED, CAP, BIAS, MASK, RUNS, DROPOUT, PRECISION, WITH_BIAS, False,
        )  # fmt: skip
    if IS_UNITS:
        tl.store(grad_weight + UNITS * QP + rows, whole)
    else:
        features = tl.arange(0, BLOCK_D)
        if SCALED:
            gathered = gathered * scale
        tl.store(
            grad_query + rows[:, None] * D + features[None, :],
            (gathered * factor).to(grad_query.dtype.element_ty),
            mask=(rows[:, None] < Q) & (features[None, :] < D),
        )


@triton.jit
def add_to_columns(
    key_sums, value_sums, keys, values, rows, columns, pair, query, query_powers, query_extent, key, key_powers,
    key_extent, weight, bias, start, stop, mask, seed, rate, Q, K, QP, KP, scale, cap, factor, shift, exponent,
    bias_row, bias_column, mask_row, mask_column, maximum, total, delta, grad_output, grad_key,
    D: tl.constexpr, V: tl.constexpr, UNITS: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, NORMALIZER: tl.constexpr, IS_UNITS: tl.constexpr, SCALED: tl.constexpr,
    CAP: tl.constexpr, BIAS: tl.constexpr, MASK: tl.constexpr, RUNS: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """Adds a tile to the gradients of its keys and values."""
    TRANSPOSED: tl.constexpr = not IS_UNITS
    queries = tile_rows(query, rows, Q, D, BLOCK_D, IS_UNITS)
    row_gradients = loaded_rows(grad_output + pair * Q * V, rows, Q, V, BLOCK_V)
    scores, seen, capped = tile_scores(
        queries, keys, rows, columns, query, query_powers, query_extent, key, key_powers, key_extent, weight, bias,
        start, stop, mask, Q, K, QP, KP, scale, cap, bias_row, bias_column, mask_row, mask_column, D, UNITS, HEIGHT,
        WIDTH, IS_UNITS, SCALED, CAP, BIAS, MASK, RUNS, PRECISION, FULL, TRANSPOSED,
    )  # fmt: skip
    reference, summed, row_delta = loaded_statistics(maximum, total, delta, pair, rows, Q, NORMALIZER)
    dropout = 1.0
    if DROPOUT:
        dropout = kept_pairs(seed, pair, rows, columns, K, rate, TRANSPOSED)
    weights, _, gradients = score_gradients(
        scores, seen, capped, row_gradients, values, dropout, reference, summed, row_delta, factor, shift, exponent,
        NORMALIZER, CAP, PRECISION, FULL, TRANSPOSED,
    )  # fmt: skip
    mixing = (weights * dropout).to(row_gradients.dtype)
    if not TRANSPOSED:
        mixing = tl.trans(mixing)
    if hides(FULL, MASK, BIAS):
        # A gradient that is not finite makes those of its feature NaN, of all values that its row sees.
        is_bad = tl.where(is_finite(row_gradients), 0.0, 1.0)
        if tl.max(tl.max(is_bad, 1), 0) > 0.0:
            marks = tl.where(seen, 1.0, 0.0).to(row_gradients.dtype)
            if not TRANSPOSED:
                marks = tl.trans(marks)
            bad = tl.dot(marks, is_bad.to(row_gradients.dtype))
            value_sums = tl.where(bad > 0.0, float("nan"), value_sums)
        row_gradients = finite(row_gradients)
    value_sums += tl.dot(mixing, row_gradients, input_precision=PRECISION)
    if IS_UNITS:
        add_unit_gradients(
            gradients * factor, seen, query, query_powers, query_extent, key, key_powers, key_extent, weight, rows,
            columns, Q, K, QP, KP, grad_key, grad_key, D, UNITS, hides(FULL, MASK, BIAS), False,
        )  # fmt: skip
    else:
        if hides(FULL, MASK, BIAS):
            is_bad = tl.max(tl.where(is_finite(queries), 0.0, 1.0), 1)
            bad = tl.max(tl.where(seen, over_rows(is_bad, TRANSPOSED), 0.0), 1)
            key_sums = tl.where(bad[:, None] > 0.0, float("nan"), key_sums)
            queries = finite(queries)
        key_sums += tl.dot(gradients.to(queries.dtype), queries, input_precision=PRECISION)
    return key_sums, value_sums


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=UNALIGNED)
def backward_columns(
    query, query_powers, query_extent, key, key_powers, key_extent, value, weight, bias, sink, start, stop, mask, seed,
    rate, scale, cap, factor, shift, exponent, H, KV, Q, K, QP, KP, weight_head, sink_head, bias_batch, bias_head,
    bias_row, bias_column, mask_batch, mask_head, mask_row, mask_column, span_batch, span_head, block_batch, block_head,
    NQ, NK, order, bounds, maximum, total, delta, grad_output, grad_key, grad_value,
    D: tl.constexpr, V: tl.constexpr, UNITS: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr, NORMALIZER: tl.constexpr, IS_UNITS: tl.constexpr,
    SCALED: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr, MASK: tl.constexpr, RUNS: tl.constexpr,
    GAPS: tl.constexpr, SINK: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    column_block = tl.program_id(0)
    kv = tl.program_id(1).to(tl.int64)
    batch = kv // KV
    group = H // KV
    columns = column_block * BLOCK_K + tl.arange(0, BLOCK_K)
    key += kv * K * D
    if IS_UNITS:
        key_powers += kv * KP * UNITS
        key_extent += kv * KP
        grad_key += kv * KP * UNITS
    else:
        grad_key += kv * K * D
    HEIGHT: tl.constexpr = BLOCK_Q if IS_UNITS else BLOCK_K
    WIDTH: tl.constexpr = BLOCK_K if IS_UNITS else BLOCK_Q
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
        own_order = order
        if IS_UNITS:
            own_powers = query_powers + pair * QP * UNITS
            own_extent = query_extent + pair * QP
            own_weight = weight + head * weight_head
        if BIAS:
            own_bias = bias + batch * bias_batch + head * bias_head
        if MASK == 1:
            own_start = start + batch * span_batch + head * span_head
            own_stop = stop + batch * span_batch + head * span_head
        if MASK == 2:
            own_mask = mask + batch * mask_batch + head * mask_head
        list_index = (batch * block_batch + head * block_head) * NK + column_block
        first, left, full, count = block_bounds(bounds, list_index, Q, NQ, BLOCK_Q, MASK, BIAS)
        if GAPS:
            own_order = order + list_index * NQ
        if has_full_tiles(MASK, BIAS):
            for index in range(full):
                rows = nth_full_block(own_order, first, left, index, GAPS) * BLOCK_Q + tl.arange(0, BLOCK_Q)
                key_sums, value_sums = add_to_columns(
                    key_sums, value_sums, keys, values, rows, columns, pair, own_query, own_powers, own_extent, key,
                    key_powers, key_extent, own_weight, own_bias, own_start, own_stop, own_mask, seed, rate, Q, K, QP,
                    KP, scale, cap, factor, shift, exponent, bias_row, bias_column, mask_row, mask_column, maximum,
                    total, delta, grad_output, grad_key, D, V, UNITS, BLOCK_D, BLOCK_V, HEIGHT, WIDTH, NORMALIZER,
                    IS_UNITS, SCALED, CAP, BIAS, MASK, RUNS, DROPOUT, PRECISION, True,
                )  # fmt: skip
        for index in range(count - full):
            rows = nth_partial_block(own_order, first, left, full, index, GAPS) * BLOCK_Q + tl.arange(0, BLOCK_Q)
            key_sums, value_sums = add_to_columns(
                key_sums, value_sums, keys, values, rows, columns, pair, own_query, own_powers, own_extent, key,
                key_powers, key_extent, own_weight, own_bias, own_start, own_stop, own_mask, seed, rate, Q, K, QP, KP,
                scale, cap, factor, shift, exponent, bias_row, bias_column, mask_row, mask_column, maximum, total,
                delta, grad_output, grad_key, D, V, UNITS, BLOCK_D, BLOCK_V, HEIGHT, WIDTH, NORMALIZER, IS_UNITS,
                SCALED, CAP, BIAS, MASK, RUNS, DROPOUT, PRECISION, False,
            )  # fmt: skip
    if not IS_UNITS:
        features = tl.arange(0, BLOCK_D)
        if SCALED:
            key_sums = key_sums * scale
        tl.store(
            grad_key + columns[:, None] * D + features[None, :],
            (key_sums * factor).to(grad_key.dtype.element_ty),
            mask=(columns[:, None] < K) & (features[None, :] < D),
        )
    channels = tl.arange(0, BLOCK_V)
    tl.store(
        grad_value + (kv * K + columns)[:, None] * V + channels[None, :],
        value_sums.to(grad_value.dtype.element_ty),
        mask=(columns[:, None] < K) & (channels[None, :] < V),
    )
