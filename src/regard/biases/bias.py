"""What a bias is: a number added to each score, given tile by tile; a given tensor; and the sum of several biases."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add
from typing import cast

import torch
from torch import Tensor, nn

from regard.biases.diagonals import dense_from_diagonals
from regard.errors import ArgumentError, KindError
from regard.shapes import Grid, check_broadcast, check_device, check_floating, upcast
from regard.summaries import tensor_summary


class Bias(nn.Module, ABC):
    """Added to the scaled (and capped) scores, before the mask.

    Biases are added with ``+``, to one another and to tensors; the sum is a `SummedBias`. ``sum(biases)`` works too.
    """

    def check(self, query: Tensor, grid: Grid) -> None:
        """Raise ShapeError or KindError unless this bias fits the problem."""

    def needs_gradient(self, query: Tensor) -> bool:
        """Whether a backward pass will compute the gradient of the numbers that this bias adds.

        True if they are computed from something that requires a gradient: a parameter, a given tensor, or (in a bias
        that reads the queries) ``query``.

        Args:
            query: the queries as the user gave them, ``[batch, heads, queries, dim]``.
        """
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

    @property
    def is_diagonal(self) -> bool:
        """Whether key − query alone decides this bias, so that `diagonals` gives it in linear memory."""
        return False

    def diagonals(self, grid: Grid, dtype: torch.dtype) -> Tensor | None:
        """The bias of one tile by its diagonals, if `is_diagonal`; else None.

        Args:
            grid: which tile.
            dtype: what the numbers are given in, float32 or float64.

        Returns:
            ``[heads or 1, queries + keys − 1]``, on the grid's device, differentiable: entry ``j − i + queries − 1``
            belongs to the tile's query i and key j, both counted from its first. Linear memory.
        """
        return None

    def __add__(self, other: "Bias | Tensor | int") -> "Bias":
        if isinstance(other, (Bias, Tensor)):
            return SummedBias([self, other])
        # `sum` begins with 0.
        return self if type(other) is int and other == 0 else NotImplemented

    def __radd__(self, other: Tensor | int) -> "Bias":
        if isinstance(other, Tensor):
            return SummedBias([other, self])
        return self.__add__(other)


class TensorBias(Bias):
    """A given tensor, ``[batch, heads, queries, keys]`` or broadcastable to it."""

    def __init__(self, tensor: Tensor):
        super().__init__()
        _check_tensor(tensor)
        self.tensor = tensor

    def check(self, query: Tensor, grid: Grid) -> None:
        _check_tensor(self.tensor)
        check_broadcast(
            "bias", self.tensor, (grid.batch, grid.heads, grid.queries, grid.keys), "[batch, heads, queries, keys]"
        )
        check_device("bias", self.tensor, grid)

    def needs_gradient(self, query: Tensor) -> bool:
        return self.tensor.requires_grad

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        return grid.cut(self.tensor)

    def extra_repr(self) -> str:
        return tensor_summary(self.tensor)


class SummedBias(Bias):
    """The sum of several biases.

        bias[b, h, i, j] = bias_1[b, h, i, j] + bias_2[b, h, i, j] + ..

    If every summand is diagonal (`Bias.is_diagonal`), so is the sum: ALiBi plus T5's bias is a function of distance.

    Args:
        biases: the summands, at least one: biases, or floating-point tensors as in `as_bias`. A `SummedBias` among them
            is replaced by its own summands.

    Attributes:
        biases: the summands, none of which is a `SummedBias`.

    Raises:
        ArgumentError: there is no summand.
        KindError: a summand is neither a bias nor a floating-point tensor.

    Numerics: the summands are added from left to right in the dtype of the scores, float32 for half-precision queries.
    """

    def __init__(self, biases: Sequence[Bias | Tensor]):
        super().__init__()
        self.biases = nn.ModuleList(summand for bias in biases for summand in _summands(bias))
        if not self.biases:
            raise ArgumentError("biases must hold at least one bias; it is empty")

    def __iter__(self) -> Iterator[Bias]:
        return (cast(Bias, bias) for bias in self.biases)

    def check(self, query: Tensor, grid: Grid) -> None:
        for bias in self:
            bias.check(query, grid)

    def needs_gradient(self, query: Tensor) -> bool:
        return any(bias.needs_gradient(query) for bias in self)

    @property
    def is_diagonal(self) -> bool:
        return all(bias.is_diagonal for bias in self)

    def diagonals(self, grid: Grid, dtype: torch.dtype) -> Tensor | None:
        summands = [bias.diagonals(grid, dtype) for bias in self] if self.is_diagonal else []
        given = [diagonals for diagonals in summands if diagonals is not None]
        return reduce(add, given) if given else None

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        dtype = upcast(query).dtype
        diagonals = self.diagonals(grid, dtype)
        if diagonals is not None:
            return dense_from_diagonals(diagonals, grid)
        return reduce(add, (bias(query, grid).to(dtype) for bias in self))


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
    _check_tensor(value)
    return TensorBias(value)


def _check_tensor(tensor: Tensor) -> None:
    """Raise KindError unless a tensor given as ``bias=`` is dense and holds numbers that scores can be computed in."""
    if isinstance(tensor, Tensor) and tensor.dtype == torch.bool:
        raise KindError("bias must hold floating-point numbers; it holds torch.bool (a bool tensor belongs in mask=)")
    check_floating("bias", tensor)


def _summands(value: Bias | Tensor) -> list[Bias]:
    bias = as_bias(value)
    if bias is None:
        raise KindError("biases must hold biases or floating-point tensors; one of them is None")
    return list(bias) if isinstance(bias, SummedBias) else [bias]
