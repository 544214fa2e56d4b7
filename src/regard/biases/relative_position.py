"""Shaw's bias: the inner product of the query with a learned vector for each relative position."""

from torch import Tensor, nn

from regard.biases.bias import Bias, PairBias, check_fit, register_weight
from regard.errors import ShapeError
from regard.names.answered import answered
from regard.shapes.checks import positive_number, whole_number
from regard.shapes.grid import Grid, upcast


@answered
class RelativePosition(Bias, fields=("dim", "max_distance", "heads", "scale", "weight")):
    """Adds the inner product of the query with a learned vector for each relative position, clipped at a distance.

    .. math::

        bias_{ij} = scale · query_i · weight[clip(j − i − offset, −max_distance, max_distance) + max_distance]
        offset = keys − queries (the ends are aligned)

    This is the second term of Shaw et al. 2018, eq. 5 (their ``a^K`` is ``weight``, their k is ``max_distance``); the
    first term, ``query · key``, is the score. Their vectors for values, ``a^V``, are not part of a bias.

    Args:
        dim: features of a query.
        max_distance: largest relative position in keys, >= 0, to which larger ones are clipped.
        heads: None for vectors that all heads share, as in the paper; otherwise the number of query heads with separate
            vectors.
        scale: a positive number; None for the paper's ``1 / sqrt(dim)``, which fits ``scaled_dot``. The scale of the
            score does not apply to a bias.
        weight: the vectors, ``[2 · max_distance + 1, dim]`` or ``[heads, 2 · max_distance + 1, dim]``; None draws them
            from a normal distribution with standard deviation 0.02.

    Raises:
        ArgumentError, KindError, ShapeError: an argument is out of range or has the wrong type or shape.

    Numerics: each query is multiplied with the ``2 · max_distance + 1`` vectors once, and the products are gathered for
    the keys, so ``[queries, keys, dim]`` is never in memory. Half-precision queries are multiplied in float32. A query
    that is not finite makes the bias of its row NaN, and a vector that is not finite makes the bias at its relative
    position NaN. Hidden pairs contribute 0 to the gradients, even if their vectors are NaN.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import biases
        >>> bias = biases.RelativePosition(dim=4, max_distance=2)
        >>> x = torch.zeros(1, 2, 3, 4)
        >>> regard.attend(x, x, x, bias=bias).shape
        torch.Size([1, 2, 3, 4])
    """

    weight: Tensor

    def __init__(
        self,
        dim: int,
        max_distance: int,
        heads: int | None = None,
        scale: float | None = None,
        weight: Tensor | None = None,
    ):
        super().__init__()
        self.dim = whole_number("dim", dim, low=1)
        self.max_distance = whole_number("max_distance", max_distance, low=0)
        self.heads = None if heads is None else whole_number("heads", heads, low=1)
        self.scale = self.dim**-0.5 if scale is None else positive_number("scale", scale)
        heads_axis = () if self.heads is None else (self.heads,)
        register_weight(self, weight, *heads_axis, 2 * self.max_distance + 1, self.dim)
        if weight is None:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)

    def check(self, query: Tensor, grid: Grid) -> None:
        if query.shape[-1] != self.dim:
            raise ShapeError(
                f"bias must fit query: RelativePosition was made for dim {self.dim}; query has dim {query.shape[-1]}"
            )
        check_fit(self, self.heads, grid)

    def needs_gradient(self, query: Tensor) -> bool:
        return query.requires_grad or super().needs_gradient(query)

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        products, index = self._products(query), self._index(grid)
        return products.gather(-1, index.expand(*products.shape[:-1], -1))

    def of_pairs(self, query: Tensor, grid: Grid) -> PairBias:
        products = self._products(query)
        return lambda pair: products[pair.batch_index, pair.head_index, pair.query_index, self._index(pair)]

    def _products(self, query: Tensor) -> Tensor:
        """Returns the products of each query with all vectors, ``[batch, heads, queries, 2 · max_distance + 1]``."""
        query, query_nan = _finite_part(upcast(query) * self.scale)
        weight, weight_nan = _finite_part(upcast(self.weight).to(query.dtype))
        products = query @ weight.transpose(-1, -2)  # B H Q 2m+1
        return products + query_nan[..., :, None] + weight_nan[..., None, :]

    def _index(self, grid: Grid) -> Tensor:
        """Returns the index of the vector of each pair, ``[queries, keys]``."""
        relative = grid.key_index - grid.query_index - grid.offset
        return relative.clamp(-self.max_distance, self.max_distance) + self.max_distance


def _finite_part(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the vectors with 0 in place of NaN and ±inf, and a term that makes their inner products NaN again.

    The backward pass multiplies the gradient of a hidden pair, 0, with its vectors, and 0 · NaN would be NaN.
    """
    return vectors.nan_to_num(0.0, 0.0, 0.0), (vectors.detach() * 0).sum(-1)
