"""Numbers of a model's heads, such as statistics: a map of heads × layers for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.errors import ArgumentError
from regard.pictures.fonts import Lettering, visible_token, wrapped
from regard.pictures.heatmap import draw_cells, write_numbers
from regard.pictures.numbers import cell_number, short_number
from regard.pictures.sheet import new_sheet
from regard.pictures.weight_scale import titled_bar
from regard.records.head_grid import HeadGrid

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


def head_grid(grids: Sequence[HeadGrid], title: str) -> Figure:
    """Draws numbers of heads: heads on x, layers on y, the first layer on top; each map has a scale of its own.

    A scale begins at 0, or has 0 in its middle if the grid is `HeadGrid.signed`. Maps with the same `HeadGrid.high`,
    such as 1 for shares, can be compared by their colours. Numbers are written into cells that are large enough. A cell
    without a value is crossed. A map that is drawn alone is larger, and has its notes below the title.

    Args:
        grids: of `regard.records`, one for each map.
        title: above all.

    Returns:
        A figure with a panel and a scale for each map, three panels side by side.

    Raises:
        ArgumentError: there is no map.
        MissingPartError: matplotlib is not installed.

    Example:
        >>> from regard import pictures, records
        >>> entropy = records.HeadGrid("entropy", [[1.5, 0.2], [0.7]], unit="nats")
        >>> peak = records.HeadGrid("peak", [[0.3, 0.9], [0.6]], unit="weight", high=1.0)
        >>> figure = pictures.head_grid([entropy, peak], "40 texts")
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['1.5', '.20', '.70', '']
        >>> change = records.HeadGrid("change", [[-0.5, 0.0], [0.25, 0.0]], unit="nats")
        >>> pictures.head_grid([change], "after - before").axes[0].images[0].get_clim()
        (-0.5, 0.5)
    """
    if not grids:
        raise ArgumentError("grids must have at least one grid; there is none")
    single = len(grids) == 1
    cell, most = (SINGLE_CELL, MOST_SINGLE_SIDE) if single else (CELL, MOST_SIDE)
    sizes = (max(sizes) for sizes in zip(*(each.values.shape for each in grids), strict=True))
    height, width = (min(max(count * cell, LEAST_SIDE), most) for count in sizes)
    columns = min(COLUMNS, len(grids))
    rows = -(-len(grids) // columns)
    full_width = max(columns * (width + 1.3), LEAST_WIDTH)
    heading = "\n".join(
        wrapped(line, int(LETTERS_AN_INCH * full_width)) for line in (title, *(grids[0].notes if single else ()))
    )
    labels = [visible_token(label) for each in grids for label in (*each.columns, *each.layers)]
    lettering = Lettering([heading, *labels, *(each.title for each in grids)])
    sheet = new_sheet(full_width, rows * (height + 0.8) + 0.3 + 0.2 * heading.count("\n"), layout="constrained")
    lettering.letter(sheet.suptitle("", fontsize=11), heading)
    panels = sheet.subplots(rows, columns, squeeze=False).ravel()
    for axes in panels[len(grids) :]:
        axes.set_axis_off()
    for axes, each in zip(panels, grids, strict=False):
        _draw_map(sheet, axes, each, lettering, (width / each.values.shape[1], height / each.values.shape[0]))
        if each.title != title:
            lettering.letter(axes.set_title("", fontsize=10), each.title)
    return sheet


def _draw_map(sheet: Figure, axes: Axes, grid: HeadGrid, lettering: Lettering, cell: tuple[float, float]) -> None:
    """Draws one map, whose cells have a width and a height in inches."""
    finite = grid.values[np.isfinite(grid.values)]
    high = float(np.abs(finite).max(initial=0.0)) or 1.0 if grid.high is None else grid.high
    colors, low = ("sign", -high) if grid.signed else ("amount", 0.0)
    image = draw_cells(axes, grid.values, colors=colors, low=low, high=high)
    axes.set_xlabel(grid.axis, fontsize=8)
    axes.set_ylabel("layer", fontsize=8)
    axes.tick_params(labelsize=7)
    columns, layers = ([visible_token(label) for label in labels] for labels in (grid.columns, grid.layers))
    step = max(1, math.ceil(0.18 / cell[0]))
    axes.set_xticks(range(0, len(columns), step), [lettering.drawable(label) for label in columns[::step]])
    if max(map(len, columns)) * 0.06 > cell[0] * step:
        axes.tick_params(axis="x", labelrotation=90)
    step = -(-len(layers) // 24)
    axes.set_yticks(range(0, len(layers), step), [lettering.drawable(label) for label in layers[::step]])
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        lettering.letter(label)
    texts = [[_number(value, high) for value in row] for row in grid.values]
    longest = max(len(text) for row in texts for text in row)
    for size in NUMBER_SIZES:
        if longest * size * LETTER_WIDTH <= 72 * cell[0] - 1 and size * 1.5 <= 72 * cell[1]:
            write_numbers(axes, image, texts, size)
            break
    titled_bar(sheet, image, grid.unit or "value", ax=axes, fraction=0.05, pad=0.03)


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
