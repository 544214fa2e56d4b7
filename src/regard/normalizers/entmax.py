"""The entmax family, whose weights can be exactly 0 without a mask; sparsemax is its member with alpha = 2."""

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from regard.errors import ArgumentError, KindError
from regard.names.answered import answered
from regard.normalizers import compiled_rows
from regard.normalizers.entmax_derivative import Solution, solve, transformable
from regard.normalizers.normalizer import Normalizer, RowPrimitive, check_rows
from regard.normalizers.parameter import along_heads, set_parameter
from regard.shapes.axes import Float
from regard.shapes.grid import upcast
from regard.tracing.transforms import can_read, reverse_mode_only


@answered
class Entmax(Normalizer, fields=("alpha",)):
    """Computes sparse weights: small scores get exactly 0.

    For each row of scores, the weights solve

    .. math:: w = \\arg\\max_{p \\ge 0,\\ \\sum p = 1} \\; p \\cdot s + H_\\alpha(p), \\qquad
              H_\\alpha(p) = \\frac{1}{\\alpha (\\alpha - 1)} \\sum_j (p_j - p_j^\\alpha)

    so that :math:`w_j = [(\\alpha - 1) s_j - \\tau]_+^{1/(\\alpha - 1)}`, with the threshold :math:`\\tau` for which
    the sum is 1. Peters, Niculae & Martins 2019, "Sparse sequence-to-sequence models" (eq. 10 and proposition 1). As
    alpha approaches 1, the entropy becomes Shannon's and the weights become softmax; alpha = 2 is sparsemax (Martins &
    Astudillo 2016, the projection of the scores onto the simplex); a larger alpha gives fewer nonzero weights.

    Args:
        alpha: a number above 1, or a tensor ``[]`` or ``[heads]`` that may be learned (Correia, Niculae & Martins
            2019, "Adaptively sparse transformers"). To keep a learned alpha in its domain, pass ``1 + softplus`` or
            ``1 + sigmoid`` of an unconstrained parameter.

    Raises:
        ArgumentError: alpha is not finite or not above 1; also at a call, for a learned alpha that has left its domain.
            An alpha on a device is not checked, since the host would wait for it; nor is one while PyTorch traces.

    Numerics: for the numbers 2 and 1.5 the threshold is found by sorting; for any other alpha, by Newton's method
    within a bracket, which is halved where a step does not help, until the sum is 1 up to a few roundings or the ends
    of the bracket are adjacent floating-point numbers. If the normalizer is called on its own on a CPU, with many
    scores, and Numba is installed, compiled loops that never sort find it. The weights are exact for scores that differ
    by one rounding. Above alpha 2 a weight grows from 0 like a root of the score, so a weight below
    ``ε^{1/(alpha − 1)}`` (in float64 6e-6 at alpha 4, 7e-4 at alpha 6) depends on digits that the scores do not have.
    Half precision is computed in float32. The gradient to the scores and to alpha is exact on the support; at a weight
    that just reaches 0 it is one of the two one-sided derivatives.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> scores = torch.tensor([1.0, 0.0, -1.0])
        >>> normalizers.Entmax(1.5)(scores)
        tensor([0.8307, 0.1693, 0.0000])
    """

    alpha: float | Tensor

    def __init__(self, alpha: float | Tensor):
        super().__init__()
        if type(alpha) in (int, float) and alpha == 1:
            raise ArgumentError(
                'alpha must be finite and greater than 1; at 1 entmax is softmax: write normalizer="softmax"'
            )
        set_parameter(self, "alpha", alpha, above=1.0)

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        row = upcast(scores)
        alpha = along_heads("alpha", self._checked_alpha(), row, dim)
        if not isinstance(alpha, Tensor) and compiled_rows.supports(row, alpha):
            weights = compiled_rows.weigh(row, alpha, dim)
        elif torch.compiler.is_compiling() or reverse_mode_only(row):
            leaves = [tensor for tensor in (row, alpha) if isinstance(tensor, Tensor) and tensor.requires_grad]
            weights = Solution.apply(row, alpha, dim) if leaves and torch.is_grad_enabled() else solve(row, alpha, dim)
        else:
            weights = transformable(row, alpha, dim)
        return weights.to(scores.dtype)

    def lower(self) -> RowPrimitive | None:
        return RowPrimitive("entmax", alpha=self._checked_alpha())

    def _checked_alpha(self) -> float | Tensor:
        if isinstance(self.alpha, Tensor) and can_read(self.alpha) and not bool((self.alpha > 1.0).all()):
            raise ArgumentError(
                f"a learned alpha must stay above 1, where entmax is softmax; it is {self.alpha.tolist()}: pass "
                "normalizers.Softmax(), or an alpha that is 1 + softplus of a parameter"
            )
        return self.alpha


class Sparsemax(Entmax, fields=()):
    """Projects each row onto the simplex: the weights ≥ 0 with sum 1 that are nearest to the scores.

    .. math:: w = \\arg\\min_{p \\ge 0,\\ \\sum p = 1} \\lVert p - s \\rVert^2, \\qquad w_j = [s_j - \\tau]_+

    Martins & Astudillo 2016, "From softmax to sparsemax" (eq. 2 and algorithm 1). It is `Entmax` with alpha 2 and has
    the same numerics.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> scores = torch.tensor([1.0, 0.0, -1.0])
        >>> normalizers.Sparsemax()(scores)
        tensor([1., 0., 0.])
    """

    def __init__(self) -> None:
        super().__init__(2.0)


sparsemax = Sparsemax()


def entmax(alpha: float | Tensor, *unknown: object, **names: object) -> Entmax:
    """Returns entmax with this alpha, which is a number above 1 or a learned tensor: see `Entmax`.

    It makes a function of scores: ``entmax(1.5)(scores, dim=-1)``.

    Raises:
        KindError: scores are passed.
        ArgumentError: alpha is not finite or not above 1.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> scores = torch.tensor([1.0, 0.0, -1.0])
        >>> normalizers.entmax(1.5)(scores)
        tensor([0.8307, 0.1693, 0.0000])
    """
    if unknown or names or (isinstance(alpha, Tensor) and alpha.dim() > 1):
        raise KindError(
            "entmax takes alpha alone and makes a function: write normalizers.entmax(alpha)(scores, dim=-1)"
        )
    return Entmax(alpha)
