"""Entmax by compiled loops, for a normalizer that is called on its own.

Attention's specification also calls normalizers, but must be plain PyTorch: it calls them within `plain_rows`.
"""

from typing import Any

import torch
from torch import Tensor

from regard.kernels.availability import why_missing
from regard.normalizers.entmax_derivative import backward
from regard.normalizers.normalizer import are_rows_plain, first_is_finite
from regard.tracing.transforms import can_branch_on, reverse_mode_only

KERNEL_NUMBERS = 1 << 14
"""The number of scores from which compiled loops are faster (`make bench`, task rows)."""


def supports(scores: Tensor, alpha: float | Tensor) -> bool:
    """Whether compiled loops compute these rows: many scores on a CPU, alpha a number, reverse mode at most."""
    if torch.compiler.is_compiling() or are_rows_plain():
        return False
    if isinstance(alpha, Tensor) or scores.numel() < KERNEL_NUMBERS:
        return False
    if scores.device.type != "cpu" or scores.dtype not in (torch.float32, torch.float64):
        return False
    if not (can_branch_on(scores) and reverse_mode_only(scores)):
        return False
    if why_missing() is not None:
        return False
    from regard.kernels.cpu import row_operators

    return row_operators.are_usable(scores.dtype, alpha, scores.requires_grad and torch.is_grad_enabled())


def weigh(scores: Tensor, alpha: float, dim: int) -> Tensor:
    """Returns the weights of rows that `supports` accepts; differentiable in reverse mode, to any order."""
    if scores.requires_grad and torch.is_grad_enabled():
        return _CompiledRows.apply(scores, alpha, dim)
    return _weights(scores, alpha, dim)


def _weights(scores: Tensor, alpha: float, dim: int) -> Tensor:
    from regard.kernels.cpu import row_operators

    weights = row_operators.entmax(scores.movedim(dim, -1), alpha).movedim(-1, dim)
    # Rows with NaN or +inf are entirely NaN.
    return weights if first_is_finite(weights, dim) else weights.masked_fill(scores == -torch.inf, 0.0)


class _CompiledRows(torch.autograd.Function):
    """Implements ``(scores, alpha, dim) -> weights``."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: float, dim: int) -> Tensor:
        weights = _weights(scores, alpha, dim)
        ctx.alpha, ctx.dim = alpha, dim
        ctx.save_for_backward(weights, scores)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (weights, scores), (grad_weights,) = ctx.saved_tensors, gradients
        # The compiled gradient has no derivative; the last line's has.
        if not torch.is_grad_enabled() and reverse_mode_only(grad_weights):
            from regard.kernels.cpu import row_operators

            rows = grad_weights.movedim(ctx.dim, -1), weights.movedim(ctx.dim, -1)
            grad_scores = row_operators.entmax_backward(*rows, ctx.alpha).movedim(-1, ctx.dim)
            # One infinite or NaN gradient, even outside the support, makes the whole row infinite or NaN.
            if first_is_finite(grad_scores, ctx.dim):
                return grad_scores, None, None
        return backward(grad_weights, weights, scores == -torch.inf, ctx.alpha, ctx.dim, False)[0], None, None
