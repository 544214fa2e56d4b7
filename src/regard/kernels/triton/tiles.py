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

from regard.kernels.triton.program import DENSE, SPANS

SOFTMAX = tl.constexpr(0)
ENTMAX15 = tl.constexpr(1)
SPARSEMAX = tl.constexpr(2)
ENTMAX = tl.constexpr(3)
SIGMOID = tl.constexpr(4)

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


@triton.jit
def entries(matrix, row, column):
    """Returns the addresses of a tile's entries of a `regard.kernels.triton.program.Matrix`."""
    return matrix.start + (row.to(tl.int64) * matrix.row + column.to(tl.int64) * matrix.column)


@triton.jit
def visible_pairs(rows, columns, head, TRANSPOSED: tl.constexpr, FORM: tl.constexpr):
    row, column = over_rows(rows, TRANSPOSED), over_columns(columns, TRANSPOSED)
    seen = (row < head.query.length) & (column < head.key.length)
    if FORM.mask == SPANS:
        RUNS: tl.constexpr = FORM.runs
        inside = row + column < 0
        for run in tl.static_range(RUNS):
            at, is_row = rows * RUNS, rows < head.query.length
            first = over_rows(tl.load(head.start + at + run, mask=is_row, other=0), TRANSPOSED)
            last = over_rows(tl.load(head.stop + at + run, mask=is_row, other=0), TRANSPOSED)
            inside = inside | ((column >= first) & (column < last))
        seen = seen & inside
    if FORM.mask == DENSE:
        seen = seen & (tl.load(entries(head.mask, row, column), mask=seen, other=0) != 0)
    return seen


@triton.jit
def reciprocal(x):
    """Returns 1 / x of positive numbers by one special function, to 22 bits."""
    root = tl.rsqrt(x)
    return root * root


@triton.jit
def are_small(rows, columns, head):
    """Whether exponentials of the tile's units may be multiplied."""
    largest = tl.max(tl.load(head.query.extent + rows)) + tl.max(tl.load(head.key.extent + columns))
    return largest <= SMALL_UNITS


@triton.jit
def small_denominators(unit, rows, columns, head, TRANSPOSED: tl.constexpr):
    """Returns 1 + e^{2 (a + b)} of one unit from its exponentials, which are padded to whole tiles."""
    left = over_rows(tl.load(head.query.powers + unit * head.query.padded + rows), TRANSPOSED)
    right = over_columns(tl.load(head.key.powers + unit * head.key.padded + columns), TRANSPOSED)
    return left * right + 1.0


@triton.jit
def unit_of(unit, positions, side, FORM: tl.constexpr):
    """Returns one unit of queries or keys."""
    units = side.features + positions * FORM.dim + unit
    return tl.load(units, mask=positions < side.length, other=0.0).to(tl.float32)


@triton.jit
def denominators(unit, rows, columns, head, TRANSPOSED: tl.constexpr, FORM: tl.constexpr):
    """Returns 1 + e^{2 (a + b)} of one unit, which may be infinite."""
    left, right = unit_of(unit, rows, head.query, FORM), unit_of(unit, columns, head.key, FORM)
    both = over_rows(left, TRANSPOSED) + over_columns(right, TRANSPOSED)
    return tl.exp2(both * (2.0 * LOG2E)) + 1.0


@triton.jit
def unit_scores(rows, columns, head, TRANSPOSED: tl.constexpr, FORM: tl.constexpr):
    """Returns Σ weight · tanh(query + key); there are ``dim`` units, rounded up to a multiple of 4."""
    HEIGHT: tl.constexpr = FORM.block_k if TRANSPOSED else FORM.block_q
    WIDTH: tl.constexpr = FORM.block_q if TRANSPOSED else FORM.block_k
    lost = tl.zeros((HEIGHT, WIDTH), tl.float32)
    whole = 0.0
    if are_small(rows, columns, head):
        for unit in range(0, FORM.units, 4):
            w0 = tl.load(head.weight + unit)
            w1 = tl.load(head.weight + unit + 1)
            w2 = tl.load(head.weight + unit + 2)
            w3 = tl.load(head.weight + unit + 3)
            d0 = small_denominators(unit, rows, columns, head, TRANSPOSED)
            d1 = small_denominators(unit + 1, rows, columns, head, TRANSPOSED)
            d2 = small_denominators(unit + 2, rows, columns, head, TRANSPOSED)
            d3 = small_denominators(unit + 3, rows, columns, head, TRANSPOSED)
            left = d0 * d1
            right = d2 * d3
            lost += ((w0 * d1 + w1 * d0) * right + (w2 * d3 + w3 * d2) * left) * reciprocal(left * right)
            whole += w0 + w1 + w2 + w3
    else:
        for unit in range(FORM.dim):
            w = tl.load(head.weight + unit)
            lost += w / denominators(unit, rows, columns, head, TRANSPOSED, FORM)
            whole += w
    return whole - lost * 2.0


@triton.jit
def loaded_rows(base, rows, length, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Returns a block of rows of a contiguous matrix, with zeros outside of it."""
    features = tl.arange(0, BLOCK)
    inside = (rows[:, None] < length) & (features[None, :] < WIDTH)
    return tl.load(base + rows[:, None] * WIDTH + features[None, :], mask=inside, other=0.0)


@triton.jit
def features_of(positions, side, FORM: tl.constexpr):
    """Returns queries or keys of a tile for its product; for units, which are read one at a time, anything."""
    if FORM.is_units:
        return positions
    else:
        return loaded_rows(side.features, positions, side.length, FORM.dim, FORM.block_d)


@triton.jit
def values_of(columns, head, FORM: tl.constexpr):
    return loaded_rows(head.value, columns, head.key.length, FORM.value_dim, FORM.block_v)


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
def tile_scores(queries, keys, rows, columns, head, TRANSPOSED: tl.constexpr, FULL: tl.constexpr, FORM: tl.constexpr):
    """Returns the tile's scores, −inf for hidden pairs, which pairs are visible, and the tanh of its soft cap.

    A score is what the normalizer sees, but for its factor: see `regard.kernels.triton.call.scaling`.

    Args:
        queries, keys: the rows of this tile; not used for units, which are read one at a time.
    """
    if FORM.is_units:
        scores = unit_scores(rows, columns, head, TRANSPOSED, FORM)
    elif TRANSPOSED:
        scores = tl.dot(keys, tl.trans(queries), input_precision=FORM.precision)
    else:
        scores = tl.dot(queries, tl.trans(keys), input_precision=FORM.precision)
    if FORM.is_scaled:
        scores = scores * head.numbers.scale
    capped = scores
    if FORM.has_cap:
        capped = 1.0 - 2.0 / (tl.exp2((2.0 * LOG2E.value) / head.numbers.cap * scores) + 1.0)
        scores = capped * head.numbers.cap
    if FULL:
        return scores, scores == scores, capped
    seen = visible_pairs(rows, columns, head, TRANSPOSED, FORM)
    if FORM.has_bias:
        row, column = over_rows(rows, TRANSPOSED), over_columns(columns, TRANSPOSED)
        added = tl.load(entries(head.bias, row, column), mask=seen, other=float("-inf"))
        seen = seen & (added != float("-inf"))
        scores += added
    return tl.where(seen, scores, float("-inf")), seen, capped


@triton.jit
def entmax_parts(scores, threshold, maximum, numbers, FORM: tl.constexpr):
    """Returns the weights u^{1 / (α − 1)}, and u^{(2 − α) / (α − 1)}, of u = [(α − 1) s − τ]₊.

    Args:
        scores: but for their factor.
        threshold: τ less (α − 1) times the row's maximum, so that no digit is lost where scores are large.
        maximum: of the row's scores.
        numbers: of the call.
    """
    above = (scores - maximum) * (numbers.exponent * numbers.factor) - threshold
    # This order of the comparison keeps NaN.
    above = tl.where(above <= 0.0, 0.0, above)
    if FORM.normalizer == SPARSEMAX:
        return above, tl.where(above > 0.0, 1.0, above)
    if FORM.normalizer == ENTMAX15:
        return above * above, above
    power = tl.log2(above)
    weights = tl.where(above == 0.0, 0.0, tl.exp2(power / numbers.exponent))
    slopes = tl.where(above == 0.0, 0.0, tl.exp2(power * (1.0 - numbers.exponent) / numbers.exponent))
    return weights, slopes


@triton.jit
def sigmoid_weights(scores, numbers):
    return 1.0 / (1.0 + tl.exp2((scores * numbers.factor + numbers.shift) * -LOG2E))


@triton.jit
def saved_weights(scores, seen, reference, total, numbers, FULL: tl.constexpr, FORM: tl.constexpr):
    """Returns the weights of a tile from the statistics of its rows, and their derivatives by their own scores.

    Args:
        scores, seen: of the tile.
        reference: the maximum of a row, 0 for a row without visible keys, spread over the tile.
        total: the reciprocal of softmax's sum, or the threshold of entmax, spread over the tile.
        numbers: of the call.
    """
    if FORM.normalizer == SOFTMAX:
        weights = tl.exp2((scores - reference) * (numbers.factor * LOG2E)) * total
        slopes = weights
    elif FORM.normalizer == SIGMOID:
        weights = sigmoid_weights(scores, numbers)
        slopes = weights * (1.0 - weights)
    else:
        weights, slopes = entmax_parts(scores, total, reference, numbers, FORM)
    if not FULL:
        # The statistics of a row are NaN if it sees a NaN.
        weights = tl.where(seen, weights, 0.0)
        slopes = tl.where(seen, slopes, 0.0)
    return weights, slopes


@triton.jit
def kept_pairs(rows, columns, head, TRANSPOSED: tl.constexpr):
    """Returns the factors of dropout, 0 or 1 / (1 − rate), which depend on the pair alone."""
    rate = head.numbers.rate
    at = over_rows(rows, TRANSPOSED) * head.key.length + over_columns(columns, TRANSPOSED)
    return tl.where(tl.rand(head.sizes.seed + head.pair, at) >= rate, 1.0 / (1.0 - rate), 0.0)
