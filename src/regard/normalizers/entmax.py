"""The entmax family: weights that can be exactly 0 without a mask. Sparsemax is its member alpha = 2."""

import math
from typing import Any

import torch
from torch import Tensor

from regard.kernels.availability import why_missing
from regard.normalizers.normalizer import Normalizer
from regard.normalizers.parameter import along_heads, set_parameter
from regard.normalizers.row_primitive import RowPrimitive
from regard.normalizers.rows import check_rows
from regard.normalizers.thresholds import entmax15_by_sort, entmax_by_root, sparsemax_by_sort
from regard.shapes import accurate


class Entmax(Normalizer):
    """Weights that solve, for each row of scores,

    .. math:: w = \\arg\\max_{p \\ge 0,\\ \\sum p = 1} \\; p \\cdot s + H_\\alpha(p), \\qquad
              H_\\alpha(p) = \\frac{1}{\\alpha (\\alpha - 1)} \\sum_j (p_j - p_j^\\alpha)

    so that :math:`w_j = [(\\alpha - 1) s_j - \\tau]_+^{1/(\\alpha - 1)}` with the threshold :math:`\\tau` that makes
    the sum 1. Peters, Niculae & Martins 2019, "Sparse sequence-to-sequence models" (eq. 10 and proposition 1). As
    alpha falls to 1 the entropy becomes Shannon's and the weights softmax; alpha = 2 is sparsemax (Martins &
    Astudillo 2016, the projection of the scores onto the simplex); the larger alpha, the fewer weights are not 0.

    Args:
        alpha: above 1: a number, or a tensor ``[]`` or ``[heads]`` that may be learned (Correia, Niculae & Martins
            2019, "Adaptively sparse transformers"). It is checked here and not at each call: to keep a learned one in
            its domain, learn a number and pass ``1 + softplus`` or ``1 + sigmoid`` of it.

    Raises:
        ArgumentError: an alpha that is not finite or not above 1.

    Numerics: alpha 2 and 1.5, given as numbers, are solved by sorting; others and tensors by Newton's method, and
    above 2 by bisection, to the precision of the dtype. Many scores on a CPU are weighed by compiled loops, if Numba is
    installed, which find all thresholds by Newton's method. Above 2 a weight leaves 0 like a root of the score, so the
    smallest weights have fewer digits. Half precision is computed in float32. The gradient to the scores and to alpha
    is exact; it is that of the support, so where a weight just becomes 0 it is one of the two one-sided ones.
    """

    alpha: float | Tensor

    def __init__(self, alpha: float | Tensor):
        super().__init__()
        set_parameter(self, "alpha", alpha, above=1.0)

    def forward(self, scores: Tensor, dim: int = -1) -> Tensor:
        check_rows(scores, dim)
        row = accurate(scores)
        return _Entmax.apply(row, along_heads("alpha", self.alpha, row, dim), dim).to(scores.dtype)

    def lower(self) -> RowPrimitive | None:
        return RowPrimitive("entmax", alpha=self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class Sparsemax(Entmax):
    """The projection of each row onto the simplex: the point with weights ≥ 0 and sum 1 that is nearest to the scores.

    .. math:: w = \\arg\\min_{p \\ge 0,\\ \\sum p = 1} \\lVert p - s \\rVert^2, \\qquad w_j = [s_j - \\tau]_+

    Martins & Astudillo 2016, "From softmax to sparsemax" (eq. 2 and algorithm 1). It is `Entmax` with alpha 2, whose
    numerics hold here too.
    """

    def __init__(self) -> None:
        super().__init__(2.0)

    def extra_repr(self) -> str:
        return ""


sparsemax = Sparsemax()


def entmax(alpha: float | Tensor) -> Entmax:
    """Entmax with this alpha, a number above 1 or a learned tensor: see `Entmax`."""
    return Entmax(alpha)


KERNEL_NUMBERS = 1 << 14
"""From how many scores on compiled loops are worth their call (`make bench`, task rows)."""


def _suits_kernels(row: Tensor, alpha: float | Tensor) -> bool:
    """Whether the compiled loops run this: they know rows on a CPU and an alpha that is a number."""
    return (
        row.numel() >= KERNEL_NUMBERS
        and row.device.type == "cpu"
        and row.dtype in (torch.float32, torch.float64)
        and not isinstance(alpha, Tensor)
        and why_missing() is None
    )


class _Entmax(torch.autograd.Function):
    """The weights by any of the solvers; the gradient from the weights alone."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: float | Tensor, dim: int) -> Tensor:
        ctx.by_loops = _suits_kernels(scores, alpha)
        if scores.numel() == 0:
            weights = torch.zeros_like(scores)
        elif ctx.by_loops and not isinstance(alpha, Tensor):
            from regard.kernels.cpu import row_operators

            weights = row_operators.entmax(scores.movedim(dim, -1), alpha).movedim(-1, dim)
        elif isinstance(alpha, Tensor):
            weights = entmax_by_root(scores, alpha, dim)
        elif alpha == 2.0:
            weights = sparsemax_by_sort(scores, dim)
        elif alpha == 1.5:
            weights = entmax15_by_sort(scores, dim)
        else:
            weights = entmax_by_root(scores, scores.new_tensor(alpha), dim)
        learned = isinstance(alpha, Tensor)
        ctx.dim, ctx.alpha = dim, None if learned else alpha
        ctx.save_for_backward(weights, *([alpha] if learned else []))
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        # With g = p^(2 − α) on the support and 0 elsewhere, ∂p/∂s = diag(g) − g gᵀ / Σg (Peters et al. 2019, prop. 2).
        weights, *rest = ctx.saved_tensors
        # The loops' gradient has no gradient; where one is wanted, the lines below have.
        if ctx.by_loops and not torch.is_grad_enabled():
            from regard.kernels.cpu import row_operators

            rows = gradients[0].movedim(ctx.dim, -1), weights.movedim(ctx.dim, -1)
            return row_operators.entmax_backward(*rows, ctx.alpha).movedim(-1, ctx.dim), None, None
        alpha: float | Tensor = rest[0] if rest else ctx.alpha
        support = weights > 0.0
        inside = weights.masked_fill(~support, 1.0)
        if isinstance(alpha, float) and alpha == 2.0:
            mobility = support.to(weights.dtype)
        else:
            # For α > 2 this is huge where weights are small; sums of it must stay finite.
            ceiling = math.sqrt(torch.finfo(weights.dtype).max)
            mobility = inside.pow(2.0 - alpha).clamp(max=ceiling).masked_fill(~support, 0.0)
        total = mobility.sum(ctx.dim, keepdim=True)
        total = total.masked_fill(total == 0.0, 1.0)
        centred = gradients[0] - (gradients[0] * mobility).sum(ctx.dim, keepdim=True) / total
        by_alpha = None
        if isinstance(alpha, Tensor) and ctx.needs_input_grad[1]:
            by_alpha = (centred * _pull(inside, alpha)).masked_fill(~support, 0.0).sum_to_size(alpha.shape)
        return mobility * centred, by_alpha, None


def _pull(weights: Tensor, alpha: Tensor) -> Tensor:
    """How each weight moves with alpha before the threshold follows to keep the sum.

    Correia et al. 2019 (proposition 1) divide differences by (α − 1)², which loses every digit near 1. With
    :math:`y = -(\\alpha - 1) \\log p \\ge 0` the same derivative, up to the part that the threshold cancels, is

    .. math:: -p \\log^2 p \\; (e^y - 1 - y) / y^2

    whose last factor is smooth, and ½ at 0.
    """
    log = weights.log()
    y = (1.0 - alpha) * log
    series = torch.zeros_like(y)
    for k in range(11, 1, -1):
        series = series * y + 1.0 / math.factorial(k)
    small = y < 0.1
    large = y.masked_fill(small, 1.0).clamp(max=math.log(torch.finfo(y.dtype).max) / 2.0)
    factor = torch.where(small, series, (torch.expm1(large) - large) / large.square())
    return -weights * log.square() * factor
