"""Selection of few keys: another normalizer over the largest scores of each row alone."""

from abc import abstractmethod
from collections.abc import Callable

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from regard.errors import ArgumentError
from regard.normalizers.coupled import TalkingHeads
from regard.normalizers.elementwise import Identity, Ratio
from regard.normalizers.normalizer import Normalizer, WrappingNormalizer, check_rows, row_maximum
from regard.normalizers.parameter import check_range
from regard.normalizers.softmax_variants import SignedSoftmax
from regard.shapes.axes import Float
from regard.shapes.checks import size
from regard.shapes.grid import Grid, upcast
from regard.shapes.layout import Pairs


class Selection(WrappingNormalizer):
    """Normalizes the selected scores of each row; a pair that is not selected has weight 0 and gradient 0.

    `log_sum_exp` is that of the normalizer, over all visible scores.
    """

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        return self._selected(upcast(scores), dim, lambda row: self.normalizer(row, dim)).to(scores.dtype)

    def weigh(self, scores: Pairs, grid: Grid) -> Pairs:
        return self._selected(upcast(scores), -1, lambda row: self.normalizer.weigh(row, grid)).to(scores.dtype)

    def _selected(self, row: Tensor, dim: int, weigh: Callable[[Tensor], Tensor]) -> Tensor:
        if row.shape[dim] == 0:
            return weigh(row)
        with torch.no_grad():
            dropped = self.dropped(row.detach(), dim, weigh)
        return weigh(row.masked_fill(dropped, -torch.inf))

    @abstractmethod
    def dropped(self, row: Tensor, dim: int, weigh: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns which scores are not selected, bool of the shape of ``row``; none in a row with NaN or +inf.

        Args:
            row: scores in float32 or float64 with at least one key.
            dim: the axis of the keys.
            weigh: the weights of such scores.
        """


class TopK(Selection, fields=("k", "normalizer")):
    r"""Normalizes the ``k`` largest scores of each row, and gives all other keys weight 0.

    .. math:: w = normalize(s'), \qquad s'_j = s_j \; \text{if} \; s_j \ge t, \; \text{else} \; -\infty

    where :math:`t` is the k-th largest visible score of the row: Zhao et al. 2019, "Explicit Sparse Transformer:
    concentrated attention through explicit selection"; Gupta et al. 2021, "Memory-efficient Transformers via top-k
    attention". As in the first, scores that equal :math:`t` are all kept, so that a row with ties may have more than
    ``k`` weights, and the gradient is that of the normalizer on the kept scores: the selection itself has none.

    Args:
        k: number of keys, at least 1. A row with fewer visible keys keeps them all.
        normalizer: computes the weights of the kept scores.

    Raises:
        ArgumentError, KindError: ``k`` is below 1 or no integer, or the normalizer has another type.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> normalizers.top_k(2)(torch.tensor([1.0, 0.0, -1.0, 0.5]))
        tensor([0.6225, 0.0000, 0.0000, 0.3775])
    """

    def __init__(self, k: int, normalizer: Normalizer):
        self.k = size("k", k)
        super().__init__(normalizer)

    def dropped(self, row: Tensor, dim: int, weigh: Callable[[Tensor], Tensor]) -> Tensor:
        last = row.topk(min(self.k, row.shape[dim]), dim).values.narrow(dim, -1, 1)
        maximum, _ = row_maximum(row, dim)
        return (row < last) & (maximum < torch.inf)


class TopP(Selection, fields=("p", "normalizer")):
    r"""Normalizes the fewest keys that hold a share ``p`` of a row's weight, and gives all other keys weight 0.

    .. math:: w = normalize(s'), \qquad s'_j = s_j \; \text{if} \; j \in S, \; \text{else} \; -\infty, \qquad
        S = \arg\min_S |S| \;\; \text{with} \;\; \sum_{j \in S} normalize(s)_j \ge p \sum_j normalize(s)_j

    Lin et al. 2025, "Twilight: adaptive attention sparsity with hierarchical top-p pruning", definition 3.3, after the
    nucleus of Holtzman et al. 2020, section 3.1. Keys whose weight equals the smallest one of S are all kept. The
    gradient is that of the normalizer on the kept scores: the selection itself has none.

    Args:
        p: the share of the weight, above 0 and at most 1. With 1, all keys with a weight are kept.
        normalizer: computes the weights, of all scores and then of the kept ones; not a random one, nor one whose
            weights may be negative (``identity``, ``ratio``, ``signed_softmax``, talking heads).

    Raises:
        ArgumentError, KindError: ``p`` is out of range, or the normalizer has another type, is random or may give
            negative weights.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> normalizers.top_p(0.7)(torch.tensor([1.0, 0.0, -1.0, 0.5]))
        tensor([0.6225, 0.0000, 0.0000, 0.3775])
    """

    def __init__(self, p: float, normalizer: Normalizer):
        super().__init__(normalizer)
        check_range("p", p, above=0.0)
        if p > 1:
            raise ArgumentError(f"p must be at most 1; it is {p}")
        if normalizer.random:
            raise ArgumentError("top_p selects by weights, so its normalizer must not draw them at random")
        signed = _signed(normalizer)
        if signed is not None:
            raise ArgumentError(
                f"top_p selects a share of a row's weight, and weights of {type(signed).__name__} may be negative, so "
                "that a row has no shares: write top_k, or another normalizer"
            )
        self.p = float(p)

    def dropped(self, row: Tensor, dim: int, weigh: Callable[[Tensor], Tensor]) -> Tensor:
        weights = weigh(row)
        if self.p == 1.0:
            return torch.zeros_like(weights, dtype=torch.bool)
        ordered = weights.sort(dim, descending=True).values
        sums = ordered.cumsum(dim)
        # The last kept weight is the first at which the sum reaches the share; rounding must not lose it.
        before = sums - ordered
        reached = before < self.p * sums.narrow(dim, -1, 1)
        smallest = ordered.masked_fill(~reached, torch.inf).amin(dim, keepdim=True)
        return (weights < smallest) & (smallest < torch.inf)


def _signed(normalizer: object) -> Normalizer | None:
    """Returns the normalizer, or the one in it, whose weights may be negative; None if there is none."""
    while isinstance(normalizer, Normalizer):
        if isinstance(normalizer, (Identity, Ratio, SignedSoftmax, TalkingHeads)):
            return normalizer
        normalizer = getattr(normalizer, "normalizer", None)
    return None
