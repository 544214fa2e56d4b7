"""Normalizers without a maximum: sigmoids and squares of scores, the scores as they are, and their shares of a sum."""

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from regard.normalizers.normalizer import Normalizer, RowPrimitive, check_rows, hidden_pairs
from regard.normalizers.parameter import along_heads, set_parameter
from regard.shapes.axes import Float
from regard.shapes.checks import flag
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


class SquaredReLU(Normalizer, fields=("mean",)):
    """Computes each weight as the square of its own score, and 0 where that is negative.

    .. math:: w_j = relu(s_j)^2,  or  relu(s_j)^2 / n  with  mean=True

    Hua et al. 2022, "Transformer quality in linear time" (the gated attention unit), after the activation of So
    et al. 2021, "Primer"; with the mean, Wortsman et al. 2023, "Replacing softmax with ReLU in vision transformers".

    Args:
        mean: whether to divide by n, the number of keys that the query sees, so that sums do not grow with the length.

    Raises:
        KindError: ``mean`` is not a bool.

    ``dim`` is the axis along which keys are counted; they do not compete. Half precision is computed in float32.
    `log_sum_exp` is that of the scores.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> normalizers.squared_relu(torch.tensor([2.0, 0.5, -1.0]))
        tensor([4.0000, 0.2500, 0.0000])
    """

    def __init__(self, mean: bool = False):
        super().__init__()
        self.mean = flag("mean", mean)

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        row = upcast(scores)
        hidden = row == -torch.inf
        visible = row.masked_fill(hidden, 0.0)
        # Unlike that of a square, this product's gradient does not lose a NaN at a negative score.
        weights = visible * visible.relu() + 0.0
        if self.mean:
            weights = weights / (~hidden).sum(dim, keepdim=True).clamp(min=1)
        return weights.masked_fill(hidden, 0.0).to(scores.dtype)


class Identity(Normalizer, fields=()):
    """Takes the scores as weights.

    .. math:: w_j = s_j

    Retention (Sun et al. 2023, "Retentive Network", eq. 5), gated linear attention (Yang et al. 2024, eq. 4) and the
    delta rule (Yang et al. 2024, "Parallelizing linear transformers with the delta rule over sequence length",
    section 2.2) weigh values by scores themselves; weights may be negative, and a row has any sum. The weight of a
    hidden pair is 0.

    ``dim`` is checked but has no effect, since keys do not compete. `log_sum_exp` is that of the scores. Half precision
    stays as it is: nothing is calculated.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> normalizers.identity(torch.tensor([1.0, -2.0, -torch.inf]))
        tensor([ 1., -2.,  0.])
    """

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        return scores.masked_fill(scores == -torch.inf, 0.0)

    def lower(self) -> RowPrimitive | None:
        return RowPrimitive("identity")


class Ratio(Normalizer, fields=()):
    """Divides each score by the sum of its row.

    .. math:: w_j = s_j \\,/\\, \\sum_k s_k

    Katharopoulos et al. 2020, "Transformers are RNNs" (eq. 3 and 5): scores are the products of features that are not
    negative (`regard.scores.Features`), so that the weights of a row are not negative and sum to 1. With the scores
    ``exp(s)`` it is softmax.

    A hidden pair counts as 0, and a row whose scores sum to 0 has weights 0. Half precision is computed in float32.
    `log_sum_exp` is that of the scores. Scores of both signs are taken as they are; where their sum is near 0, weights
    are large.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> normalizers.ratio(torch.tensor([3.0, 1.0, -torch.inf]))
        tensor([0.7500, 0.2500, 0.0000])
    """

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        row = upcast(scores)
        hidden = row == -torch.inf
        visible = row.masked_fill(hidden, 0.0)
        total = visible.sum(dim, keepdim=True)
        is_empty = total.abs() < torch.finfo(total.dtype).tiny
        # A finite total stays as it is; an infinite one becomes NaN, as keys compete.
        weights = visible / torch.where(is_empty, torch.inf, total + 0.0 * total.detach())
        return weights.masked_fill(hidden, 0.0).to(scores.dtype)

    def lower(self) -> RowPrimitive | None:
        return RowPrimitive("ratio")


squared_relu = SquaredReLU()
identity = Identity()
ratio = Ratio()
