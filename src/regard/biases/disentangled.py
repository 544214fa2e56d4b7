"""Disentangled attention: queries are compared with positions, and positions with keys (DeBERTa)."""

import math

import torch
from torch import Tensor, nn

from regard.biases.bias import register_weight, relative_positions
from regard.biases.query_bias import KeyedBias, diagonal_index, gathered
from regard.names.answered import answered
from regard.shapes.checks import positive_number, whole_number
from regard.shapes.grid import Grid
from regard.tracing.transforms import exact_dtype


@answered
class Disentangled(KeyedBias, fields=("heads", "dim", "span", "max_distance", "scale", "key_weight", "query_weight")):
    r"""Adds the products of the query with a vector of the position, and of a vector of the position with the key.

    .. math::

        bias_{hij} = scale · \big(query_{hi} · key\_weight_h[δ(i + offset − j)]
        + key_{hj} · query\_weight_h[δ(i + offset − j)]\big)

    He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", section 3.1, equation 4:
    content-to-position and position-to-content; their ``K^r`` and ``Q^r`` are the weights, already projected, and ``δ``
    clips distances to ``span``. With ``max_distance`` distances beyond ``span / 2`` share buckets that grow with the
    logarithm, as in DeBERTa v2 and v3 (their released code). All three terms are scaled alike, so the score of the
    content is ``scores.ScaledDot(scale)``.

    Args:
        heads: number of query heads.
        dim: features of a query and of a key.
        span: distances, or buckets of them, in each direction (``k`` in the paper).
        max_distance: the distance whose bucket is the last; None: each distance up to ``span`` has a vector.
        scale: a positive number; None for the paper's ``1 / sqrt(3 dim)``.
        key_weight, query_weight: ``[heads, 2 span, dim]``; None draws them from a normal distribution with standard
            deviation 0.02.

    Raises:
        ArgumentError, KindError, ShapeError: an argument is out of range or has the wrong type or shape.

    Numerics: as for `QueryBias`, for keys as for queries; buckets are computed in float64.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import biases, scores
        >>> bias = biases.Disentangled(heads=2, dim=4, span=8, max_distance=32)
        >>> x = torch.randn(1, 2, 3, 4)
        >>> regard.attend(x, x, x, score=scores.ScaledDot(bias.scale), bias=bias).shape
        torch.Size([1, 2, 3, 4])
    """

    key_weight: Tensor
    query_weight: Tensor

    def __init__(
        self,
        heads: int,
        dim: int,
        span: int,
        max_distance: int | None = None,
        scale: float | None = None,
        key_weight: Tensor | None = None,
        query_weight: Tensor | None = None,
    ):
        super().__init__()
        self.heads, self.dim = whole_number("heads", heads, low=1), whole_number("dim", dim, low=1)
        self.span = whole_number("span", span, low=1 if max_distance is None else 4)
        self.max_distance = None
        if max_distance is not None:
            self.max_distance = whole_number("max_distance", max_distance, low=self.span // 2 + 2)
        self.scale = (3 * self.dim) ** -0.5 if scale is None else positive_number("scale", scale)
        for name, weight in (("key_weight", key_weight), ("query_weight", query_weight)):
            register_weight(self, weight, self.heads, 2 * self.span, self.dim, name=name)
            if weight is None:
                nn.init.normal_(getattr(self, name), std=0.02)

    def values(self, query: Tensor, key: Tensor, grid: Grid) -> Tensor:
        index = self._row(-relative_positions(grid))[diagonal_index(grid)]
        of_query = gathered(self.products(query, self.key_weight), index)
        return of_query + gathered(self.products(key, self.query_weight), index.mT).mT

    def _row(self, distance: Tensor) -> Tensor:
        """Returns the row of the weights for each distance, query − key."""
        if self.max_distance is not None:
            middle = self.span // 2
            far = distance.abs().clamp(min=middle).to(exact_dtype(distance.device)) / middle
            reach = math.log((self.max_distance - 1) / middle)
            bucket = ((far.log() / reach * (middle - 1)).ceil() + middle).long() * distance.sign()
            distance = torch.where(distance.abs() <= middle, distance, bucket)
        return (distance + self.span).clamp(0, 2 * self.span - 1)
