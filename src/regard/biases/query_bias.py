"""The base of biases that are inner products of queries with learned vectors of relative positions."""

from torch import Tensor

from regard.biases.bias import Bias, check_fit
from regard.errors import ShapeError
from regard.shapes.grid import Grid, upcast


class QueryBias(Bias):
    """The inner product of the query with a vector that depends on the positions of query and key.

    .. math::

        bias_{hij} = scale · query_{hi} · vector_h(i, j)

    A subclass has ``dim``, ``heads`` and ``scale``, and gathers the `products` of its vectors for the keys of a tile.

    Attributes:
        dim: features of a query.
        heads: number of query heads that have vectors of their own; None: all heads share them.
        scale: a number; the scale of the score does not apply to a bias.

    Numerics: each query is multiplied with each vector once, in float32 for half precision, so that ``[queries, keys,
    dim]`` is never in memory. A query that is not finite makes the bias of its row NaN, and a vector that is not finite
    makes the bias of its pairs NaN. Hidden pairs contribute 0 to the gradients, even if their vectors are NaN.

    Example:
        >>> from regard import biases
        >>> isinstance(biases.RelativePosition(dim=4, max_distance=2), biases.QueryBias)
        True
    """

    dim: int
    heads: int | None
    scale: float

    def check(self, query: Tensor, grid: Grid) -> None:
        if query.shape[-1] != self.dim:
            name = type(self).__name__
            raise ShapeError(
                f"bias must fit query: {name} was made for dim {self.dim}; query has dim {query.shape[-1]}"
            )
        check_fit(self, self.heads, grid)

    def needs_gradient(self, query: Tensor) -> bool:
        return query.requires_grad or super().needs_gradient(query)

    def products(self, query: Tensor, vectors: Tensor) -> Tensor:
        """Returns the scaled products of queries ``[batch, heads, queries, dim]`` and vectors ``[..., n, dim]``,
        ``[batch, heads, queries, n]``."""
        query, query_nan = _finite_part(upcast(query) * self.scale)
        vectors, vectors_nan = _finite_part(upcast(vectors).to(query.dtype))
        products = query @ vectors.transpose(-1, -2)
        return products + query_nan[..., :, None] + vectors_nan[..., None, :]


def gathered(products: Tensor, index: Tensor) -> Tensor:
    """Returns the product of each pair, ``[batch, heads, queries, keys]``.

    Args:
        products: ``[batch, heads, queries, n]``.
        index: which of the n belongs to each pair, ``int64 [queries, keys]``.
    """
    return products.gather(-1, index.expand(*products.shape[:-1], -1))


def _finite_part(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the vectors with 0 in place of NaN and ±inf, and a term that makes their inner products NaN again.

    The backward pass multiplies the gradient of a hidden pair, 0, with its vectors, and 0 · NaN would be NaN.
    """
    return vectors.nan_to_num(0.0, 0.0, 0.0), (vectors.detach() * 0).sum(-1)
