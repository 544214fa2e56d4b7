"""Normalizers of one row of scores, in place: a few passes over elements in cache.

Each returns two statistics from which the backward pass recomputes the weights: the row's maximum, and the log of the
sum, the threshold or the largest weight.
"""

from functools import cache
from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.elementary import exp, log
from regard.kernels.cpu.bodies.entmax_rows import entmax_row, recompute_entmax
from regard.kernels.cpu.bodies.intrinsics import array_at
from regard.kernels.cpu.bodies.max_reduce import row_maximum
from regard.kernels.cpu.bodies.parts import chosen_for, exact, inlined
from regard.kernels.cpu.bodies.row_parameters import (
    NORMALIZERS,
    Entmax15Row,
    EntmaxRow,
    HardRow,
    SigmoidRow,
    SoftmaxRow,
    SparsemaxRow,
)
from regard.kernels.cpu.bodies.threshold_rows import (
    entmax15_row,
    recompute_entmax15,
    recompute_sparsemax,
    sparsemax_row,
)


@inlined
def recompute_hard(normalizer: Any, row: Any, maximum: Any, statistic: Any) -> None:
    """Writes the weights of a row from the index of its key."""
    real = row.dtype.type
    row[:] = real(0)
    index = np.int64(statistic)
    if index < 0:
        row[-1 - index] = real(np.nan)
    else:
        row[index] = real(1)


@inlined
def hard_row(normalizer: Any, row: Any, maximum: Any) -> tuple[Any, Any]:
    """Writes 1 at the first maximum, or NaN at the first NaN. Returns the maximum and the index, −1 − index for NaN."""
    real = row.dtype.type
    nan_count = real(0)
    for j in range(row.size):
        nan_count += real(0) if row[j] == row[j] else real(1)
    index = np.int64(0)
    if nan_count > real(0):
        while row[index] == row[index]:
            index += 1
        index = -1 - index
    else:
        while row[index] != maximum:
            index += 1
    recompute_hard(normalizer, row, maximum, real(index))
    return maximum, real(index)


@inlined
def head_number(address: int, h: int, stride: int, example: Any) -> Any:
    """Returns a head's number in an array at an address; 0 if the address is 0."""
    return array_at(address, h * stride + 1, example)[h * stride] if address != 0 else type(example)(0)


@cache
def normalizer_reader(name: str) -> Any:
    """Returns a part ``(p, h, example)`` that returns the normalizer of this name with the parameters of a head."""
    Normalizer = NORMALIZERS[name]

    @inlined
    def read_normalizer(p: Any, h: int, example: Any) -> Any:
        alpha = np.float64(head_number(p.alphas, h, p.alphas_head, example)) if p.alphas != 0 else p.alpha
        sink, shift = head_number(p.sink, h, p.sink_head, example), head_number(p.shift, h, p.shift_head, example)
        return Normalizer(alpha, p.alphas != 0, sink, p.sink != 0, shift)

    return read_normalizer


@inlined
def sigmoid(x: Any) -> Any:
    """Returns 1 / (1 + e^−x), without overflow on either side."""
    exponential = exp(-abs(x))
    sigma = type(x)(1) / (type(x)(1) + exponential)
    return sigma if x >= type(x)(0) else exponential * sigma


@inlined
def clear_row(row: Any, maximum: Any) -> Any:
    """Writes the weights of a row with the maximum −∞: 0, or NaN where a score is NaN. Returns their sum: 0, or NaN."""
    total = row.dtype.type(0)
    for j in range(row.size):
        row[j] = row.dtype.type(0) if row[j] == maximum else row[j]
        total += row[j]
    return total


@inlined
def sum_of_nonfinite(row: Any) -> Any:
    """Returns the sum of the scores that are NaN or +∞, which is the row's log-sum-exp if there are any; else 0."""
    real = row.dtype.type
    total = real(0)
    for j in range(row.size):
        total += real(0) if row[j] < real(np.inf) else row[j]
    return total


@inlined
def fill_nan(row: Any) -> None:
    """Writes the weights of a row with a score of NaN or +∞, if keys compete: NaN, but 0 where a score is −∞."""
    real = row.dtype.type
    for j in range(row.size):
        row[j] = real(0) if row[j] == real(-np.inf) else real(np.nan)


@inlined
def softmax_row(normalizer: SoftmaxRow, row: Any, maximum: Any) -> tuple[Any, Any]:
    """Computes softmax, with the sink's score in the sum if there is a sink. Returns the maximum and the log of the
    sum."""
    real = row.dtype.type
    sink = normalizer.sink
    if normalizer.has_sink and sink > maximum:
        maximum = sink
    total = real(0)
    for j in range(row.size):
        exponential = exp(row[j] - maximum)
        row[j] = exponential
        total += exponential
    if normalizer.has_sink:
        total += exp(sink - maximum)
    inverse = real(1) / total
    for j in range(row.size):
        row[j] *= inverse
    return maximum, log(total)


@exact
def log_weight(score: Any, maximum: Any, log_sum: Any) -> Any:
    """Computes ``(score − maximum) − log_sum`` in this order: a large maximum would absorb the log of the sum."""
    return (score - maximum) - log_sum


def normalize(normalizer: Any, row: Any) -> tuple[Any, Any]:
    """Turns scores, −∞ for hidden keys, into weights in place.

    Returns:
        Two statistics of the row, from which `recompute_weights` recomputes the weights.
    """
    raise NotImplementedError("only in kernels")


def _normalize_from_maximum(weigh: Any) -> Any:
    """Returns `normalize` for a normalizer of scores relative to the row's maximum."""

    @inlined
    def normalize_row(normalizer: Any, row: Any) -> Any:
        maximum = row_maximum(row)
        if maximum == -np.inf:
            clear_row(row, maximum)
            return maximum, maximum
        return weigh(normalizer, row, maximum)

    return normalize_row


@inlined
def _sigmoid_row(normalizer: Any, row: Any) -> Any:
    for j in range(row.size):
        row[j] = sigmoid(row[j] + normalizer.shift)
    return row.dtype.type(0), row.dtype.type(0)


def recompute_weights(normalizer: Any, row: Any, maximum: Any, statistic: Any) -> None:
    """Turns scores into weights by the row's statistics, without a search."""
    raise NotImplementedError("only in kernels")


def _recompute_from_maximum(weigh: Any) -> Any:
    """Returns `recompute_weights` for a normalizer of scores relative to the row's maximum."""

    @inlined
    def recompute_row(normalizer: Any, row: Any, maximum: Any, statistic: Any) -> Any:
        if maximum == -np.inf:
            clear_row(row, maximum)
        else:
            weigh(normalizer, row, maximum, statistic)

    return recompute_row


@inlined
def _recompute_softmax(normalizer: SoftmaxRow, row: Any, maximum: Any, statistic: Any) -> None:
    for j in range(row.size):
        row[j] = exp(log_weight(row[j], maximum, statistic))


@inlined
def _recompute_sigmoid(normalizer: Any, row: Any, maximum: Any, statistic: Any) -> Any:
    for j in range(row.size):
        row[j] = sigmoid(row[j] + normalizer.shift)


_NORMALIZE = {
    SoftmaxRow: _normalize_from_maximum(softmax_row),
    Entmax15Row: _normalize_from_maximum(entmax15_row),
    SparsemaxRow: _normalize_from_maximum(sparsemax_row),
    EntmaxRow: _normalize_from_maximum(entmax_row),
    SigmoidRow: _sigmoid_row,
    HardRow: _normalize_from_maximum(hard_row),
}
_RECOMPUTE = {
    SoftmaxRow: _recompute_from_maximum(_recompute_softmax),
    Entmax15Row: _recompute_from_maximum(recompute_entmax15),
    SparsemaxRow: _recompute_from_maximum(recompute_sparsemax),
    EntmaxRow: _recompute_from_maximum(recompute_entmax),
    SigmoidRow: _recompute_sigmoid,
    HardRow: _recompute_from_maximum(recompute_hard),
}


@chosen_for(normalize)
def _(normalizer: Any, row: Any) -> Any:
    chosen = _NORMALIZE[normalizer.instance_class]
    return lambda normalizer, row: chosen(normalizer, row)


@chosen_for(recompute_weights)
def _(normalizer: Any, row: Any, maximum: Any, statistic: Any) -> Any:
    chosen = _RECOMPUTE[normalizer.instance_class]
    return lambda normalizer, row, maximum, statistic: chosen(normalizer, row, maximum, statistic)
