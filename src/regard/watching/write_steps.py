"""The way back from queries, keys and scores to what was written to the residual stream.

While a model is watched with ``inputs=True``, each tensor that is linear in others is represented by a `LinearStep`: a
sum, a product with constants, moved elements, a linear map, a normalization with the statistics of the run. The way
ends in writes (`Write`): embeddings, outputs of heads, the results of functions that are not linear. `pulled` follows
elements of a tensor back to the writes: the backward mode of differentiation, with the constants.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate, count
from math import prod
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.records.score_parts import WriteKind
from regard.watching.equations import AxisLabels, Equation
from regard.watching.linear_maps import ModuleCall, Normalization
from regard.watching.tracked_tensors import TrackedRecord

_numbers = count()


class CallOfHeads(Protocol):
    """What an `AttentionCall` has of its heads."""

    name: str
    layer: int
    heads: int
    chosen_heads: tuple[int, ...]
    head_output: Tensor | None


@dataclass(frozen=True, eq=False)
class ElementFactors:
    """Some elements of a tensor, and how much each one adds to some sums.

    Attributes:
        index: ``int64 [n]``, in the flattened tensor.
        factors: ``float64 [sums, n]``.
    """

    index: Tensor
    factors: Tensor


class LinearStep(TrackedRecord):
    """One tensor as a linear function of others.

    Attributes:
        number: steps are numbered in the order of the run.
        shape: the shape of the tensor.
        name: the name of the module that made it.
        is_computed: whether all that it is linear in is the result of a function that is not linear.
        has_product: whether it is a product of queries and keys, or comes from one.
        costs: the number of modules that were passed since each output of heads that it comes from, by its number.
    """

    name = ""
    has_product = False

    def __init__(self, shape: torch.Size, *parents: "LinearStep", passed: int = 0):
        self.number, self.shape, self.parents = next(_numbers), shape, parents
        self.is_computed = all(parent.is_computed for parent in parents)
        self.costs: dict[int, int] = {}
        for parent in parents:
            for heads, cost in parent.costs.items():
                self.costs[heads] = min(cost + passed, self.costs.get(heads, cost + passed))

    def before(self, heads: int) -> "tuple[LinearStep, ...]":
        """Returns the parents through which the direct path from some heads leads."""
        least = min((parent.costs[heads] for parent in self.parents if heads in parent.costs), default=0)
        return tuple(parent for parent in self.parents if parent.costs.get(heads) == least)

    def pull(self, elements: ElementFactors) -> "Iterator[tuple[LinearStep, ElementFactors]]":
        """Returns the elements of the parents that these elements are sums of."""
        raise NotImplementedError


class Write(LinearStep):
    """A tensor where the way ends."""

    def __init__(self, tensor: Tensor, kind: WriteKind, name: str = "", is_computed: bool = False):
        super().__init__(tensor.shape)
        self.kind: WriteKind = kind
        self.tensor, self.name, self.is_computed = tensor.detach(), name, is_computed

    def total(self, elements: ElementFactors) -> Tensor:
        """Returns the sums, ``float64 [sums]``."""
        values = self.tensor.cpu().reshape(-1)[elements.index].double()
        if bool(values.isfinite().all()):
            return elements.factors @ values
        return (elements.factors * values).masked_fill(elements.factors == 0, 0.0).sum(1)


class HeadsWrite(Write):
    """The output of a module that projects the heads of one attention call.

    Attributes:
        call: the attention call.
        projection: a few rows of the module's call.
        rows: the number of the batch row and query, ``batch_row * queries + query``, for each row of the output.
        queries: how many there are.
    """

    def __init__(self, tensor: Tensor, call: CallOfHeads, projection: ModuleCall, rows: Tensor, queries: int):
        super().__init__(tensor, "head", call.name)
        self.call, self.projection, self.rows, self.queries = call, projection, rows, queries
        self.costs = {self.number: 0}

    def row_factors(self, elements: ElementFactors) -> tuple[Tensor, Tensor]:
        """Returns the numbers of the rows that have the elements, and factors ``[sums, rows, features]``."""
        return _by_rows(elements, self.shape[-1])


class Sum(LinearStep):
    """A sum of terms, each times a sign."""

    def __init__(self, shape: torch.Size, terms: Sequence[tuple[LinearStep, float]]):
        super().__init__(shape, *(term for term, _ in terms))
        self.signs = [sign for _, sign in terms]
        self.has_product = any(term.has_product for term, _ in terms)

    def pull(self, elements: ElementFactors) -> "Iterator[tuple[LinearStep, ElementFactors]]":
        for term, sign in zip(self.parents, self.signs, strict=True):
            factors = elements.factors if sign == 1 else elements.factors * sign
            yield term, ElementFactors(_origin(term.shape, self.shape, elements.index), factors)


class Scaled(LinearStep):
    """Each element times a constant; one with a cap after it, which is not linear, counts as if it had none."""

    def __init__(self, shape: torch.Size, parent: LinearStep, factor: float | Tensor, is_capped: bool = False):
        super().__init__(shape, parent)
        self.factor, self.is_capped, self.has_product = factor, is_capped, parent.has_product

    def pull(self, elements: ElementFactors) -> "Iterator[tuple[LinearStep, ElementFactors]]":
        factor = self.factor
        if isinstance(factor, Tensor):
            factor = factor.detach().cpu().expand(self.shape)[torch.unravel_index(elements.index, self.shape)].double()
        (parent,) = self.parents
        yield parent, ElementFactors(_origin(parent.shape, self.shape, elements.index), elements.factors * factor)


class Moved(LinearStep):
    """The same elements in other positions, or those of several tensors side by side."""

    def __init__(self, shape: torch.Size, parents: Sequence[LinearStep], move: Callable[..., Tensor]):
        super().__init__(shape, *parents)
        self.move, self.has_product = move, any(parent.has_product for parent in parents)

    def pull(self, elements: ElementFactors) -> "Iterator[tuple[LinearStep, ElementFactors]]":
        ends = list(accumulate((prod(parent.shape) for parent in self.parents), initial=0))
        numbers = [
            torch.arange(first, end, device="cpu").view(parent.shape)
            for parent, first, end in zip(self.parents, ends, ends[1:], strict=False)
        ]
        moved = self.move(*numbers)[torch.unravel_index(elements.index, self.shape)]
        for parent, first, end in zip(self.parents, ends, ends[1:], strict=False):
            own = (moved >= first) & (moved < end)
            if bool(own.any()):
                yield parent, ElementFactors(moved[own] - first, elements.factors[:, own])


class Viewed(LinearStep):
    """The elements of another tensor that are in the same memory.

    Attributes:
        own, source: sizes, strides and offset of the tensor and of the other one.
    """

    def __init__(self, own: "MemoryLayout", parent: LinearStep, source: "MemoryLayout"):
        super().__init__(own.shape, parent)
        self.own, self.source, self.has_product = own, source, parent.has_product

    def pull(self, elements: ElementFactors) -> "Iterator[tuple[LinearStep, ElementFactors]]":
        index = self.source.elements_at(self.own.addresses(elements.index))
        assert index is not None
        yield self.parents[0], ElementFactors(index, elements.factors)


class LinearMap(LinearStep):
    """A linear map of features.

    Attributes:
        weights: the rows ``[n, features]`` of the matrix for some outputs.
        bias: ``[outputs]`` or None.
    """

    def __init__(self, shape: torch.Size, parent: LinearStep, weights: Callable[[Tensor], Tensor], bias: Tensor | None):
        super().__init__(shape, parent)
        self.weights, self.bias = weights, bias

    def pull(self, elements: ElementFactors) -> "Iterator[tuple[LinearStep, ElementFactors]]":
        rows, factors = _by_rows(elements, self.shape[-1])
        used = (factors != 0).any(0).any(0).nonzero().squeeze(1)
        weights = self.weights(used).detach().cpu().double()
        (parent,) = self.parents
        yield parent, _of_rows(rows, factors[..., used] @ weights)
        if self.bias is not None:
            yield _bias(self.bias, elements)


class Normed(LinearStep):
    """A normalization of rows whose statistics are those of the run."""

    def __init__(self, shape: torch.Size, parent: LinearStep, normalization: Normalization, bias: Tensor | None):
        super().__init__(shape, parent)
        self.normalization, self.bias = normalization, bias

    def pull(self, elements: ElementFactors) -> "Iterator[tuple[LinearStep, ElementFactors]]":
        rows, factors = _by_rows(elements, self.shape[-1])
        statistics = self.normalization.factor.cpu().reshape(-1)[rows].double()
        yield self.parents[0], _of_rows(rows, self.normalization.back(factors) * statistics[:, None])
        if self.bias is not None:
            yield _bias(self.bias, elements)


class Product(LinearStep):
    """A product of queries and keys that is added up over their features; the way ends here too."""

    has_product = True

    def __init__(self, shape: torch.Size, sides: Sequence[LinearStep], equation: Equation):
        super().__init__(shape)
        self.sides, self.labels, self.output = sides, equation.labels, equation.output
        self.is_computed = True

    def factors_of(self, index: Tensor) -> list[Tensor]:
        """Returns for each of some elements the elements of both sides that it is added up from, ``[n, features]``."""
        positions: dict[object, Tensor] = dict(zip(self.output, torch.unravel_index(index, self.shape), strict=True))
        positions = {label: each[:, None] for label, each in positions.items()}
        summed = [label for label in self.labels[0] if label not in positions]
        sizes = [self.sides[0].shape[self.labels[0].index(label)] for label in summed]
        numbers = torch.unravel_index(torch.arange(prod(sizes), device="cpu"), sizes)
        positions |= {label: each[None] for label, each in zip(summed, numbers, strict=True)}
        return [_raveled(side.shape, labels, positions) for side, labels in zip(self.sides, self.labels, strict=True)]


@dataclass(frozen=True)
class MemoryLayout:
    """The place of a tensor's elements in its memory."""

    shape: torch.Size
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, tensor: Tensor) -> "MemoryLayout":
        return cls(tensor.shape, tensor.stride(), int(tensor.storage_offset()))

    def addresses(self, index: Tensor) -> Tensor:
        """Returns the addresses of elements of the flattened tensor."""
        address = torch.full_like(index, self.offset)
        for position, stride in zip(torch.unravel_index(index, self.shape), self.strides, strict=True):
            address = address + position * stride
        return address

    def elements_at(self, addresses: Tensor) -> Tensor | None:
        """Returns the elements at some addresses, in the flattened tensor; None if it does not have all of them."""
        left, positions = addresses - self.offset, [torch.zeros_like(addresses) for _ in self.shape]
        axes = [axis for axis, size in enumerate(self.shape) if size > 1 and self.strides[axis] > 0]
        for axis in sorted(axes, key=lambda axis: -self.strides[axis]):
            positions[axis] = (left // self.strides[axis]).clamp(0, self.shape[axis] - 1)
            left = left - positions[axis] * self.strides[axis]
        return None if bool(left.any()) else _raveled(self.shape, range(len(self.shape)), dict(enumerate(positions)))


@dataclass(frozen=True, eq=False)
class ScoreSteps:
    """Where the scores of a call come from.

    Attributes:
        query, key: the steps of the queries and keys, ``[batch, heads, length, dim]``; None: unknown.
        scores: the step of scores that the model computed itself, ``[batch, heads, queries, keys]``; None: regard knows
            the score function.
        values: these scores.
    """

    query: LinearStep | None = None
    key: LinearStep | None = None
    scores: LinearStep | None = None
    values: Tensor | None = None


def pulled(step: LinearStep, elements: ElementFactors) -> dict[Write | Product, ElementFactors]:
    """Returns the elements of all writes, and of products of queries and keys, that elements of a step are sums of."""
    waiting: dict[LinearStep, list[ElementFactors]] = {step: [elements]}
    order, ends = [(-step.number, step)], {}
    while order:
        _, step = heappop(order)
        elements = _merged(waiting.pop(step))
        if isinstance(step, (Write, Product)):
            ends[step] = elements
            continue
        for parent, part in step.pull(elements):
            if parent not in waiting:
                heappush(order, (-parent.number, parent))
            waiting.setdefault(parent, []).append(part)
    return ends


def is_capped(step: LinearStep) -> bool:
    """Whether scores were capped."""
    own = isinstance(step, Scaled) and step.is_capped
    return own or any(is_capped(parent) for parent in step.parents if parent.has_product)


def _merged(parts: Sequence[ElementFactors]) -> ElementFactors:
    if len(parts) == 1:
        return parts[0]
    index, inverse = torch.cat([part.index for part in parts]).unique(return_inverse=True)
    factors = torch.cat([part.factors for part in parts], dim=1)
    return ElementFactors(index, factors.new_zeros(len(factors), len(index)).index_add_(1, inverse, factors))


def _origin(shape: torch.Size, result: torch.Size, index: Tensor) -> Tensor:
    """Returns the elements of a tensor of a shape that elements of its broadcast to another one are."""
    if shape == result:
        return index
    numbers = torch.arange(prod(shape), device="cpu").view(shape).expand(result)
    return numbers[torch.unravel_index(index, result)]


def _by_rows(elements: ElementFactors, features: int) -> tuple[Tensor, Tensor]:
    """Returns the numbers of the rows that have some elements, and factors ``[sums, rows, features]``."""
    rows, inverse = (elements.index // features).unique(return_inverse=True)
    factors, position = elements.factors, inverse * features + elements.index % features
    if not torch.equal(position, torch.arange(len(rows) * features, device="cpu")):
        factors = factors.new_zeros(len(factors), len(rows) * features).index_add_(1, position, factors)
    return rows, factors.unflatten(1, (-1, features))


def _of_rows(rows: Tensor, factors: Tensor) -> ElementFactors:
    features = factors.shape[-1]
    return ElementFactors(
        (rows[:, None] * features + torch.arange(features, device="cpu")).flatten(), factors.flatten(1)
    )


def _bias(bias: Tensor, elements: ElementFactors) -> tuple[Write, ElementFactors]:
    return Write(bias, "bias"), ElementFactors(elements.index % bias.numel(), elements.factors)


def _raveled(shape: Sequence[int], labels: AxisLabels | Sequence[int], positions: dict[Any, Tensor]) -> Tensor:
    """Returns the index in a flattened tensor from the position along each axis; those of size 1 broadcast."""
    index: Any = torch.zeros((), dtype=torch.int64, device="cpu")
    for size, label in zip(shape, labels, strict=True):
        index = index * size + (positions[label] if size > 1 else 0 * positions[label])
    return index
