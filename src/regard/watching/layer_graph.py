"""Attention rollout and attention flow: the share of each input that reaches a position through all layers of a model.

Both read the layers as one graph (`LayerGraph`): its nodes are the positions at each layer, its edges the weights and
the residual connections.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.records import AttentionRecord, Axis, GridAxis, TokenAxis
from regard.shapes.checks import type_text, whole_number

Fusion = Literal["mean", "max", "min"]
"""The fusion of a layer's heads to one: the mean, the largest or the least weight of each pair."""

BLOCK_WEIGHTS = 1 << 22
"""The number of weights that are read from a record at once."""


class LayerGraph:
    """The layers of a model, from the lowest to the highest.

    .. math:: A_l = r I + (1 - r) W_l

    Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3, where r is 0.5: half of a position's
    output comes over the residual connection.

    Args:
        records: one for each layer, in any order; self-attention of the same positions.
        residual: :math:`r`, the share of the residual connection, from 0 to 1.
        fuse: how the heads of a layer become one. The rows of ``max`` and ``min`` are normalized to the sum of the
            rows of the mean.

    Raises:
        KindError: not a sequence of records.
        ArgumentError: cross-attention, weights with signs, a layer that is missing or repeated, weights that are NaN,
            or a residual out of its range.
        ShapeError: another number of positions.
        UnknownNameError: an unknown fusion.
    """

    def __init__(self, records: Sequence[AttentionRecord], residual: float, fuse: Fusion):
        if isinstance(residual, bool) or not isinstance(residual, (int, float)):
            raise KindError(f"residual must be a number; it is {type_text(residual)}")
        if not 0 <= residual <= 1:
            raise ArgumentError(f"residual must be from 0 to 1; it is {residual}")
        if fuse not in get_args(Fusion):
            raise UnknownNameError("fuse", fuse, get_args(Fusion))
        self.records = _in_order(records)
        self.axis = self.records[-1].queries
        self.positions = len(self.axis)
        self.residual = float(residual)
        self.fuse: Fusion = fuse

    def blocks(self, layer: int) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yields the rows of :math:`A` of one layer, a block at a time: their slice, and ``[rows, positions]``."""
        record, length = self.records[layer], self.positions
        step = max(1, BLOCK_WEIGHTS // (length * record.heads)) if length else 1
        for start in range(0, length, step):
            rows = slice(start, min(start + step, length))
            matrix = (1 - self.residual) * self._fused(record, rows)
            position = np.arange(rows.start, rows.stop)
            matrix[position - start, position] += self.residual
            yield rows, matrix

    def matrix(self, layer: int) -> NDArray[np.float64]:
        """Returns the whole of :math:`A`, ``[positions, positions]``."""
        return np.concatenate([np.zeros((0, self.positions)), *(block for _, block in self.blocks(layer))])

    def _fused(self, record: AttentionRecord, rows: slice) -> NDArray[np.float64]:
        if record.weights is not None:
            weights = record.weights[:, rows].astype(np.float64)
        else:
            assert record.source is not None
            weights = record.source.tile((rows.start, rows.stop), (0, self.positions)).astype(np.float64)
        if np.isnan(weights).any():
            raise ArgumentError(f"records must hold no NaN; {record.name!r} does")
        heads: int | NDArray[np.int64] = len(weights)
        if record.visible is not None and record.visible.ndim == 3:
            # A head in which a query sees no key has no weights to average.
            heads = np.maximum(record.visible[:, rows].any(-1).sum(0), 1)[:, None]
        mean = weights.sum(0) / heads
        if self.fuse == "mean":
            return mean
        fused = weights.max(0) if self.fuse == "max" else weights.min(0)
        total = fused.sum(-1, keepdims=True)
        return fused * np.divide(mean.sum(-1, keepdims=True), total, out=np.zeros_like(total), where=total > 0)


def rollout(
    records: Sequence[AttentionRecord],
    *,
    residual: float = 0.5,
    fuse: Fusion = "mean",
    queries: Sequence[int] | None = None,
) -> AttentionRecord:
    """Computes the product of the layers' weights, with the residual connections.

    .. math:: R = A_L A_{L-1} \\cdots A_1, \\qquad A_l = r I + (1 - r) W_l

    Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3, where r is 0.5 and heads are
    averaged. Only the weights of a layer count: values, output projections and feedforward networks are left out.

    Args:
        records: one for each layer of one stack (``seen.records(tokens)``), of text or of patches; those of the lower
            layers alone give the rollout to the highest of them.
        residual: :math:`r`, from 0 to 1.
        fuse: how the heads of a layer become one: ``mean``, ``max`` or ``min``.
        queries: the positions at the top whose rows are computed; None: all. Memory is their number × positions, and a
            block of a layer's rows, where the records have a source of tiles.

    Returns:
        A record with one head, whose keys are positions of the input. Rows sum to 1, or to less where weights do (a
        sink; a query that sees nothing keeps what comes over the residual connection).

    Raises:
        As `LayerGraph`.

    Example:
        >>> import torch
        >>> from regard import View, watching
        >>> lower, upper = torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[1.0, 0.0], [0.4, 0.6]])
        >>> records = View([lower, upper], ["a", "b"]).document.records
        >>> watching.rollout(records, residual=0.0).weights.round(2)  # from b to a: 0.4 + 0.6 · 0.5
        array([[[1. , 0. ],
                [0.7, 0.3]]], dtype=float32)
        >>> watching.rollout(records, queries=[1]).weights.round(2)
        array([[[0.4, 0.6]]], dtype=float32)
    """
    graph = LayerGraph(records, residual, fuse)
    chosen, axis = _chosen_queries(queries, graph.axis)
    top = graph.records[-1]
    product = np.eye(graph.positions)[chosen] if queries is not None else np.eye(graph.positions)
    reached = product > 0
    for layer in reversed(range(len(graph.records))):
        product, reached = _times(product, reached, graph, layer)
    weights = product[None].astype(np.float32)
    name = f"rollout of {graph.records[0].name} to {top.name}"
    return AttentionRecord(name, top.layer, top.kind, axis, graph.axis, weights, reached)


def _times(
    product: NDArray[np.float64], reached: NDArray[np.bool_], graph: LayerGraph, layer: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Returns the product with one more layer, and the inputs that a position can reach."""
    record = graph.records[layer]
    below, visible = np.zeros_like(product), reached.copy() if graph.residual else np.zeros_like(reached)
    shown: Any = record.visible
    if shown is not None and shown.ndim == 3:
        shown = shown.any(0)
    for rows, matrix in graph.blocks(layer):
        below += product[:, rows] @ matrix
        if shown is None:
            visible |= reached[:, rows].any(-1, keepdims=True)
        else:
            visible |= (reached[:, rows].astype(np.float32) @ shown[rows].astype(np.float32)) > 0
    return below, visible


def flow(
    records: Sequence[AttentionRecord],
    *,
    residual: float = 0.5,
    fuse: Fusion = "mean",
    queries: Sequence[int] | None = None,
) -> AttentionRecord:
    """Computes the maximum flow from each position at the top to each input, with weights as capacities of edges.

    Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3: the graph's nodes are positions at
    each layer, its edges have the capacities :math:`A_l = r I + (1 - r) W_l`, and the flow is the maximum flow between
    the two nodes (Ford & Fulkerson 1956), here by the algorithm of Dinic 1970. Unlike in `rollout`, paths that share
    an edge share its capacity.

    Args:
        records: one for each layer of one stack, of text or of patches.
        residual: :math:`r`, from 0 to 1.
        fuse: how the heads of a layer become one: ``mean``, ``max`` or ``min``.
        queries: the positions at the top whose flows are computed; None: all. Each pair of a query and an input is one
            maximum flow over layers × positions² edges, so choose few queries where there are many positions.

    Returns:
        A record with one head, whose keys are positions of the input. Each flow is at most 1; rows need not sum to 1.

    Raises:
        As `LayerGraph`.

    Example:
        >>> import torch
        >>> from regard import View, watching
        >>> lower, upper = torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[1.0, 0.0], [0.4, 0.6]])
        >>> records = View([lower, upper], ["a", "b"]).document.records
        >>> watching.flow(records, residual=0.0).weights.round(2)  # from b to a: 0.4 + min(0.6, 0.5)
        array([[[1. , 0. ],
                [0.9, 0.5]]], dtype=float32)
    """
    graph = LayerGraph(records, residual, fuse)
    chosen, axis = _chosen_queries(queries, graph.axis)
    top, length = graph.records[-1], graph.positions
    network = Network((len(graph.records) + 1) * length)
    for layer in range(len(graph.records)):
        above, below = (layer + 1) * length, layer * length
        matrix = graph.matrix(layer)
        for i, j in zip(*np.nonzero(matrix), strict=True):
            network.add(above + int(i), below + int(j), float(matrix[i, j]))
    weights = np.zeros((1, len(chosen), length), np.float32)
    first = len(graph.records) * length
    for row, query in enumerate(chosen):
        for key in range(length):
            weights[0, row, key] = network.maximum_flow(first + query, key)
    name = f"flow of {graph.records[0].name} to {top.name}"
    return AttentionRecord(name, top.layer, top.kind, axis, graph.axis, weights)


class Network:
    """A directed graph of nodes, numbered from 0, whose edges have capacities."""

    def __init__(self, nodes: int):
        self.edges: list[list[int]] = [[] for _ in range(nodes)]
        self._target: list[int] = []
        self._capacity: list[float] = []
        self._left: list[float] = []

    def add(self, start: int, end: int, capacity: float) -> None:
        """Adds an edge; edge ``e`` and its reverse ``e ^ 1`` share the residual capacity."""
        for node, target, amount in ((start, end, capacity), (end, start, 0.0)):
            self.edges[node].append(len(self._target))
            self._target.append(target)
            self._capacity.append(amount)

    def maximum_flow(self, source: int, sink: int) -> float:
        """Returns the largest flow from one node to another.

        An augmenting path empties its narrowest edge exactly, so the search ends; the flow is the sum over the paths.
        """
        self._left = self._capacity.copy()
        total = 0.0
        while (level := self._levels(source, sink)) is not None:
            following = [0] * len(self.edges)
            while (path := self._path(source, sink, level, following)) is not None:
                amount = min(self._left[edge] for edge in path)
                for edge in path:
                    self._left[edge] -= amount
                    self._left[edge ^ 1] += amount
                total += amount
        return total

    def _levels(self, source: int, sink: int) -> list[int] | None:
        """Returns the distance of each node from the source, −1 if it is not reached; None if the sink is not."""
        level = [-1] * len(self.edges)
        level[source] = 0
        waiting = deque([source])
        while waiting:
            node = waiting.popleft()
            if node == sink:
                return level
            for edge in self.edges[node]:
                target = self._target[edge]
                if level[target] < 0 and self._left[edge] > 0:
                    level[target] = level[node] + 1
                    waiting.append(target)
        return None

    def _path(self, source: int, sink: int, level: list[int], following: list[int]) -> list[int] | None:
        """Returns a path that ascends one level at each step; edges before ``following[node]`` lead nowhere."""
        path: list[int] = []
        node = source
        while node != sink:
            edges = self.edges[node]
            while following[node] < len(edges):
                edge = edges[following[node]]
                if self._left[edge] > 0 and level[self._target[edge]] == level[node] + 1:
                    path.append(edge)
                    node = self._target[edge]
                    break
                following[node] += 1
            else:
                if not path:
                    return None
                edge = path.pop()
                node = self._target[edge ^ 1]
                following[node] += 1
        return path


def _chosen_queries(queries: Sequence[int] | None, axis: Axis) -> tuple[list[int], Axis]:
    """Returns the chosen positions, all if None, and their axis."""
    length = len(axis)
    if queries is None:
        return list(range(length)), axis
    if isinstance(queries, (str, bytes)) or not isinstance(queries, (Sequence, np.ndarray)):
        raise KindError(f"queries must be a sequence of positions; it is {type_text(queries)}")
    chosen = [whole_number(f"queries[{index}]", query, -length, length - 1) for index, query in enumerate(queries)]
    chosen = [query % length for query in chosen]
    if isinstance(axis, TokenAxis):
        special = tuple(axis.special[query] for query in chosen) if axis.special else ()
        return chosen, TokenAxis(tuple(axis.tokens[query] for query in chosen), special)
    return chosen, TokenAxis(tuple(_position_name(axis, query) for query in chosen))


def _position_name(axis: Axis, position: int) -> str:
    if not isinstance(axis, GridAxis):
        return f"position {position}"
    if position < axis.leading:
        return f"leading {position}"
    row, column = divmod(position - axis.leading, axis.columns)
    return f"row {row}, column {column}"


def _in_order(records: Sequence[AttentionRecord]) -> list[AttentionRecord]:
    if isinstance(records, AttentionRecord) or not isinstance(records, Sequence):
        raise KindError(
            "records must be a sequence of AttentionRecord, which watched.records(tokens) returns after "
            f'regard.watch(model, read="view"); it is {type_text(records)}'
        )
    for record in records:
        if not isinstance(record, AttentionRecord):
            raise KindError(
                "records must hold AttentionRecord, as watched.records(tokens) after regard.watch(model, "
                f'read="view"); one is {type_text(record)}'
            )
        if record.kind == "cross":
            raise ArgumentError(
                f"records must be self-attention, whose queries and keys are the same positions; {record.name!r} is "
                "cross-attention (choose those of one stack: [r for r in records if r.kind == 'self'])"
            )
        if record.signed:
            raise ArgumentError(
                f"records must have weights that are shares; those of {record.name!r} have signs, so that no share of "
                "an input can be followed through this model"
            )
    if not records:
        raise ArgumentError("records must have at least one layer; there is none")
    ordered = sorted(records, key=lambda record: record.layer)
    length = len(ordered[0].queries)
    for record in ordered:
        if len(record.queries) != length or len(record.keys) != length:
            raise ShapeError(
                f"records must have the same {length} positions; {record.name!r} has {len(record.queries)} queries and "
                f"{len(record.keys)} keys"
            )
    layers = [record.layer for record in ordered]
    if layers != list(range(layers[0], layers[0] + len(layers))):
        raise ArgumentError(f"records must have each layer once, without a gap; their layers are {layers}")
    return ordered
