"""The forward pass: one program for each block of query rows and head, in memory that grows with queries and keys.

Softmax keeps a running maximum and sum. The entmax family reads the keys in several passes: the row's maximum, steps to
the threshold, the weighted sum. Hidden blocks of keys are skipped. For the backward pass of the entmax family the
weighted sum is taken a second time, with the derivatives of the weights.
"""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
from collections import namedtuple

import triton
import triton.language as tl

from regard.kernels.triton.program import over_blocks, row_head
from regard.kernels.triton.tiles import (
    ENTMAX15,
    LOG2E,
    SIGMOID,
    SOFTMAX,
    SPARSEMAX,
    entmax_parts,
    features_of,
    finite,
    hides,
    is_finite,
    kept_pairs,
    sigmoid_weights,
    tile_scores,
    values_of,
)

STEPS = tl.constexpr(64)
"""Steps of the search for a threshold: Newton's, then halvings of its bracket, which is exhausted long before."""

NEWTON_STEPS = tl.constexpr(24)

TOLERANCE = tl.constexpr(1e-6)
"""Distance of a row's sum from 1 at which its search ends: a few roundings of float32."""

LAST_STEP = tl.constexpr(2e-4)
"""For α up to 1.5, the length of a step that ends the search: the error left is of the order of its square."""


Outputs = namedtuple("Outputs", "output maximum total sloped slope_total")
"""What a forward pass fills; the last two are None if no backward pass of the entmax family needs them."""

Rows = namedtuple("Rows", "rows queries reference threshold outputs", defaults=(0, 0, 0))
"""A program's rows and queries, the statistics that its next pass needs, and what it fills."""


@triton.jit
def add_top(top, columns, at, head, FULL: tl.constexpr, FORM: tl.constexpr):
    """Updates the rows' maxima with those of a tile."""
    keys = features_of(columns, head.key, FORM)
    scores, _, _ = tile_scores(at.queries, keys, at.rows, columns, head, False, FULL, FORM)
    return tl.maximum(top, tl.max(scores, 1))


@triton.jit
def add_norm(norm, columns, at, head, FULL: tl.constexpr, FORM: tl.constexpr):
    """Adds a tile to the sums at a threshold: of weights, of slopes and, for α = 1.5, the count of positive weights."""
    sums, slopes, counts = norm
    keys = features_of(columns, head.key, FORM)
    scores, _, _ = tile_scores(at.queries, keys, at.rows, columns, head, False, FULL, FORM)
    weights, slope = entmax_parts(scores, at.threshold[:, None], at.reference[:, None], head.numbers, FORM)
    if FORM.normalizer == ENTMAX15:
        counts += tl.sum(tl.where(slope > 0.0, 1.0, 0.0), 1)
    return sums + tl.sum(weights, 1), slopes + tl.sum(slope, 1), counts


@triton.jit
def next_threshold(threshold, sums, slopes, counts, exponent, FORM: tl.constexpr):
    """Returns a better threshold, from the sums of the weights at the last one.

    For α = 1.5 it is exact if the same weights stay positive: n δ² − 2 δ Σu + Σu² = 1. Else it is a step of Newton's
    method on the norm of [z − τ]₊, which is convex, so that the steps never pass the solution from below.
    """
    if FORM.normalizer == ENTMAX15:
        spread = slopes * slopes - counts * (sums - 1.0)
        return threshold + (sums - 1.0) / (slopes + tl.sqrt(tl.maximum(spread, 0.0)))
    elif FORM.normalizer == SPARSEMAX:
        return threshold + (sums - 1.0) / slopes
    else:
        return threshold + (sums - tl.exp2(tl.log2(sums) * (1.0 - exponent))) / slopes


@triton.jit
def row_threshold(at, top, head, FORM: tl.constexpr):
    """Returns the threshold of each row of the entmax family, −1 for a row without visible keys."""
    BLOCK_Q: tl.constexpr = FORM.block_q
    none = tl.zeros((BLOCK_Q,), tl.float32)
    threshold = none - 1.0
    high, low = none, threshold
    step = 0
    is_searching = head.count > 0
    while is_searching:
        rows = Rows(at.rows, at.queries, at.reference, threshold)
        sums, slopes, counts = over_blocks(add_norm, (none, none, none), rows, head, FORM.block_k, FORM)
        is_below = sums >= 1.0
        low = tl.where(is_below, threshold, low)
        high = tl.where(is_below, high, threshold)
        newton = next_threshold(threshold, sums, slopes, counts, head.numbers.exponent, FORM)
        is_inside = (newton > low) & (newton < high) & (step < NEWTON_STEPS)
        following = tl.where(is_inside, newton, 0.5 * (low + high))
        # A row without visible keys has the sum 0; NaN ends the search of its row, whose threshold is NaN.
        is_open = (tl.abs(sums - 1.0) > TOLERANCE) & (top > float("-inf")) & (following > low) & (following < high)
        is_last = is_inside & (tl.abs(following - threshold) < LAST_STEP) & (head.numbers.exponent <= 0.5)
        threshold = tl.where(sums == sums, tl.where(is_open, following, threshold), sums)
        step += 1
        is_searching = (tl.max((is_open & (is_last == 0)).to(tl.int32)) > 0) & (step < STEPS)
    return threshold


@triton.jit
def add_tile(sums, columns, at, head, FULL: tl.constexpr, FORM: tl.constexpr):
    """Adds the weighted values of a tile to those of its rows."""
    top, summed, mixed, slopes_mixed, slopes_summed = sums
    keys = features_of(columns, head.key, FORM)
    values = values_of(columns, head, FORM)
    scores, seen, _ = tile_scores(at.queries, keys, at.rows, columns, head, False, FULL, FORM)
    factor = head.numbers.factor
    if FORM.normalizer == SOFTMAX:
        risen = tl.maximum(top, tl.max(scores, 1))
        reference = tl.where(risen == float("-inf"), 0.0, risen)
        fallen = tl.exp2((top - reference) * (factor * LOG2E))
        weights = tl.exp2((scores - reference[:, None]) * (factor * LOG2E))
        summed = summed * fallen + tl.sum(weights, 1)
        mixed = mixed * fallen[:, None]
        top = risen
    elif FORM.normalizer == SIGMOID:
        weights = sigmoid_weights(scores, head.numbers)
    else:
        reference = tl.where(top == float("-inf"), 0.0, top)
        weights, slope = entmax_parts(scores, summed[:, None], reference[:, None], head.numbers, FORM)
        if at.outputs.sloped is not None:
            slopes_summed += tl.sum(slope, 1)
            if FORM.has_dropout:
                slope = slope * kept_pairs(at.rows, columns, head, False)
    if FORM.has_dropout:
        weights = weights * kept_pairs(at.rows, columns, head, False)
    if hides(FULL, FORM.mask, FORM.has_bias):
        # Hidden values, times 0, add nothing only if they are finite. A visible one that is not makes its feature NaN.
        is_bad = tl.where(is_finite(values), 0.0, 1.0)
        if tl.max(tl.max(is_bad, 1), 0) > 0.0:
            bad = tl.dot(tl.where(seen, 1.0, 0.0).to(values.dtype), is_bad.to(values.dtype))
            mixed = tl.where(bad > 0.0, float("nan"), mixed)
            if at.outputs.sloped is not None:
                slopes_mixed = tl.where(bad > 0.0, float("nan"), slopes_mixed)
        values = finite(values)
    mixed += tl.dot(weights.to(values.dtype), values, input_precision=FORM.precision)
    if at.outputs.sloped is not None:
        slopes_mixed += tl.dot(slope.to(values.dtype), values, input_precision=FORM.precision)
    return top, summed, mixed, slopes_mixed, slopes_summed


@triton.jit
def forward(arguments, outputs, FORM: tl.constexpr):
    BLOCK_Q: tl.constexpr = FORM.block_q
    BLOCK_V: tl.constexpr = FORM.block_v
    head = row_head(arguments, FORM)
    rows = head.block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    queries = features_of(rows, head.query, FORM)
    top = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    summed = tl.zeros((BLOCK_Q,), tl.float32)
    if FORM.normalizer == SOFTMAX:
        if FORM.has_sink:
            top = summed + tl.load(head.sink) / head.numbers.factor
            summed += 1.0
    elif FORM.normalizer != SIGMOID:
        top = over_blocks(add_top, top, Rows(rows, queries), head, FORM.block_k, FORM)
        reference = tl.where(top == float("-inf"), 0.0, top)
        summed = row_threshold(Rows(rows, queries, reference), top, head, FORM)
    mixed = tl.zeros((BLOCK_Q, BLOCK_V), tl.float32)
    slopes_summed = tl.zeros((BLOCK_Q,), tl.float32)
    top, summed, mixed, slopes_mixed, slopes_summed = over_blocks(
        add_tile,
        (top, summed, mixed, mixed, slopes_summed),
        Rows(rows, queries, outputs=outputs),
        head,
        FORM.block_k,
        FORM,
    )
    if FORM.normalizer == SOFTMAX:
        mixed = mixed / tl.where(summed == 0.0, 1.0, summed)[:, None]
    channels = tl.arange(0, BLOCK_V)
    elements = head.pair * head.query.length + rows
    is_row = rows < head.query.length
    inside = (rows[:, None] < head.query.length) & (channels[None, :] < FORM.value_dim)
    output = outputs.output + elements[:, None] * FORM.value_dim + channels[None, :]
    tl.store(output, mixed.to(outputs.output.dtype.element_ty), mask=inside)
    tl.store(outputs.maximum + elements, top, mask=is_row)
    tl.store(outputs.total + elements, summed, mask=is_row)
    if outputs.sloped is not None:
        tl.store(outputs.sloped + elements[:, None] * FORM.value_dim + channels[None, :], slopes_mixed, mask=inside)
        tl.store(outputs.slope_total + elements, slopes_summed, mask=is_row)
