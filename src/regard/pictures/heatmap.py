"""The cells of a matrix, coloured by their values: for alignments, calculations, confusion matrices and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.errors import ArgumentError, UnknownNameError
from regard.pictures.fonts import Lettering
from regard.pictures.numbers import Matrix
from regard.pictures.sheet import text_extent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.image import AxesImage

HOLE = "#cfd3d8"
"""The colour of −inf, inf and NaN, which is in no scale."""


def color_map(name: str) -> Colormap:
    """One of matplotlib's colour maps, with `HOLE` for values that are not finite.

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
        axes: the axes, which lose the marks of their ticks.
        matrix: ``[rows, columns]``, neither 0.
        colors: the name of a colour map.
        low: the value of its first colour.
        high: the value of its last colour; more than ``low``.
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
    """Draw thin lines between the cells."""
    axes.hlines(np.arange(rows - 1) + 0.5, -0.5, columns - 0.5, colors=color, linewidths=width)
    axes.vlines(np.arange(columns - 1) + 0.5, -0.5, rows - 0.5, colors=color, linewidths=width)


def write_numbers(axes: Axes, image: AxesImage, texts: list[list[str]], size: float) -> None:
    """Write a text in each cell, black or white, whichever is easier to read on the cell's colour.

    Args:
        axes: the axes of the image.
        image: the result of `draw_cells`.
        texts: ``[rows][columns]``.
        size: of the letters, in points.
    """
    cells = image.get_array()
    assert cells is not None, "draw_cells gave the image its cells"
    colors = image.to_rgba(cells)
    # Relative luminance of sRGB (WCAG 2): black and white have the same contrast at 0.179.
    linear = np.where(colors[..., :3] <= 0.04045, colors[..., :3] / 12.92, ((colors[..., :3] + 0.055) / 1.055) ** 2.4)
    luminance = linear @ np.array([0.2126, 0.7152, 0.0722])
    for row, line in enumerate(texts):
        for column, text in enumerate(line):
            color = "black" if luminance[row, column] > 0.179 else "white"
            axes.text(column, row, text, ha="center", va="center_baseline", fontsize=size, color=color)


def label_note(kind: str, step: int, count: int) -> str:
    """What a picture says if only every ``step``-th label has room; "" if all have."""
    if step == 1 or count <= 1:
        return ""
    return f"every {ordinal(step)} {kind} has a label"


def ordinal(number: int) -> str:
    """E.g. ``"2nd"``."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def write_labels(
    axes: Axes, lettering: Lettering, rows: Sequence[str], columns: Sequence[str], size: float, step: int, width: float
) -> tuple[float, float]:
    """Label every ``step``-th row at the left and column on top; columns upright where a label is too wide.

    Args:
        axes: the axes of the cells.
        lettering: the fonts.
        rows, columns: the labels.
        size: of the letters, in points.
        step: 1 labels all rows and columns.
        width: inches that a label of a column may take.

    Returns:
        The width of the row labels and the height of the column labels, in inches.
    """
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=size, pad=3)
    axes.set_xticks(range(0, len(columns), step), [lettering.drawable(label) for label in columns[::step]])
    axes.set_yticks(range(0, len(rows), step), [lettering.drawable(label) for label in rows[::step]])
    on_top, at_left = axes.get_xticklabels(), axes.get_yticklabels()
    for label in (*on_top, *at_left):
        lettering.letter(label)
    if any(text_extent(label)[0] > width for label in on_top):
        for label in on_top:
            label.set_rotation(90)
    width = max((text_extent(label)[0] for label in at_left), default=0.0)
    return width, max((text_extent(label)[1] for label in on_top), default=0.0)
