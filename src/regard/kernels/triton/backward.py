"""The backward pass: for blocks of query rows, then for blocks of keys.

No program writes where another one does, but for the gradient of a bias, to which several programs may add.

With g the derivative of a weight by its own score and p' the gradient of a weight, the gradient of a score is
g (p' − δ): δ of a row is Σ g p' / Σ g, or 0 for the sigmoid, and comes from the forward pass.

Tiles of products lie so that the sums of their program are the rows of every product. Tiles of units lie across, so
that each thread sums what it has computed.
"""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false
from collections import namedtuple

import triton
import triton.language as tl

from regard.kernels.triton.program import head_of, over_blocks, row_head
from regard.kernels.triton.tiles import (
    SOFTMAX,
    are_small,
    denominators,
    entries,
    features_of,
    finite,
    hides,
    is_finite,
    kept_pairs,
    loaded_rows,
    over_columns,
    over_rows,
    reciprocal,
    saved_weights,
    small_denominators,
    tile_scores,
    values_of,
)

RowGradients = namedtuple("RowGradients", "maximum total delta grad_output grad_query grad_weight")
ColumnGradients = namedtuple("ColumnGradients", "maximum total delta grad_output grad_key grad_value")
"""The saved statistics, the gradient of the output, and what a pass over rows or over columns fills."""

Statistics = namedtuple("Statistics", "reference total delta")
"""Statistics of rows, as `saved_weights` takes them, and δ."""


@triton.jit
def gradient_functions(
    scores, seen, capped, gradients, values, dropout, statistics, head, TRANSPOSED: tl.constexpr, FULL: tl.constexpr,
    FORM: tl.constexpr,
):  # fmt: skip
    """Returns the weights and the gradients of the scores, but for their factor, before and after the bias was added.

    Args:
        scores, seen, capped: of `tile_scores`.
        gradients: of the rows' outputs.
        values: of the columns.
        dropout: factors of the weights.
        statistics: of the rows.
        head: of the tile.
    """
    if TRANSPOSED:
        passed = tl.dot(values, tl.trans(gradients), input_precision=FORM.precision)
    else:
        passed = tl.dot(gradients, tl.trans(values), input_precision=FORM.precision)
    reference, total = over_rows(statistics.reference, TRANSPOSED), over_rows(statistics.total, TRANSPOSED)
    weights, slopes = saved_weights(scores, seen, reference, total, head.numbers, FULL, FORM)
    biased = slopes * (passed * dropout - over_rows(statistics.delta, TRANSPOSED))
    if FORM.normalizer != SOFTMAX:
        biased = tl.where(slopes == 0.0, 0.0, biased)
    if not FULL:
        biased = tl.where(seen, biased, 0.0)
    before = biased
    if FORM.has_cap:
        before = biased * (1.0 - capped * capped)
    return weights, biased, before


@triton.jit
def add_unit_gradients(
    gradients, seen, rows, columns, head, sums, weight_sums, BY_ROWS: tl.constexpr, HIDES: tl.constexpr,
    FORM: tl.constexpr,
):  # fmt: skip
    """Adds Σ gradient · w · 4 r (1 − r), r = 1 / (1 + e^(2 (a + b))), of each unit to its rows or columns.

    By rows, Σ gradient · r of each row is added to ``weight_sums``. Only this program adds there, so the order of the
    sums is always the same.
    """
    if are_small(rows, columns, head):
        for unit in range(0, FORM.units, 2):
            left = small_denominators(unit, rows, columns, head, BY_ROWS)
            right = small_denominators(unit + 1, rows, columns, head, BY_ROWS)
            shared = reciprocal(left * right)
            first, second = right * shared, left * shared
            add_unit(gradients, seen, first, unit, rows, columns, head, sums, weight_sums, BY_ROWS, HIDES)
            add_unit(gradients, seen, second, unit + 1, rows, columns, head, sums, weight_sums, BY_ROWS, HIDES)
    else:
        for unit in range(FORM.dim):
            inverse = 1.0 / denominators(unit, rows, columns, head, BY_ROWS, FORM)
            add_unit(gradients, seen, inverse, unit, rows, columns, head, sums, weight_sums, BY_ROWS, HIDES)


@triton.jit
def add_unit(
    gradients, seen, inverse, unit, rows, columns, head, sums, weight_sums, BY_ROWS: tl.constexpr, HIDES: tl.constexpr
):
    if HIDES:
        inverse = tl.where(seen, inverse, 0.0)
    first = gradients * inverse
    second = tl.sum(first - first * inverse, 0) * (4.0 * tl.load(head.weight + unit))
    if BY_ROWS:
        at = unit * head.query.padded
        tl.atomic_add(sums + at + rows, second, sem="relaxed")
        tl.atomic_add(weight_sums + at + rows, tl.sum(first, 0), sem="relaxed")
    else:
        tl.atomic_add(sums + unit * head.key.padded + columns, second, sem="relaxed")


@triton.jit
def statistics_of(own, rows, head, FORM: tl.constexpr):
    """Returns the `Statistics` of rows."""
    first, is_row = head.pair * head.query.length, rows < head.query.length
    top = tl.load(own.maximum + first + rows, mask=is_row, other=0.0)
    total = tl.load(own.total + first + rows, mask=is_row, other=1.0)
    if FORM.normalizer == SOFTMAX:
        total = 1.0 / tl.where(total == 0.0, 1.0, total)
    reference = tl.where(top == float("-inf"), 0.0, top)
    return Statistics(reference, total, tl.load(own.delta + first + rows, mask=is_row, other=0.0))


@triton.jit
def output_gradients(own, rows, head, FORM: tl.constexpr):
    """Returns the gradients of the outputs of rows."""
    base = own.grad_output + head.pair * head.query.length * FORM.value_dim
    return loaded_rows(base, rows, head.query.length, FORM.value_dim, FORM.block_v)


@triton.jit
def store_gradients(base, rows, length, gradients, head, FORM: tl.constexpr):
    """Stores gradients of queries or keys, with the factors of their scores."""
    if FORM.is_scaled:
        gradients = gradients * head.numbers.scale
    features = tl.arange(0, FORM.block_d)
    tl.store(
        base + rows[:, None] * FORM.dim + features[None, :],
        (gradients * head.numbers.factor).to(base.dtype.element_ty),
        mask=(rows[:, None] < length) & (features[None, :] < FORM.dim),
    )


@triton.jit
def add_to_rows(sums, columns, at, head, FULL: tl.constexpr, FORM: tl.constexpr):
    """Adds a tile to the gradients of its queries, and of the weights and the bias."""
    grad_queries, whole = sums
    rows, queries, row_gradients, statistics, grad_query, grad_weight = at
    TRANSPOSED: tl.constexpr = FORM.is_units
    HIDES: tl.constexpr = hides(FULL, FORM.mask, FORM.has_bias)
    keys = features_of(columns, head.key, FORM)
    values = values_of(columns, head, FORM)
    scores, seen, capped = tile_scores(queries, keys, rows, columns, head, TRANSPOSED, FULL, FORM)
    dropout = 1.0
    if FORM.has_dropout:
        dropout = kept_pairs(rows, columns, head, TRANSPOSED)
    _, biased, gradients = gradient_functions(
        scores, seen, capped, row_gradients, values, dropout, statistics, head, TRANSPOSED, FULL, FORM
    )
    if FORM.has_bias_gradient:
        at_pairs = entries(head.grad_bias, over_rows(rows, TRANSPOSED), over_columns(columns, TRANSPOSED))
        tl.atomic_add(at_pairs, biased * head.numbers.factor, mask=seen, sem="relaxed")
    if FORM.is_units:
        gradients = gradients * head.numbers.factor
        whole += tl.sum(gradients, 0)
        add_unit_gradients(gradients, seen, rows, columns, head, grad_query, grad_weight, True, HIDES, FORM)
    else:
        if HIDES:
            # A visible key that is not finite makes the gradients of its rows NaN.
            is_bad = tl.max(tl.where(is_finite(keys), 0.0, 1.0), 1)
            bad = tl.max(tl.where(seen, is_bad[None, :], 0.0), 1)
            grad_queries = tl.where(bad[:, None] > 0.0, float("nan"), grad_queries)
            keys = finite(keys)
        grad_queries += tl.dot(gradients.to(keys.dtype), keys, input_precision=FORM.precision)
    return grad_queries, whole


@triton.jit
def backward_rows(arguments, own, FORM: tl.constexpr):
    BLOCK_Q: tl.constexpr = FORM.block_q
    BLOCK_D: tl.constexpr = FORM.block_d
    head = row_head(arguments, FORM)
    sizes = head.sizes
    rows = head.block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    if FORM.is_units:
        grad_query = own.grad_query + head.pair * sizes.padded_queries * FORM.units
        grad_weight = own.grad_weight + head.pair * sizes.padded_queries * (FORM.units + 1)
    else:
        grad_query = own.grad_query + head.pair * sizes.queries * FORM.dim
        grad_weight = grad_query
    queries, gradients = features_of(rows, head.query, FORM), output_gradients(own, rows, head, FORM)
    at = rows, queries, gradients, statistics_of(own, rows, head, FORM), grad_query, grad_weight
    grad_queries = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    whole = tl.zeros((BLOCK_Q,), tl.float32)
    grad_queries, whole = over_blocks(add_to_rows, (grad_queries, whole), at, head, FORM.block_k, FORM)
    if FORM.is_units:
        tl.store(grad_weight + FORM.units * sizes.padded_queries + rows, whole)
    else:
        store_gradients(grad_query, rows, sizes.queries, grad_queries, head, FORM)


@triton.jit
def add_to_columns(sums, rows, at, head, FULL: tl.constexpr, FORM: tl.constexpr):
    """Adds a tile to the gradients of its keys and values."""
    grad_keys, grad_values = sums
    columns, keys, values, grad_key, own = at
    TRANSPOSED: tl.constexpr = not FORM.is_units
    HIDES: tl.constexpr = hides(FULL, FORM.mask, FORM.has_bias)
    queries, row_gradients = features_of(rows, head.query, FORM), output_gradients(own, rows, head, FORM)
    scores, seen, capped = tile_scores(queries, keys, rows, columns, head, TRANSPOSED, FULL, FORM)
    statistics = statistics_of(own, rows, head, FORM)
    dropout = 1.0
    if FORM.has_dropout:
        dropout = kept_pairs(rows, columns, head, TRANSPOSED)
    weights, _, gradients = gradient_functions(
        scores, seen, capped, row_gradients, values, dropout, statistics, head, TRANSPOSED, FULL, FORM
    )
    mixing = (weights * dropout).to(row_gradients.dtype)
    if not TRANSPOSED:
        mixing = tl.trans(mixing)
    if HIDES:
        # A gradient that is not finite makes those of its feature NaN, of all values that its row sees.
        is_bad = tl.where(is_finite(row_gradients), 0.0, 1.0)
        if tl.max(tl.max(is_bad, 1), 0) > 0.0:
            marks = tl.where(seen, 1.0, 0.0).to(row_gradients.dtype)
            if not TRANSPOSED:
                marks = tl.trans(marks)
            bad = tl.dot(marks, is_bad.to(row_gradients.dtype))
            grad_values = tl.where(bad > 0.0, float("nan"), grad_values)
        row_gradients = finite(row_gradients)
    grad_values += tl.dot(mixing, row_gradients, input_precision=FORM.precision)
    if FORM.is_units:
        gradients = gradients * head.numbers.factor
        add_unit_gradients(gradients, seen, rows, columns, head, grad_key, grad_key, False, HIDES, FORM)
    else:
        if HIDES:
            is_bad = tl.max(tl.where(is_finite(queries), 0.0, 1.0), 1)
            bad = tl.max(tl.where(seen, over_rows(is_bad, TRANSPOSED), 0.0), 1)
            grad_keys = tl.where(bad[:, None] > 0.0, float("nan"), grad_keys)
            queries = finite(queries)
        grad_keys += tl.dot(gradients.to(queries.dtype), queries, input_precision=FORM.precision)
    return grad_keys, grad_values


@triton.jit
def backward_columns(arguments, own, FORM: tl.constexpr):
    BLOCK_K: tl.constexpr = FORM.block_k
    BLOCK_D: tl.constexpr = FORM.block_d
    BLOCK_V: tl.constexpr = FORM.block_v
    sizes = arguments.sizes
    kv = tl.program_id(1).to(tl.int64)
    batch = kv // sizes.kv_heads
    group = sizes.heads // sizes.kv_heads
    block = tl.program_id(0)
    columns = block * BLOCK_K + tl.arange(0, BLOCK_K)
    if FORM.is_units:
        grad_key = own.grad_key + kv * sizes.padded_keys * FORM.units
    else:
        grad_key = own.grad_key + kv * sizes.keys * FORM.dim
    # Every head of the group reads the same keys and values.
    number = (kv % sizes.kv_heads) * group
    first = head_of(*arguments, batch, number, batch * sizes.heads + number, kv, block, True, FORM)
    at = columns, features_of(columns, first.key, FORM), values_of(columns, first, FORM), grad_key, own
    grad_keys = tl.zeros((BLOCK_K, BLOCK_D), tl.float32)
    grad_values = tl.zeros((BLOCK_K, BLOCK_V), tl.float32)
    for member in range(group):
        number = (kv % sizes.kv_heads) * group + member
        head = head_of(*arguments, batch, number, batch * sizes.heads + number, kv, block, True, FORM)
        grad_keys, grad_values = over_blocks(add_to_columns, (grad_keys, grad_values), at, head, FORM.block_q, FORM)
    if not FORM.is_units:
        store_gradients(grad_key, columns, sizes.keys, grad_keys, first, FORM)
    channels = tl.arange(0, BLOCK_V)
    tl.store(
        own.grad_value + (kv * sizes.keys + columns)[:, None] * FORM.value_dim + channels[None, :],
        grad_values.to(own.grad_value.dtype.element_ty),
        mask=(columns[:, None] < sizes.keys) & (channels[None, :] < FORM.value_dim),
    )
