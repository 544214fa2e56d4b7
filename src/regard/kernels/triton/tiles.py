"""What all kernels compute of one tile of pairs: which pairs are visible, their scores and their weights.

A tile lies as ``[rows, columns]``, or transposed, which puts the axis that is summed over where sums are cheap. All
pairs of a full tile are visible and it ends before the last key, so it needs no comparisons; and since it hides
nothing, elements that are not finite need no care. Other tiles are partial.

Operations for each pair of an additive score, beside one multiply-add for each unit of a product. With
tanh(a + b) = 1 − 2 / (1 + e^{2a} e^{2b}), and the exponentials taken once for each query and key, a unit costs a
multiply-add; four units share a reciprocal, which costs 10 more operations for the four. So there are 3.5 operations
and a quarter of a special function for a unit. Where exponentials could overflow, a unit costs two special functions.
"""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
import triton
import triton.language as tl

SOFTMAX = tl.constexpr(0)
ENTMAX15 = tl.constexpr(1)
SPARSEMAX = tl.constexpr(2)
ENTMAX = tl.constexpr(3)
SIGMOID = tl.constexpr(4)

SIZES = (
    "seed", "rate", "scale", "cap", "factor", "shift", "exponent", "H", "KV", "Q", "K", "QP", "KP", "weight_head",
    "sink_head", "bias_batch", "bias_head", "bias_row", "bias_column", "mask_batch", "mask_head", "mask_row",
    "mask_column", "span_batch", "span_head", "block_batch", "block_head", "NQ", "NK",
    "grad_bias_batch", "grad_bias_head", "grad_bias_row", "grad_bias_column", "offset",
)  # fmt: skip
"""Arguments of every kernel whose values do not decide what is compiled, so that other lengths compile nothing."""

UNALIGNED = ("bias", "grad_bias", "mask", "start", "stop")
"""Tensors that may begin at any element, as diagonals do."""

NO_MASK = tl.constexpr(0)
SPANS = tl.constexpr(1)
DENSE = tl.constexpr(2)

SMALL_UNITS = tl.constexpr(10.5)
"""Sum of the magnitudes of a tile's largest query and key unit up to which a product of four denominators is finite."""

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def over_rows(vector, TRANSPOSED: tl.constexpr):
    """Returns a number of each row so that it spreads over a tile."""
    if TRANSPOSED:
        return vector[None, :]
    else:
        return vector[:, None]


@triton.jit
def over_columns(vector, TRANSPOSED: tl.constexpr):
    """Returns a number of each column so that it spreads over a tile."""
    if TRANSPOSED:
        return vector[:, None]
    else:
        return vector[None, :]


@triton.constexpr_function
def has_full_tiles(mask, has_bias):
    """Whether a tile may be full: a bias of −∞ hides a pair, and dense masks are not worth a second loop."""
    return mask != DENSE.value and not has_bias


@triton.jit
def block_bounds(bounds, list_index, K, NK, BLOCK: tl.constexpr, MASK: tl.constexpr, BIAS: tl.constexpr):
    """Returns where the visible blocks of a list are: see `regard.kernels.triton.blocks.Blocks`."""
    if MASK > 0:
        at = bounds + list_index * 4
        return tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)
    elif not has_full_tiles(MASK, BIAS):
        return 0, 0, 0, NK
    else:
        return 0, 0, K // BLOCK, NK


@triton.jit
def nth_full_block(order, first, left, index, GAPS: tl.constexpr):
    if GAPS:
        return tl.load(order + index)
    else:
        return first + left + index


@triton.jit
def nth_partial_block(order, first, left, full, index, GAPS: tl.constexpr):
    if GAPS:
        return tl.load(order + full + index)
    else:
        return first + index + tl.where(index >= left, full, 0)


@triton.jit
def visible_pairs(
    rows, columns, Q, K, start, stop, mask, mask_row, mask_column, RUNS: tl.constexpr, MASK: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):  # fmt: skip
    row, column = over_rows(rows, TRANSPOSED), over_columns(columns, TRANSPOSED)
    seen = (row < Q) & (column < K)
    if MASK == SPANS:
        inside = row + column < 0
        for run in tl.static_range(RUNS):
            first = over_rows(tl.load(start + rows * RUNS + run, mask=rows < Q, other=0), TRANSPOSED)
            last = over_rows(tl.load(stop + rows * RUNS + run, mask=rows < Q, other=0), TRANSPOSED)
            inside = inside | ((column >= first) & (column < last))
        seen = seen & inside
    if MASK == DENSE:
        places = row.to(tl.int64) * mask_row + column.to(tl.int64) * mask_column
        seen = seen & (tl.load(mask + places, mask=seen, other=0) != 0)
    return seen


@triton.jit
def reciprocal(x):
    """Returns 1 / x of positive numbers by one special function, to 22 bits."""
    root = tl.rsqrt(x)
    return root * root


@triton.jit
def are_small(query_extent, key_extent, rows, columns):
    """Whether exponentials of the tile's units may be multiplied."""
    return tl.max(tl.load(query_extent + rows)) + tl.max(tl.load(key_extent + columns)) <= SMALL_UNITS


@triton.jit
def small_denominators(unit, query_powers, key_powers, rows, columns, QP, KP, TRANSPOSED: tl.constexpr):
    """Returns 1 + e^{2 (a + b)} of one unit from its exponentials, which are padded to whole tiles."""
    left = over_rows(tl.load(query_powers + unit * QP + rows), TRANSPOSED)
    right = over_columns(tl.load(key_powers + unit * KP + columns), TRANSPOSED)
    return left * right + 1.0


@triton.jit
def denominators(unit, query, key, rows, columns, Q, K, D: tl.constexpr, TRANSPOSED: tl.constexpr):
    """Returns 1 + e^{2 (a + b)} of one unit, which may be infinite."""
    left = tl.load(query + rows * D + unit, mask=rows < Q, other=0.0).to(tl.float32)
    right = tl.load(key + columns * D + unit, mask=columns < K, other=0.0).to(tl.float32)
    both = over_rows(left, TRANSPOSED) + over_columns(right, TRANSPOSED)
    return tl.exp2(2.0 * LOG2E * both) + 1.0


@triton.jit
def unit_scores(
    query, query_powers, query_extent, key, key_powers, key_extent, weight, rows, columns, Q, K, QP, KP,
    D: tl.constexpr, UNITS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """Returns Σ weight · tanh(query + key); ``UNITS`` is ``D``, rounded up to a multiple of 4."""
    lost = tl.zeros((HEIGHT, WIDTH), tl.float32)
    whole = 0.0
    if are_small(query_extent, key_extent, rows, columns):
        for unit in range(0, UNITS, 4):
            w0 = tl.load(weight + unit)
            w1 = tl.load(weight + unit + 1)
            w2 = tl.load(weight + unit + 2)
            w3 = tl.load(weight + unit + 3)
            d0 = small_denominators(unit, query_powers, key_powers, rows, columns, QP, KP, TRANSPOSED)
            d1 = small_denominators(unit + 1, query_powers, key_powers, rows, columns, QP, KP, TRANSPOSED)
            d2 = small_denominators(unit + 2, query_powers, key_powers, rows, columns, QP, KP, TRANSPOSED)
            d3 = small_denominators(unit + 3, query_powers, key_powers, rows, columns, QP, KP, TRANSPOSED)
            left = d0 * d1
            right = d2 * d3
            lost += ((w0 * d1 + w1 * d0) * right + (w2 * d3 + w3 * d2) * left) * reciprocal(left * right)
            whole += w0 + w1 + w2 + w3
    else:
        for unit in range(D):
            w = tl.load(weight + unit)
            lost += w / denominators(unit, query, key, rows, columns, Q, K, D, TRANSPOSED)
            whole += w
    return whole - 2.0 * lost


@triton.jit
def loaded_rows(base, rows, length, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """Returns a block of rows of a contiguous matrix, with zeros outside of it."""
    features = tl.arange(0, BLOCK_D)
    inside = (rows[:, None] < length) & (features[None, :] < D)
    return tl.load(base + rows[:, None] * D + features[None, :], mask=inside, other=0.0)


@triton.jit
def tile_rows(base, rows, length, D: tl.constexpr, BLOCK_D: tl.constexpr, IS_UNITS: tl.constexpr):
    """Returns the rows of a tile for its product; for units, which are read one at a time, anything."""
    if IS_UNITS:
        return rows
    else:
        return loaded_rows(base, rows, length, D, BLOCK_D)


@triton.constexpr_function
def hides(is_full, mask, has_bias):
    """Whether a pair of a tile may be hidden."""
    return not is_full and (mask > 0 or has_bias)


@triton.jit
def finite(matrix):
    """Returns a matrix with zeros for elements that are not finite."""
    return tl.where(is_finite(matrix), matrix, 0.0)


@triton.jit
def is_finite(matrix):
    return matrix - matrix == 0.0


@triton.jit
def tile_scores(
    queries, keys, rows, columns, query, query_powers, query_extent, key, key_powers, key_extent, weight, bias, start,
    stop, mask, Q, K, QP, KP, scale, cap, bias_row, bias_column, mask_row, mask_column,
    D: tl.constexpr, UNITS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, IS_UNITS: tl.constexpr,
    SCALED: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr, MASK: tl.constexpr, RUNS: tl.constexpr,
    PRECISION: tl.constexpr, FULL: tl.constexpr, TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """Returns the tile's scores, −inf for hidden pairs, which pairs are visible, and the tanh of its soft cap.

    A score is what the normalizer sees, but for its factor: see `regard.kernels.triton.call.scaling`.

    Args:
        queries, keys: the rows of this tile; not used for units, which are read one at a time.
    """
    if IS_UNITS:
        scores = unit_scores(
            query, query_powers, query_extent, key, key_powers, key_extent, weight, rows, columns, Q, K, QP, KP, D,
            UNITS, HEIGHT, WIDTH, TRANSPOSED,
        )  # fmt: skip
    elif TRANSPOSED:
        scores = tl.dot(keys, tl.trans(queries), input_precision=PRECISION)
    else:
        scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION)
    if SCALED:
        scores = scores * scale
    capped = scores
    if CAP:
        capped = 1.0 - 2.0 / (tl.exp2((2.0 * LOG2E / cap) * scores) + 1.0)
        scores = capped * cap
    if FULL:
        return scores, scores == scores, capped
    seen = visible_pairs(rows, columns, Q, K, start, stop, mask, mask_row, mask_column, RUNS, MASK, TRANSPOSED)
    if BIAS:
        row, column = over_rows(rows, TRANSPOSED), over_columns(columns, TRANSPOSED)
        places = row.to(tl.int64) * bias_row + column.to(tl.int64) * bias_column
        added = tl.load(bias + places, mask=seen, other=float("-inf"))
        seen = seen & (added != float("-inf"))
        scores += added
    return tl.where(seen, scores, float("-inf")), seen, capped


@triton.jit
def entmax_parts(scores, threshold, maximum, exponent, factor, NORMALIZER: tl.constexpr):
    """Returns the weights u^{1 / (α − 1)}, and u^{(2 − α) / (α − 1)}, of u = [(α − 1) s − τ]₊.

    Args:
        scores: but for their factor.
        threshold: τ less (α − 1) times the row's maximum, so that no digit is lost where scores are large.
        maximum: of the row's scores.
        exponent: α − 1.
        factor: of the scores.
    """
    above = (scores - maximum) * (exponent * factor) - threshold
    # This order of the comparison keeps NaN.
    above = tl.where(above <= 0.0, 0.0, above)
    if NORMALIZER == SPARSEMAX:
        return above, tl.where(above > 0.0, 1.0, above)
    if NORMALIZER == ENTMAX15:
        return above * above, above
    power = tl.log2(above)
    weights = tl.where(above == 0.0, 0.0, tl.exp2(power / exponent))
    slopes = tl.where(above == 0.0, 0.0, tl.exp2(power * (1.0 - exponent) / exponent))
    return weights, slopes


@triton.jit
def saved_weights(
    scores, seen, reference, total, factor, shift, exponent, NORMALIZER: tl.constexpr, FULL: tl.constexpr
):
    """Returns the weights of a tile from the statistics of its rows, and their derivatives by their own scores.

    Args:
        scores, seen: of the tile.
        reference: the maximum of a row, 0 for a row without visible keys, spread over the tile.
        total: the reciprocal of softmax's sum, or the threshold of entmax, spread over the tile.
    """
    if NORMALIZER == SOFTMAX:
        weights = tl.exp2((scores - reference) * (factor * LOG2E)) * total
        slopes = weights
    elif NORMALIZER == SIGMOID:
        weights = 1.0 / (1.0 + tl.exp2(-LOG2E * (scores * factor + shift)))
        slopes = weights * (1.0 - weights)
    else:
        weights, slopes = entmax_parts(scores, total, reference, exponent, factor, NORMALIZER)
    if not FULL:
        # The statistics of a row are NaN if it sees a NaN.
        weights = tl.where(seen, weights, 0.0)
        slopes = tl.where(seen, slopes, 0.0)
    return weights, slopes


@triton.jit
def kept_pairs(seed, pair, rows, columns, K, rate, TRANSPOSED: tl.constexpr):
    """Returns the factors of dropout, 0 or 1 / (1 − rate), which depend on the pair alone."""
    drawn = tl.rand(seed + pair, over_rows(rows, TRANSPOSED) * K + over_columns(columns, TRANSPOSED))
    return tl.where(drawn >= rate, 1.0 / (1.0 - rate), 0.0)
