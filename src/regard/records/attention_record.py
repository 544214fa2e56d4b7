"""The record of one attention call: its axes, and its weights or a source of tiles of them.

A `TileSource` stands for weights that are not stored as one matrix: it computes pooled maps and exact tiles on request.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.records.axis import Axis, FrameAxis, GridAxis, TokenAxis, as_number, as_numbers, bin_edges, is_whole_number
from regard.records.shaded_table import shaded_table
from regard.shapes.checks import type_text

Kind = Literal["self", "causal", "cross"]

MEASURES = ("norms", "contributions")
"""The products that viewers offer in place of the weights: the weights times factors of a record."""


class TileSource(Protocol):
    """Computes pooled maps and exact tiles of ``[heads, queries, keys]`` weights.

    Example:
        >>> import numpy
        >>> from regard import records
        >>> class Uniform:  # the weights of 10⁶ × 10⁶ pairs, which are not stored
        ...     heads, queries, keys = 1, 10**6, 10**6
        ...     def pooled(self, rows, columns):
        ...         map = numpy.full((1, rows, columns), 1e-6, dtype=numpy.float32)
        ...         return map, map
        ...     def tile(self, queries, keys):
        ...         return numpy.full((1, queries[1] - queries[0], keys[1] - keys[0]), 1e-6, dtype=numpy.float32)
        >>> axis = records.FrameAxis(numpy.zeros((80, 100)), seconds=0.01, positions=10**6)
        >>> record = records.AttentionRecord("encoder", 0, "self", axis, axis, None, source=Uniform())
        >>> record
        AttentionRecord('encoder', layer=0, kind='self', tiles [1, 1000000, 1000000])
        >>> record.source.tile((0, 1), (10, 13))
        array([[[1.e-06, 1.e-06, 1.e-06]]], dtype=float32)
    """

    @property
    def heads(self) -> int: ...

    @property
    def queries(self) -> int: ...

    @property
    def keys(self) -> int: ...

    def pooled(self, rows: int, columns: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns mean and maximum, each ``[heads, rows, columns]``, over the bins of `bin_edges`.

        Args:
            rows: from 1 to ``queries``.
            columns: from 1 to ``keys``.
        """
        ...

    def tile(self, queries: tuple[int, int], keys: tuple[int, int]) -> NDArray[np.float32]:
        """Returns the exact weights ``[heads, q1 − q0, k1 − k0]`` of two ranges, each (first, one past the last)."""
        ...


class DenseTiles:
    """A `TileSource` of stored weights.

    Args:
        weights: ``[heads, queries, keys]``; they are converted to float32.

    Raises:
        KindError: they are no real numbers.
        ShapeError: they have another number of axes.

    Example:
        >>> import numpy
        >>> from regard import records
        >>> tiles = records.DenseTiles(numpy.array([[[1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [0.25, 0.75]]]))
        >>> mean, highest = tiles.pooled(2, 1)
        >>> mean, highest
        (array([[[0.5],
                [0.5]]], dtype=float32), array([[[1.],
                [1.]]], dtype=float32))
        >>> tiles.tile((1, 3), (0, 2))
        array([[[0.5, 0.5],
                [0. , 1. ]]], dtype=float32)
    """

    def __init__(self, weights: NDArray[np.float32]):
        array = as_numbers("weights", weights)
        if array.ndim != 3:
            raise ShapeError(f"weights must be [heads, queries, keys]; the shape is {list(array.shape)}")
        self.weights = array.astype(np.float32, copy=False)

    @property
    def heads(self) -> int:
        return self.weights.shape[0]

    @property
    def queries(self) -> int:
        return self.weights.shape[1]

    @property
    def keys(self) -> int:
        return self.weights.shape[2]

    def pooled(self, rows: int, columns: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns the maps of `TileSource.pooled`; raises ArgumentError for other numbers of bins."""
        return pooled_maps(self.weights, bin_edges(self.queries, rows), bin_edges(self.keys, columns))

    def tile(self, queries: tuple[int, int], keys: tuple[int, int]) -> NDArray[np.float32]:
        """Returns the weights of `TileSource.tile`; raises ArgumentError for a range outside of the weights."""
        for name, (first, last), length in (("queries", queries, self.queries), ("keys", keys, self.keys)):
            if not 0 <= first < last <= length:
                raise ArgumentError(f"{name} must be (first, last) with 0 ≤ first < last ≤ {length}; got {first, last}")
        return self.weights[:, queries[0] : queries[1], keys[0] : keys[1]]


def pooled_maps(
    weights: NDArray[np.float32], row_edges: NDArray[np.int64], column_edges: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns the mean and the largest weight of each bin; where weights have signs, the one of the largest size."""
    counts = np.diff(row_edges)[:, None] * np.diff(column_edges)[None, :]
    rows = [weights[:, first:last] for first, last in itertools.pairwise(row_edges.tolist())]
    sums, highest, lowest = (
        reduction.reduceat(
            np.stack([reduction.reduce(row, axis=1, dtype=kind) for row in rows], 1), column_edges[:-1], 2
        )
        for reduction, kind in ((np.add, np.float64), (np.maximum, None), (np.minimum, None))
    )
    return (sums / counts).astype(np.float32), np.where(-lowest > highest, lowest, highest)


@dataclass(frozen=True, eq=False, repr=False)
class AttentionRecord:
    """One attention call of a model.

    Attributes:
        name: the name of the module, such as ``"encoder.layer.0.attention"``.
        layer: the number of the layer, from 0.
        kind: ``"self"``, ``"causal"`` or ``"cross"``.
        queries: the axis of the rows.
        keys: the axis of the columns.
        weights: float32 ``[heads, queries, keys]`` before dropout, at least 0 (unless ``signed``) or NaN; None if there
            is a source.
        visible: bool ``[queries, keys]`` or ``[heads, queries, keys]``; False is masked. None: everything is visible,
            but later keys of a causal record that have no weight.
        source: computes tiles of the weights if they are not stored.
        measures: factors of the weights, ``[heads, keys]`` or ``[heads, queries, keys]``. ``"norms"``: the norm of each
            value after the output projection; the product is `AttentionCall.weighted_norms`. ``"contributions"``: each
            value's contribution to a logit; the product is the pair's contribution (`regard.watching.value_logits`).
            Viewers offer the products in place of the weights.
        statistics: the statistics of each head over a corpus, a dictionary as in `HeadStatistics.values`:
            ``"offset -1"`` is its share of weight on the previous token, and ``"loss"``, if it was measured, the change
            of the loss without the head. NaN: unknown. None: there are none.
        signed: whether weights may be negative and rows have any sum, as those of a linear recurrence.
        head_numbers: the number of each head in the model, where the record has some of its heads alone, as of
            ``watch(model, heads=[1, 11])``; None: 0, 1, …
        padding: how many positions of padding at the end of the text the record leaves out.
        worked: returns the worked calculation of a head, a `StepsRecord`, by its position; None: it is unknown.

    Raises:
        ShapeError: shapes that do not match the axes.
        ArgumentError: negative or infinite weights or norms, neither weights nor a source, an infinite statistic, or
            equal or negative numbers of heads.
        KindError: an axis of another type, ``visible`` is not boolean, or a statistic is no number.
        UnknownNameError: an unknown kind or measure.

    Example:
        >>> import regard
        >>> from regard import records
        >>> axes = records.TokenAxis(("le", "chat")), records.TokenAxis(("the", "black", "cat"))
        >>> weights = [[[0.9, 0.1, 0.0], [0.2, 0.1, 0.7]]]
        >>> record = records.AttentionRecord("decoder", 0, "cross", *axes, weights)
        >>> record
        AttentionRecord('decoder', layer=0, kind='cross', weights [1, 2, 3])
        >>> record.weights.dtype, record.keys.tokens[record.weights[0, 1].argmax()]
        (dtype('float32'), 'cat')
        >>> regard.View(record)
        View('decoder', 1 record, view=None)
    """

    name: str
    layer: int
    kind: Kind
    queries: Axis
    keys: Axis
    weights: NDArray[np.float32] | Any
    visible: NDArray[np.bool_] | None = None
    source: TileSource | None = None
    measures: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    statistics: tuple[Mapping[str, float], ...] | None = None
    signed: bool = False
    head_numbers: tuple[int, ...] | None = None
    padding: int = 0
    worked: Callable[[int], Any] | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise UnknownNameError("kind", self.kind, get_args(Kind))
        for side in ("queries", "keys"):
            axis = getattr(self, side)
            if not isinstance(axis, (TokenAxis, GridAxis, FrameAxis)):
                raise KindError(f"{side} must be a TokenAxis, GridAxis or FrameAxis; it is {type_text(axis)}")
        if self.weights is None and self.source is None:
            raise ArgumentError("weights must be given where there is no source of tiles")
        lengths = (len(self.queries), len(self.keys))
        if self.weights is not None:
            object.__setattr__(self, "weights", _checked_weights(self.weights, lengths, self.signed))
        if self.source is not None:
            of_source = (self.source.queries, self.source.keys)
            if of_source != lengths:
                raise ShapeError(f"source must have the {lengths} positions of queries and keys; it has {of_source}")
            if self.weights is not None and self.weights.shape[0] != self.source.heads:
                raise ShapeError(
                    f"source must have the {self.weights.shape[0]} heads of weights; it has {self.source.heads}"
                )
        if self.visible is None and self.kind == "causal" and self.weights is not None:
            earlier = np.tri(*lengths, lengths[1] - lengths[0], dtype=np.bool_)
            if not self.weights[:, ~earlier].any():
                object.__setattr__(self, "visible", earlier)
        elif self.visible is not None:
            visible = as_numbers("visible", self.visible)
            if visible.dtype != np.bool_:
                raise KindError(f"visible must be boolean; it is {visible.dtype}")
            if visible.shape not in (lengths, (self.heads, *lengths)):
                raise ShapeError(
                    f"visible must be [queries, keys] = {list(lengths)} or with {self.heads} heads before; "
                    f"its shape is {list(visible.shape)}"
                )
            object.__setattr__(self, "visible", visible)
        if not isinstance(self.measures, Mapping):
            raise KindError(
                'measures must be a dictionary, such as measures={"norms": norms} with norms [heads, keys]; it is of '
                f"type {type(self.measures).__name__}"
            )
        measures = {name: self._checked_measure(name, factors) for name, factors in self.measures.items()}
        object.__setattr__(self, "measures", measures)
        if self.statistics is not None:
            object.__setattr__(self, "statistics", _checked_statistics(self.statistics, self.heads))
        if self.head_numbers is not None:
            object.__setattr__(self, "head_numbers", _checked_head_numbers(self.head_numbers, self.heads))

    def _checked_measure(self, name: str, factors: NDArray[np.float32]) -> NDArray[np.float32]:
        if name not in MEASURES:
            raise UnknownNameError("measure", name, MEASURES)
        array = as_numbers(f"measures[{name!r}]", factors).astype(np.float32, copy=False)
        shapes = (self.heads, len(self.keys)), (self.heads, len(self.queries), len(self.keys))
        if array.shape not in shapes:
            raise ShapeError(
                f"measures[{name!r}] must be [heads, keys] = {list(shapes[0])} or [heads, queries, keys] = "
                f"{list(shapes[1])}; its shape is {list(array.shape)}"
            )
        if not np.isfinite(array).all() or (name == "norms" and (array < 0).any()):
            raise ArgumentError(f"measures[{name!r}] must be finite{' and at least 0' if name == 'norms' else ''}")
        return array

    @property
    def heads(self) -> int:
        """The number of heads."""
        if self.weights is not None:
            return self.weights.shape[0]
        assert self.source is not None, "checked by __post_init__"
        return self.source.heads

    @property
    def numbers_of_heads(self) -> tuple[int, ...]:
        """The number of each head in the model."""
        return tuple(range(self.heads)) if self.head_numbers is None else self.head_numbers

    def _repr_html_(self) -> str:
        return self.html("View(record)")

    def html(self, more: str) -> str:
        """Returns the first head as a table, or a line if the weights are not stored; code ``more`` shows the rest."""
        title = f"{self.name}: layer {self.layer}, {self.kind}"
        if self.weights is None:
            shape = f"{self.heads} heads, {len(self.queries):,} × {len(self.keys):,}"
            shows = f"; <code>{escape(more)}</code> shows it" if more else ""
            return f"<div>{escape(title)}; {shape}{shows}</div>"
        hidden = None
        if self.visible is not None:
            hidden = np.logical_not(self.visible if self.visible.ndim == 2 else self.visible[0])
        caption = title if self.heads == 1 else f"{title}, head 0 of {self.heads}"
        if self.head_numbers is not None:
            others = "" if self.heads == 1 else f", the first of {self.heads} recorded"
            caption = f"{title}, head {self.head_numbers[0]}{others}"
        labels = self.queries.labels, self.keys.labels
        return shaded_table(self.weights[0], *labels, caption=caption, hidden=hidden, more=more)

    def __repr__(self) -> str:
        stored = "weights" if self.weights is not None else "tiles"
        shape = [self.heads, len(self.queries), len(self.keys)]
        return f"AttentionRecord({self.name!r}, layer={self.layer}, kind={self.kind!r}, {stored} {shape})"


def _checked_weights(weights: NDArray[np.float32], lengths: tuple[int, int], signed: bool) -> NDArray[np.float32]:
    array = as_numbers("weights", weights).astype(np.float32, copy=False)
    if array.ndim != 3 or array.shape[1:] != lengths or not array.shape[0]:
        raise ShapeError(
            f"weights must be [heads, queries, keys] with {lengths[0]} queries and {lengths[1]} keys; "
            f"the shape is {list(array.shape)}"
        )
    wrong = np.isinf(array) | (False if signed else array < 0)
    if wrong.any():
        index = tuple(np.argwhere(wrong)[0].tolist())
        least = "finite" if signed else "finite and at least 0 (or signed=True)"
        raise ArgumentError(f"weights must be {least}, or NaN; weights{list(index)} is {array[index]}")
    return array


def _checked_head_numbers(numbers: Any, heads: int) -> tuple[int, ...]:
    if isinstance(numbers, (str, bytes)) or not isinstance(numbers, Iterable):
        raise KindError(f"head_numbers must be integers, such as (1, 11); it is {type_text(numbers)}")
    chosen = tuple(numbers)
    if not all(map(is_whole_number, chosen)):
        raise KindError(f"head_numbers must be integers; they are {chosen}")
    if len(chosen) != heads:
        raise ShapeError(f"head_numbers must be {heads} numbers, one for each head; there are {len(chosen)}")
    if len(set(chosen)) != heads or min(chosen) < 0:
        raise ArgumentError(f"head_numbers must differ and be at least 0; they are {chosen}")
    return tuple(int(number) for number in chosen)


def _checked_statistics(statistics: Any, heads: int) -> tuple[dict[str, float], ...]:
    if isinstance(statistics, (str, bytes, Mapping)) or not isinstance(statistics, Iterable):
        raise KindError(
            'statistics must be a dictionary for each head, such as statistics=[{"offset -1": 0.8}] for one head; it '
            f"is {type_text(statistics)}"
        )
    entries = tuple(statistics)
    if len(entries) != heads:
        raise ShapeError(f"statistics must be {heads} dictionaries, one for each head; there are {len(entries)}")
    for head, values in enumerate(entries):
        if not isinstance(values, Mapping):
            raise KindError(f"statistics[{head}] must be a dictionary; it is {type_text(values)}")
        for name, value in values.items():
            if math.isinf(as_number(f"statistics[{head}][{name!r}]", value)):
                raise ArgumentError(f"statistics[{head}][{name!r}] must be finite, or NaN; it is {value}")
    return tuple({str(name): float(value) for name, value in values.items()} for values in entries)
