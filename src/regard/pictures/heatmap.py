"""Cells of a matrix, coloured by their numbers; what alignments, calculations and position tables are drawn with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from regard.errors import ArgumentError, UnknownNameError
from regard.pictures.numbers import Matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.image import AxesImage

HOLE = "#cfd3d8"
"""The colour of −inf, inf and NaN: none of the scale's."""


def color_map(name: str) -> Colormap:
    """One of matplotlib's colour maps, with `HOLE` for what is not finite.

    Raises:
        UnknownNameError: no such map.
    """
    import matplotlib

    if name not in matplotlib.colormaps:
        raise UnknownNameError("color_map", name, (known for known in matplotlib.colormaps if known[-2:] != "_r"))
    return matplotlib.colormaps[name].with_extremes(bad=HOLE)


def draw_cells(axes: Axes, matrix: Matrix, *, colors: str, low: float, high: float) -> AxesImage:
    """Draw a matrix, its first row on top; cell ``(row, column)`` has its centre at ``x = column, y = row``.

    Args:
        axes: where; loses its ticks' marks.
        matrix: ``[rows, columns]``, neither 0.
        colors: the name of a colour map.
        low: the number of its first colour.
        high: the number of its last colour; more than ``low``.
    """
    if not low < high:
        raise ArgumentError(f"the colours need low < high; they are {low!r} and {high!r}")
    shown = np.ma.masked_invalid(matrix)
    image = axes.imshow(
        shown, cmap=color_map(colors), vmin=low, vmax=high, aspect="auto", interpolation="nearest", origin="upper"
    )
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_color("#808080")
        spine.set_linewidth(0.6)
    return image


def draw_lines(axes: Axes, rows: int, columns: int, *, color: str = "#5c5c5c", width: float = 0.3) -> None:
    """Thin lines between the cells."""
    axes.hlines(np.arange(rows - 1) + 0.5, -0.5, columns - 0.5, colors=color, linewidths=width)
    axes.vlines(np.arange(columns - 1) + 0.5, -0.5, rows - 0.5, colors=color, linewidths=width)


def write_numbers(axes: Axes, image: AxesImage, texts: list[list[str]], size: float) -> None:
    """Write a text in each cell, black or white, whichever is read better on the cell's colour.

    Args:
        axes: where the image is.
        image: what `draw_cells` gave.
        texts: ``[rows][columns]``.
        size: of the letters, in points.
    """
    cells = image.get_array()
    assert cells is not None, "draw_cells gave the image its numbers"
    colors = image.to_rgba(cells)
    # Relative luminance of sRGB (WCAG 2): black and white have the same contrast at 0.179.
    linear = np.where(colors[..., :3] <= 0.04045, colors[..., :3] / 12.92, ((colors[..., :3] + 0.055) / 1.055) ** 2.4)
    luminance = linear @ np.array([0.2126, 0.7152, 0.0722])
    for row, line in enumerate(texts):
        for column, text in enumerate(line):
            color = "black" if luminance[row, column] > 0.179 else "white"
            axes.text(column, row, text, ha="center", va="center_baseline", fontsize=size, color=color)
