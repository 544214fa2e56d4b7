"""A temperature for each query."""

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from regard.errors import KindError
from regard.fields import set_field
from regard.normalizers.local import check_each_row
from regard.normalizers.normalizer import Normalizer, WrappingNormalizer, check_rows, hidden_pairs
from regard.normalizers.parameter import check_range
from regard.shapes.axes import Float
from regard.shapes.checks import type_text
from regard.shapes.grid import Grid, upcast
from regard.shapes.layout import Pairs


class QueryTemperature(WrappingNormalizer, fields=("temperature", "normalizer")):
    r"""Divides the scores of each query by a temperature of its own, before another normalizer.

    .. math:: w_{ij} = normalize_j(s_{ij} / T_i)

    Lin et al. 2018, "Learning when to concentrate or divert attention: self-adaptive attention temperature for neural
    machine translation", where :math:`T_i = \lambda^{\beta_i}` with :math:`\beta_i = \tanh(\ldots)` of the decoder's
    state. A small temperature sharpens the weights of a query, a large one flattens them.

    Args:
        temperature: :math:`T`, floating-point, above 0, broadcastable to ``[batch, heads, queries]``; differentiable,
            such as ``torch.exp(linear(x))``.
        normalizer: computes the weights of the divided scores.

    Raises:
        KindError, ArgumentError: the normalizer or the temperature has another type, or is not above 0.

    The scores are divided after bias and mask. Where inner products have no bias, queries divided by the temperature
    give the same weights with any backend. `log_sum_exp` is that of the normalizer, of the scores before the division.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import normalizers
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> tempered = normalizers.query_temperature(torch.tensor([1.0, 0.5]))
        >>> regard.attend_with_weights(x, torch.eye(2), x, normalizer=tempered).weights
        tensor([[0.6698, 0.3302],
                [0.8044, 0.1956]])
    """

    temperature: Tensor

    def __init__(self, temperature: Tensor, normalizer: Normalizer):
        super().__init__(normalizer)
        if not isinstance(temperature, Tensor):
            raise KindError(
                f"temperature must be a tensor for [batch, heads, queries]; it is {type_text(temperature)}: "
                "for one number write normalizers.Softmax(temperature)"
            )
        check_range("temperature", temperature, above=0.0)
        set_field(self, "temperature", temperature)

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        row = upcast(scores)
        axis = dim % row.dim()
        rows = (*row.shape[:axis], *row.shape[axis + 1 :])
        check_each_row("temperature", self.temperature, rows, "the shape of scores without dim")
        divided = _divided(row, self.temperature.expand(rows).unsqueeze(axis))
        return self.normalizer(divided, dim).to(scores.dtype)

    def weigh(self, scores: Pairs, grid: Grid) -> Pairs:
        row = upcast(scores)
        check_each_row("temperature", self.temperature, (grid.batch, grid.heads, grid.queries))
        divided = _divided(row, grid.cut(self.temperature.unsqueeze(-1)))
        return self.normalizer.weigh(divided, grid).to(scores.dtype)


def _divided(scores: Tensor, temperature: Tensor) -> Tensor:
    """Returns ``scores / temperature``; −inf stays −inf and contributes no gradient to the temperature."""
    temperature, hidden = temperature.to(scores.dtype), hidden_pairs(scores)
    if hidden is None:
        return scores / temperature
    return (scores.masked_fill(hidden, 0.0) / temperature).masked_fill(hidden, -torch.inf)
