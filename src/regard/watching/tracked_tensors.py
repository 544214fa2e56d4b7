"""Tensors that come from a softmax, tracked from the softmax to the sum that they weigh.

A model may reshape the weights in between, drop some of them, or multiply them by a mask. For each tensor that it
computes from them, the record here has what the model discards: the scores, the weights before dropout, and the axes of
the keys. These axes follow from two tensors, the index of each weight's key and that of its row, which pass through the
same functions as the weights. They are expanded from keys and rows, and need no more memory as long as functions return
views.
"""

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef

from regard.watching.owners import Owner

Move = Callable[[Tensor], Tensor]
"""A function that moves the elements of a tensor and changes none: ``view``, ``transpose``, an index."""


class AxisPart(NamedTuple):
    """An axis, or a part of one that two axes of a softmax were merged into.

    Attributes:
        size: its length.
        position: its number among the axes of the softmax's rows, from 0; -1: unknown.
    """

    size: int
    position: int = -1


@dataclass(eq=False)
class TrackedSoftmax:
    """One softmax, which all tensors that come from it share.

    Attributes:
        shape: the shape of its result.
        axes: the axes of its result, from 0, over which the weights sum to 1.
        makers: the module that made the weights, if one on the stack is named as attention, by the identity of each
            observer.
        origins: others whose weights are in these.
        has_sum: whether a sum was seen that the weights weigh.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    makers: dict[int, Owner]
    origins: "tuple[TrackedSoftmax, ...]" = ()
    has_sum: bool = False

    def weighs(self) -> "Iterator[TrackedSoftmax]":
        """Marks the weights as weighing a sum; yields the softmaxes that were not marked before."""
        if not self.has_sum:
            self.has_sum = True
            yield self
        for origin in self.origins:
            yield from origin.weighs()

    @property
    def keys(self) -> int:
        """The number of weights that sum to 1."""
        return prod(self.shape[axis] for axis in self.axes)

    @property
    def rows(self) -> tuple[int, ...]:
        """The sizes of the other axes."""
        return tuple(size for axis, size in enumerate(self.shape) if axis not in self.axes)


class TrackedRecord:
    """The record of a tracked tensor."""

    def moved(self, move: Move) -> Self:
        """Returns the same in other axes."""
        return self


@dataclass(eq=False)
class TrackedWeights(TrackedRecord):
    """Weights, or their logarithms.

    Attributes:
        scores: the input of the softmax, in the axes of the weights; None: unknown.
        undropped: the weights before dropout, and before they were rounded to another dtype; None: the tensor itself.
        exact: whether they are the softmax of the scores: nothing but dropout changed them.
        logarithms: whether the tensor holds their logarithms.
        dropout: the rate with which they were dropped.
        key: the index of each weight's key, on the CPU; None: the axes are those of the softmax.
        row: the index of its row among all other axes of the softmax; None as for ``key``.
    """

    softmax: TrackedSoftmax
    scores: Tensor | None
    undropped: Tensor | None = None
    exact: bool = True
    logarithms: bool = False
    dropout: float = 0.0
    key: Tensor | None = None
    row: Tensor | None = None

    def moved(self, move: Move) -> Self:
        key, row = self._indices()
        scores, undropped = (None if each is None else move(each) for each in (self.scores, self.undropped))
        return replace(self, scores=scores, undropped=undropped, key=move(key), row=move(row))

    def changed(self, shape: torch.Size, undropped: Tensor | None = None) -> Self:
        """Returns weights of a broadcast shape that a model computed from these element by element.

        The new weights before dropout are ``undropped``; None: the new tensor itself.
        """
        weights = replace(self, undropped=undropped, exact=False)
        if self.key is None and tuple(shape) == self.softmax.shape:
            return weights
        key, row = weights._indices()
        weights.key, weights.row = key.expand(shape), row.expand(shape)
        weights.scores = None if self.scores is None else self.scores.expand(shape)
        return weights

    def axes_of_keys(self) -> tuple[int, ...]:
        """Returns the axes along which the key differs."""
        if self.key is None:
            return self.softmax.axes
        return tuple(axis for axis in range(self.key.dim()) if _differs(self.key, axis))

    def axes_of_rows(self) -> tuple[int, ...]:
        """Returns the axes along which the row differs, and those of size 1 that the softmax had."""
        if self.row is None:
            return tuple(axis for axis in range(len(self.softmax.shape)) if axis not in self.softmax.axes)
        return tuple(axis for axis in range(self.row.dim()) if _differs(self.row, axis))

    def parts_of(self, axes: Sequence[int]) -> list[tuple[AxisPart, ...]]:
        """Returns the axes of the softmax that make each of these axes of rows: one, or two that were merged.

        Axes of size 1 of the softmax that the tensor lost stand among them, where they were.
        """
        sizes = self.softmax.rows
        if self.row is None:
            of_rows = self.axes_of_rows()
            return [(AxisPart(self.softmax.shape[axis], of_rows.index(axis)),) for axis in axes]
        parts = [_parts(_line(self.row, axis), sizes) for axis in axes]
        positions = {part.position for each in parts for part in each}
        lost = [position for position, size in enumerate(sizes) if size == 1 and position not in positions]
        for position in lost[: max(len(lost) - sum(each == (AxisPart(1),) for each in parts), 0)]:
            after = next((n for n, each in enumerate(parts) if each[0].position > position), None)
            if after is not None:
                parts[after] = (AxisPart(1, position), *parts[after])
            elif parts:
                parts[-1] = (*parts[-1], AxisPart(1, position))
        return parts

    def _indices(self) -> tuple[Tensor, Tensor]:
        if self.key is not None and self.row is not None:
            return self.key, self.row
        shape, axes = self.softmax.shape, self.softmax.axes
        key = torch.arange(self.softmax.keys, device="cpu")
        key = key.view([size if axis in axes else 1 for axis, size in enumerate(shape)])
        row = torch.arange(prod(self.softmax.rows), device="cpu")
        row = row.view([1 if axis in axes else size for axis, size in enumerate(shape)])
        return key.expand(shape), row.expand(shape)


@dataclass(eq=False)
class Exponentials(TrackedRecord):
    """Exponentials of scores, which are weights once they are divided by their sum.

    Attributes:
        scores: their logarithms; None: unknown.
    """

    scores: Tensor | None

    def moved(self, move: Move) -> Self:
        return replace(self, scores=None if self.scores is None else move(self.scores))

    def changed(self, shape: torch.Size) -> Self:
        """Returns exponentials of this shape that, for example, were multiplied by a mask."""
        return self.moved(lambda scores: scores.expand(shape))


@dataclass(eq=False)
class TrackedTotal(TrackedRecord):
    """A sum of exponentials or of weights over some axes, by which a model divides them."""

    addends: Exponentials | TrackedWeights
    axes: tuple[int, ...]


class TopScores(TrackedRecord):
    """Scores that were chosen by their size, as those of a router's experts: their positions are unrelated to keys."""


@dataclass(eq=False)
class LogSumExp(TrackedRecord):
    """The log-sum-exp of scores over some axes, whose difference from the scores is the logarithm of weights."""

    scores: TensorWeakRef
    axes: tuple[int, ...]


@dataclass(eq=False)
class Factor:
    """Weights in an elementwise product with values.

    Attributes:
        weights: expanded to the shape of the product.
        value: expanded to it; None: the product was changed since.
    """

    weights: TrackedWeights
    value: Tensor | None

    def moved(self, move: Move) -> Self:
        return replace(self, weights=self.weights.moved(move), value=None if self.value is None else move(self.value))


@dataclass(eq=False)
class WeightedValues(TrackedRecord):
    """An elementwise product of weights and values, which weighs a sum once it is added up over the keys.

    Attributes:
        factors: each tensor of weights in it, with its factor.
    """

    factors: tuple[Factor, ...]

    def moved(self, move: Move) -> Self:
        return replace(self, factors=tuple(factor.moved(move) for factor in self.factors))


class TrackedTensors:
    """The records of a model's tensors, by the tensor's identity. A tensor that is freed is forgotten."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[weakref.ref[Tensor], TrackedRecord]] = {}

    def get(self, tensor: object) -> TrackedRecord | None:
        """Returns the record of a tensor; None: nothing is known."""
        known = self.known.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None

    def put(self, tensor: Tensor, tracked: TrackedRecord) -> None:
        """Stores the record of a tensor."""
        number, known = id(tensor), self.known

        def freed(reference: weakref.ref[Tensor]) -> None:
            entry = known.get(number)
            if entry is not None and entry[0] is reference:
                del known[number]

        known[number] = weakref.ref(tensor, freed), tracked

    def forget(self, tensor: object) -> None:
        """Forgets a tensor, whose elements were overwritten."""
        self.known.pop(id(tensor), None)

    def forget_softmax(self, softmax: TrackedSoftmax) -> None:
        """Forgets the tensors that come from a softmax, whose weights were recorded."""
        for number, (_, tracked) in list(self.known.items()):
            if isinstance(tracked, TrackedTotal):
                tracked = tracked.addends
            each = [factor.weights for factor in tracked.factors] if isinstance(tracked, WeightedValues) else [tracked]
            if any(isinstance(weights, TrackedWeights) and weights.softmax is softmax for weights in each):
                del self.known[number]

    def clear(self) -> None:
        """Forgets all tensors."""
        self.known.clear()


def _line(tensor: Tensor, axis: int) -> Tensor:
    """Returns the elements along an axis, at index 0 of all others."""
    return tensor[tuple(slice(None) if other == axis else 0 for other in range(tensor.dim()))]


def _differs(tensor: Tensor, axis: int) -> bool:
    if tensor.shape[axis] < 2 or tensor.stride(axis) == 0:
        return False
    line = _line(tensor, axis)
    return bool((line != line[0]).any())


def _parts(rows: Tensor, sizes: tuple[int, ...]) -> tuple[AxisPart, ...]:
    """Returns the axes, of these sizes, that were merged into one, by the index of the row at each position."""
    count = len(rows)
    coordinates = torch.unravel_index(rows, sizes) if sizes else ()
    varying = [axis for axis, each in enumerate(coordinates) if bool((each != each[0]).any())]
    if len(varying) == 2:
        for outer, inner in (varying, varying[::-1]):
            expected = torch.arange(count, device="cpu") // sizes[inner]
            if sizes[outer] * sizes[inner] == count and torch.equal(coordinates[outer], expected):
                return AxisPart(sizes[outer], outer), AxisPart(sizes[inner], inner)
    return (AxisPart(count, varying[0] if len(varying) == 1 else -1),)
