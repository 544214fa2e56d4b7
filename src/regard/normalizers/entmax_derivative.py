"""Entmax with its derivatives in plain PyTorch; the derivatives depend only on the weights, not on the solver.

With :math:`g_j = p_j^{2-\\alpha}` on the support (the keys with weight above 0) and 0 elsewhere,

.. math:: \\partial p / \\partial s = \\mathrm{diag}(g) - g g^\\top / \\textstyle\\sum_k g_k

(Peters, Niculae & Martins 2019, proposition 2).
"""

import math
from typing import Any

import torch
from torch import Tensor

from regard.normalizers.normalizer import first_is_finite, row_maximum
from regard.normalizers.thresholds import entmax15_by_sort, entmax_by_root, root_operator, sparsemax_by_sort
from regard.tracing.portable import is_portable
from regard.tracing.transforms import can_branch_on, derivative_levels, is_transformed


class Solution(torch.autograd.Function):
    """Implements ``(scores, alpha, dim) -> weights``; reverse mode only, to any order."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: float | Tensor, dim: int) -> Tensor:
        weights = solve(scores, alpha, dim)
        learned = isinstance(alpha, Tensor)
        ctx.dim, ctx.alpha = dim, None if learned else alpha
        ctx.save_for_backward(weights, scores, *([alpha] if learned else []))
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        weights, scores, *learned_alpha = ctx.saved_tensors
        alpha = learned_alpha[0] if learned_alpha else ctx.alpha
        return *backward(gradients[0], weights, scores == -torch.inf, alpha, ctx.dim, ctx.needs_input_grad[1]), None


def transformable(scores: Tensor, alpha: float | Tensor, dim: int) -> Tensor:
    """Computes the weights in plain operations, with exact derivatives of every kind up to the active order.

    For a fixed support, the weight :math:`q` of the row's largest score is a simple root of the equation in
    `thresholds.entmax_by_root`. A Newton step from the solution changes no value, but its derivative is that of the
    root; each further step doubles the order to which this holds.
    """
    hidden = scores == -torch.inf
    weights = solve(scores.detach(), alpha.detach() if isinstance(alpha, Tensor) else alpha, dim)
    if scores.shape[dim] == 0:
        return weights
    support = weights != 0.0
    power = alpha - 1.0
    maximum, _ = row_maximum(scores.detach(), dim)
    shifted = (scores - maximum).masked_fill(~support, 0.0)
    # Rows of only −inf have no root; any nonzero number serves.
    largest_weight = weights.amax(dim, keepdim=True)
    largest_weight = largest_weight.masked_fill(largest_weight == 0.0, 1.0)
    for _ in range(max(3, (derivative_levels() + 4).bit_length())):
        difference = shifted * largest_weight.pow(-power)
        ratio = _power_of_sum(difference, power).masked_fill(~support, 0.0)
        slope = ratio / (1.0 + power * difference)
        slope = slope.sum(dim, keepdim=True)
        excess = largest_weight * ratio.sum(dim, keepdim=True) - 1.0
        largest_weight = largest_weight - excess / slope.masked_fill(slope == 0.0, 1.0)
    difference = shifted * largest_weight.pow(-power)
    smooth = (largest_weight * _power_of_sum(difference, power)).masked_fill(~support, 0.0)
    return (weights + (smooth - smooth.detach())).masked_fill(hidden, 0.0)


def _power_of_sum(difference: Tensor, power: float | Tensor) -> Tensor:
    """Computes ``(1 + a z)^{1/a}`` as ``exp(z · log(1 + a z) / (a z))``, whose last factor is smooth at 0."""
    y = power * difference
    series = torch.zeros_like(y)
    for k in range(17, 0, -1):
        series = 1.0 / k - series * y
    is_small = y.abs() < 0.1
    large = y.masked_fill(is_small, 1.0)
    return (difference * torch.where(is_small, series, torch.log1p(large) / large)).exp()


def solve(scores: Tensor, alpha: float | Tensor, dim: int) -> Tensor:
    """Returns the weights, by the solver for this alpha; hidden pairs have weight 0, even in a row with NaN or +inf."""
    if scores.numel() == 0:
        return torch.zeros_like(scores)
    if not isinstance(alpha, Tensor) and alpha == 2.0:
        weights = sparsemax_by_sort(scores, dim)
    elif not isinstance(alpha, Tensor) and alpha == 1.5:
        weights = entmax15_by_sort(scores, dim)
    else:
        learned = alpha if isinstance(alpha, Tensor) else scores.new_full((), alpha)
        weights = _by_root(scores, learned, dim)
    # Rows with NaN or +inf are entirely NaN.
    if not can_branch_on(weights) or not first_is_finite(weights, dim):
        weights = weights.masked_fill(scores == -torch.inf, 0.0)
    return weights


def _by_root(scores: Tensor, alpha: Tensor, dim: int) -> Tensor:
    traced = torch.compiler.is_compiling() or not (is_transformed() or can_branch_on(scores))
    return (root_operator if traced and not is_portable() else entmax_by_root)(scores, alpha, dim)


def _slopes(weights: Tensor, alpha: float | Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the support, the weights with 1 outside it, ``g`` of the equation above, and its sum over each row."""
    # Not ``> 0``: a row with NaN stays in the support, so that its gradient is NaN.
    support = weights != 0.0
    inside = weights.masked_fill(~support, 1.0)
    if not isinstance(alpha, Tensor) and alpha == 2.0:
        slopes = torch.where(weights.isnan(), weights.detach(), support.to(weights.dtype))
    else:
        # For α > 2 the slope is huge at small weights, but its sums must stay finite.
        ceiling = math.sqrt(torch.finfo(weights.dtype).max)
        slopes = inside.pow(2.0 - alpha).clamp(max=ceiling).masked_fill(~support, 0.0)
    total = slopes.sum(dim, keepdim=True)
    return support, inside, slopes, total.masked_fill(total == 0.0, 1.0)


def backward(
    grad_weights: Tensor, weights: Tensor, hidden: Tensor, alpha: float | Tensor, dim: int, wants_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """Returns the gradients to the scores and, if ``wants_alpha``, to a tensor alpha, by differentiable operations."""
    support, inside, slopes, total = _slopes(weights, alpha, dim)
    grad_weights = grad_weights.masked_fill(hidden, 0.0)
    centred = grad_weights - (grad_weights * slopes).sum(dim, keepdim=True) / total
    grad_alpha = None
    if isinstance(alpha, Tensor) and wants_alpha:
        grad_alpha = (centred * _slope_by_alpha(inside, alpha)).masked_fill(~support, 0.0).sum_to_size(alpha.shape)
    return (slopes * centred).masked_fill(hidden, 0.0), grad_alpha


def _slope_by_alpha(weights: Tensor, alpha: Tensor) -> Tensor:
    """Returns each weight's derivative by alpha at a fixed threshold, without a term that the threshold's cancels.

    Correia et al. 2019 (proposition 1) divide differences by (α − 1)², which loses every digit near 1. With
    :math:`y = -(\\alpha - 1) \\log p \\ge 0` the same derivative is

    .. math:: -p \\log^2 p \\; (e^y - 1 - y) / y^2

    whose last factor is smooth, with the limit ½ at 0.
    """
    log = weights.log()
    y = (1.0 - alpha) * log
    series = torch.zeros_like(y)
    for k in range(11, 1, -1):
        series = series * y + 1.0 / math.factorial(k)
    is_small = y < 0.1
    large = y.masked_fill(is_small, 1.0).clamp(max=math.log(torch.finfo(y.dtype).max) / 2.0)
    factor = torch.where(is_small, series, (torch.expm1(large) - large) / large.square())
    return -weights * log.square() * factor
