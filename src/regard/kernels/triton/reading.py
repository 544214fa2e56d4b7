"""Readings of the weights from the saved statistics of the rows, in one more pass over the keys."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
from collections import namedtuple

import triton
import triton.language as tl

from regard.kernels.triton.program import over_blocks, row_head
from regard.kernels.triton.tiles import LOG2E, SOFTMAX, features_of, saved_weights, tile_scores

Readings = namedtuple("Readings", "maximum total lse entropy peak distance received")
"""The saved statistics, and the readings that a pass fills; None for those that were not requested."""

Rows = namedtuple("Rows", "rows queries reference total readings")
"""A program's rows, queries and statistics, and the readings."""


@triton.jit
def read_tile(sums, columns, at, head, FULL: tl.constexpr, FORM: tl.constexpr):
    """Adds a tile to the readings."""
    highest, exponentials, entropies, largest, distances = sums
    keys = features_of(columns, head.key, FORM)
    scores, seen, _ = tile_scores(at.queries, keys, at.rows, columns, head, False, FULL, FORM)
    factor = head.numbers.factor
    if FORM.normalizer != SOFTMAX or FORM.has_sink:
        risen = tl.maximum(highest, tl.max(scores, 1))
        level = tl.where(risen == float("-inf"), 0.0, risen)
        shares = tl.exp2((scores - level[:, None]) * (factor * LOG2E))
        exponentials = exponentials * tl.exp2((highest - level) * (factor * LOG2E)) + tl.sum(shares, 1)
        highest = risen
    reference = at.reference[:, None]
    weights, _ = saved_weights(scores, seen, reference, at.total[:, None], head.numbers, FULL, FORM)
    if at.readings.entropy is not None:
        # With softmax, the logarithm of a weight is its score less the log-sum-exp, which is added at the end.
        logarithms = (scores - reference) * factor if FORM.normalizer == SOFTMAX else tl.log(weights)
        entropies -= tl.sum(tl.where(weights == 0.0, 0.0, weights * logarithms), 1)
    if at.readings.peak is not None:
        # A maximum of the device drops NaN, and a sum does not.
        noted = largest + tl.sum(weights, 1)
        largest = tl.where(noted == noted, tl.maximum(largest, tl.max(weights, 1)), float("nan"))
    if at.readings.distance is not None:
        gaps = tl.abs(at.rows[:, None] + head.sizes.offset - columns[None, :]).to(tl.float32)
        distances += tl.sum(weights * gaps, 1)
    if at.readings.received is not None:
        visible = tl.where(at.rows[:, None] < head.query.length, weights, 0.0)
        received = at.readings.received + head.pair * head.key.length + columns
        tl.atomic_add(received, tl.sum(visible, 0), mask=columns < head.key.length, sem="relaxed")
    return highest, exponentials, entropies, largest, distances


@triton.jit
def read_rows(arguments, readings, FORM: tl.constexpr):
    BLOCK_Q: tl.constexpr = FORM.block_q
    head = row_head(arguments, FORM)
    rows = head.block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    queries = features_of(rows, head.query, FORM)
    elements, is_row = head.pair * head.query.length + rows, rows < head.query.length
    top = tl.load(readings.maximum + elements, mask=is_row, other=0.0)
    row_total = tl.load(readings.total + elements, mask=is_row, other=1.0)
    reference = tl.where(top == float("-inf"), 0.0, top)
    summed = row_total
    if FORM.normalizer == SOFTMAX:
        summed = 1.0 / tl.where(summed == 0.0, 1.0, summed)
    highest = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    zeros = tl.zeros((BLOCK_Q,), tl.float32)
    highest, exponentials, entropies, largest, distances = over_blocks(
        read_tile, (highest, zeros, zeros, zeros, zeros), Rows(rows, queries, reference, summed, readings), head,
        FORM.block_k, FORM,
    )  # fmt: skip
    # The statistics of softmax without a sink are the log-sum-exp; others need a sum of exponentials of their own.
    factor = head.numbers.factor
    if FORM.normalizer != SOFTMAX or FORM.has_sink:
        tl.store(readings.lse + elements, highest * factor + tl.log(exponentials), mask=is_row)
    else:
        tl.store(readings.lse + elements, top * factor + tl.log(row_total), mask=is_row)
    if readings.entropy is not None:
        if FORM.normalizer == SOFTMAX:
            whole = tl.where(top == float("-inf"), 0.0, 1.0)
            if FORM.has_sink:
                whole = exponentials * tl.exp2((highest - reference) * (factor * LOG2E)) * summed
            entropies += tl.where(whole == 0.0, 0.0, whole * tl.log(row_total))
        tl.store(readings.entropy + elements, entropies, mask=is_row)
    if readings.peak is not None:
        tl.store(readings.peak + elements, largest, mask=is_row)
    if readings.distance is not None:
        tl.store(readings.distance + elements, distances, mask=is_row)
