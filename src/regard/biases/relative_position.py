"""Shaw's bias: the inner product of the query with a learned vector for each relative position."""

from torch import Tensor, nn

from regard.biases.bias import PairBias, register_weight
from regard.biases.query_bias import QueryBias, gathered
from regard.names.answered import answered
from regard.shapes.checks import positive_number, whole_number
from regard.shapes.grid import Grid


@answered
class RelativePosition(QueryBias, fields=("dim", "max_distance", "heads", "scale", "weight")):
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

    Numerics: as for `QueryBias`.

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

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        return gathered(self.products(query, self.weight), self._index(grid))

    def of_pairs(self, query: Tensor, grid: Grid) -> PairBias:
        products = self.products(query, self.weight)
        return lambda pair: products[pair.batch_index, pair.head_index, pair.query_index, self._index(pair)]

    def _index(self, grid: Grid) -> Tensor:
        """Returns the index of the vector of each pair, ``[queries, keys]``."""
        relative = grid.key_index - grid.query_index - grid.offset
        return relative.clamp(-self.max_distance, self.max_distance) + self.max_distance
