"""Attention rollout: how much of each input a position at the top of a model is made of."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.records import AttentionRecord
from regard.watching.layer_graph import Fusion, LayerGraph, chosen_queries


def rollout(
    records: Sequence[AttentionRecord],
    *,
    residual: float = 0.5,
    fuse: Fusion = "mean",
    queries: Sequence[int] | None = None,
) -> AttentionRecord:
    """The product of the layers' weights, with the residual connections.

    .. math:: R = A_L A_{L-1} \\cdots A_1, \\qquad A_l = r I + (1 - r) W_l

    Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3, where r is 0.5 and heads are
    averaged. It takes the weights for all that a layer does: values, output projections and feedforward networks are
    left out.

    Args:
        records: one for each layer of one stack (``seen.records(tokens)``), of text or of patches. Of the lower layers
            alone, the result is that of their highest.
        residual: :math:`r`, from 0 to 1.
        fuse: how the heads of a layer become one: ``mean``, ``max`` or ``min``.
        queries: positions at the top whose rows are wanted; None: all. Memory is their number × positions, and a block
            of a layer's rows, where the records have a source of tiles.

    Returns:
        A record with one head, whose keys are positions of the input. Rows sum to 1, or to less where weights do (a
        sink; a query that sees nothing keeps what comes over the residual connection).

    Raises:
        As `regard.watching.layer_graph.LayerGraph`.
    """
    graph = LayerGraph(records, residual, fuse)
    chosen, axis = chosen_queries(queries, graph.axis)
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
    """One more layer: the product, and which inputs a position can reach."""
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
