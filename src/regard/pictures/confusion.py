"""A confusion matrix: how many examples of each true class a model assigned to each class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import ShapeError
from regard.pictures.fonts import LONGEST_LABEL, Lettering, titled, visible_token
from regard.pictures.heatmap import draw_cells, draw_lines, label_note, write_labels, write_numbers
from regard.pictures.numbers import as_array
from regard.pictures.sheet import new_sheet, set_position, text_extent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARGIN = 0.12  # inches, as all lengths below
LONGEST_SIDE = 30.0

SHARES = "white: no example of the true class, blue: all of them"

MOST_WITH_NUMBERS = 40
"""The most classes for which each cell has its number."""


def confusion_matrix(counts: Any, labels: Sequence[str], *, title: str | None = None) -> Figure:
    """Draws a confusion matrix: true classes as rows, found ones as columns, each row coloured by its shares.

    Args:
        counts: ``[true, found]``, at least 0.
        labels: the names of the classes.
        title: above the picture.

    Returns:
        A figure, as large as its labels and cells need.

    Raises:
        ShapeError: ``counts`` is not a square matrix with a label for each row.
        MissingPartError: matplotlib is not installed.

    Example:
        >>> from regard import pictures
        >>> figure = pictures.confusion_matrix([[8, 2], [1, 9]], ["cat", "dog"])
        >>> figure.axes[0].images[0].get_array().tolist()  # shares of the true class
        [[0.8, 0.2], [0.1, 0.9]]
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['8', '2', '1', '9']
    """
    matrix = as_array("counts", counts, 2)
    size = len(labels)
    if matrix.shape != (size, size) or not size:
        raise ShapeError(f"counts must be [labels, labels] = {[size, size]}; it has shape {list(matrix.shape)}")
    names = [visible_token(label, LONGEST_LABEL) for label in labels]
    texts = [[f"{int(number):,}" if number else "" for number in row] for row in matrix.tolist()]
    longest = max(len(text) for row in texts for text in row)
    numbers = size <= MOST_WITH_NUMBERS
    cell = min(max(0.42, 0.085 * longest) if numbers else 0.2, LONGEST_SIDE / size)
    letters = min(9.0, 0.62 * cell * 72)
    step = max(1, math.ceil(letters * 1.05 / 72 / cell))
    notes = "" if numbers else SHARES, label_note("class", step, size)
    shown = titled(title, max(24, round(size * cell * 11)), *notes)
    lettering = Lettering([*names, shown])

    figure = new_sheet(1.0, 1.0)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), label="confusion")
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    image = draw_cells(axes, shares, colors="amount", low=0.0, high=1.0)
    if cell >= 0.1:
        draw_lines(axes, size, size)
    if numbers:
        write_numbers(axes, image, texts, min(8.5, letters))
    extents = write_labels(axes, lettering, names, names, letters, (step, step), 0.9 * cell * step)
    side_labels, top_labels = (extent + 0.08 for extent in extents)
    heading = lettering.letter(figure.text(0, 1, "", fontsize=11, va="top", ha="left"), shown)
    heading_width, heading_height = text_extent(heading) if shown else (0.0, 0.0)
    axis_name = 0.2

    side = size * cell
    left = MARGIN + axis_name + side_labels
    above_height = MARGIN + (heading_height + 0.12 if shown else 0.0) + axis_name + top_labels
    width, height = max(left + side, MARGIN + heading_width, 1.4) + MARGIN, above_height + side + MARGIN
    figure.set_size_inches(width, height)
    set_position(axes, left, height - above_height - side, side, side)
    heading.set_position((MARGIN / width, 1 - MARGIN / height))
    bottom = height - above_height
    figure.text((left + side / 2) / width, (bottom + top_labels + 0.02) / height, "found", ha="center", fontsize=9)
    middle = (bottom - side / 2) / height
    figure.text(MARGIN / width, middle, "true", rotation=90, va="center", ha="left", fontsize=9)
    return figure
