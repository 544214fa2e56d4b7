"""Luong's local attention: a Gaussian window over the weights of another normalizer."""

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from regard.fields import set_field
from regard.normalizers.normalizer import Normalizer, RowPrimitive, WrappingNormalizer, check_rows, hidden_pairs
from regard.normalizers.parameter import check_range
from regard.shapes.axes import Float
from regard.shapes.checks import check_broadcast, check_floating
from regard.shapes.grid import Grid, upcast
from regard.shapes.layout import Pairs


class LocalGaussian(WrappingNormalizer, fields=("normalizer", "center", "sigma")):
    """Multiplies another normalizer's weights by a Gaussian window around a center.

    .. math:: w_j = align_j \\, \\exp\\!\\big(-(j - p)^2 / (2 \\sigma^2)\\big)

    Luong, Pham & Manning 2015, local-p (eq. 10), where :math:`p = S \\cdot sigmoid(v \\cdot \\tanh(W h))` is
    predicted from the decoder's state (eq. 9), :math:`\\sigma = D / 2`, and a window mask keeps the keys within ``D``
    of the center. As in the paper, the weights are not normalized again, so the sum of a row decreases.

    Args:
        normalizer: computes :math:`align`.
        center: :math:`p`, floating-point, in key positions (the first key is at 0), broadcastable to
            ``[batch, heads, queries]``; differentiable.
        sigma: standard deviation, above 0, in key positions: a number, or a tensor broadcastable like ``center`` (with
            one a head, ``[heads, 1]``); differentiable.

    Raises:
        KindError: the normalizer, center or sigma has another type.
        ArgumentError: sigma is not finite or not above 0.

    When the normalizer is called on scores of any shape, the keys lie along ``dim``, and center and sigma broadcast to
    the shape of the scores without that axis.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import normalizers
        >>> x = torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3, 2)
        >>> local = normalizers.LocalGaussian(normalizers.softmax, torch.tensor(1.0), sigma=1.0)
        >>> regard.attend_with_weights(*x, normalizer=local).weights[0, 0]
        tensor([[0.2022, 0.3333, 0.2022]])
    """

    center: Tensor
    sigma: float | Tensor

    def __init__(self, normalizer: Normalizer, center: Tensor, sigma: float | Tensor):
        super().__init__(normalizer)
        check_floating("center", center)
        check_range("sigma", sigma, above=0.0)
        set_field(self, "center", center)
        set_field(self, "sigma", sigma)

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        row = upcast(scores)
        axis = dim % row.dim()
        rows = (*row.shape[:axis], *row.shape[axis + 1 :])
        center, sigma = self._checked(rows, "the shape of scores without dim")
        shape = [1] * row.dim()
        shape[axis] = -1
        positions = torch.arange(row.shape[axis], device=row.device).view(shape)
        if isinstance(sigma, Tensor):
            sigma = sigma.expand(rows).unsqueeze(axis)
        window = gaussian_window(positions, center.expand(rows).unsqueeze(axis), sigma, row.dtype)
        return windowed(self.normalizer(row, dim), window, row).to(scores.dtype)

    def weigh(self, scores: Pairs, grid: Grid) -> Pairs:
        row = upcast(scores)
        center, sigma = self._checked((grid.batch, grid.heads, grid.queries), "[batch, heads, queries]")
        if isinstance(sigma, Tensor):
            sigma = grid.cut(sigma.unsqueeze(-1))
        window = gaussian_window(grid.key_index, grid.cut(center.unsqueeze(-1)), sigma, row.dtype)
        return windowed(self.normalizer.weigh(row, grid), window, row).to(scores.dtype)

    def _checked(self, rows: tuple[int, ...], axes: str) -> tuple[Tensor, float | Tensor]:
        for name, parameter in (("center", self.center), ("sigma", self.sigma)):
            check_each_row(name, parameter, rows, axes)
        return self.center, self.sigma

    def lower(self) -> RowPrimitive | None:
        inner = self.normalizer.lower()
        if inner is None or inner.center is not None:
            return None
        return inner._replace(center=self.center, sigma=self.sigma)


def check_each_row(
    name: str, parameter: float | Tensor, rows: tuple[int, ...], axes: str = "[batch, heads, queries]"
) -> None:
    """Raises ShapeError unless a center or sigma broadcasts to the rows of the scores."""
    if isinstance(parameter, Tensor):
        # The two axes that a call with [batch, length, dim] suggests.
        by_batch = parameter.dim() == 2 and len(rows) == 3 and tuple(parameter.shape) == (rows[0], rows[2])
        check_broadcast(name, parameter, rows, axes, f"write {name}[:, None] for [batch, queries]" if by_batch else "")


def windowed(weights: Tensor, window: Tensor, scores: Tensor) -> Tensor:
    """Returns weights times their window; hidden pairs, whose scores are −∞, stay 0."""
    hidden = hidden_pairs(scores)
    # Hidden pairs pass no gradient to the window either, even if the incoming gradient is NaN.
    return weights * window if hidden is None else (weights * window).masked_fill(hidden, 0.0)


def gaussian_window(positions: Tensor, center: Tensor, sigma: float | Tensor, dtype: torch.dtype) -> Tensor:
    """Returns ``exp(−(j − center)² / (2 sigma²))`` of each position j, in a dtype; the arguments broadcast."""
    deviation = sigma.to(dtype) if isinstance(sigma, Tensor) else sigma
    # The division comes first, since the square of a long distance could overflow.
    return ((positions - center.to(dtype)) / deviation).square().mul(-0.5).exp()
