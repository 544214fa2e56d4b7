"""What all kernels compute of one tile of pairs: which pairs are visible, their scores and their weights.

Operations for each pair of an additive score, beside one multiply-add for each unit of a product. With
tanh(a + b) = 1 − 2 / (1 + e^{2a} e^{2b}), and the exponentials taken once for each query and key, a unit costs a
multiply-add; four units share a division, which costs 10 more operations for the four. So there are 3.5 operations and
a quarter of a reciprocal for a unit. Where exponentials could overflow, a unit costs an exponential and a reciprocal.
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
    "seed", "rate", "scale", "cap", "inverse_temperature", "shift", "exponent", "H", "KV", "Q", "K", "weight_head",
    "sink_head", "bias_batch", "bias_head", "bias_row", "bias_column", "mask_batch", "mask_head", "mask_row",
    "mask_column", "span_batch", "span_head", "block_batch", "block_head", "NQ", "NK",
    "grad_bias_batch", "grad_bias_head", "grad_bias_row", "grad_bias_column", "offset",
)  # fmt: skip
"""Arguments of every kernel whose values do not decide what is compiled, so that other lengths compile nothing."""

UNALIGNED = ("bias", "grad_bias", "mask")
"""Tensors that may begin at any element, as diagonals do."""

NO_MASK = tl.constexpr(0)
SPANS = tl.constexpr(1)
DENSE = tl.constexpr(2)

SMALL_UNITS = tl.constexpr(10.5)
"""Sum of the magnitudes of a tile's largest query and key unit up to which a product of four denominators is finite."""


@triton.jit
def visible_pairs(
    rows, columns, Q, K, start, stop, mask, mask_row, mask_column, RUNS: tl.constexpr, MASK: tl.constexpr
):
    seen = (rows[:, None] < Q) & (columns[None, :] < K)
    if MASK == SPANS:
        inside = rows[:, None] + columns[None, :] < 0
        for run in tl.static_range(RUNS):
            first = tl.load(start + rows * RUNS + run, mask=rows < Q, other=0)
            last = tl.load(stop + rows * RUNS + run, mask=rows < Q, other=0)
            inside = inside | ((columns[None, :] >= first[:, None]) & (columns[None, :] < last[:, None]))
        seen = seen & inside
    if MASK == DENSE:
        places = rows.to(tl.int64)[:, None] * mask_row + columns.to(tl.int64)[None, :] * mask_column
        seen = seen & (tl.load(mask + places, mask=seen, other=0) != 0)
    return seen


@triton.jit
def nth_block(blocks, begin, index, GAPS: tl.constexpr):
    """Returns the block of a loop's step: from the list of visible blocks, or, if they adjoin, from their first one."""
    if GAPS:
        return tl.load(blocks + index)
    else:
        return begin + index


@triton.jit
def are_small(query_extent, key_extent, rows, columns, Q, K):
    """Whether exponentials of the tile's units may be multiplied."""
    largest = tl.max(tl.load(query_extent + rows, mask=rows < Q, other=0.0))
    other = tl.max(tl.load(key_extent + columns, mask=columns < K, other=0.0))
    return largest + other <= SMALL_UNITS


@triton.jit
def unit_denominators(unit, query, key, rows, columns, Q, K, SMALL: tl.constexpr):
    """Returns 1 + e^{2 (a + b)} of one unit; ``SMALL``: the tensors hold exponentials."""
    left = tl.load(query + unit * Q + rows, mask=rows < Q, other=SMALL * 1.0)
    right = tl.load(key + unit * K + columns, mask=columns < K, other=SMALL * 1.0)
    if SMALL:
        return left[:, None] * right[None, :] + 1.0
    return tl.exp(2.0 * (left[:, None] + right[None, :])) + 1.0


@triton.jit
def unit_scores(
    query, key, query_powers, key_powers, weight, query_extent, key_extent, rows, columns, Q, K, UNITS,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Returns Σ weight · tanh(query + key); ``UNITS`` is a multiple of 4."""
    lost = tl.zeros((BLOCK_Q, BLOCK_K), tl.float32)
    whole = 0.0
    if are_small(query_extent, key_extent, rows, columns, Q, K):
        for unit in range(0, UNITS, 4):
            w0 = tl.load(weight + unit)
            w1 = tl.load(weight + unit + 1)
            w2 = tl.load(weight + unit + 2)
            w3 = tl.load(weight + unit + 3)
            d0 = unit_denominators(unit, query_powers, key_powers, rows, columns, Q, K, True)
            d1 = unit_denominators(unit + 1, query_powers, key_powers, rows, columns, Q, K, True)
            d2 = unit_denominators(unit + 2, query_powers, key_powers, rows, columns, Q, K, True)
            d3 = unit_denominators(unit + 3, query_powers, key_powers, rows, columns, Q, K, True)
            left = d0 * d1
            right = d2 * d3
            lost += ((w0 * d1 + w1 * d0) * right + (w2 * d3 + w3 * d2) * left) / (left * right)
            whole += w0 + w1 + w2 + w3
    else:
        for unit in range(UNITS):
            w = tl.load(weight + unit)
            lost += w / unit_denominators(unit, query, key, rows, columns, Q, K, False)
            whole += w
    return whole - 2.0 * lost


@triton.jit
def finished_scores(
    scores, seen, rows, columns, scale, cap, inverse_temperature, bias, bias_row, bias_column,
    CAP: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Returns the scores as the normalizer sees them, −inf for hidden pairs, and the tanh of the soft cap."""
    scores = scores * scale
    capped = scores
    if CAP:
        capped = 1.0 - 2.0 / (tl.exp(2.0 * scores / cap) + 1.0)
        scores = capped * cap
    if BIAS:
        places = rows.to(tl.int64)[:, None] * bias_row + columns.to(tl.int64)[None, :] * bias_column
        scores += tl.load(bias + places, mask=seen, other=0.0)
    return tl.where(seen, scores * inverse_temperature, float("-inf")), capped


@triton.jit
def loaded_rows(base, rows, length, D, BLOCK_D: tl.constexpr):
    """Returns a block of rows of a contiguous matrix, with zeros outside of it."""
    features = tl.arange(0, BLOCK_D)
    inside = (rows[:, None] < length) & (features[None, :] < D)
    return tl.load(base + rows[:, None] * D + features[None, :], mask=inside, other=0.0)


@triton.jit
def tile_rows(base, rows, length, D, BLOCK_D: tl.constexpr, IS_UNITS: tl.constexpr):
    """Returns the rows of a tile for its product; for units, which are read one at a time, anything."""
    if IS_UNITS:
        return rows
    else:
        return loaded_rows(base, rows, length, D, BLOCK_D)


@triton.jit
def tile_scores(
    queries, keys, rows, columns, query, query_powers, query_extent, key, key_powers, key_extent, weight, bias, start,
    stop, mask, Q, K, D, scale, cap, inverse_temperature, bias_row, bias_column, mask_row, mask_column,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, IS_UNITS: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr,
    MASK: tl.constexpr, RUNS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Returns the tile's scores, which of its pairs are visible, and the tanh of its soft cap.

    Args:
        queries, keys: the rows of this tile; not used for units, which are read one at a time.
    """
    seen = visible_pairs(rows, columns, Q, K, start, stop, mask, mask_row, mask_column, RUNS, MASK)
    if IS_UNITS:
        scores = unit_scores(
            query, key, query_powers, key_powers, weight, query_extent, key_extent, rows, columns, Q, K, D, BLOCK_Q,
            BLOCK_K,
        )  # fmt: skip
    else:
        scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION)
    scores, capped = finished_scores(
        scores, seen, rows, columns, scale, cap, inverse_temperature, bias, bias_row, bias_column, CAP, BIAS
    )
    return scores, seen & (scores != float("-inf")), capped


@triton.jit
def entmax_parts(scores, threshold, maximum, exponent, NORMALIZER: tl.constexpr):
    """Returns the weights u^{1 / (α − 1)}, and u^{(2 − α) / (α − 1)}, of u = [(α − 1) s − τ]₊.

    Args:
        threshold: τ less (α − 1) times the row's maximum, so that no digit is lost where scores are large.
        exponent: α − 1.
    """
    above = (scores - maximum[:, None]) * exponent - threshold[:, None]
    # This order of the comparison keeps NaN.
    above = tl.where(above <= 0.0, 0.0, above)
    if NORMALIZER == SPARSEMAX:
        return above, tl.where(above == 0.0, 0.0, 1.0)
    if NORMALIZER == ENTMAX15:
        return above * above, above
    power = tl.log2(above)
    weights = tl.where(above == 0.0, 0.0, tl.exp2(power / exponent))
    slopes = tl.where(above == 0.0, 0.0, tl.exp2(power * (1.0 - exponent) / exponent))
    return weights, slopes


@triton.jit
def kept_pairs(seed, pair, rows, columns, K, rate):
    """Returns the factors of dropout, 0 or 1 / (1 − rate), which depend on the pair alone."""
    drawn = tl.rand(seed + pair, rows[:, None] * K + columns[None, :])
    return tl.where(drawn >= rate, 1.0 / (1.0 - rate), 0.0)
