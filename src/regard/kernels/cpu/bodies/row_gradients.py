"""Gradients of the row normalizers: the gradient of a row's weights becomes that of its scores, in place."""

from math import factorial
from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.elementary import exp, log
from regard.kernels.cpu.bodies.intrinsics import size_of
from regard.kernels.cpu.bodies.parts import chosen_for, inlined
from regard.kernels.cpu.bodies.row_parameters import (
    Entmax15Row,
    EntmaxRow,
    HardRow,
    SigmoidRow,
    SoftmaxRow,
    SparsemaxRow,
)

SERIES = tuple(1.0 / factorial(k) for k in range(11, 1, -1))
"""Coefficients of the series of (e^y − 1 − y) / y², from the highest power down."""


def differentiate(normalizer: Any, weights: Any, gradient: Any) -> Any:
    """Turns the gradient of a row's weights into that of its scores, in place; the weights are overwritten.

    Returns:
        Σ weights · gradient for softmax, from which a sink's gradient follows; Σ of the result for sigmoid; the
        gradient of alpha for entmax if it is learned; else 0.
    """
    raise NotImplementedError("only in kernels")


@inlined
def _differentiate_softmax(normalizer: Any, weights: Any, gradient: Any) -> Any:
    total = weights.dtype.type(0)
    for j in range(weights.size):
        total += weights[j] * gradient[j]
    for j in range(weights.size):
        gradient[j] = weights[j] * (gradient[j] - total)
    return total


@inlined
def _differentiate_sigmoid(normalizer: Any, weights: Any, gradient: Any) -> Any:
    real = weights.dtype.type
    total = real(0)
    for j in range(weights.size):
        gradient[j] *= weights[j] * (real(1) - weights[j])
        total += gradient[j]
    return total


@inlined
def _differentiate_hard(normalizer: Any, weights: Any, gradient: Any) -> Any:
    zero = weights.dtype.type(0)
    gradient[:] = zero
    return zero


@inlined
def largest_exponent(example: Any) -> Any:
    """Returns an exponent of e whose powers can be squared and summed without overflow."""
    return type(example)(40) if size_of(example) == 4 else type(example)(350)


@inlined
def slopes_by_alpha(normalizer: Any, weights: Any, gradient: Any) -> tuple[Any, Any]:
    """Returns Σ gradient · slope and Σ slope, where slope is a weight's derivative by alpha at a fixed threshold.

    See `regard.normalizers.entmax_derivative` for the equation: with y = −(α − 1) log p, the slope is −p log² p times
    (e^y − 1 − y) / y², which is computed by a series where y is small.
    """
    real = weights.dtype.type
    power = real(normalizer.alpha - 1.0)
    total, sum_of_slopes, limit = real(0), real(0), largest_exponent(real(0))
    for j in range(weights.size):
        weight = weights[j]
        logarithm = log(real(1) if weight <= real(0) else weight)
        y = -power * logarithm
        series = real(SERIES[0])
        for coefficient in SERIES[1:]:
            series = series * y + real(coefficient)
        small = y < real(0.1)
        large = real(1) if small else (limit if y > limit else y)
        factor = series if small else (exp(large) - real(1) - large) / (large * large)
        slope = real(0) if weight <= real(0) else -weight * logarithm * logarithm * factor
        total += gradient[j] * slope
        sum_of_slopes += slope
    return total, sum_of_slopes


def _differentiate_sparse(mobility: Any) -> Any:
    """Returns `differentiate` for entmax: ∂p/∂s = diag(g) − g gᵀ / Σg with g = p^(2 − α) on the support (Peters et al.
    2019, proposition 2).

    Args:
        mobility: part that overwrites the weights with g.
    """

    @inlined
    def differentiate_row(normalizer: Any, weights: Any, gradient: Any) -> Any:
        real = weights.dtype.type
        total, norm = real(0), real(0)
        sums = slopes_by_alpha(normalizer, weights, gradient) if normalizer.learned else (real(0), real(0))
        mobility(normalizer, weights)
        for j in range(weights.size):
            total += weights[j] * gradient[j]
            norm += weights[j]
        mean = total / norm if norm > real(0) else real(0)
        for j in range(weights.size):
            gradient[j] = weights[j] * (gradient[j] - mean)
        return sums[0] - mean * sums[1]

    return differentiate_row


@inlined
def _sparsemax_mobility(normalizer: SparsemaxRow, weights: Any) -> None:
    real = weights.dtype.type
    for j in range(weights.size):
        # 1, but NaN for NaN, for which both comparisons are false.
        visible = real(1) if weights[j] > real(0) else weights[j]
        weights[j] = real(0) if weights[j] <= real(0) else visible


@inlined
def _entmax15_mobility(normalizer: Entmax15Row, weights: Any) -> None:
    for j in range(weights.size):
        weights[j] = np.sqrt(weights[j])


@inlined
def _entmax_mobility(normalizer: EntmaxRow, weights: Any) -> None:
    real = weights.dtype.type
    limit = largest_exponent(real(0))
    for j in range(weights.size):
        positive = real(1) if weights[j] <= real(0) else weights[j]
        exponent = real(2.0 - normalizer.alpha) * log(positive)
        # For alpha above 2, this is huge where weights are small; its sums must stay finite.
        exponent = limit if exponent > limit else exponent
        mobility = exp(exponent)
        weights[j] = real(0) if weights[j] <= real(0) else mobility


_DIFFERENTIATE = {
    SoftmaxRow: _differentiate_softmax,
    Entmax15Row: _differentiate_sparse(_entmax15_mobility),
    SparsemaxRow: _differentiate_sparse(_sparsemax_mobility),
    EntmaxRow: _differentiate_sparse(_entmax_mobility),
    SigmoidRow: _differentiate_sigmoid,
    HardRow: _differentiate_hard,
}


@chosen_for(differentiate)
def _(normalizer: Any, weights: Any, gradient: Any) -> Any:
    chosen = _DIFFERENTIATE[normalizer.instance_class]
    return lambda normalizer, weights, gradient: chosen(normalizer, weights, gradient)
