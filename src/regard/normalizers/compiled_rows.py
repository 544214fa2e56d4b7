"""Entmax's rows by compiled loops: what is fast where a normalizer is called on its own.

Attention's specification calls normalizers too, and is plain PyTorch: it weighs within `plain_rows`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from regard.normalizers.entmax_derivative import backward
from regard.normalizers.rows import first_is_finite
from regard.transforms import can_branch_on, reverse_mode_only

KERNEL_NUMBERS = 1 << 14
"""From how many scores on compiled loops are worth their call (`make bench`, task rows)."""


class _Plain(threading.local):
    wanted = False


_PLAIN = _Plain()


@contextmanager
def plain_rows() -> Iterator[None]:
    """Within it, this thread's normalizers are made of PyTorch's operations alone, however they are called."""
    before, _PLAIN.wanted = _PLAIN.wanted, True
    try:
        yield
    finally:
        _PLAIN.wanted = before


def suit(scores: Tensor, alpha: float | Tensor) -> bool:
    """Whether compiled loops weigh these rows: many numbers on a CPU, of reverse mode alone, by an alpha that is a
    number; and the loops are compiled, or a caller has to wait for them."""
    if torch.compiler.is_compiling() or _PLAIN.wanted or isinstance(alpha, Tensor) or scores.numel() < KERNEL_NUMBERS:
        return False
    if scores.device.type != "cpu" or scores.dtype not in (torch.float32, torch.float64):
        return False
    if not (can_branch_on(scores) and reverse_mode_only(scores)):
        return False
    from regard.kernels.availability import why_missing

    if why_missing() is not None:
        return False
    from regard.kernels.cpu import row_operators

    return row_operators.are_usable(scores.dtype, alpha, scores.requires_grad and torch.is_grad_enabled())


def weigh(scores: Tensor, alpha: float, dim: int) -> Tensor:
    """The weights, where `suit` is true; differentiable in reverse mode, to any order."""
    if scores.requires_grad and torch.is_grad_enabled():
        return _CompiledRows.apply(scores, alpha, dim)
    return _weights(scores, alpha, dim)


def _weights(scores: Tensor, alpha: float, dim: int) -> Tensor:
    from regard.kernels.cpu import row_operators

    weights = row_operators.entmax(scores.movedim(dim, -1), alpha).movedim(-1, dim)
    # Rows with NaN or +inf are NaN throughout.
    return weights if first_is_finite(weights, dim) else weights.masked_fill(scores == -torch.inf, 0.0)


class _CompiledRows(torch.autograd.Function):
    """``(scores, alpha, dim) -> weights``."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: float, dim: int) -> Tensor:
        weights = _weights(scores, alpha, dim)
        ctx.alpha, ctx.dim = alpha, dim
        ctx.save_for_backward(weights, scores)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (weights, scores), (grad_weights,) = ctx.saved_tensors, gradients
        # The loops' gradient has no derivative; where one is wanted, the lines below have.
        if not torch.is_grad_enabled() and reverse_mode_only(grad_weights):
            from regard.kernels.cpu import row_operators

            rows = grad_weights.movedim(ctx.dim, -1), weights.movedim(ctx.dim, -1)
            grad_scores = row_operators.entmax_backward(*rows, ctx.alpha).movedim(-1, ctx.dim)
            # One gradient that is not finite, outside of the support too, makes the whole row so.
            if first_is_finite(grad_scores, ctx.dim):
                return grad_scores, None, None
        return backward(grad_weights, weights, scores == -torch.inf, ctx.alpha, ctx.dim, False)[0], None, None
