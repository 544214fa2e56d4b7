"""What a bias is: a number added to each score, tile by tile; or diagonal by diagonal, if distance alone decides."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from regard.errors import KindError
from regard.shapes import Grid, accurate, check_broadcast, check_device, check_floating


class Bias(nn.Module, ABC):
    """Added to the scaled (and capped) scores, before the mask."""

    def check(self, query: Tensor, grid: Grid) -> None:
        """Raise ShapeError or KindError unless this bias fits the problem."""

    def needs_gradient(self, query: Tensor) -> bool:
        """Whether a backward pass will ask for the gradient of this bias."""
        return any(parameter.requires_grad for parameter in self.parameters())

    @abstractmethod
    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        """The bias of one tile.

        Args:
            query: the tile's queries as the user gave them, ``[batch, heads, queries, dim]``.
            grid: which tile.

        Returns:
            Broadcastable to the tile's ``[batch, heads, queries, keys]``; differentiable.
        """

    def diagonals(self, grid: Grid, dtype: torch.dtype) -> Tensor | None:
        """The bias of one tile by its diagonals, if it depends on key − query alone; None if not, as in most.

        Args:
            grid: which tile.
            dtype: what the numbers are given in, float32 or float64.

        Returns:
            ``[heads or 1, queries + keys − 1]``, on the grid's device, differentiable: entry ``j − i + queries − 1``
            belongs to the tile's query i and key j, both counted from its first. Linear memory.
        """
        return None


class DiagonalBias(Bias):
    """A bias that depends on key − query alone: given by its diagonals, of which `forward` is the unfolding."""

    @abstractmethod
    def diagonals(self, grid: Grid, dtype: torch.dtype) -> Tensor: ...

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        _, _, queries, keys = grid.shape
        diagonals = self.diagonals(grid, accurate(query).dtype)  # H Q+K-1
        if queries == 0 or keys == 0:
            return diagonals.new_zeros(len(diagonals), queries, keys)
        # Each row is a window of the diagonals, one to the left of the row above's.
        return diagonals.unfold(-1, keys, 1).flip(-2)  # H Q K


def relative_positions(grid: Grid) -> Tensor:
    """``key − query − offset`` on each diagonal of a tile, from its last query's first key on.

    The last query stands at the last key: ``offset = keys − queries`` of the whole problem.

    Returns:
        int64 ``[queries + keys − 1]`` of the tile, on the grid's device.
    """
    _, _, queries, keys = grid.shape
    least = grid.key_span.start - (grid.query_span.stop - 1) - grid.offset
    return torch.arange(least, least + max(queries + keys - 1, 0), device=grid.device)


class TensorBias(Bias):
    """A given tensor, ``[batch, heads, queries, keys]`` or broadcastable to it."""

    def __init__(self, tensor: Tensor):
        super().__init__()
        self.tensor = tensor

    def check(self, query: Tensor, grid: Grid) -> None:
        check_floating("bias", self.tensor)
        check_broadcast(
            "bias", self.tensor, (grid.batch, grid.heads, grid.queries, grid.keys), "[batch, heads, queries, keys]"
        )
        check_device("bias", self.tensor, grid)

    def needs_gradient(self, query: Tensor) -> bool:
        return self.tensor.requires_grad

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        return grid.cut(self.tensor)


def as_bias(value: object) -> Bias | None:
    """What a user gave as ``bias=``, as a Bias.

    Args:
        value: None, a `Bias`, or a floating-point tensor that broadcasts to ``[batch, heads, queries, keys]``.

    Raises:
        KindError: if it is anything else.
    """
    if value is None or isinstance(value, Bias):
        return value
    if not isinstance(value, Tensor):
        raise KindError(f"bias must be a floating-point tensor, a Bias or None; it is a {type(value).__name__}")
    if not value.is_floating_point():
        hint = " (a bool tensor belongs in mask=)" if value.dtype == torch.bool else ""
        raise KindError(f"bias must hold floating-point numbers; it holds {value.dtype}{hint}")
    return TensorBias(value)
