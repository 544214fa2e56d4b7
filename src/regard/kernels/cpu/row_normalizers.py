"""Normalizers of one row of scores, in place, and their gradients: a few passes over numbers that lie in cache.

Each returns two statistics from which the backward pass makes the weights again: the largest score, and what belongs to
the normalizer (log of the sum, threshold, largest weight). Thresholds are found by Newton's method and not by sorting:
the sum of weights is a convex, decreasing function of the threshold, so steps from its left never overshoot.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

import numpy as np

from regard.kernels.cpu.compiled import exact, inlined
from regard.kernels.cpu.elementary import exp, log
from regard.kernels.cpu.max_reduce import MAXIMA, largest_in
from regard.kernels.kinds import ENTMAX15, SIGMOID, SOFTMAX, SPARSEMAX

STEPS = 60
"""Newton's method takes five to ten, bisection as many as a mantissa has bits."""


@inlined
def largest(row):
    """The largest number of a row; −inf if it is empty. NaN is passed over."""
    top = row.dtype.type(-np.inf)
    whole = row.size - row.size % MAXIMA
    if whole > 0:
        top = largest_in(row.ctypes.data, whole // MAXIMA, top)
    for j in range(whole, row.size):
        top = row[j] if row[j] > top else top
    return top


@inlined
def normalize(kind, row, alpha, sink, has_sink, shift):
    """Turn scores into weights.

    Args:
        kind: of `regard.kernels.kinds`.
        row: scores, −inf where nothing may be seen; becomes weights.
        alpha: entmax's.
        sink: score of softmax's sink.
        has_sink: whether there is one.
        shift: sigmoid's bias.

    Returns:
        Two statistics of the row.
    """
    real = row.dtype.type
    if kind == SIGMOID:
        for j in range(row.size):
            row[j] = sigmoid(row[j] + shift)
        return real(0), real(0)
    top = largest(row)
    if top == real(-np.inf):
        for j in range(row.size):
            # Not simply 0: NaN, which no comparison finds, shall come out.
            row[j] = real(0) if row[j] == top else row[j]
        return top, top
    if kind == SOFTMAX:
        return softmax_row(row, top, sink, has_sink)
    if kind == ENTMAX15:
        return top, entmax15_row(row, top)
    if kind == SPARSEMAX:
        return top, sparsemax_row(row, top)
    return top, entmax_row(row, top, alpha)


@inlined
def sigmoid(x):
    """1 / (1 + e^−x), without overflow on either side."""
    small = exp(-abs(x))
    share = type(x)(1) / (type(x)(1) + small)
    return share if x >= type(x)(0) else small * share


@inlined
def softmax_row(row, top, sink, has_sink):
    """Softmax, with one more score in its sum if there is a sink. Returns the maximum, and the sum's logarithm."""
    real = row.dtype.type
    if has_sink and sink > top:
        top = sink
    total = real(0)
    for j in range(row.size):
        power = exp(row[j] - top)
        row[j] = power
        total += power
    if has_sink:
        total += exp(sink - top)
    inverse = real(1) / total
    for j in range(row.size):
        row[j] *= inverse
    return top, log(total)


@inlined
def sparsemax_row(row, top):
    """(s − τ)₊ with sum 1; Martins & Astudillo 2016. Returns τ, counted from the largest score."""
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
    return threshold


@inlined
def entmax15_row(row, top):
    """(s/2 − τ)₊² with sum 1; Peters, Niculae & Martins 2019. Returns τ, counted from the largest half score."""
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
    return threshold


@inlined
def entmax_ratio(difference, steepness, power):
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
def entmax_row(row, top, alpha):
    """Entmax for any alpha above 1, by the largest weight q; see `regard.normalizers.thresholds.entmax_by_root`."""
    real = row.dtype.type
    power = real(alpha - 1.0)
    for j in range(row.size):
        row[j] -= top
    low, high = real(1) / real(row.size), real(1)
    best = high
    for _ in range(STEPS):
        steepness = entmax_steepness(best, power)
        total, slope = real(0), real(0)
        for j in range(row.size):
            ratio, base = entmax_ratio(row[j], steepness, power)
            total += ratio
            slope += ratio / base
        excess = best * total - real(1)
        if excess > real(0):
            high = best
        else:
            low = best
        better = best - excess / slope
        if power > real(1) or not (better >= low and better <= high):
            better = real(0.5) * (low + high)
        if not abs(better - best) > real(2e-7 if row.itemsize == 4 else 4e-16) * best:
            break
        best = better
    steepness = entmax_steepness(best, power)
    total = real(0)
    for j in range(row.size):
        ratio, _ = entmax_ratio(row[j], steepness, power)
        row[j] = ratio
        total += ratio
    inverse = real(1) / total
    for j in range(row.size):
        row[j] *= inverse
    return inverse


@inlined
def entmax_steepness(best, power):
    """a q^−a, kept finite, so that the largest score's 0 stays 0 in a product with it."""
    real = type(best)
    exponent = -power * log(best)
    limit = real(80)
    return power * exp(limit if exponent > limit else exponent)


@exact
def log_weight(score, first, second):
    """``(score − first) − second``: in this order: beside a large ``first``, ``first + second`` loses ``second``."""
    return (score - first) - second


@inlined
def normalize_again(kind, row, alpha, shift, first, second):
    """Weights from scores and the row's statistics, without searching again."""
    real = row.dtype.type
    if kind == SIGMOID:
        for j in range(row.size):
            row[j] = sigmoid(row[j] + shift)
        return
    if first == real(-np.inf):
        for j in range(row.size):
            row[j] = real(0) if row[j] == first else row[j]
        return
    if kind == SOFTMAX:
        for j in range(row.size):
            row[j] = exp(log_weight(row[j], first, second))
    elif kind == ENTMAX15:
        for j in range(row.size):
            above = (row[j] - first) * real(0.5) - second
            above = real(0) if above <= real(0) else above
            row[j] = above * above
    elif kind == SPARSEMAX:
        for j in range(row.size):
            above = (row[j] - first) - second
            row[j] = real(0) if above <= real(0) else above
    else:
        power = real(alpha - 1.0)
        steepness = entmax_steepness(second, power)
        for j in range(row.size):
            ratio, _ = entmax_ratio(row[j] - first, steepness, power)
            row[j] = second * ratio


@inlined
def differentiate(kind, weights, gradient, alpha):
    """Turn the gradient of a row's weights into that of its scores, in place; the weights are used up.

    Returns:
        Σ weights · gradient for softmax, from which a sink's gradient follows; Σ of the result for sigmoid; else 0.
    """
    real = weights.dtype.type
    total, norm = real(0), real(0)
    if kind == SOFTMAX:
        for j in range(weights.size):
            total += weights[j] * gradient[j]
        for j in range(weights.size):
            gradient[j] = weights[j] * (gradient[j] - total)
        return total
    if kind == SIGMOID:
        for j in range(weights.size):
            gradient[j] *= weights[j] * (real(1) - weights[j])
            total += gradient[j]
        return total
    # ∂p/∂s = diag(g) − g gᵀ / Σg with g = p^(2 − α) on the support (Peters et al. 2019, proposition 2).
    if kind == SPARSEMAX:
        for j in range(weights.size):
            weights[j] = real(0) if weights[j] <= real(0) else real(1)
    elif kind == ENTMAX15:
        for j in range(weights.size):
            weights[j] = np.sqrt(weights[j])
    else:
        for j in range(weights.size):
            inside = real(1) if weights[j] <= real(0) else weights[j]
            exponent = real(2.0 - alpha) * log(inside)
            # For alpha above 2 this is huge where weights are small; sums of it must stay finite.
            exponent = real(40) if exponent > real(40) else exponent
            mobility = exp(exponent)
            weights[j] = real(0) if weights[j] <= real(0) else mobility
    for j in range(weights.size):
        total += weights[j] * gradient[j]
        norm += weights[j]
    mean = total / norm if norm > real(0) else real(0)
    for j in range(weights.size):
        gradient[j] = weights[j] * (gradient[j] - mean)
    return real(0)
