"""Scores by distance: near keys score high."""

import torch
from torch import Tensor

from regard.errors import KindError
from regard.scores.score import Pairwise, Prepared, Score
from regard.shapes import accurate, spread_heads


class Distance(Score):
    """The negative distance, squared or not.

    ::

        score(q, k) = −|q − k|²          squared=True
        score(q, k) = −|q − k|           squared=False

    Kim et al. 2021, "The Lipschitz Constant of Self-Attention", section 3.2, *L2 attention*: their scores are ours
    divided by √dim, and their query and key projections are one.

    Args:
        squared: whether the distance is squared (the default).

    Raises:
        KindError: ``squared`` is not a bool.

    Numerics: the squared distance lowers to an inner product, [2q, −|q|², 1] · [k, 1, −|k|²], whose rounding error is
    about eps · (|q|² + |k|²), whatever their distance. So the mean of the keys is subtracted from both first, for each
    head of each batch row: distances don't depend on it (therefore it takes no gradient, exactly), and what counts is
    then how far the vectors spread and not how far from zero they lie. The score of equal vectors may come out as a
    rounding error of that size instead of 0.

    The root would magnify that error without bound near 0; so unsquared distances are taken from the differences
    themselves, pair by pair, and their gradient is 0 where query and key are equal.
    """

    def __init__(self, squared: bool = True):
        super().__init__()
        if not isinstance(squared, bool):
            raise KindError(f"squared must be True or False; it is a {type(squared).__name__}")
        self.squared = squared

    def prepare(self, query: Tensor, key: Tensor) -> Prepared:
        query, key = accurate(query), accurate(key)
        if not self.squared:
            return Prepared(query, key, Pairwise(_negative_distance))
        centre = _centre(key)
        query, key = query - spread_heads(centre, query.shape[1]), key - centre
        query_square, key_square = (x.square().sum(dim=-1, keepdim=True) for x in (query, key))
        return Prepared(
            torch.cat([2 * query, -query_square, torch.ones_like(query_square)], dim=-1),
            torch.cat([key, torch.ones_like(key_square), -key_square], dim=-1),
        )

    def extra_repr(self) -> str:
        return f"squared={self.squared}"


def _centre(key: Tensor) -> Tensor:
    """The mean of the keys, a constant, ``[batch, kv_heads, 1, dim]``; 0 where it is not finite, or of no keys."""
    return key.detach().mean(dim=2, keepdim=True).nan_to_num(0.0, 0.0, 0.0)


def _negative_distance(query: Tensor, key: Tensor) -> Tensor:
    # The mode without matrix products subtracts before it squares, holds no differences, and knows the gradient at 0.
    return -torch.cdist(query, key, compute_mode="donot_use_mm_for_euclid_dist")
