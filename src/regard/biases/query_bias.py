"""The bases of biases that are inner products of queries, or also of keys, with vectors of relative positions."""

from abc import abstractmethod

import torch
from torch import Tensor

from regard.biases.bias import Bias, check_fit
from regard.errors import KindError, ShapeError
from regard.fields import set_field
from regard.shapes.checks import check_same_dim
from regard.shapes.grid import Grid, span_length, spread_heads, upcast


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


class KeyedBias(QueryBias):
    """A bias that depends on the keys as well.

    A call of attention joins it with its keys (`of_keys`), which `values` gets a tile at a time. Sharded calls run it
    on whole sequences.

    Example:
        >>> from regard import biases
        >>> issubclass(biases.TransformerXL, biases.KeyedBias)
        True
    """

    def of_keys(self, key: Tensor) -> Bias:
        return BoundBias(self, key)

    @abstractmethod
    def values(self, query: Tensor, key: Tensor, grid: Grid) -> Tensor:
        """Computes the bias of one tile, as `Bias.forward`, from its queries and its keys ``[batch, heads, keys,
        dim]``."""

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        raise KindError(f"{type(self).__name__} depends on the keys: write bias.of_keys(key)(query, grid)")


class BoundBias(Bias, fields=("bias", "key")):
    """A bias that depends on the keys, with those of a call.

    Args:
        bias: the bias.
        key: the keys of the call, ``[batch, kv_heads, keys, dim]``.

    Example:
        >>> import torch
        >>> from regard import biases
        >>> bound = biases.TransformerXL(2, dim=4).of_keys(torch.zeros(1, 2, 3, 4))
        >>> bound.key.shape
        torch.Size([1, 2, 3, 4])
    """

    key: Tensor

    def __init__(self, bias: KeyedBias, key: Tensor):
        super().__init__()
        self.bias = bias
        set_field(self, "key", key)

    def of_keys(self, key: Tensor) -> Bias:
        return BoundBias(self.bias, key)

    @property
    def class_name(self) -> str:
        return self.bias.class_name

    def check(self, query: Tensor, grid: Grid) -> None:
        self.bias.check(query, grid)
        check_same_dim(query, self.key)

    def needs_gradient(self, query: Tensor) -> bool:
        return query.requires_grad or super().needs_gradient(query)

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        key = self.key.narrow(0, grid.batch_span.start, span_length(grid.batch_span))
        key = key.narrow(2, grid.key_span.start, span_length(grid.key_span))
        return self.bias.values(query, spread_heads(key, grid.heads), grid)


def diagonal_index(grid: Grid) -> Tensor:
    """Returns the index of each pair's diagonal in those of `relative_positions`, ``int64 [queries, keys]``."""
    _, _, queries, keys = grid.shape
    rows, columns = (torch.arange(length, device=grid.device) for length in (queries, keys))
    return columns - rows[:, None] + (queries - 1)


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
