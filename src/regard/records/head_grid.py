"""One number for each head of each layer: heads × layers, for tables, pictures and the viewer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, KindError, ShapeError
from regard.names.counted import counted
from regard.records.axis import as_number, is_whole_number
from regard.records.shaded_table import MOST_NUMBERED, number_decimals, number_text, shaded_table
from regard.shapes.arrays import as_array

LISTED = 10
"""How many of the largest numbers of a wide grid are printed."""


class GridNumber(NamedTuple):
    """One number of a `HeadGrid`.

    Attributes:
        layer, column: the labels of its row and of its column.
        value: the number.
        noise: its standard error, or NaN.

    Example:
        >>> from regard import records
        >>> records.HeadGrid("effects", [[0.5, -2.0]]).largest(1)
        [GridNumber(layer='0', column='1', value=-2.0, noise=nan)]
    """

    layer: str
    column: str
    value: float
    noise: float


@dataclass(frozen=True, eq=False, repr=False)
class HeadGrid:
    """One number for each head of each layer, or for each position of each layer.

    Attributes:
        title: what the numbers are, in one line.
        values: float64 ``[layers, columns]``, from rows of numbers that may differ in length, as layers do that have
            different numbers of heads. NaN: not known, or no such head.
        layers: the label of each row; none: its number.
        columns: the label of each column; none: its number.
        unit: of the numbers.
        axis: what a column is, such as ``"head"`` or ``"position"``.
        signed: whether 0 is in the middle of the colours; None: if a number is negative.
        high: the number of the last colour; None: the largest magnitude.
        noise: the standard error of each number, shaped as ``values``; None: not known.
        notes: lines that belong to the numbers wherever they are shown.

    Raises:
        KindError: values or labels of another type.
        ShapeError: labels or noise do not match the values.
        ArgumentError: there is no number.

    Example:
        >>> from regard import View, records
        >>> grid = records.HeadGrid("effect of each head", [[0.5, -0.02], [0.0, -1.25]], unit="logit difference")
        >>> print(grid)
        effect of each head [logit difference]
        layer  head 0      1
            0    0.50  −0.02
            1    0.00  −1.25
        >>> grid.largest(1)
        [GridNumber(layer='1', column='1', value=-1.25, noise=nan)]
        >>> View(grid).save("heads.html").suffix
        '.html'
    """

    title: str
    values: NDArray[np.float64]
    layers: Sequence[str] = ()
    columns: Sequence[str] = ()
    unit: str = ""
    axis: str = "head"
    signed: bool | None = None
    high: float | None = None
    noise: NDArray[np.float64] | None = None
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        values = _matrix("values", self.values)
        if not values.size:
            raise ArgumentError("values must have at least one number; there is none")
        noise = None if self.noise is None else _matrix("noise", self.noise)
        if noise is not None and noise.shape != values.shape:
            raise ShapeError(f"noise must be {list(values.shape)}, as values; its shape is {list(noise.shape)}")
        set_field = object.__setattr__
        set_field(self, "values", values)
        set_field(self, "noise", noise)
        for name, count in zip(("layers", "columns"), values.shape, strict=True):
            set_field(self, name, _labels(name, getattr(self, name), count))
        set_field(self, "notes", (self.notes,) if isinstance(self.notes, str) else tuple(map(str, self.notes)))
        if self.signed is None:
            set_field(self, "signed", bool((values < 0).any()))
        if self.high is not None:
            set_field(self, "high", as_number("high", self.high))

    def largest(self, count: int = LISTED) -> list[GridNumber]:
        """Returns the numbers of the largest magnitude, the largest first; unknown ones are left out.

        Args:
            count: at most so many; at least 1.
        """
        if not is_whole_number(count) or count < 1:
            raise ArgumentError(f"count must be an integer of at least 1; it is {count!r}")
        sizes = np.abs(np.where(np.isnan(self.values), 0.0, self.values)).ravel()
        order = [cell for cell in np.argsort(-sizes, kind="stable") if not np.isnan(self.values.flat[cell])]
        return [
            GridNumber(
                self.layers[cell // len(self.columns)],
                self.columns[cell % len(self.columns)],
                float(self.values.flat[cell]),
                float("nan") if self.noise is None else float(self.noise.flat[cell]),
            )
            for cell in map(int, order[:count])
        ]

    @property
    def heading(self) -> str:
        """The title and the unit."""
        return f"{self.title} [{self.unit}]" if self.unit else self.title

    def __str__(self) -> str:
        return "\n".join([self.heading, *self.notes, *(self._lines() if self._is_narrow() else self._list())])

    def __repr__(self) -> str:
        layers, columns = self.values.shape
        return f"HeadGrid({self.title!r}, {counted(layers, 'layer')} × {counted(columns, self.axis)})"

    def _repr_html_(self) -> str:
        caption = " · ".join([f"{self.heading}, layers × {self.axis}s", *self.notes])
        rows = [f"layer {layer}" for layer in self.layers]
        table = shaded_table(self.values, rows, self.columns, caption=caption, more="regard.View(grid)", whole=True)
        return table if self._is_narrow() else table + "".join(f"<div>{escape(line)}</div>" for line in self._list())

    def _is_narrow(self) -> bool:
        """Whether all numbers are printed, and not the largest ones alone."""
        return self.values.shape[1] <= MOST_NUMBERED

    def _lines(self) -> list[str]:
        from rich.cells import cell_len

        decimals = number_decimals(self._largest())
        head = ["layer", f"{self.axis} {self.columns[0]}", *self.columns[1:]]
        rows = [
            [layer, *(number_text(value, decimals) for value in row)]
            for layer, row in zip(self.layers, self.values.tolist(), strict=True)
        ]
        widths = [max(map(cell_len, column)) for column in zip(head, *rows, strict=True)]
        return [
            "  ".join(" " * (width - cell_len(text)) + text for text, width in zip(row, widths, strict=True))
            for row in (head, *rows)
        ]

    def _list(self) -> list[str]:
        decimals = number_decimals(self._largest())
        layers, columns = self.values.shape
        return [f"the largest of {counted(layers, 'layer')} × {counted(columns, self.axis)}:"] + [
            f"layer {one.layer}, {self.axis} {one.column}: {number_text(one.value, decimals)}"
            + ("" if np.isnan(one.noise) else f" ± {number_text(one.noise, decimals)}")
            for one in self.largest()
        ]

    def _largest(self) -> float:
        return float(np.abs(self.values[np.isfinite(self.values)]).max(initial=0.0))


def _matrix(name: str, rows: Any) -> NDArray[np.float64]:
    """Returns rows of numbers as one matrix; shorter ones end in NaN."""
    if isinstance(rows, (list, tuple)) and all(isinstance(row, (list, tuple)) for row in rows):
        most = max((len(row) for row in rows), default=0)
        rows = [[*row, *[float("nan")] * (most - len(row))] for row in rows]
    matrix = as_array(rows, name).astype(np.float64)
    if matrix.ndim != 2:
        raise ShapeError(f"{name} must be [layers, columns]; the shape is {list(matrix.shape)}")
    return matrix


def _labels(name: str, labels: Sequence[str], count: int) -> tuple[str, ...]:
    if isinstance(labels, str):
        raise KindError(f"{name} must be a list of {count} labels; it is one text")
    texts = tuple(str(label) for label in (labels or range(count)))
    if len(texts) != count:
        raise ShapeError(f"{name} must have {count} labels, one for each of the values; there are {len(texts)}")
    return texts
