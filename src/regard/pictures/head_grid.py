"""Numbers of a model's heads, such as statistics: a map of heads × layers for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import ArgumentError, ShapeError
from regard.pictures.fonts import Lettering, visible_token, wrapped
from regard.pictures.heatmap import draw_cells, write_numbers
from regard.pictures.numbers import Matrix, cell_number, short_number
from regard.pictures.sheet import new_sheet
from regard.pictures.weight_scale import titled_bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL, SINGLE_CELL = 0.30, 0.44  # inches, as the next ones
LEAST_SIDE, MOST_SIDE, MOST_SINGLE_SIDE = 1.9, 4.2, 9.0
"""The sides of a cell and of a map, larger where there is one map alone."""

LEAST_WIDTH = 4.0
LETTERS_AN_INCH = 12
"""The least width of a picture, and the number of letters of a title that fit into an inch."""

COLUMNS = 3
LETTER_WIDTH = 0.62
"""The width of a digit as a part of its height."""

NUMBER_SIZES = (7.0, 5.5)
"""The sizes of a number in a cell in points, of which the first one is taken that fits."""


@dataclass(frozen=True)
class HeadMap:
    """One statistic of all heads.

    Attributes:
        title: its name.
        unit: of the values.
        values: ``[layers][heads]``; NaN if unknown. Layers may differ in their number of heads.
        high: the end of the colours' scale; None: the largest magnitude.
        signed: whether the scale has 0 in its middle, and does not begin there; None: if a value is negative.
        layers: the label of each layer, for a map whose layers are its own.
        columns: the label of each column; none: their numbers.
        axis: what a column is.
        notes: lines below the title, of a map that is drawn alone.

    Example:
        >>> from regard import pictures
        >>> first = pictures.HeadMap("first token", "share of weight", [[0.9, 0.1], [0.3, 0.2]], high=1.0)
        >>> figure = pictures.head_grid([first], ["0", "1"], "two layers of two heads")
        >>> figure.axes[0].get_title(), figure.axes[0].images[0].get_clim()
        ('first token', (0.0, 1.0))
    """

    title: str
    unit: str
    values: Sequence[Sequence[float]]
    high: float | None = None
    signed: bool | None = None
    layers: Sequence[str] = ()
    columns: Sequence[str] = ()
    axis: str = "head"
    notes: Sequence[str] = ()


def head_grid(maps: Sequence[Any], layers: Sequence[str], title: str) -> Figure:
    """Draws numbers of heads: heads on x, layers on y, the first layer on top; each map has a scale of its own.

    A scale begins at 0, or has 0 in its middle if the map has signs. Maps with the same `HeadMap.high`, such as 1 for
    shares, can be compared by their colours. Numbers are written into cells that are large enough. A cell without a
    value is crossed.

    Args:
        maps: one for each statistic: `HeadMap`, or `HeadGrid` of `regard.records`.
        layers: the label of each layer; none: those of the maps.
        title: one line above all.

    Returns:
        A figure with a panel and a scale for each map, three panels side by side.

    Raises:
        ArgumentError: there is no map, or no layer.
        ShapeError: a map has the wrong number of layers.
        MissingPartError: matplotlib is not installed.

    Example:
        >>> from regard import pictures
        >>> entropy = pictures.HeadMap("entropy", "nats", [[1.5, 0.2], [0.7, float("nan")]])
        >>> peak = pictures.HeadMap("peak", "weight", [[0.3, 0.9], [0.6, float("nan")]], high=1.0)
        >>> figure = pictures.head_grid([entropy, peak], ["layer 0", "layer 1"], "40 texts")
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['1.5', '.20', '.70', '']
        >>> change = pictures.HeadMap("change", "nats", [[-0.5, 0.0], [0.25, 0.0]])
        >>> pictures.head_grid([change], ["0", "1"], "after - before").axes[0].images[0].get_clim()
        (-0.5, 0.5)
    """
    if not maps or not (layers or all(each.layers for each in maps)):
        raise ArgumentError("maps must have at least one statistic and one layer")
    labels = [[visible_token(str(label)) for label in layers or each.layers] for each in maps]
    for each, rows in zip(maps, labels, strict=True):
        if len(each.values) != len(rows):
            raise ShapeError(f"{each.title!r} must have {len(rows)} layers; it has {len(each.values)}")
    single = len(maps) == 1
    cell, most = (SINGLE_CELL, MOST_SINGLE_SIDE) if single else (CELL, MOST_SIDE)
    heads = max(len(row) for each in maps for row in each.values)
    width, height = (min(max(count * cell, LEAST_SIDE), most) for count in (heads, max(len(rows) for rows in labels)))
    columns = min(COLUMNS, len(maps))
    full_width = max(columns * (width + 1.3), LEAST_WIDTH)
    heading = "\n".join(
        wrapped(line, int(LETTERS_AN_INCH * full_width)) for line in (title, *(maps[0].notes if single else ()))
    )
    names = [
        *(visible_token(str(label)) for each in maps for label in each.columns),
        *(row for rows in labels for row in rows),
    ]
    lettering = Lettering([heading, *names, *(each.title for each in maps)])
    sheet = new_sheet(
        full_width, -(-len(maps) // columns) * (height + 0.8) + 0.3 + 0.2 * heading.count("\n"), layout="constrained"
    )
    lettering.letter(sheet.suptitle("", fontsize=11), heading)
    grid = sheet.subplots(-(-len(maps) // columns), columns, squeeze=False).ravel()
    for axes in grid[len(maps) :]:
        axes.set_axis_off()
    for axes, each, rows in zip(grid, maps, labels, strict=False):
        matrix = np.full((len(rows), max(len(row) for row in each.values)), np.nan)
        for row, values in enumerate(each.values):
            matrix[row, : len(values)] = values
        _draw_map(sheet, axes, each, matrix, rows, lettering, (width / matrix.shape[1], height / len(rows)))
        if each.title != title:
            lettering.letter(axes.set_title("", fontsize=10), each.title)
    return sheet


def _draw_map(
    sheet: Figure,
    axes: Axes,
    shown: Any,
    matrix: Matrix,
    layers: Sequence[str],
    lettering: Lettering,
    cell: tuple[float, float],
) -> None:
    """Draws one map, whose cells have a width and a height in inches."""
    finite = matrix[np.isfinite(matrix)]
    signed = bool((finite < 0).any()) if shown.signed is None else shown.signed
    high = float(np.abs(finite).max(initial=0.0)) or 1.0 if shown.high is None else shown.high
    image = draw_cells(axes, matrix, colors="sign" if signed else "amount", low=-high if signed else 0.0, high=high)
    axes.set_xlabel(shown.axis, fontsize=8)
    axes.set_ylabel("layer", fontsize=8)
    axes.tick_params(labelsize=7)
    if shown.columns:
        labels = [visible_token(str(label)) for label in shown.columns]
        step = max(1, math.ceil(0.18 / cell[0]))
        axes.set_xticks(range(0, len(labels), step), [lettering.drawable(label) for label in labels[::step]])
        if max(map(len, labels)) * 0.06 > cell[0] * step:
            axes.tick_params(axis="x", labelrotation=90)
    else:
        axes.set_xticks(range(0, matrix.shape[1], -(-matrix.shape[1] // 16)))
    step = -(-len(layers) // 24)
    axes.set_yticks(range(0, len(layers), step), [lettering.drawable(label) for label in layers[::step]])
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        lettering.letter(label)
    texts = [[_number(value, high) for value in row] for row in matrix]
    longest = max(len(text) for row in texts for text in row)
    fits = (
        size
        for size in NUMBER_SIZES
        if longest * size * LETTER_WIDTH <= 72 * cell[0] - 1 and size * 1.5 <= 72 * cell[1]
    )
    size = next(fits, None)
    if size is not None:
        write_numbers(axes, image, texts, size)
    titled_bar(sheet, image, shown.unit or "value", ax=axes, fraction=0.05, pad=0.03)


def _number(value: float, high: float) -> str:
    """Returns a number in a cell: two decimals, or as many as give the largest one two digits; "" for NaN."""
    if np.isnan(value):
        return ""
    if 0.995 <= abs(value) < 1 and (value < 0 or high > 1):  # no share of a whole
        return short_number(value)
    decimals = 1 - math.floor(math.log10(high)) if high < 0.1 else 2
    if decimals <= 2 or not value:
        return cell_number(value) or "0"
    text = f"{abs(value):.{decimals}f}".lstrip("0")
    return text if value > 0 or not text.strip(".0") else f"−{text}"
