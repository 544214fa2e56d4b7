"""Layers of attention as one graph: its nodes are positions at each layer, its edges the weights and the residual."""

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.records import AttentionRecord, Axis, GridAxis, TokenAxis
from regard.shapes import kind_of, whole_number

Fusion = Literal["mean", "max", "min"]
"""How the heads of a layer become one: their mean, their largest or their least weight of each pair."""

BLOCK = 1 << 22
"""Weights that are taken from a record at once."""


class LayerGraph:
    """The layers of a model, from the lowest to the highest.

    .. math:: A_l = r I + (1 - r) W_l

    Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3, where r is 0.5: half of what a
    position passes on comes over the residual connection.

    Args:
        records: one for each layer, in any order; self-attention of the same positions.
        residual: :math:`r`, the share of the residual connection, from 0 to 1.
        fuse: how the heads of a layer become one. The rows of ``max`` and ``min`` are normalized to the sum of the
            rows of the mean.

    Raises:
        KindError: not a sequence of records.
        ArgumentError: cross-attention, a layer that is missing or there twice, weights that are NaN, or a residual
            out of its range.
        ShapeError: another number of positions.
        UnknownNameError: an unknown fusion.
    """

    def __init__(self, records: Sequence[AttentionRecord], residual: float, fuse: Fusion):
        if isinstance(residual, bool) or not isinstance(residual, (int, float)):
            raise KindError(f"residual must be a number; it is {kind_of(residual)}")
        if not 0 <= residual <= 1:
            raise ArgumentError(f"residual must be from 0 to 1; it is {residual}")
        if fuse not in get_args(Fusion):
            raise UnknownNameError("fuse", fuse, get_args(Fusion))
        self.records = _in_order(records)
        self.residual = float(residual)
        self.fuse: Fusion = fuse

    @property
    def positions(self) -> int:
        return len(self.records[-1].queries)

    @property
    def axis(self) -> Axis:
        """What the positions are."""
        return self.records[-1].queries

    def blocks(self, layer: int) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """The rows of :math:`A` of one layer, a block at a time: which rows, and ``[rows, positions]``."""
        record, length = self.records[layer], self.positions
        step = max(1, BLOCK // (length * record.heads)) if length else 1
        for start in range(0, length, step):
            rows = slice(start, min(start + step, length))
            matrix = (1 - self.residual) * self._fused(record, rows)
            place = np.arange(rows.start, rows.stop)
            matrix[place - start, place] += self.residual
            yield rows, matrix

    def matrix(self, layer: int) -> NDArray[np.float64]:
        """The whole of :math:`A`, ``[positions, positions]``."""
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


def chosen_queries(queries: Sequence[int] | None, axis: Axis) -> tuple[list[int], Axis]:
    """The positions that were asked for, all if None; and the axis of them.

    Raises:
        KindError, ArgumentError: no integers, or no positions of the axis.
    """
    length = len(axis)
    if queries is None:
        return list(range(length)), axis
    if isinstance(queries, (str, bytes)) or not isinstance(queries, (Sequence, np.ndarray)):
        raise KindError(f"queries must be a sequence of positions; it is {kind_of(queries)}")
    chosen = [whole_number(f"queries[{place}]", query, -length, length - 1) for place, query in enumerate(queries)]
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
        raise KindError(f"records must be a sequence of AttentionRecord; it is {kind_of(records)}")
    for record in records:
        if not isinstance(record, AttentionRecord):
            raise KindError(f"records must hold AttentionRecord; one is {kind_of(record)}")
        if record.kind == "cross":
            raise ArgumentError(
                f"records must be self-attention, whose queries and keys are the same positions; {record.name!r} is "
                "cross-attention (choose those of one stack: [r for r in records if r.kind == 'self'])"
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
