"""Attention flow: the maximum flow from a position at the top of a model to each of its inputs."""

from collections import deque
from collections.abc import Sequence

import numpy as np

from regard.records import AttentionRecord
from regard.watching.layer_graph import Fusion, LayerGraph, chosen_queries


def flow(
    records: Sequence[AttentionRecord],
    *,
    residual: float = 0.5,
    fuse: Fusion = "mean",
    queries: Sequence[int] | None = None,
) -> AttentionRecord:
    """How much can flow from each position at the top to each input, if weights are the capacities of the edges.

    Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3: the graph's nodes are positions at
    each layer, its edges have the capacities :math:`A_l = r I + (1 - r) W_l`, and the flow is the maximum flow between
    the two nodes (Ford & Fulkerson 1956), here by the algorithm of Dinic 1970. Unlike in `rollout`, paths that share
    an edge share its capacity.

    Args:
        records: one for each layer of one stack, of text or of patches.
        residual: :math:`r`, from 0 to 1.
        fuse: how the heads of a layer become one: ``mean``, ``max`` or ``min``.
        queries: positions at the top whose flows are wanted; None: all. Each pair of a query and an input is one
            maximum flow over layers × positions² edges, so choose few queries where there are many positions.

    Returns:
        A record with one head, whose keys are positions of the input. Each flow is at most 1; rows need not sum to 1.

    Raises:
        As `regard.watching.layer_graph.LayerGraph`.
    """
    graph = LayerGraph(records, residual, fuse)
    chosen, axis = chosen_queries(queries, graph.axis)
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
    """A directed graph whose edges have capacities.

    Args:
        nodes: how many there are, numbered from 0.
    """

    def __init__(self, nodes: int):
        self.edges: list[list[int]] = [[] for _ in range(nodes)]
        self._target: list[int] = []
        self._capacity: list[float] = []
        self._left: list[float] = []

    def add(self, start: int, end: int, capacity: float) -> None:
        """Add an edge; edge ``e`` and its reverse ``e ^ 1`` share what is left of the capacity."""
        for node, target, amount in ((start, end, capacity), (end, start, 0.0)):
            self.edges[node].append(len(self._target))
            self._target.append(target)
            self._capacity.append(amount)

    def maximum_flow(self, source: int, sink: int) -> float:
        """The most that can flow from one node to another.

        Numerics: an augmenting path empties its narrowest edge exactly, so the search ends; the flow is a sum of at
        most as many numbers as there were paths.
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
        """The distance of each node from the source, −1 where it is not reached; None if the sink is not."""
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
        """A path of edges that ascends one level at each step; edges before ``following[node]`` lead nowhere."""
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
