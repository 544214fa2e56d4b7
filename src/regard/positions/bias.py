"""What a bias is: a number added to each score, tile by tile."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from regard.errors import KindError
from regard.shapes import Grid, check_broadcast, check_device, check_floating


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
