"""Changes of a call's tensors: other elements in place of some, for all tiles of a calculation.

`PairChanges` changes the scores and the weights of a `Problem`. The specification applies it to each tile, so that the
output, all readings and their derivatives are those of the changed call, in linear memory where the new elements are a
number, a tensor or the rows of another call.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.errors import ArgumentError, ShapeError
from regard.shapes.checks import check_broadcast, type_text
from regard.shapes.grid import Grid

Indices = range | tuple[int, ...]
"""Indices along an axis; a range has the step 1."""


class Elements(ABC):
    """The elements ``[batch, heads, rows, columns]`` that stand in place of others.

    Attributes:
        needs_whole: whether they are a function of all elements that they replace, so that no tile suffices.
    """

    needs_whole = False

    @abstractmethod
    def cut(self, batch: range, rows: slice | list[int], columns: slice | list[int]) -> Tensor:
        """Returns those of a tile, broadcastable; rows and columns count the chosen ones."""

    @abstractmethod
    def of_row(self, row: int) -> "Elements":
        """Returns those of one batch row, on the CPU and detached."""


class GivenElements(Elements):
    """Elements of a tensor that broadcasts to ``[batch, heads, rows, columns]``."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor[(None,) * (4 - tensor.dim())]

    def cut(self, batch: range, rows: slice | list[int], columns: slice | list[int]) -> Tensor:
        tensor = self.tensor
        if tensor.shape[0] > 1:
            tensor = tensor[batch.start : batch.stop]
        if tensor.shape[2] > 1:
            tensor = tensor[:, :, rows]
        return tensor[..., columns] if tensor.shape[3] > 1 else tensor

    def of_row(self, row: int) -> "GivenElements":
        tensor = self.tensor if self.tensor.shape[0] == 1 else self.tensor[row : row + 1]
        return GivenElements(tensor.detach().cpu().clone())


class ComputedElements(Elements):
    """Elements that a function computes from those that stand there; it is called once."""

    def __init__(self, function: Callable[[Tensor], Tensor], name: str):
        self.function, self.name = function, name
        self._result: GivenElements | None = None

    @property
    def needs_whole(self) -> bool:
        return self._result is None

    def compute(self, current: Tensor) -> None:
        """Calls the function, unless it was called."""
        if self._result is not None:
            return
        try:
            result: Any = self.function(current)
        except TypeError as error:  # an operator that a function mode runs would lose it
            raise ArgumentError(f"to cannot take {self.name} = {list(current.shape)}: {error}") from error
        if not isinstance(result, Tensor):
            raise ArgumentError(f"to must return a tensor for {self.name}; it returned {type_text(result)}")
        if result.dim() != 4:
            raise ShapeError(f"to must return {self.name} = {list(current.shape)}; it returned {list(result.shape)}")
        check_broadcast("what to returns", result, tuple(current.shape), self.name)
        self._result = GivenElements(result)

    def cut(self, batch: range, rows: slice | list[int], columns: slice | list[int]) -> Tensor:
        assert self._result is not None
        return self._result.cut(batch, rows, columns)

    def of_row(self, row: int) -> Elements:
        assert self._result is not None
        return self._result.of_row(row)


@dataclass(eq=False)
class Substitution:
    """Elements of a tensor ``[batch, heads, rows, columns]`` in whose place others stand.

    Attributes:
        heads, rows, columns: the indices of the replaced elements along each axis.
        elements: what stands there instead.
    """

    heads: Indices
    rows: Indices
    columns: Indices
    elements: Elements

    def put(self, tensor: Tensor, batch: range, rows: range, columns: range) -> Tensor:
        """Returns a tile with the other elements; the tile covers these spans of the whole tensor."""
        own_rows, of_rows = _inside(self.rows, rows)
        own_columns, of_columns = _inside(self.columns, columns)
        own_heads, _ = _inside(self.heads, range(tensor.shape[1]))
        if not all(map(_selects, (own_heads, own_rows, own_columns))):
            return tensor
        where = _outer((own_heads, own_rows, own_columns), tensor)
        if isinstance(self.elements, ComputedElements):
            self.elements.compute(tensor[where].clone())  # the function may work in place
        changed = self.elements.cut(batch, of_rows, of_columns).to(tensor.device, tensor.dtype)
        result = tensor.clone()
        result[where] = changed
        return result

    def put_whole(self, tensor: Tensor) -> Tensor:
        """Returns the whole tensor with the other elements."""
        return self.put(tensor, *(range(tensor.shape[axis]) for axis in (0, 2, 3)))

    def of_row(self, row: int) -> "Substitution":
        """Returns the substitution in one batch row, on the CPU and detached."""
        return Substitution(self.heads, self.rows, self.columns, self.elements.of_row(row))


@dataclass(eq=False)
class PairChanges:
    """The substitutions of a problem's scores and weights, in their order.

    Scores are changed after the mask, and weights before dropout. The mask still hides: a score of −∞ stays so, and so
    does its weight of 0.
    """

    scores: tuple[Substitution, ...] = ()
    weights: tuple[Substitution, ...] = ()

    @property
    def needs_whole(self) -> bool:
        """Whether no tile suffices to compute the new elements."""
        return any(each.elements.needs_whole for each in (*self.scores, *self.weights))

    def of_scores(self, masked: Tensor, grid: Grid) -> Tensor:
        """Returns the changed scores of a tile, −inf where a pair is hidden."""
        for each in self.scores:
            changed = each.put(masked, grid.batch_span, grid.query_span, grid.key_span)
            masked = torch.where(masked == -torch.inf, masked, changed)
        return masked

    def of_weights(self, weights: Tensor, hidden: Tensor, grid: Grid) -> Tensor:
        """Returns the changed weights of a tile, of which some pairs are hidden."""
        for each in self.weights:
            changed = each.put(weights, grid.batch_span, grid.query_span, grid.key_span)
            weights = torch.where(hidden, weights, changed)
        return weights

    def of_row(self, row: int) -> "PairChanges":
        """Returns the changes in one batch row, on the CPU and detached."""
        scores, weights = (tuple(each.of_row(row) for each in one) for one in (self.scores, self.weights))
        return PairChanges(scores, weights)


def indices_of(numbers: Sequence[int]) -> Indices:
    """Returns the numbers as a range, if they are one."""
    run = range(numbers[0], numbers[0] + len(numbers)) if numbers else range(0)
    return run if tuple(numbers) == tuple(run) else tuple(numbers)


def _inside(chosen: Indices, span: range) -> tuple[slice | list[int], slice | list[int]]:
    """Returns the chosen indices inside of a span, counted from its start, and their numbers among the chosen ones."""
    if isinstance(chosen, range):
        start = max(chosen.start, span.start)
        stop = max(min(chosen.stop, span.stop), start)
        return slice(start - span.start, stop - span.start), slice(start - chosen.start, stop - chosen.start)
    inside = [(index - span.start, number) for number, index in enumerate(chosen) if index in span]
    return [index for index, _ in inside], [number for _, number in inside]


def _selects(axis: slice | list[int]) -> bool:
    return axis.start < axis.stop if isinstance(axis, slice) else bool(axis)


def _outer(axes: Sequence[slice | list[int]], tensor: Tensor) -> tuple[Any, ...]:
    """Returns an index of the chosen heads, rows and columns of all batch rows."""
    if sum(isinstance(axis, list) for axis in axes) < 2:
        return slice(None), *axes
    indices = []
    for number, axis in enumerate(axes):
        numbers = list(range(axis.start, axis.stop)) if isinstance(axis, slice) else axis
        index = torch.tensor(numbers, dtype=torch.int64, device=tensor.device)
        indices.append(index.view([-1 if other == number else 1 for other in range(3)]))
    return slice(None), *indices
