"""Tensors whose numbers come from a softmax, from the softmax to the sum that they weigh.

A model may reshape the weights in between, drop some of them, or multiply them by a mask. For each tensor that it makes
of them this keeps what the model does not: the scores, the weights before dropout, and which axes hold the keys. Two
tensors tell the latter, the number of each weight's key and of its row: they go through the same functions as the
weights. They are expanded from keys and rows, so their memory is that of keys and rows as long as functions make views.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Self

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef

if TYPE_CHECKING:
    from regard.watching.owners import Owner

Move = Callable[[Tensor], Tensor]
"""A function that puts the numbers of a tensor elsewhere, and changes none: ``view``, ``transpose``, an index."""


class Part(NamedTuple):
    """An axis, or a part of one that two axes of a softmax were merged to.

    Attributes:
        size: how long it is.
        place: which axis it was among those of the softmax's rows, from 0; -1: unknown.
    """

    size: int
    place: int = -1


@dataclass(eq=False)
class Softmax:
    """One softmax, which all tensors share that come from it.

    Attributes:
        shape: of its result.
        axes: of its result, from 0: the weights sum to 1 over them.
        owners: by the identity of an observer, the attention module that made the weights; none: no module on the
            stack is named as attention.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    owners: "dict[int, Owner]"

    @property
    def keys(self) -> int:
        """How many numbers sum to 1."""
        return prod(self.shape[axis] for axis in self.axes)

    @property
    def rows(self) -> tuple[int, ...]:
        """The sizes of the other axes."""
        return tuple(size for axis, size in enumerate(self.shape) if axis not in self.axes)


@dataclass(eq=False)
class Weights:
    """Weights, or their logarithms.

    Attributes:
        softmax: what made them.
        scores: what it was made of, in the axes of the weights; None: unknown.
        numbers: the weights before dropout, and before they were rounded to another dtype; None: the tensor itself.
        exact: whether they are the softmax of the scores: nothing but dropout changed them.
        logarithms: whether the tensor holds their logarithms.
        dropout: the rate with which they were dropped.
        key: the number of each weight's key, on the CPU; None: the axes are those of the softmax.
        row: the number of its row among all other axes of the softmax; None as for ``key``.
    """

    softmax: Softmax
    scores: Tensor | None
    numbers: Tensor | None = None
    exact: bool = True
    logarithms: bool = False
    dropout: float = 0.0
    key: Tensor | None = None
    row: Tensor | None = None

    def moved(self, move: Move) -> Self:
        """The same weights in other axes."""
        key, row = self._places()
        scores, numbers = (None if each is None else move(each) for each in (self.scores, self.numbers))
        return replace(self, scores=scores, numbers=numbers, key=move(key), row=move(row))

    def changed(self, shape: torch.Size, numbers: Tensor | None = None) -> Self:
        """Weights of this shape that a model computed of these, number by number.

        Args:
            shape: to which the former shape broadcasts.
            numbers: the new weights before dropout; None: the new tensor itself.
        """
        made = replace(self, numbers=numbers, exact=False)
        if self.key is None and tuple(shape) == self.softmax.shape:
            return made
        key, row = made._places()
        made.key, made.row = key.expand(shape), row.expand(shape)
        made.scores = None if self.scores is None else self.scores.expand(shape)
        return made

    def axes_of_keys(self) -> tuple[int, ...]:
        """The axes along which the key differs."""
        if self.key is None:
            return self.softmax.axes
        return tuple(axis for axis in range(self.key.dim()) if _differs(self.key, axis))

    def axes_of_rows(self) -> tuple[int, ...]:
        """The axes along which the row differs, and those of size 1 that the softmax had."""
        if self.row is None:
            return tuple(axis for axis in range(len(self.softmax.shape)) if axis not in self.softmax.axes)
        return tuple(axis for axis in range(self.row.dim()) if _differs(self.row, axis))

    def parts_of(self, axes: Sequence[int]) -> list[tuple[Part, ...]]:
        """Of which axes of the softmax the axes of rows are made: of one, or of two that were merged.

        Axes of size 1 of the softmax that the tensor has no longer stand among them, where they were.

        Args:
            axes: the tensor's axes, but for those of keys.
        """
        sizes = self.softmax.rows
        if self.row is None:
            of_rows = self.axes_of_rows()
            return [(Part(self.softmax.shape[axis], of_rows.index(axis)),) for axis in axes]
        parts = [_parts(_line(self.row, axis), sizes) for axis in axes]
        places = {part.place for each in parts for part in each}
        lost = [place for place, size in enumerate(sizes) if size == 1 and place not in places]
        for place in lost[: max(len(lost) - sum(each == (Part(1),) for each in parts), 0)]:
            after = next((n for n, each in enumerate(parts) if each[0].place > place), None)
            if after is not None:
                parts[after] = (Part(1, place), *parts[after])
            elif parts:
                parts[-1] = (*parts[-1], Part(1, place))
        return parts

    def _places(self) -> tuple[Tensor, Tensor]:
        if self.key is not None and self.row is not None:
            return self.key, self.row
        shape, axes = self.softmax.shape, self.softmax.axes
        key = torch.arange(self.softmax.keys, device="cpu")
        key = key.view([size if axis in axes else 1 for axis, size in enumerate(shape)])
        row = torch.arange(prod(self.softmax.rows), device="cpu")
        row = row.view([1 if axis in axes else size for axis, size in enumerate(shape)])
        return key.expand(shape), row.expand(shape)


@dataclass(eq=False)
class Exponentials:
    """Exponentials of scores, which are weights once they are divided by their sum.

    Attributes:
        scores: what they are made of; None: unknown.
    """

    scores: Tensor | None

    def moved(self, move: Move) -> Self:
        return replace(self, scores=None if self.scores is None else move(self.scores))

    def changed(self, shape: torch.Size) -> Self:
        """Exponentials of this shape that were multiplied by a mask, say."""
        return replace(self, scores=None if self.scores is None else self.scores.expand(shape))


@dataclass(eq=False)
class Total:
    """A sum of exponentials or of weights, by which a model divides them.

    Attributes:
        added: what was added up.
        axes: along which.
    """

    added: "Exponentials | Weights"
    axes: tuple[int, ...]

    def moved(self, move: Move) -> Self:
        return self


@dataclass(eq=False)
class Chosen:
    """Scores that were chosen by their size, so that their places tell nothing of keys: those of a router's experts."""

    def moved(self, move: Move) -> Self:
        return self


@dataclass(eq=False)
class LogSumExp:
    """The log-sum-exp of scores, whose difference from the scores is the logarithm of weights.

    Attributes:
        scores: of which.
        axes: along which.
    """

    scores: TensorWeakRef
    axes: tuple[int, ...]

    def moved(self, move: Move) -> Self:
        return self


@dataclass(eq=False)
class Factor:
    """Weights in a product with values, number by number, in its axes.

    Attributes:
        weights: expanded to the shape of the product.
        value: expanded to it; None: other numbers changed the product since.
    """

    weights: Weights
    value: Tensor | None

    def moved(self, move: Move) -> Self:
        return replace(self, weights=self.weights.moved(move), value=None if self.value is None else move(self.value))


@dataclass(eq=False)
class WeightedValues:
    """A product of weights and values, number by number, which weighs a sum once it is added up over the keys.

    Attributes:
        factors: each tensor of weights in it, with what it is multiplied by.
    """

    factors: tuple[Factor, ...]

    def moved(self, move: Move) -> Self:
        return replace(self, factors=tuple(factor.moved(move) for factor in self.factors))


Result = Weights | Exponentials | Total | LogSumExp | Chosen | WeightedValues
"""What a tensor may be."""


class Results:
    """What is known of the tensors that a model has. A tensor that is freed is forgotten."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Tensor], Result]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, tensor: object) -> Result | None:
        """What a tensor is; None: nothing is known."""
        known = self._known.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None

    def put(self, tensor: Tensor, result: Result) -> None:
        """Note what a tensor is."""
        number, known = id(tensor), self._known

        def freed(reference: weakref.ref[Tensor]) -> None:
            entry = known.get(number)
            if entry is not None and entry[0] is reference:
                del known[number]

        known[number] = weakref.ref(tensor, freed), result

    def forget(self, tensor: object) -> None:
        """Know nothing of a tensor: it holds other numbers now."""
        self._known.pop(id(tensor), None)

    def forget_softmax(self, softmax: Softmax) -> None:
        """Know nothing of the tensors that come from a softmax: its weights were recorded."""
        for number, (_, result) in list(self._known.items()):
            if isinstance(result, Total):
                result = result.added
            each = [factor.weights for factor in result.factors] if isinstance(result, WeightedValues) else [result]
            if any(isinstance(weights, Weights) and weights.softmax is softmax for weights in each):
                del self._known[number]

    def clear(self) -> None:
        """Know nothing of any tensor."""
        self._known.clear()


def _line(tensor: Tensor, axis: int) -> Tensor:
    """The numbers along an axis, at the first place of all others."""
    return tensor[tuple(slice(None) if place == axis else 0 for place in range(tensor.dim()))]


def _differs(tensor: Tensor, axis: int) -> bool:
    if tensor.shape[axis] < 2 or tensor.stride(axis) == 0:
        return False
    line = _line(tensor, axis)
    return bool((line != line[0]).any())


def _parts(line: Tensor, sizes: tuple[int, ...]) -> tuple[Part, ...]:
    """The axes that were merged to one.

    Args:
        line: the number of the row at each place of the merged axis.
        sizes: of the axes of all rows.
    """
    count = len(line)
    coordinates = torch.unravel_index(line, sizes) if sizes else ()
    varying = [place for place, each in enumerate(coordinates) if bool((each != each[0]).any())]
    if len(varying) == 2:
        for outer, inner in (varying, varying[::-1]):
            expected = torch.arange(count, device="cpu") // sizes[inner]
            if sizes[outer] * sizes[inner] == count and torch.equal(coordinates[outer], expected):
                return Part(sizes[outer], outer), Part(sizes[inner], inner)
    return (Part(count, varying[0] if len(varying) == 1 else -1),)
