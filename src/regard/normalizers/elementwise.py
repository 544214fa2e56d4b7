"""Normalizers that weigh each key independently."""

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from regard.normalizers.normalizer import Normalizer, RowPrimitive, check_rows, hidden_pairs
from regard.normalizers.parameter import along_heads, set_parameter
from regard.shapes.axes import Float
from regard.shapes.grid import upcast


class Sigmoid(Normalizer, fields=("bias",)):
    """Computes each weight as the sigmoid of its own score, so that a row need not sum to 1.

    .. math:: w_j = 1 \\,/\\, (1 + \\exp(-(s_j + b)))

    Ramapuram et al. 2024, "Theory, analysis, and best practices for sigmoid self-attention" (eq. 3), where
    :math:`b = -\\log n` for rows of ``n`` keys keeps their sums near 1.

    Args:
        bias: :math:`b`: a number, or a tensor ``[]`` or ``[heads]`` that may be learned; default 0.

    Raises:
        ArgumentError: the bias is not finite.

    ``dim`` is checked but has no effect, since keys do not compete. `log_sum_exp` is that of the scores without the
    bias. Half precision is computed in float32.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> scores = torch.tensor([1.0, 0.0, -1.0])
        >>> normalizers.Sigmoid(bias=0.0)(scores)
        tensor([0.7311, 0.5000, 0.2689])
    """

    bias: float | Tensor

    def __init__(self, bias: float | Tensor = 0.0):
        super().__init__()
        set_parameter(self, "bias", bias)

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        row = upcast(scores)
        hidden = hidden_pairs(row)
        visible = row if hidden is None else row.masked_fill(hidden, 0.0)
        bias = along_heads("bias", self.bias, row, dim)
        shifted = visible + bias if isinstance(bias, Tensor) or bias != 0.0 else visible
        weights = torch.sigmoid(shifted)
        return (weights if hidden is None else weights.masked_fill(hidden, 0.0)).to(scores.dtype)

    def lower(self) -> RowPrimitive | None:
        return RowPrimitive("sigmoid", shift=self.bias)


sigmoid = Sigmoid()
