"""A table of position encodings, drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import ShapeError
from regard.pictures.fonts import Lettering, wrapped
from regard.pictures.heatmap import draw_cells, draw_lines, write_numbers
from regard.pictures.numbers import as_array, number_texts
from regard.pictures.sheet import count_axis, fit_width, new_sheet
from regard.pictures.weight_scale import titled_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NUMBERED = (24, 16)
"""The most positions and dimensions of a table whose numbers are all written."""


def position_table(table: Any, *, title: str | None = None, color_map: str = "sign") -> Figure:
    """Draws a table of position encodings: position on y (0 on top), dimension on x, negative red, positive blue.

    Args:
        table: ``[length, dim]``, finite, e.g. the sinusoids of Vaswani et al. (2017), section 3.5.
        title: above the picture.
        color_map: ``"sign"`` or a diverging map of matplotlib; its ends are ± the largest magnitude.

    Returns:
        A figure; small tables have every number in its cell.

    Raises:
        ShapeError: ``table`` does not have two axes, is empty, or is not finite.
        UnknownNameError: no such colour map.
        MissingPartError: matplotlib is not installed.

    Example:
        >>> from regard import pictures, positions
        >>> figure = pictures.position_table(positions.Sinusoidal(4).table(2))
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['0.000', '1.000', '0.000', '1.000', '0.841', '0.540', '0.010', '1.000']
    """
    matrix = as_array("table", table, 2)
    length, dim = matrix.shape
    if not matrix.size:
        raise ShapeError(f"table must have at least one position and one dimension; it has shape {[length, dim]}")
    if not np.isfinite(matrix).all():
        raise ShapeError("table must be finite; it holds NaN or inf")
    end = float(np.abs(matrix).max()) or 1.0
    numbered = length <= MOST_NUMBERED[0] and dim <= MOST_NUMBERED[1]
    if numbered:
        width, height = max(dim * 0.52 + 1.6, 3.2), max(length * 0.27 + 1.1, 1.8)
    else:
        width, height = float(np.clip(2.5 + dim * 0.06, 5.0, 12.0)), float(np.clip(1.5 + length * 0.06, 3.0, 9.0))
    heading = "" if title is None else wrapped(title, int(width * 9))
    lettering = Lettering([heading])
    figure = new_sheet(width, height, layout="constrained")
    axes = figure.add_subplot(label="positions")
    image = draw_cells(axes, matrix, colors=color_map, low=-end, high=end)
    if numbered:
        axes.set_xticks(range(dim))
        axes.set_yticks(range(length))
        draw_lines(axes, length, dim, color="#ffffff", width=0.8)
        write_numbers(axes, image, number_texts(matrix, most_decimals=3), 8)
    else:
        axes.tick_params(length=2)
        count_axis(axes.xaxis)
        count_axis(axes.yaxis)
    axes.tick_params(labelsize=8)
    axes.set_xlabel("dimension", fontsize=9)
    axes.set_ylabel("position", fontsize=9)
    if heading:
        fit_width(lettering.letter(axes.set_title("", fontsize=11, loc="left"), heading), 0.8 * width)
    titled_bar(figure, image, "value", ax=axes, fraction=0.06, pad=0.02, aspect=24)
    return figure
