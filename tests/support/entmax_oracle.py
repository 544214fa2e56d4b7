"""Entmax from its equation alone, in NumPy's float64: it shares no code with what it judges."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ALPHAS = (1.01, 1.05, 1.1, 1.25, 1.333, 1.5, 1.6, 1.75, 1.9, 1.99, 2.0, 2.01, 2.5, 3.0, 3.5, 4.0)
"""Members of the family: near softmax, near sparsemax on both sides, and with roots."""


def rows(keys: int, seed: int = 0) -> Array:
    """Rows of so many scores of every kind: flat, nearly flat, tied, peaked, huge, hidden in part, and far below the
    largest one, where a threshold loses digits. ``[kinds, keys]``."""
    random = np.random.default_rng(seed)
    normal, uniform = random.standard_normal(keys), random.random(keys)
    last = np.arange(keys) == keys - 1
    hidden = np.where((np.arange(keys) % 3 == 1) & ~last, -np.inf, normal)
    return np.stack([
        np.zeros(keys), 1e-6 * normal, 1e-3 * normal, 0.1 * normal, normal, 10.0 * normal, 1e4 * normal,
        np.round(3 * normal) / 3, np.round(20 * uniform) / 200, normal + 5.0 * last, 1e3 + 0.1 * normal,
        np.where(last, 0.0, -0.9 + 1e-3 * uniform), np.where(last, 0.0, -1.9 + 1e-2 * uniform),
        np.where(uniform < 0.5, 0.03 * normal, 3.0 * normal), hidden,
    ])  # fmt: skip


def weights(scores: Array, alpha: float) -> Array:
    """The weights of each row: the largest one, q, by bisection of its logarithm."""
    power = alpha - 1.0
    differences = scores - scores.max(-1, keepdims=True)
    low = np.full((*scores.shape[:-1], 1), -np.log(scores.shape[-1]) - 1.0)
    high = np.ones_like(low)

    def weigh(logarithm: Array) -> Array:
        with np.errstate(divide="ignore", over="ignore"):
            step = np.maximum(power * differences * np.exp(-power * logarithm), -1.0)
            return np.exp(logarithm + np.log1p(step) / power)

    for _ in range(100):
        middle = (low + high) / 2
        above = weigh(middle).sum(-1, keepdims=True) > 1.0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    # Above alpha 2 a rounding of q moves a small weight, so what is missing is taken from between its neighbours.
    least, most = weigh(low), weigh(high)
    part = (1.0 - least.sum(-1, keepdims=True)) / np.maximum((most - least).sum(-1, keepdims=True), 1e-300)
    return least + np.clip(part, 0.0, 1.0) * (most - least)


def gradient(weights: Array, alpha: float, grad_weights: Array) -> Array:
    """The gradient to the scores (Peters, Niculae & Martins 2019, proposition 2)."""
    slopes = np.where(weights > 0, np.where(weights > 0, weights, 1.0) ** (2.0 - alpha), 0.0)
    mean = (slopes * grad_weights).sum(-1, keepdims=True) / slopes.sum(-1, keepdims=True)
    return slopes * (grad_weights - mean)


def assert_solves(scores: Array, weights: Array, alpha: float, eps: float, name: str = "") -> None:
    """Each row sums to 1, and each of its weights is what the equation says at the row's threshold.

    Args:
        scores: ``[..., keys]``, −inf where a key is hidden.
        weights: ``[..., keys]``, to be judged.
        alpha: of all rows.
        eps: rounding of the dtype that the weights were computed in.
        name: of the case, for messages.
    """
    sums = np.abs(weights.sum(-1) - 1.0)
    assert sums.max() <= (40 + scores.shape[-1] / 64) * eps, f"{name}: a row's sum differs from 1 by {sums.max():.2e}"
    power = alpha - 1.0
    top = scores.max(-1, keepdims=True)
    largest = weights.max(-1, keepdims=True) ** power
    # With the threshold (alpha − 1) s₁ − q^(alpha − 1), eliminated: beside huge scores it has no digits.
    above = largest + power * (scores - top)
    # A power is as exact as q, and as the scores' differences; a weight that is too small to be a number is 0.
    error = 64 * eps * largest
    low, high = (np.maximum(above + sign * error, 0.0) ** (1.0 / power) for sign in (-1.0, 1.0))
    least = 1e-37 if eps > 1e-10 else 1e-300
    wrong = (weights < low * (1.0 - 512 * eps) - least) | (weights > high * (1.0 + 512 * eps) + least)
    assert not wrong.any(), f"{name}: {wrong.sum()} weights are not those at their threshold"
