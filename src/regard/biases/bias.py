"""The base class of biases, biases that are tensors or functions of distance, and sums of biases."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce, wraps
from operator import add
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, KindError, ShapeError
from regard.fields import DeclaredModule, set_field, with_parts
from regard.shapes.checks import (
    check_device,
    check_floating,
    check_pairs,
    check_result,
    check_undivided,
    type_text,
    uncalled,
)
from regard.shapes.grid import Grid, upcast, without_appended
from regard.tracing.portable import is_portable

PairBias = Callable[[Grid], Tensor]
"""Returns the bias of the one pair whose indices a grid has."""


class Bias(DeclaredModule, ABC):
    """A value that is added to each scaled (and capped) score, before the mask.

    Biases can be added with ``+`` to biases and tensors, which gives a `SummedBias`. ``sum(biases)`` works too.

    Example:
        >>> import torch
        >>> from regard import biases
        >>> biases.alibi(2) + torch.zeros(3, 3)
        SummedBias(
          (biases): ModuleList(
            (0): Alibi(heads=2)
            (1): TensorBias(tensor=[3, 3] float32, 0)
          )
        )
    """

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        # Without it, a result [batch, queries, keys] would broadcast over heads. Those of regard are right.
        if "forward" in vars(cls) and not cls.__module__.startswith("regard."):
            own: Any = cls
            own.forward = _checked(own.forward)
            if "of_pairs" not in vars(cls):
                # An inherited function of pairs would describe other values than this `forward`.
                own.of_pairs = lambda self, query, grid: None

    def check(self, query: Tensor, grid: Grid) -> None:
        """Raises ShapeError or KindError unless this bias fits the problem."""

    def needs_gradient(self, query: Tensor) -> bool:
        """Whether a backward pass needs the gradient of the values of this bias.

        True if they depend on something that requires a gradient: a parameter, a buffer, or, in a bias that depends on
        the queries, ``query``.

        Args:
            query: the user's queries, ``[batch, heads, queries, dim]``.
        """
        return any(weight.requires_grad for weight in (*self.parameters(), *self.buffers()))

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> "Bias":
        """Returns the bias with ``function`` of each of its tensors of pairs; the bias itself if it has none.

        Args:
            function: takes and returns a tensor that broadcasts to the pairs of a call.
        """
        return with_parts(self, lambda part: part.map_tensors(function))

    def of_keys(self, key: Tensor) -> "Bias":
        """Returns the bias of a call with these keys ``[batch, kv_heads, keys, dim]``; itself if it depends on none.

        A call of attention does so with its keys; see `regard.biases.KeyedBias`.
        """
        return self

    @abstractmethod
    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        """Computes the bias of one tile.

        Args:
            query: the tile's part of the user's queries, ``[batch, heads, queries, dim]``.
            grid: the tile.

        Returns:
            A differentiable tensor, broadcastable to the tile's ``[batch, heads, queries, keys]``.
        """

    @property
    def reads_query(self) -> bool:
        """Whether this bias may depend on the queries themselves, so that a sharded call sends them."""
        return True

    @property
    def may_hide(self) -> bool:
        """Whether a value may be −∞, which hides a pair."""
        return True

    @property
    def class_name(self) -> str:
        """The name of the class that the user wrote, for messages."""
        return type(self).__name__

    @property
    def is_diagonal(self) -> bool:
        """Whether this bias depends on key − query alone, so that `diagonals` returns it in linear memory."""
        return False

    def diagonals(self, grid: Grid, dtype: torch.dtype) -> Tensor | None:
        """Computes the bias of one tile by its diagonals if `is_diagonal`, and returns None otherwise.

        Args:
            grid: the tile.
            dtype: the dtype of the result, float32 or float64.

        Returns:
            ``[heads or 1, queries + keys − 1]`` on the grid's device, differentiable: element ``j − i + queries − 1``
            belongs to the tile's query i and key j, counted from the first ones of the tile.
        """
        return None

    def of_pairs(self, query: Tensor, grid: Grid) -> PairBias | None:
        """Returns this bias as a function of single pairs, for kernels that compute scores one by one.

        Args:
            query: the user's queries, ``[batch, heads, queries, dim]``.
            grid: the whole problem.

        Returns:
            A function that only indexes tensors of linear size, or of the size that the bias has, in the dtype of the
            scores; None if there is no such function, as for a bias that a user defined.
        """
        dtype = upcast(query).dtype
        diagonals = self.diagonals(grid, dtype)
        return None if diagonals is None else partial(_diagonal_of, diagonals, grid.queries)

    def __add__(self, other: "Bias | Tensor | int") -> "Bias":
        if isinstance(other, (Bias, Tensor)):
            return SummedBias([self, other])
        # `sum` begins with 0.
        return self if type(other) is int and other == 0 else NotImplemented

    def __radd__(self, other: Tensor | int) -> "Bias":
        if isinstance(other, Tensor):
            return SummedBias([other, self])
        return self.__add__(other)


def _checked(forward: Callable[[Bias, Tensor, Grid], Tensor]) -> Callable[[Bias, Tensor, Grid], Tensor]:
    """Returns the method of a user's bias with a check of its result."""

    @wraps(forward)
    def checked(self: Bias, query: Tensor, grid: Grid) -> Tensor:
        bias = forward(self, query, grid)
        check_result(f"the result of {type(self).__name__}.forward", bias, grid)
        return bias

    return checked


class TensorBias(Bias, fields=("tensor",)):
    """A bias that is a tensor, broadcastable to ``[batch, heads, queries, keys]``.

    .. math::

        score_{b,h,i,j} + tensor_{b,h,i,j}

    Example:
        >>> import torch
        >>> from regard import biases
        >>> biases.TensorBias(torch.zeros(3, 3)).is_diagonal
        False
    """

    tensor: Tensor

    def __init__(self, tensor: Tensor):
        super().__init__()
        _check_tensor(tensor)
        set_field(self, "tensor", tensor)

    def check(self, query: Tensor, grid: Grid) -> None:
        _check_tensor(self.tensor)
        check_pairs("bias", self.tensor, grid)
        check_device("bias", self.tensor, grid)

    @property
    def reads_query(self) -> bool:
        return False

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> "Bias":
        return TensorBias(function(self.tensor))

    def of_pairs(self, query: Tensor, grid: Grid) -> PairBias:
        tensor = upcast(self.tensor).to(upcast(query).dtype)
        return lambda pair: pair.cut(tensor)

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        return grid.cut(self.tensor)


class DiagonalBias(Bias):
    """A bias that depends on key − query alone.

    A subclass defines `diagonals`, and `forward` expands them. Fused kernels read the diagonals directly.

    Example:
        >>> from regard import biases
        >>> isinstance(biases.alibi(2), biases.DiagonalBias)
        True
    """

    @property
    def reads_query(self) -> bool:
        return False

    @property
    def is_diagonal(self) -> bool:
        return True

    @abstractmethod
    def diagonals(self, grid: Grid, dtype: torch.dtype) -> Tensor: ...

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        return dense_from_diagonals(self.diagonals(grid, upcast(query).dtype), grid)


class SummedBias(Bias, fields=("biases",)):
    """Adds several biases.

    .. math::

        bias_{b,h,i,j} = bias1_{b,h,i,j} + bias2_{b,h,i,j} + …

    If every summand is diagonal (`Bias.is_diagonal`), so is the sum: ALiBi plus T5's bias is a function of distance.

    Args:
        biases: at least one summand: biases, or floating-point tensors as in `as_bias`. A `SummedBias` is replaced by
            its summands.

    Attributes:
        biases: the summands, none of which is a `SummedBias`.

    Raises:
        ArgumentError: there is no summand.
        KindError: a summand is neither a bias nor a floating-point tensor.

    Numerics: the summands are added from left to right in the dtype of the scores, float32 for half-precision queries.

    Example:
        >>> from regard import biases
        >>> biases.SummedBias([biases.alibi(2), biases.RelativeBias(2)]).is_diagonal
        True
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

    def of_keys(self, key: Tensor) -> Bias:
        return with_parts(self, lambda bias: bias.of_keys(key))

    @property
    def reads_query(self) -> bool:
        return any(bias.reads_query for bias in self)

    @property
    def may_hide(self) -> bool:
        return any(bias.may_hide for bias in self)

    @property
    def is_diagonal(self) -> bool:
        return all(bias.is_diagonal for bias in self)

    def diagonals(self, grid: Grid, dtype: torch.dtype) -> Tensor | None:
        summands = [bias.diagonals(grid, dtype) for bias in self] if self.is_diagonal else []
        diagonals = [summand for summand in summands if summand is not None]
        return reduce(add, diagonals) if diagonals else None

    def of_pairs(self, query: Tensor, grid: Grid) -> PairBias | None:
        if self.is_diagonal:
            return super().of_pairs(query, grid)
        summands = [bias.of_pairs(query, grid) for bias in self]
        if None in summands:
            return None
        return lambda pair: reduce(add, (summand(pair) for summand in summands if summand is not None))

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        dtype = upcast(query).dtype
        diagonals = self.diagonals(grid, dtype)
        if diagonals is not None:
            return dense_from_diagonals(diagonals, grid)
        return reduce(add, (bias(query, grid).to(dtype) for bias in self))


class AppendedBias(Bias, fields=("bias", "appended")):
    """Adds a bias to the scores of the user's keys, and 0 to those of keys that a layer appends without a position.

    .. math::

        bias_{b,h,i,j} = inner_{b,h,i,j} if j < keys − appended, else 0

    Args:
        bias: the bias for the user's keys.
        appended: number of appended keys, which come last.

    Example:
        >>> from regard import biases
        >>> biases.AppendedBias(biases.alibi(2), 1).appended
        1
    """

    def __init__(self, bias: Bias, appended: int):
        super().__init__()
        self.bias, self.appended = bias, appended

    def check(self, query: Tensor, grid: Grid) -> None:
        self.bias.check(query, without_appended(grid, self.appended))

    def needs_gradient(self, query: Tensor) -> bool:
        return self.bias.needs_gradient(query)

    def of_keys(self, key: Tensor) -> Bias:
        return with_parts(self, lambda bias: bias.of_keys(key[:, :, : key.shape[2] - self.appended]))

    def of_pairs(self, query: Tensor, grid: Grid) -> PairBias | None:
        bias = self.bias.of_pairs(query, without_appended(grid, self.appended))
        return None if bias is None else lambda pair: pair.with_appended(self.appended, bias, 0.0)

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        return grid.with_appended(self.appended, lambda inner: self.bias(query, inner), 0.0)


def as_bias(value: object) -> Bias | None:
    """Converts a user's ``bias=`` to a Bias.

    Args:
        value: None, a `Bias`, or a floating-point tensor that broadcasts to ``[batch, heads, queries, keys]``.

    Raises:
        KindError: the value is anything else.

    Example:
        >>> import torch
        >>> from regard import biases
        >>> type(biases.as_bias(torch.zeros(3, 3))).__name__
        'TensorBias'
        >>> biases.as_bias(None) is None
        True
    """
    if value is None or isinstance(value, Bias):
        return value
    if not isinstance(value, Tensor):
        line = uncalled(value, "biases")
        if not line and callable(value) and not isinstance(value, type):
            line = 'a function of scores is a score: write score=scores.Modified("scaled_dot", score_mod)'
        hint = f" ({line})" if line else ""
        raise KindError(f"bias must be a floating-point tensor, a Bias or None; it is {type_text(value)}{hint}")
    _check_tensor(value)
    return TensorBias(value)


def register_weight(bias: nn.Module, weight: Tensor | None, *sizes: int, name: str = "weight") -> None:
    """Sets the ``weight`` of a bias to an empty parameter of these sizes, or to the tensor, which must have them."""
    weight = nn.Parameter(torch.empty(sizes)) if weight is None else weight
    check_floating(name, weight)
    if weight.shape != sizes:
        raise ShapeError(f"{name} must have the shape {list(sizes)}; it has {list(weight.shape)}")
    set_field(bias, name, weight)


def check_fit(bias: Bias, heads: int | None, grid: Grid) -> None:
    """Raises ShapeError unless a problem has these heads, and KindError unless the bias is on its device."""
    name = type(bias).__name__
    if heads is not None and grid.heads != heads:
        raise ShapeError(f"bias must fit query: {name} was made for {heads} heads; query has {grid.heads}")
    for own, tensor in (*bias.named_parameters(), *bias.named_buffers()):
        check_device(f"the {own} of {name}", tensor, grid)


def relative_positions(grid: Grid) -> Tensor:
    """Returns ``key − query − offset`` for each diagonal of a tile, from the pair of its last query and first key on.

    The ends are aligned: ``offset = keys − queries`` of the whole problem.

    Returns:
        int64 ``[queries + keys − 1]`` of the tile, on the grid's device.
    """
    _, _, queries, keys = grid.shape
    first = grid.key_span.start - (grid.query_span.stop - 1) - grid.offset
    return torch.arange(first, first + max(queries + keys - 1, 0), device=grid.device)


def dense_from_diagonals(diagonals: Tensor, grid: Grid) -> Tensor:
    """Expands the diagonals of a tile to a matrix.

    Args:
        diagonals: ``[heads or 1, queries + keys − 1]``, as in `Bias.diagonals`.

    Returns:
        ``[heads or 1, queries, keys]``, differentiable.
    """
    _, _, queries, keys = grid.shape
    if queries == 0 or keys == 0:
        # With a slice instead of new zeros, a parameter of the bias gets a gradient of 0 instead of None.
        return diagonals[:, :0].reshape(len(diagonals), queries, keys)
    if is_portable():  # an exporter would fix the size of a window
        columns, rows = (torch.arange(count, device=diagonals.device) for count in (keys, queries))
        return diagonals[:, columns - rows[:, None] + (queries - 1)]
    # Each row is a window of the diagonals that starts one element before the window of the row above.
    return diagonals.unfold(-1, keys, 1).flip(-2)  # H Q K


def _diagonal_of(diagonals: Tensor, queries: int, pair: Grid) -> Tensor:
    index = pair.key_index - pair.query_index + (pair.number(queries) - 1)
    return diagonals[pair.head_index if len(diagonals) > 1 else 0, index]


def _check_tensor(tensor: Tensor) -> None:
    """Raises KindError unless a tensor is dense and has a dtype in which scores can be computed."""
    if isinstance(tensor, Tensor) and tensor.dtype == torch.bool:
        raise KindError("bias must hold floating-point numbers; it holds torch.bool (a bool tensor belongs in mask=)")
    check_undivided("bias", tensor)
    check_floating("bias", tensor)


def _summands(value: Bias | Tensor) -> list[Bias]:
    bias = as_bias(value)
    if bias is None:
        raise KindError("biases must hold biases or floating-point tensors; one of them is None")
    return list(bias) if isinstance(bias, SummedBias) else [bias]
