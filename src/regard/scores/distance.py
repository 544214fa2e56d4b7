"""Scores by distance: the nearer the key, the higher its score."""

import torch
from torch import Tensor

from regard.scores.custom import Pairwise
from regard.scores.inner_product import InnerProduct
from regard.scores.score import Places, Prepared, Score
from regard.shapes.checks import flag
from regard.shapes.grid import spread_heads, upcast
from regard.shapes.layout import Keys, Queries


class Distance(Score, fields=("squared",)):
    """Computes the negative distance, squared or not.

    .. math::

        score(q, k) = −|q − k|²    (squared)
        score(q, k) = −|q − k|    (not squared)

    Kim et al. 2021, "The Lipschitz Constant of Self-Attention", section 3.2, *L2 attention*; they divide these scores
    by √dim and use one projection for queries and keys.

    Args:
        squared: whether the distance is squared; default True.

    Raises:
        KindError: ``squared`` is not a bool.

    Numerics: the squared distance lowers to an inner product, ``[2q, −|q|², 1] · [k, 1, −|k|²]``, whose rounding error
    is about ``eps · (|q|² + |k|²)``, however small their distance. Therefore an anchor is first subtracted from both.
    Distances do not depend on it, so its gradient is exactly 0. The anchor of a key head in a batch row is the query
    with the smallest magnitude among those that read this head.

    - If the queries are near each other, the anchor is near them, and the error is about ``eps · (s² + |q − k|²)``,
      with s the spread of the queries, however far they are from zero; with one query it is ``eps · |q − k|²``.
    - The anchor is no larger than any query, so the error is at most a small multiple of ``eps · (|q| + |k|)²``, even
      if other queries are NaN or infinite.
    - The anchor does not depend on keys, so no key, hidden or visible, changes a bit of another key's score.

    The score of equal vectors may be a rounding error of that size instead of 0.

    The square root would amplify that error without bound near 0, so unsquared distances are computed from the
    differences, pair by pair; their gradient is 0 where query and key are equal.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> query, key = torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[3.0, 4.0], [0.0, 1.0]]]])
        >>> scores.Distance()(query, key)
        tensor([[[[-8., -2.]]]])
    """

    def __init__(self, squared: bool = True):
        super().__init__()
        self.squared = flag("squared", squared)

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        return self.prepare_at(query, key, Places.whole(query, key))

    def prepare_at(self, query: Queries, key: Keys, places: Places) -> Prepared:
        query, key = upcast(query), upcast(key)
        if not self.squared:
            return Prepared(query, key, Pairwise(_negative_distance, width=max(query.shape[-1], 1)))
        anchor = places.common(_anchor(query, key.shape[1]))
        query, key = query - spread_heads(anchor, query.shape[1]), key - anchor
        query_square, key_square = (x.square().sum(dim=-1, keepdim=True) for x in (query, key))
        return Prepared(
            torch.cat([2 * query, -query_square, torch.ones_like(query_square)], dim=-1),
            torch.cat([key, torch.ones_like(key_square), -key_square], dim=-1),
            InnerProduct(),
        )


def _anchor(query: Tensor, kv_heads: int) -> Tensor:
    """Returns the query with the smallest magnitude for each key head, a constant ``[batch, kv_heads, 1, dim]``.

    It is 0 if no query is finite, or if there are none.
    """
    batch, heads, queries, dim = query.shape
    if 0 in (batch, heads, queries, dim):
        return query.new_zeros(batch, kv_heads, 1, dim)
    group = query.detach().reshape(batch, kv_heads, -1, dim)
    magnitude = group.abs().amax(dim=-1).nan_to_num(nan=torch.inf)
    smallest = magnitude.argmin(dim=-1)[..., None, None].expand(-1, -1, -1, dim)
    return group.gather(2, smallest).nan_to_num(0.0, 0.0, 0.0)


def _negative_distance(query: Tensor, key: Tensor) -> Tensor:
    # `torch.cdist` has neither a second nor a forward-mode derivative.
    square = (query[..., :, None, :] - key[..., None, :, :]).square().sum(dim=-1)  # B H Q K
    equal = square == 0
    return -square.masked_fill(equal, 1.0).sqrt().masked_fill(equal, 0.0)
