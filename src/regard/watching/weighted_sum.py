"""A sum that weights of a softmax weigh: attention in any form that a model may write.

The sum is a product of weights and values, added up over the keys: ``matmul``, ``einsum``, ``(weights * values).sum``.
The weights are those of the model, which exist in full anyway, so its score function need not be known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from regard.masks import keep
from regard.watching.equations import AxisLabels, Equation
from regard.watching.head_axis import adjacent_axes, axes_of_heads
from regard.watching.intercepted_call import InterceptedCall, detached
from regard.watching.mask_kind import hides, visible_pairs
from regard.watching.tracked_tensors import AxisPart, Factor, TrackedTensors, TrackedWeights, WeightedValues

SOURCE = "softmax"


@dataclass(frozen=True)
class RowLayout:
    """The arrangement of the rows of weights as ``[batch, heads, queries]``.

    Attributes:
        sizes: the sizes of the rows' axes, where merged axes are separate.
        batch, heads, queries: the axes of each kind.
    """

    sizes: tuple[int, ...]
    batch: tuple[int, ...]
    heads: tuple[int, ...]
    queries: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of batch rows, heads and queries."""
        batch, heads, queries = (prod(self.sizes[i] for i in axes) for axes in (self.batch, self.heads, self.queries))
        return batch, heads, queries

    @property
    def order(self) -> tuple[int, ...]:
        """The axes in the order batch, heads, queries."""
        return (*self.batch, *self.heads, *self.queries)

    def four_axes(self, tensor: Tensor) -> Tensor:
        """Returns ``[batch, heads, queries, n]`` of a tensor ``[*rows, n]``."""
        apart = tensor.reshape(*self.sizes, tensor.shape[-1])
        return apart.permute(*self.order, -1).reshape(*self.shape, tensor.shape[-1])

    def rows(self, tensor: Tensor, sizes: Sequence[int]) -> Tensor:
        """Returns ``[*sizes, n]`` of a tensor ``[batch, heads, queries, n]``: the inverse of `four_axes`."""
        back = [self.order.index(axis) for axis in range(len(self.order))]
        apart = tensor.reshape(*(self.sizes[axis] for axis in self.order), tensor.shape[-1])
        return apart.permute(*back, -1).reshape(*sizes, tensor.shape[-1])


@dataclass(eq=False)
class WeightedSum:
    """Weights and the values that they weigh.

    Attributes:
        tracked: the record of the weights.
        weights: those before dropout, with an axis for each of the labels.
        scores: the scores of the weights, in the same axes; None: unknown.
        labels: the labels of the weights' axes.
        keys: the labels that are added up over.
        parts: the axes of the softmax that were merged into each label of a row.
        values: the other factors, and their labels; None in place of a tensor: unknown.
        output: the labels of the result.
        added: those among them that stand for axes that were added up, of size 1 or none.
    """

    tracked: TrackedWeights
    weights: Tensor
    scores: Tensor | None
    labels: AxisLabels
    keys: AxisLabels
    parts: dict[object, tuple[AxisPart, ...]]
    values: tuple[tuple[Tensor | None, AxisLabels], ...]
    output: AxisLabels
    added: AxisLabels = ()

    @property
    def rows(self) -> AxisLabels:
        """The labels of the weights' other axes."""
        return tuple(label for label in self.labels if label not in self.keys)

    @property
    def _sizes(self) -> tuple[int, ...]:
        """The sizes of the rows' axes."""
        sizes = dict(zip(self.labels, self.weights.shape, strict=True))
        return tuple(sizes[label] for label in self.rows)

    def layout(self, count: int | None) -> RowLayout:
        """Returns which rows are batch rows, heads and queries; raises ArgumentError if that is ambiguous.

        Queries are an axis that the values do not have; the last one, if there are several. The other axes are the
        batch and the heads, in this order, unless ``count``, the owner's number of heads, says otherwise.
        """
        of_values = {label for _, labels in self.values for label in labels}
        parts = [(part, label) for label in self.rows for part in self.parts[label]]
        sizes = tuple(part.size for part, _ in parts)
        several = 1 if count is None else count
        own = [axis for axis, (_, label) in enumerate(parts) if label not in of_values]
        # Of two axes that the values have too, the second may be heads: ``[batch, keys, heads]``.
        ends_with_heads = (several > 1 and sizes[-1:] == (count,)) or self.labels[-1] not in self.keys
        query = None
        if own:
            query = own[-1]
        elif len(parts) > 2 or (len(parts) == 2 and not ends_with_heads):
            query = len(parts) - 1
        others = tuple(axis for axis in range(len(parts)) if axis != query)
        if len({parts[axis][1] for axis in others}) == 1:
            # Parts of one axis stand as they did before they were merged.
            others = tuple(sorted(others, key=lambda axis: parts[axis][0].position))
        is_merged = len(others) == 1 and len(self.tracked.softmax.rows) > 1
        if query is not None and is_merged and several > 1 and sizes[others[0]] % several == 0:
            # One axis of batch rows and heads, which was never two in the weights.
            axis = others[0]
            apart = (sizes[axis] // several, several)
            if axis < query:
                return RowLayout((*apart, sizes[query]), (0,), (1,), (2,))
            return RowLayout((sizes[query], *apart), (1,), (2,), (0,))
        queries = () if query is None else (query,)
        if len(others) < 2 or (len(others) == 2 and count == 1 and sizes[others[1]] > 1):
            return RowLayout(sizes, others, (), queries)
        heads = others[-1:]
        if len(others) > 2:
            adjacent = self._adjacent_labels()
            near = [index for index, axis in enumerate(others) if parts[axis][1] in adjacent]
            heads = tuple(others[index] for index in axes_of_heads([sizes[axis] for axis in others], count, near))
        elif sizes[heads[0]] != count:
            heads = next(((axis,) for axis in others if sizes[axis] == several > 1), heads)
        return RowLayout(sizes, tuple(axis for axis in others if axis not in heads), heads, queries)

    def _adjacent_labels(self) -> set[object]:
        """Returns the labels of the values along which one head's features follow those of another in memory."""
        if len(self.values) != 1:
            return set()
        value, labels = self.values[0]
        if value is None:
            return set()
        features = [label for label in labels if label not in self.labels]
        if len(features) != 1 or len(self.keys) != 1 or self.keys[0] not in labels:
            return set()
        order = (*(label for label in labels if label in self.rows), *self.keys, *features)
        return {order[axis] for axis in adjacent_axes(_ordered(value, labels, order))}

    def read(self, count: int | None) -> InterceptedCall:
        """Returns the attention call that ends in the sum; the argument is that of `layout`."""
        layout = self.layout(count)
        weights = layout.four_axes(self._pairs(self.weights))
        has_sink = weights.shape[-1] < self.tracked.softmax.keys
        intercepted = InterceptedCall(
            SOURCE, weights=weights, value=self._value(layout), has_sink=has_sink, dropout=self.tracked.dropout
        )
        if self.scores is None or not self.scores.is_floating_point():
            return intercepted
        scores = intercepted.own_scores = layout.four_axes(self._pairs(self.scores))
        hidden = hides(scores)
        intercepted.mask = visible_pairs(_one_head(~hidden))
        # A row that is hidden throughout has weights where its scores are finite, and NaN where they are not.
        uniform = hidden & (weights > 0)
        if bool(uniform.any()):
            hidden = hidden & ~uniform
            intercepted.mask = replace(intercepted.mask, visible=keep(_one_head(~hidden)))
        # Where a sink is among the scores, models shift them first, so that their log-sum-exp is lost.
        if self.tracked.exact and not has_sink:
            intercepted.scores = scores.masked_fill(hidden, -torch.inf)
        return intercepted

    def _pairs(self, tensor: Tensor) -> Tensor:
        """Returns ``[*rows, keys]`` of a tensor in the axes of the labels."""
        return _ordered(detached(tensor), self.labels, (*self.rows, *self.keys)).flatten(len(self.rows))

    def _value(self, layout: RowLayout) -> Tensor | None:
        """Returns ``[batch, heads, keys, value_dim]``; None if each query has its own values, or there are several."""
        if len(self.values) != 1:
            return None
        (value, labels), rows = self.values[0], self.rows
        if value is None or any(label not in labels for label in self.keys):
            return None
        features = [label for label in labels if label not in rows and label not in self.keys]
        value = detached(value)
        for label in (label for label in rows if label not in labels):
            value, labels = value.unsqueeze(0), (label, *labels)
        value = _ordered(value, labels, (*rows, *self.keys, *features))
        keys, number = prod(value.shape[len(rows) : len(rows) + len(self.keys)]), prod(value.shape[-len(features) :])
        value = value.expand(*self._sizes, *value.shape[len(rows) :])
        value = value.reshape(*layout.sizes, keys, number if features else 1)
        if any(value.stride(query) != 0 and value.shape[query] > 1 for query in layout.queries):
            return None
        first = tuple(slice(0, 1) if axis in layout.queries else slice(None) for axis in range(len(layout.sizes)))
        batch, heads, _ = layout.shape
        return value[first].permute(*layout.order, -2, -1).reshape(batch, heads, keys, -1)

    def change_weights(self, weights: Tensor, change: Any, count: int | None) -> Tensor:
        """Returns changed weights, in the axes of the labels: ``change`` is a function of four axes, as `layout`."""
        layout, keys = self.layout(count), self.weights.shape[: len(self.labels)]
        pairs = layout.four_axes(_ordered(weights, self.labels, (*self.rows, *self.keys)).flatten(len(self.rows)))
        rows = layout.rows(change(pairs), self._sizes)
        sizes = [size for label, size in zip(self.labels, keys, strict=True) if label in self.keys]
        return _ordered(rows.unflatten(-1, sizes), (*self.rows, *self.keys), self.labels)

    def change_heads(self, output: Tensor, change: Any, count: int | None) -> Tensor:
        """Returns the output with changed heads; the output itself if heads are added up too, so that it has none.

        The function ``change`` returns the heads that replace ``[batch, heads, queries, value_dim]``; ``count`` is as
        for `layout`.
        """
        labels, rows = self.output, self.rows
        if output.dim() < len(labels):
            labels = tuple(label for label in labels if label not in self.added)
        layout, sizes = self.layout(count), self._sizes
        missing = [label for label in rows if label not in labels]
        if any(size > 1 for label, size in zip(rows, sizes, strict=True) if label in missing):
            return output
        features = tuple(label for label in labels if label not in rows)
        whole, present = output, (*missing, *labels)
        for _ in missing:
            whole = whole.unsqueeze(0)
        ordered = _ordered(whole, present, (*rows, *features))
        heads = layout.four_axes(ordered.reshape(*sizes, -1))
        changed = layout.rows(change(heads), sizes).reshape(ordered.shape)
        return _ordered(changed, (*rows, *features), present).reshape(output.shape)


def sum_of_equation(equation: Equation, tensors: TrackedTensors) -> WeightedSum | None:
    """Returns the sum that an equation computes, if an operand holds weights and all their keys are added up."""
    sizes: dict[object, int] = {}
    for tensor, labels in zip(equation.operands, equation.labels, strict=True):
        for label, size in zip(labels, tensor.shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 0))
    for index, tensor in enumerate(equation.operands):
        tracked = tensors.get(tensor)
        if isinstance(tracked, WeightedValues):
            tracked = tracked.factors[0].weights.changed(tensor.shape)
        if not isinstance(tracked, TrackedWeights) or tracked.logarithms or not tensor.numel():
            continue
        others = [
            _without_ones(other, labels, sizes)
            for number, (other, labels) in enumerate(zip(equation.operands, equation.labels, strict=True))
            if number != index
        ]
        # An axis of size 1 that broadcasts belongs to the weights alone.
        own = tuple(
            label if size == sizes[label] else ("one", label)
            for label, size in zip(equation.labels[index], tensor.shape, strict=True)
        )
        weights = tensor if tracked.undropped is None else tracked.undropped
        weighted = _weighted_sum(tracked, weights, tracked.scores, range(tensor.dim()), own, others, equation.output)
        if weighted is not None:
            return weighted
    return None


def sum_of_products(product: Tensor, factors: Sequence[Factor], axes: Sequence[int]) -> WeightedSum | None:
    """Returns the sum of a product over some axes, if they hold all keys of weights that are a factor of it."""
    added = {axis: ("added", axis) for axis in axes}
    output = tuple(added.get(axis, axis) for axis in range(product.dim()))
    for factor in factors:
        tracked, value = factor.weights, factor.value
        varying = {*tracked.axes_of_keys(), *tracked.axes_of_rows()}
        own = [axis for axis, size in enumerate(product.shape) if size == 1 or axis in varying]
        of_value = list(range(product.dim()))
        if value is not None:
            of_value = [axis for axis, size in enumerate(product.shape) if size == 1 or value.stride(axis) != 0]
            value = _selected(value, of_value)
        assert tracked.undropped is not None
        weights = _selected(tracked.undropped, own)
        scores = None if tracked.scores is None else _selected(tracked.scores, own)
        weighted = _weighted_sum(tracked, weights, scores, own, tuple(own), [(value, tuple(of_value))], output)
        if weighted is not None:
            return replace(weighted, added=tuple(added.values()))
    return None


def _weighted_sum(
    tracked: TrackedWeights,
    weights: Tensor,
    scores: Tensor | None,
    axes: Sequence[int],
    labels: AxisLabels,
    values: Sequence[tuple[Tensor | None, AxisLabels]],
    output: AxisLabels,
) -> WeightedSum | None:
    """Returns the sum, if it is one over all keys.

    The weights and scores have the axes of the ``labels``; ``axes`` are those of the tensor that holds the weights.
    """
    of_values = {label for _, each in values for label in each}
    summed = [label for label in labels if label not in output and label in of_values]
    of_keys, of_rows = tracked.axes_of_keys(), tracked.axes_of_rows()
    keys = tuple(label for axis, label in zip(axes, labels, strict=True) if axis in of_keys)
    sizes = dict(zip(labels, weights.shape, strict=True))
    if not keys and tracked.softmax.keys <= 2:
        # A single key has no axis of its own.
        keys = tuple(label for label in summed if sizes[label] == 1)[-1:]
    elif tracked.key is not None and set(of_keys) & set(of_rows):
        return None
    count = prod(sizes[label] for label in keys)
    if not keys or any(label not in summed for label in keys):
        return None
    if count not in (tracked.softmax.keys, tracked.softmax.keys - 1):
        return None
    rows = [(axis, label) for axis, label in zip(axes, labels, strict=True) if label not in keys]
    # Weighted scalars are no values: their sum is an expectation, an entropy or a loss.
    known = [(value, each) for value, each in values if value is not None]
    features = [
        size for value, each in known for label, size in zip(each, value.shape, strict=True) if label not in labels
    ]
    has_queries = any(label not in of_values and sizes[label] > 1 for _, label in rows)
    if known and not any(size > 1 for size in features) and not (features and has_queries):
        return None
    parts = dict(zip([label for _, label in rows], tracked.parts_of([axis for axis, _ in rows]), strict=True))
    return WeightedSum(tracked, weights, scores, labels, keys, parts, tuple(values), output)


def _without_ones(tensor: Tensor, labels: AxisLabels, sizes: dict[object, int]) -> tuple[Tensor, AxisLabels]:
    """Returns a tensor without its axes of size 1 that broadcast."""
    axes = [axis for axis, label in enumerate(labels) if tensor.shape[axis] == sizes[label]]
    return _selected(tensor, axes), tuple(labels[axis] for axis in axes)


def _selected(tensor: Tensor, axes: Sequence[int]) -> Tensor:
    """Returns a tensor with these axes alone, at index 0 of the others."""
    for axis in reversed(range(tensor.dim())):
        if axis not in axes:
            tensor = tensor.select(axis, 0)
    return tensor


def _ordered(tensor: Tensor, labels: AxisLabels, order: AxisLabels) -> Tensor:
    return tensor.permute([labels.index(label) for label in order])


def _one_head(shown: Tensor) -> Tensor:
    """Returns the pairs of one head, if all heads and batch rows have the same."""
    if bool((shown == shown[:, :1]).all()):
        shown = shown[:, :1]
    return shown[:1] if shown.shape[0] > 1 and bool((shown == shown[:1]).all()) else shown
