"""Decomposed relative positions: the inner products of the query with a vector for each axis of an image."""

from collections.abc import Sequence
from functools import reduce
from operator import add

from torch import Tensor, nn
from torch.nn import functional as F

from regard.biases.bias import register_weight
from regard.biases.query_bias import QueryBias, gathered
from regard.biases.window_tables import axis_lengths, check_positions
from regard.names.answered import answered
from regard.shapes.checks import positive_number, whole_number
from regard.shapes.grid import Grid, upcast


@answered
class DecomposedPosition(QueryBias, fields=("dim", "shape", "key_shape", "trained", "heads", "scale", "weight")):
    r"""Adds the inner products of the query with a learned vector for the distance in rows, and one in columns.

    .. math::

        bias_{hij} = scale · query_{hi} · \sum_a R^a[⌊c_a i_a − d_a j_a⌋ + d_a (keys_a − 1)], \quad
        c_a = \max(keys_a / queries_a, 1), \quad d_a = \max(queries_a / keys_a, 1)

    Li et al. 2022, "MViTv2: Improved Multiscale Vision Transformers for Classification and Detection", section 4.1,
    equations 3 and 4; Kirillov et al. 2023, "Segment Anything" (SAM), whose image encoder has it. ``i_a`` is the
    coordinate along axis a of an image whose last axis runs fastest. Tables of another size than ``2 max(queries_a,
    keys_a) − 1`` are interpolated linearly, as in the authors' released code.

    Args:
        dim: features of a query.
        shape: lengths of the queries' grid, as ``(height, width)``; any number of axes.
        key_shape: lengths of the keys' grid, as after pooling; None: ``shape``.
        trained: lengths of the grid that the tables were made for; None: the longer of ``shape`` and ``key_shape``.
        heads: None for vectors that all heads share, as in the papers; otherwise the number of query heads.
        scale: a positive number, default 1, as in the authors' released code.
        weight: the tables of all axes, one after another, ``[Σ (2 trained − 1), dim]`` or ``[heads, Σ (2 trained − 1),
            dim]``; None: zeros, as in the authors' code.

    Raises:
        ArgumentError, KindError, ShapeError: an argument is out of range or has the wrong type or shape.

    Numerics: as for `QueryBias`.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import biases
        >>> bias = biases.DecomposedPosition(dim=8, shape=(4, 6), key_shape=(2, 3))
        >>> image, pooled = torch.randn(1, 2, 24, 8), torch.randn(1, 2, 6, 8)
        >>> regard.attend(image, pooled, pooled, bias=bias).shape
        torch.Size([1, 2, 24, 8])
    """

    weight: Tensor

    def __init__(
        self,
        dim: int,
        shape: Sequence[int],
        key_shape: Sequence[int] | None = None,
        trained: Sequence[int] | None = None,
        heads: int | None = None,
        scale: float = 1.0,
        weight: Tensor | None = None,
    ):
        super().__init__()
        self.dim = whole_number("dim", dim, low=1)
        self.shape = axis_lengths("shape", shape)
        axes = len(self.shape)
        self.key_shape = None if key_shape is None else axis_lengths("key_shape", key_shape, axes)
        self.trained = None if trained is None else axis_lengths("trained", trained, axes)
        self.heads = None if heads is None else whole_number("heads", heads, low=1)
        self.scale = positive_number("scale", scale)
        self._longest = tuple(map(max, self.shape, self.key_shape or self.shape))
        self._rows = [2 * length - 1 for length in self.trained or self._longest]
        register_weight(self, weight, *(() if self.heads is None else (self.heads,)), sum(self._rows), self.dim)
        if weight is None:
            nn.init.zeros_(self.weight)

    def check(self, query: Tensor, grid: Grid) -> None:
        super().check(query, grid)
        check_positions(self, "queries", self.shape, grid.queries)
        check_positions(self, "keys", self.key_shape or self.shape, grid.keys)

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        position, key = grid.query_index, grid.key_index
        tables = self.weight.split(self._rows, dim=-2)
        parts = []
        for queries, keys, longest, table in reversed(
            list(zip(self.shape, self.key_shape or self.shape, self._longest, tables, strict=True))
        ):
            own, other = (position % queries) * max(keys / queries, 1.0), (key % keys) * max(queries / keys, 1.0)
            index = (own - other + (keys - 1) * max(queries / keys, 1.0)).long()
            parts.append(gathered(self.products(query, _resized(table, 2 * longest - 1)), index))
            position, key = position // queries, key // keys
        return reduce(add, parts)


def _resized(table: Tensor, rows: int) -> Tensor:
    """Returns a table ``[..., n, dim]`` interpolated linearly to this number of rows."""
    if table.shape[-2] == rows:
        return table
    columns = upcast(table).mT.reshape(-1, table.shape[-1], table.shape[-2])
    return F.interpolate(columns, size=rows, mode="linear").mT.reshape(*table.shape[:-2], rows, table.shape[-1])
