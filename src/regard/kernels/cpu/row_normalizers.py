"""Normalizers of one row of scores, in place: a few passes over numbers that lie in cache.

Each returns two statistics from which the backward pass makes the weights again: the largest score, and what belongs to
the normalizer (log of the sum, threshold, largest weight). Thresholds are found by Newton's method and not by sorting:
the sum of weights is a convex, decreasing function of the threshold, so steps from its left never overshoot.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any, NamedTuple

import numpy as np

from regard.kernels.cpu.elementary import exp, log
from regard.kernels.cpu.hard_row import hard_row, hard_row_again
from regard.kernels.cpu.intrinsics import array_at
from regard.kernels.cpu.max_reduce import MAXIMA, largest_in
from regard.kernels.cpu.parts import chosen_for, embedded, exact, inlined
from regard.kernels.kinds import ENTMAX, ENTMAX15, HARD, SIGMOID, SOFTMAX, SPARSEMAX


class _Parameters(NamedTuple):
    """What a normalizer knows of a head. Its type is the normalizer: a kernel is compiled for one of them.

    Attributes:
        alpha: entmax's.
        sink: score of softmax's sink.
        has_sink: whether there is one.
        shift: sigmoid's bias.
    """

    alpha: float
    sink: float
    has_sink: bool
    shift: float


class Softmax(_Parameters):
    """e^s / Σ e^s."""


class Entmax15(_Parameters):
    """(s/2 − τ)₊²."""


class Sparsemax(_Parameters):
    """(s − τ)₊."""


class Entmax(_Parameters):
    """((alpha − 1) s − τ)₊^{1/(alpha − 1)}."""


class Sigmoid(_Parameters):
    """1 / (1 + e^−(s + shift))."""


class Hard(_Parameters):
    """1 on the largest score, 0 on all others."""


NORMALIZERS = {
    SOFTMAX: Softmax,
    ENTMAX15: Entmax15,
    SPARSEMAX: Sparsemax,
    ENTMAX: Entmax,
    SIGMOID: Sigmoid,
    HARD: Hard,
}


STEPS = 60
"""Newton's method takes five to ten, bisection as many as a mantissa has bits."""


@inlined
def largest(row: Any) -> Any:
    """The largest number of a row; −inf if it is empty. NaN is passed over."""
    top = row.dtype.type(-np.inf)
    whole = row.size - row.size % MAXIMA
    if whole > 0:
        top = largest_in(row.ctypes.data, whole // MAXIMA, top)
    for j in range(whole, row.size):
        top = row[j] if row[j] > top else top
    return top


@inlined
def head_number(address: int, h: int, stride: int, example: Any) -> Any:
    """The number of a head at an address; 0 if there is none."""
    return array_at(address, h * stride + 1, example)[h * stride] if address != 0 else type(example)(0)


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


@inlined
def sparsemax_row(normalizer: Sparsemax, row: Any, top: Any) -> tuple[Any, Any]:
    """(s − τ)₊ with sum 1; Martins & Astudillo 2016. Returns the maximum and τ, counted from it."""
    real = row.dtype.type
    for j in range(row.size):
        row[j] -= top
    threshold = real(-1)
    for _ in range(STEPS):
        total, count = real(0), real(0)
        for j in range(row.size):
            above = row[j] - threshold
            # The comparison that NaN fails lets it through.
            above = real(0) if above <= real(0) else above
            total += above
            # 1 for whatever is left: even the smallest difference of two such numbers, times this, exceeds 1.
            large = above * real(1e30)
            count += real(1) if large >= real(1) else large
        step = (total - real(1)) / count
        if not step > real(0) or threshold + step == threshold:
            threshold += step
            break
        threshold += step
    for j in range(row.size):
        above = row[j] - threshold
        row[j] = real(0) if above <= real(0) else above
    return top, threshold


@inlined
def entmax15_row(normalizer: Entmax15, row: Any, top: Any) -> tuple[Any, Any]:
    """(s/2 − τ)₊² with sum 1; Peters, Niculae & Martins 2019. Returns the maximum and τ, counted from half of it."""
    real = row.dtype.type
    for j in range(row.size):
        row[j] = (row[j] - top) * real(0.5)
    threshold = real(-1)
    for _ in range(STEPS):
        total, slope = real(0), real(0)
        for j in range(row.size):
            above = row[j] - threshold
            above = real(0) if above <= real(0) else above
            total += above * above
            slope += above
        step = (total - real(1)) / (real(2) * slope)
        if not (step > real(0) and threshold + step > threshold):
            break
        threshold += step
    total = real(0)
    for j in range(row.size):
        above = row[j] - threshold
        above = real(0) if above <= real(0) else above
        row[j] = above * above
        total += row[j]
    inverse = real(1) / total
    for j in range(row.size):
        row[j] *= inverse
    return top, threshold


@embedded
def entmax_ratio(difference: Any, steepness: Any, power: Any) -> tuple[Any, Any]:
    """(1 + a (s − s₁) q^−a)₊^{1/a}: a weight over the largest one, q."""
    real = type(difference)
    step = difference * steepness
    step = real(-1) if step <= real(-1) else step
    base = real(1) + step
    # log(1 + step) with the rounding of the sum put back.
    inside = real(1) if base <= real(0) else base
    exponent = (log(inside) + (step - (base - real(1))) / inside) / power
    return (real(0) if base <= real(0) else exp(exponent)), inside


@inlined
def entmax_row(normalizer: Entmax, row: Any, top: Any) -> tuple[Any, Any]:
    """Entmax for any alpha above 1, by the largest weight q; see `regard.normalizers.thresholds.entmax_by_root`."""
    real = row.dtype.type
    power = real(normalizer.alpha - 1.0)
    for j in range(row.size):
        row[j] -= top
    single = row.itemsize == 4
    close, closest = (real(1e-4), real(2e-7)) if single else (real(1e-8), real(4e-16))
    low, high = real(1) / real(row.size), real(1)
    best = high
    for _ in range(STEPS):
        steepness = entmax_steepness(best, power)
        total, slope = real(0), real(0)
        for j in range(row.size):
            ratio, base = entmax_ratio(row[j], steepness, power)
            total += ratio
            slope += ratio / base
        mass = best * total
        if mass > real(1):
            high = best
        else:
            low = best
        # Newton's step for log q + log Σ = 0, by log q: nearly a straight line. It squares the error.
        better = best * exp(-log(mass) * total / slope)
        straight = power <= real(1) and better >= low and better <= high
        if not straight:
            better = real(0.5) * (low + high)
        near = not abs(better - best) > (close if straight else closest) * best
        if straight or not near:
            best = better
        if near:
            break
    steepness = entmax_steepness(best, power)
    total = real(0)
    for j in range(row.size):
        ratio, _ = entmax_ratio(row[j], steepness, power)
        row[j] = ratio
        total += ratio
    inverse = real(1) / total
    for j in range(row.size):
        row[j] *= inverse
    return top, inverse


@embedded
def entmax_steepness(best: Any, power: Any) -> Any:
    """a q^−a, kept finite, so that the largest score's 0 stays 0 in a product with it."""
    real = type(best)
    exponent = -power * log(best)
    limit = real(80)
    return power * exp(limit if exponent > limit else exponent)


@exact
def log_weight(score: Any, first: Any, second: Any) -> Any:
    """``(score − first) − second``: in this order: beside a large ``first``, ``first + second`` loses ``second``."""
    return (score - first) - second


def normalize(normalizer: Any, row: Any) -> tuple[Any, Any]:
    """Turn scores, −∞ where nothing may be seen, into weights in place.

    Returns:
        Two statistics of the row, from which `normalize_again` makes the weights again.
    """
    raise NotImplementedError("only in kernels")


def _from_maximum(weigh: Any) -> Any:
    """`normalize` for normalizers that count scores from the largest one."""

    @inlined
    def normalize_row(normalizer: Any, row: Any) -> Any:
        top = largest(row)
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


def normalize_again(normalizer: Any, row: Any, first: Any, second: Any) -> None:
    """Weights from scores and the row's statistics, without searching again."""
    raise NotImplementedError("only in kernels")


def _again(weigh: Any) -> Any:
    """`normalize_again` for normalizers that count scores from the largest one."""

    @inlined
    def normalize_row_again(normalizer: Any, row: Any, first: Any, second: Any) -> Any:
        if first == -np.inf:
            clear_row(row, first)
        else:
            weigh(normalizer, row, first, second)

    return normalize_row_again


@inlined
def _softmax_again(normalizer: Softmax, row: Any, first: Any, second: Any) -> None:
    for j in range(row.size):
        row[j] = exp(log_weight(row[j], first, second))


@inlined
def _entmax15_again(normalizer: Entmax15, row: Any, first: Any, second: Any) -> None:
    real = row.dtype.type
    for j in range(row.size):
        above = (row[j] - first) * real(0.5) - second
        above = real(0) if above <= real(0) else above
        row[j] = above * above


@inlined
def _sparsemax_again(normalizer: Sparsemax, row: Any, first: Any, second: Any) -> None:
    real = row.dtype.type
    for j in range(row.size):
        above = (row[j] - first) - second
        row[j] = real(0) if above <= real(0) else above


@inlined
def _entmax_again(normalizer: Entmax, row: Any, first: Any, second: Any) -> None:
    power = row.dtype.type(normalizer.alpha - 1.0)
    steepness = entmax_steepness(second, power)
    for j in range(row.size):
        ratio, _ = entmax_ratio(row[j] - first, steepness, power)
        row[j] = second * ratio


@inlined
def _sigmoid_again(normalizer: Any, row: Any, first: Any, second: Any) -> Any:
    for j in range(row.size):
        row[j] = sigmoid(row[j] + normalizer.shift)


_NORMALIZE = {
    Softmax: _from_maximum(softmax_row),
    Entmax15: _from_maximum(entmax15_row),
    Sparsemax: _from_maximum(sparsemax_row),
    Entmax: _from_maximum(entmax_row),
    Sigmoid: _sigmoid_row,
    Hard: _from_maximum(hard_row),
}
_NORMALIZE_AGAIN = {
    Softmax: _again(_softmax_again),
    Entmax15: _again(_entmax15_again),
    Sparsemax: _again(_sparsemax_again),
    Entmax: _again(_entmax_again),
    Sigmoid: _sigmoid_again,
    Hard: _again(hard_row_again),
}


@chosen_for(normalize)
def _(normalizer: Any, row: Any) -> Any:
    chosen = _NORMALIZE[normalizer.instance_class]
    return lambda normalizer, row: chosen(normalizer, row)


@chosen_for(normalize_again)
def _(normalizer: Any, row: Any, first: Any, second: Any) -> Any:
    chosen = _NORMALIZE_AGAIN[normalizer.instance_class]
    return lambda normalizer, row, first, second: chosen(normalizer, row, first, second)
