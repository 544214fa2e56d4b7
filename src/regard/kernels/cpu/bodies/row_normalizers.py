"""Normalizers of one row of scores, in place: a few passes over numbers that lie in cache.

Each returns two statistics from which the backward pass makes the weights again: the largest score, and what belongs to
the normalizer (log of the sum, threshold, largest weight).
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from functools import cache
from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.elementary import exp, log
from regard.kernels.cpu.bodies.entmax_rows import entmax_row, recompute_entmax
from regard.kernels.cpu.bodies.hard_row import hard_row, recompute_hard
from regard.kernels.cpu.bodies.intrinsics import array_at
from regard.kernels.cpu.bodies.max_reduce import row_maximum
from regard.kernels.cpu.bodies.parts import chosen_for, exact, inlined
from regard.kernels.cpu.bodies.row_parameters import NORMALIZERS, Entmax, Entmax15, Hard, Sigmoid, Softmax, Sparsemax
from regard.kernels.cpu.bodies.threshold_rows import (
    entmax15_row,
    recompute_entmax15,
    recompute_sparsemax,
    sparsemax_row,
)


@inlined
def head_number(address: int, h: int, stride: int, example: Any) -> Any:
    """The number of a head at an address; 0 if there is none."""
    return array_at(address, h * stride + 1, example)[h * stride] if address != 0 else type(example)(0)


@cache
def normalizer_reader(name: str) -> Any:
    """A part ``(p, h, example)`` that gives the normalizer of this name with the numbers of a head."""
    Normalizer = NORMALIZERS[name]

    @inlined
    def read_normalizer(p: Any, h: int, example: Any) -> Any:
        alpha = np.float64(head_number(p.alphas, h, p.alphas_head, example)) if p.alphas != 0 else p.alpha
        sink, shift = head_number(p.sink, h, p.sink_head, example), head_number(p.shift, h, p.shift_head, example)
        return Normalizer(alpha, p.alphas != 0, sink, p.sink != 0, shift)

    return read_normalizer


@inlined
def sigmoid(x: Any) -> Any:
    """1 / (1 + e^−x), without overflow on either side."""
    small = exp(-abs(x))
    share = type(x)(1) / (type(x)(1) + small)
    return share if x >= type(x)(0) else small * share


@inlined
def clear_row(row: Any, top: Any) -> Any:
    """Weights of a row whose largest score is −∞: zeros, and NaN where a score is NaN. Their sum: 0, or NaN."""
    total = row.dtype.type(0)
    for j in range(row.size):
        row[j] = row.dtype.type(0) if row[j] == top else row[j]
        total += row[j]
    return total


@inlined
def sum_of_nonfinite(row: Any) -> Any:
    """The sum of what is NaN or +∞ in a row of scores; 0 if nothing is. It is the row's log-sum-exp if anything is."""
    real = row.dtype.type
    total = real(0)
    for j in range(row.size):
        total += real(0) if row[j] < real(np.inf) else row[j]
    return total


@inlined
def fill_nan(row: Any) -> None:
    """Weights of keys that compete where a score is NaN or +∞: NaN, but 0 where a score is −∞."""
    real = row.dtype.type
    for j in range(row.size):
        row[j] = real(0) if row[j] == real(-np.inf) else real(np.nan)


@inlined
def softmax_row(normalizer: Softmax, row: Any, top: Any) -> tuple[Any, Any]:
    """Softmax, with one more score in its sum if there is a sink. Returns the maximum, and the sum's logarithm."""
    real = row.dtype.type
    sink = normalizer.sink
    if normalizer.has_sink and sink > top:
        top = sink
    total = real(0)
    for j in range(row.size):
        power = exp(row[j] - top)
        row[j] = power
        total += power
    if normalizer.has_sink:
        total += exp(sink - top)
    inverse = real(1) / total
    for j in range(row.size):
        row[j] *= inverse
    return top, log(total)


@exact
def log_weight(score: Any, first: Any, second: Any) -> Any:
    """``(score − first) − second``: in this order: beside a large ``first``, ``first + second`` loses ``second``."""
    return (score - first) - second


def normalize(normalizer: Any, row: Any) -> tuple[Any, Any]:
    """Turn scores, −∞ where nothing may be seen, into weights in place.

    Returns:
        Two statistics of the row, from which `recompute_weights` makes the weights again.
    """
    raise NotImplementedError("only in kernels")


def _normalize_from_maximum(weigh: Any) -> Any:
    """`normalize` for normalizers that count scores from the largest one."""

    @inlined
    def normalize_row(normalizer: Any, row: Any) -> Any:
        top = row_maximum(row)
        if top == -np.inf:
            clear_row(row, top)
            return top, top
        return weigh(normalizer, row, top)

    return normalize_row


@inlined
def _sigmoid_row(normalizer: Any, row: Any) -> Any:
    for j in range(row.size):
        row[j] = sigmoid(row[j] + normalizer.shift)
    return row.dtype.type(0), row.dtype.type(0)


def recompute_weights(normalizer: Any, row: Any, first: Any, second: Any) -> None:
    """Weights from scores and the row's statistics, without searching again."""
    raise NotImplementedError("only in kernels")


def _recompute_from_maximum(weigh: Any) -> Any:
    """`recompute_weights` for normalizers that count scores from the largest one."""

    @inlined
    def recompute_row(normalizer: Any, row: Any, first: Any, second: Any) -> Any:
        if first == -np.inf:
            clear_row(row, first)
        else:
            weigh(normalizer, row, first, second)

    return recompute_row


@inlined
def _recompute_softmax(normalizer: Softmax, row: Any, first: Any, second: Any) -> None:
    for j in range(row.size):
        row[j] = exp(log_weight(row[j], first, second))


@inlined
def _recompute_sigmoid(normalizer: Any, row: Any, first: Any, second: Any) -> Any:
    for j in range(row.size):
        row[j] = sigmoid(row[j] + normalizer.shift)


_NORMALIZE = {
    Softmax: _normalize_from_maximum(softmax_row),
    Entmax15: _normalize_from_maximum(entmax15_row),
    Sparsemax: _normalize_from_maximum(sparsemax_row),
    Entmax: _normalize_from_maximum(entmax_row),
    Sigmoid: _sigmoid_row,
    Hard: _normalize_from_maximum(hard_row),
}
_RECOMPUTE = {
    Softmax: _recompute_from_maximum(_recompute_softmax),
    Entmax15: _recompute_from_maximum(recompute_entmax15),
    Sparsemax: _recompute_from_maximum(recompute_sparsemax),
    Entmax: _recompute_from_maximum(recompute_entmax),
    Sigmoid: _recompute_sigmoid,
    Hard: _recompute_from_maximum(recompute_hard),
}


@chosen_for(normalize)
def _(normalizer: Any, row: Any) -> Any:
    chosen = _NORMALIZE[normalizer.instance_class]
    return lambda normalizer, row: chosen(normalizer, row)


@chosen_for(recompute_weights)
def _(normalizer: Any, row: Any, first: Any, second: Any) -> Any:
    chosen = _RECOMPUTE[normalizer.instance_class]
    return lambda normalizer, row, first, second: chosen(normalizer, row, first, second)
