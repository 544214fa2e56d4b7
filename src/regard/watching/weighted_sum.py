"""A sum that weights of a softmax weigh: attention, however a model writes it.

The sum is a product of weights and values, added up over the keys: ``matmul``, ``einsum``, ``(weights * values).sum``.
The weights are those that the model made, so nothing has to be known of how it scored; they exist in full anyway.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from regard.masks import keep
from regard.watching.equations import Equation, Labels
from regard.watching.intercepted import Intercepted
from regard.watching.mask_kind import HIDING, visible_pairs
from regard.watching.softmax_results import Factor, Part, Results, WeightedValues, Weights

SOURCE = "softmax"

HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead")
"""Attributes of modules that hold the number of heads."""


@dataclass(frozen=True)
class Layout:
    """How the rows of weights become ``[batch, heads, queries]``.

    Attributes:
        sizes: of the axes of the rows, where merged axes are apart.
        batch, heads, queries: which of them are what.
    """

    sizes: tuple[int, ...]
    batch: tuple[int, ...]
    heads: tuple[int, ...]
    queries: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of batch rows, heads and queries."""
        batch, heads, queries = (
            prod(self.sizes[place] for place in places) for places in (self.batch, self.heads, self.queries)
        )
        return batch, heads, queries

    def four_axes(self, tensor: Tensor) -> Tensor:
        """``[batch, heads, queries, n]`` of a tensor ``[*rows, n]``."""
        order = (*self.batch, *self.heads, *self.queries)
        return tensor.reshape(*self.sizes, tensor.shape[-1]).permute(*order, -1).reshape(*self.shape, tensor.shape[-1])

    def rows(self, tensor: Tensor, sizes: Sequence[int]) -> Tensor:
        """``[*sizes, n]`` of a tensor ``[batch, heads, queries, n]``: the inverse of `four_axes`."""
        order = (*self.batch, *self.heads, *self.queries)
        back = [order.index(place) for place in range(len(order))]
        apart = tensor.reshape(*(self.sizes[place] for place in order), tensor.shape[-1])
        return apart.permute(*back, -1).reshape(*sizes, tensor.shape[-1])


@dataclass(eq=False)
class WeightedSum:
    """Weights and the values that they weigh.

    Attributes:
        weights: what is known of the weights.
        numbers: the weights before dropout, with an axis for each of the labels.
        scores: what they were made of, in the same axes; None: unknown.
        labels: of the weights' axes.
        keys: those that are added up over.
        parts: for each label of a row, the axes of the softmax that were merged to it.
        values: the tensors that the weights are multiplied by, and their labels; None in place of a tensor: unknown.
        output: the labels of the result.
        added: those among them that are axes of size 1, or none, in the place of the axes that were added up.
    """

    weights: Weights
    numbers: Tensor
    scores: Tensor | None
    labels: Labels
    keys: Labels
    parts: dict[object, tuple[Part, ...]]
    values: tuple[tuple[Tensor | None, Labels], ...]
    output: Labels
    added: Labels = ()

    @property
    def rows(self) -> Labels:
        """The labels of the weights' other axes."""
        return tuple(label for label in self.labels if label not in self.keys)

    @property
    def _sizes(self) -> tuple[int, ...]:
        """The sizes of the rows' axes."""
        sizes = dict(zip(self.labels, self.numbers.shape, strict=True))
        return tuple(sizes[label] for label in self.rows)

    def layout(self, owner: nn.Module) -> Layout:
        """Which rows are batch rows, heads and queries.

        Queries are an axis that the values do not have; the last one, if there are several. The other axes are the
        batch and the heads, in this order, unless the module's number of heads says otherwise.

        Args:
            owner: the module that computes the sum.
        """
        of_values = {label for _, labels in self.values for label in labels}
        parts = [(part, label) for label in self.rows for part in self.parts[label]]
        sizes = tuple(part.size for part, _ in parts)
        count = next((n for name in HEAD_COUNTS if type(n := getattr(owner, name, None)) is int), 1)
        own = [place for place, (_, label) in enumerate(parts) if label not in of_values]
        query = None
        if own:
            query = own[-1]
        elif len(parts) > 2 or (len(parts) == 2 and not self._ends_with_heads(sizes[-1], count)):
            query = len(parts) - 1
        queries = () if query is None else (query,)
        others = tuple(place for place in range(len(parts)) if place != query)
        if len({parts[place][1] for place in others}) == 1:
            # Parts of one axis stand as they did before they were merged.
            others = tuple(sorted(others, key=lambda place: parts[place][0].place))
        is_merged = len(others) == 1 and len(self.weights.softmax.rows) > 1
        if query is not None and is_merged and count > 1 and sizes[others[0]] % count == 0:
            # One axis of batch rows and heads, which was never two in the weights.
            place = others[0]
            apart = (sizes[place] // count, count)
            if place < query:
                return Layout((*apart, sizes[query]), (0,), (1,), (2,))
            return Layout((sizes[query], *apart), (1,), (2,), (0,))
        if len(others) < 2:
            return Layout(sizes, others, (), queries)
        heads = others[-1]
        if sizes[heads] != count:
            heads = next((place for place in others if sizes[place] == count > 1), heads)
        return Layout(sizes, tuple(place for place in others if place != heads), (heads,), queries)

    def _ends_with_heads(self, size: int, count: int) -> bool:
        """Whether the second of two axes that the values have are heads: ``[batch, keys, heads]``."""
        return size == count > 1 or self.labels[-1] not in self.keys

    @torch.no_grad()
    def read(self, owner: nn.Module) -> Intercepted:
        """The attention call of which the sum is the end.

        Args:
            owner: the module that computes the sum.
        """
        layout = self.layout(owner)
        weights = layout.four_axes(self._pairs(self.numbers))
        has_sink = weights.shape[-1] < self.weights.softmax.keys
        found = Intercepted(
            source=SOURCE,
            weights=weights,
            value=self._value(layout),
            has_sink=has_sink,
            dropout=self.weights.dropout,
        )
        if self.scores is None or not self.scores.is_floating_point():
            return found
        scores = layout.four_axes(self._pairs(self.scores))
        floor = max(HIDING, torch.finfo(scores.dtype).min / 2)
        hidden = scores <= floor
        pairs = visible_pairs(_one_head(~hidden))
        found.mask, found.causal, found.visible = pairs.kind, pairs.causal, pairs.mask
        # A row that is hidden throughout by finite numbers has weights: that is what the model computed.
        uniform = hidden & (weights != 0)
        if bool(uniform.any()):
            hidden = hidden & ~uniform
            found.visible = keep(_one_head(~hidden))
        # Where a sink is among the scores, models shift them first, so that their log-sum-exp is lost.
        if self.weights.exact and not has_sink:
            found.scores = scores.masked_fill(hidden, -torch.inf)
        return found

    def _pairs(self, tensor: Tensor) -> Tensor:
        """``[*rows, keys]`` of a tensor in the axes of the labels."""
        return _ordered(tensor.detach(), self.labels, (*self.rows, *self.keys)).flatten(len(self.rows))

    def _value(self, layout: Layout) -> Tensor | None:
        """``[batch, heads, keys, value_dim]``; None where each query has values of its own, or there are several."""
        if len(self.values) != 1:
            return None
        (value, labels), rows = self.values[0], self.rows
        if value is None or any(label not in labels for label in self.keys):
            return None
        features = [label for label in labels if label not in rows and label not in self.keys]
        value = value.detach()
        for label in (label for label in rows if label not in labels):
            value, labels = value.unsqueeze(0), (label, *labels)
        value = _ordered(value, labels, (*rows, *self.keys, *features))
        keys, number = prod(value.shape[len(rows) : len(rows) + len(self.keys)]), prod(value.shape[-len(features) :])
        value = value.expand(*self._sizes, *value.shape[len(rows) :])
        value = value.reshape(*layout.sizes, keys, number if features else 1)
        for query in sorted(layout.queries, reverse=True):
            if value.stride(query) != 0 and value.shape[query] > 1:
                return None
        first = tuple(slice(0, 1) if place in layout.queries else slice(None) for place in range(len(layout.sizes)))
        order = (*layout.batch, *layout.heads, *layout.queries)
        batch, heads, _ = layout.shape
        return value[first].permute(*order, -2, -1).reshape(batch, heads, keys, -1)

    def change_heads(self, output: Tensor, change: Any, owner: nn.Module) -> Tensor:
        """The result with changed heads; the result itself where it has none, because they are added up too.

        Args:
            output: the result.
            change: gives other heads for ``[batch, heads, queries, value_dim]``.
            owner: the module that computes the sum.
        """
        labels, rows = self.output, self.rows
        if output.dim() < len(labels):
            labels = tuple(label for label in labels if label not in self.added)
        layout, sizes = self.layout(owner), self._sizes
        missing = [label for label in rows if label not in labels]
        if any(size > 1 for label, size in zip(rows, sizes, strict=True) if label in missing):
            return output
        features = tuple(label for label in labels if label not in rows)
        whole, given = output, (*missing, *labels)
        for _ in missing:
            whole = whole.unsqueeze(0)
        ordered = _ordered(whole, given, (*rows, *features))
        heads = layout.four_axes(ordered.reshape(*sizes, -1))
        changed = layout.rows(change(heads), sizes).reshape(ordered.shape)
        return _ordered(changed, (*rows, *features), given).reshape(output.shape)


def sum_of_equation(equation: Equation, results: Results) -> WeightedSum | None:
    """The sum that an equation computes, if one of its operands holds weights, and it adds up over all their keys."""
    sizes: dict[object, int] = {}
    for tensor, labels in zip(equation.operands, equation.labels, strict=True):
        for label, size in zip(labels, tensor.shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 0))
    for place, tensor in enumerate(equation.operands):
        weights = results.get(tensor)
        if isinstance(weights, WeightedValues):
            weights = weights.factors[0].weights.changed(tensor.shape)
        if not isinstance(weights, Weights) or weights.logarithms or not tensor.numel():
            continue
        others = [
            _without_ones(other, labels, sizes)
            for number, (other, labels) in enumerate(zip(equation.operands, equation.labels, strict=True))
            if number != place
        ]
        # An axis of size 1 that broadcasts is one of the weights alone.
        own = tuple(
            label if size == sizes[label] else ("one", label)
            for label, size in zip(equation.labels[place], tensor.shape, strict=True)
        )
        numbers = tensor if weights.numbers is None else weights.numbers
        found = _weighted_sum(weights, numbers, weights.scores, range(tensor.dim()), own, others, equation.output)
        if found is not None:
            return found
    return None


def sum_of_products(product: Tensor, factors: Sequence[Factor], axes: Sequence[int]) -> WeightedSum | None:
    """The sum of a product over some axes, if they hold all keys of weights that are a factor of it.

    Args:
        product: the product.
        factors: the weights in it.
        axes: from 0.
    """
    added = {axis: ("added", axis) for axis in axes}
    output = tuple(added.get(axis, axis) for axis in range(product.dim()))
    for factor in factors:
        weights, value = factor.weights, factor.value
        varying = {*weights.axes_of_keys(), *weights.axes_of_rows()}
        own = [axis for axis, size in enumerate(product.shape) if size == 1 or axis in varying]
        of_value = [axis for axis, size in enumerate(product.shape) if size == 1 or axis not in varying]
        if value is not None:
            of_value = [axis for axis, size in enumerate(product.shape) if size == 1 or value.stride(axis) != 0]
            value = _selected(value, of_value)
        else:
            of_value = list(range(product.dim()))
        assert weights.numbers is not None
        numbers = _selected(weights.numbers, own)
        scores = None if weights.scores is None else _selected(weights.scores, own)
        found = _weighted_sum(weights, numbers, scores, own, tuple(own), [(value, tuple(of_value))], output)
        if found is not None:
            return replace(found, added=tuple(added.values()))
    return None


def _weighted_sum(
    weights: Weights,
    numbers: Tensor,
    scores: Tensor | None,
    axes: Sequence[int],
    labels: Labels,
    values: Sequence[tuple[Tensor | None, Labels]],
    output: Labels,
) -> WeightedSum | None:
    """The sum, if it is one over all keys.

    Args:
        weights: what is known of the weights.
        numbers, scores: in the axes of the labels.
        axes: of the tensor that the weights are, for each label.
        labels: of the weights' axes.
        values: what they are multiplied by.
        output: the labels of the result.
    """
    of_values = {label for _, each in values for label in each}
    summed = [label for label in labels if label not in output and label in of_values]
    of_keys, of_rows = weights.axes_of_keys(), weights.axes_of_rows()
    keys = tuple(label for axis, label in zip(axes, labels, strict=True) if axis in of_keys)
    sizes = dict(zip(labels, numbers.shape, strict=True))
    if not keys and weights.softmax.keys <= 2:
        # A single key has no place of its own.
        keys = tuple(label for label in summed if sizes[label] == 1)[-1:]
    elif weights.key is not None and set(of_keys) & set(of_rows):
        return None
    count = prod(sizes[label] for label in keys)
    if not keys or any(label not in summed for label in keys):
        return None
    if count not in (weights.softmax.keys, weights.softmax.keys - 1):
        return None
    rows = [(axis, label) for axis, label in zip(axes, labels, strict=True) if label not in keys]
    # Numbers that are weighed are no values: an expectation, an entropy, a loss.
    known = [(value, each) for value, each in values if value is not None]
    features = [
        size for value, each in known for label, size in zip(each, value.shape, strict=True) if label not in labels
    ]
    has_queries = any(label not in of_values and sizes[label] > 1 for _, label in rows)
    if known and not any(size > 1 for size in features) and not (features and has_queries):
        return None
    parts = dict(zip([label for _, label in rows], weights.parts_of([axis for axis, _ in rows]), strict=True))
    return WeightedSum(weights, numbers, scores, labels, keys, parts, tuple(values), output)


def _without_ones(tensor: Tensor, labels: Labels, sizes: dict[object, int]) -> tuple[Tensor, Labels]:
    """A tensor without its axes of size 1 that broadcast."""
    kept = [axis for axis, label in enumerate(labels) if tensor.shape[axis] == sizes[label]]
    return _selected(tensor, kept), tuple(labels[axis] for axis in kept)


def _selected(tensor: Tensor, axes: Sequence[int]) -> Tensor:
    """A tensor with these axes alone, at the first place of the others."""
    for axis in reversed(range(tensor.dim())):
        if axis not in axes:
            tensor = tensor.select(axis, 0)
    return tensor


def _ordered(tensor: Tensor, labels: Labels, order: Labels) -> Tensor:
    return tensor.permute([labels.index(label) for label in order])


def _one_head(shown: Tensor) -> Tensor:
    """The pairs of one head, if all heads and batch rows have the same."""
    if bool((shown == shown[:, :1]).all()):
        shown = shown[:, :1]
    return shown[:1] if shown.shape[0] > 1 and bool((shown == shown[:1]).all()) else shown
