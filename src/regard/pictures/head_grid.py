"""Statistics of a model's heads: a map of heads × layers for each statistic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from regard.errors import ArgumentError, ShapeError
from regard.pictures.heatmap import draw_cells, write_numbers
from regard.pictures.numbers import cell_number
from regard.pictures.sheet import new_sheet
from regard.pictures.weight_scale import titled_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL = 0.30  # inches, as the next ones
LEAST_SIDE, MOST_SIDE = 1.9, 4.2
COLUMNS = 3
NUMBERS_LIMIT = 0.26
"""The narrowest cell with a number, in inches."""


@dataclass(frozen=True)
class HeadMap:
    """One statistic of all heads.

    Attributes:
        title: its name.
        unit: of the values.
        values: ``[layers][heads]``; NaN if unknown. Layers may differ in their number of heads.
        high: the end of the colours' scale, which begins at 0; None: the largest value.

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


def head_grid(maps: Sequence[HeadMap], layers: Sequence[str], title: str) -> Figure:
    """Draws statistics of heads: heads on x, layers on y, the first layer on top; each map has a scale from 0.

    Maps with the same `HeadMap.high`, such as 1 for shares, can be compared by their colours. Numbers are written into
    cells that are large enough. A cell without a value is crossed.

    Args:
        maps: one for each statistic.
        layers: the label of each layer.
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
    """
    if not maps or not layers:
        raise ArgumentError("maps must have at least one statistic and one layer")
    for each in maps:
        if len(each.values) != len(layers):
            raise ShapeError(f"{each.title!r} must have {len(layers)} layers; it has {len(each.values)}")
    heads = max(len(row) for each in maps for row in each.values)
    width, height = (min(max(count * CELL, LEAST_SIDE), MOST_SIDE) for count in (heads, len(layers)))
    columns = min(COLUMNS, len(maps))
    rows = -(-len(maps) // columns)
    sheet = new_sheet(columns * (width + 1.3), rows * (height + 0.8) + 0.5, layout="constrained")
    sheet.suptitle(title, fontsize=11)
    grid = sheet.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(maps) :]:
        axes.set_axis_off()
    for axes, each in zip(grid, maps, strict=False):
        matrix = np.full((len(layers), heads), np.nan)
        for row, values in enumerate(each.values):
            matrix[row, : len(values)] = values
        finite = matrix[np.isfinite(matrix)]
        high = each.high if each.high is not None else float(finite.max(initial=0.0)) or 1.0
        image = draw_cells(axes, matrix, colors="amount", low=0.0, high=high)
        axes.set_title(each.title, fontsize=10)
        axes.set_xlabel("head", fontsize=8)
        axes.set_ylabel("layer", fontsize=8)
        axes.set_xticks(range(0, heads, -(-heads // 16)))
        step = -(-len(layers) // 24)
        axes.set_yticks(range(0, len(layers), step), list(layers)[::step])
        axes.tick_params(labelsize=7)
        if width / heads >= NUMBERS_LIMIT and height / len(layers) >= 0.15:
            write_numbers(axes, image, [[_number(value) for value in row] for row in matrix], 5.5)
        titled_bar(sheet, image, each.unit, ax=axes, fraction=0.05, pad=0.03)
    return sheet


def _number(value: float) -> str:
    return "" if np.isnan(value) else cell_number(value) or "0"
