"""Numbers with signs as bars: blue to the right above 0, red to the left below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import ShapeError
from regard.palette import BORDER, INK, MUTED, SIGN, points
from regard.pictures.fonts import LONGEST_LABEL, Lettering, titled, visible
from regard.pictures.numbers import as_array, signed_number
from regard.pictures.sheet import NOTE, TEXT, TITLE, new_sheet, set_position, text_extent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARGIN, GAP, ROW, HEAD, PANEL = 0.15, 0.3, 0.22, 0.26, 2.6  # inches
NUMBER_ROOM = 0.6
"""The share of a panel's width that is free for the numbers beyond its longest bars."""

MOST_ROWS = 200


def signed_bars(
    labels: Sequence[str], panels: Mapping[str, Any], *, title: str | None = None, total: bool = False
) -> Figure:
    """Draws panels of horizontal bars side by side, with one label for each row and its number at each bar.

    All panels have one scale, whose 0 is a line.

    Args:
        labels: of the rows, from above.
        panels: by the title of each panel, one finite number for each row.
        title: above the picture.
        total: whether the last row is the sum of the others; a line is drawn above it.

    Raises:
        ShapeError: the numbers do not match the labels, or there are more than `MOST_ROWS` rows.
        MissingPartError: matplotlib is not installed.

    Example:
        >>> from regard import pictures
        >>> figure = pictures.signed_bars(["embedding", "head 3 of layer 0"], {"key": [-0.25, 1.5]})
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['−0.25', '+1.50']
    """
    columns = {name: as_array(name, values, 1) for name, values in panels.items()}
    if not 0 < len(labels) <= MOST_ROWS or not columns or {len(each) for each in columns.values()} != {len(labels)}:
        raise ShapeError(
            f"panels must have a number for each of 1 to {MOST_ROWS} labels; there are {len(labels)} labels, and the "
            f"panels have {[len(each) for each in columns.values()]} numbers"
        )
    largest = max(float(np.abs(each).max()) for each in columns.values()) or 1.0
    shown = [visible(label, 2 * LONGEST_LABEL) for label in labels]
    heading = titled(title, 90)
    lettering = Lettering([*shown, *columns, heading])
    figure = new_sheet(9.0, 3.0)
    texts = [lettering.letter(figure.text(0, 0, "", fontsize=TEXT, ha="right", va="center"), one) for one in shown]
    head = lettering.letter(figure.text(0, 0, "", fontsize=TITLE, ha="left", va="top", color=INK), heading)
    left = MARGIN + max(text_extent(text)[0] for text in texts) + 0.08
    top = MARGIN + (text_extent(head)[1] + 0.12 if heading else 0.0) + HEAD
    height = top + ROW * len(labels) + MARGIN
    width = max(left + len(columns) * (PANEL + GAP) - GAP, text_extent(head)[0] + MARGIN) + MARGIN
    figure.set_size_inches(width, height)
    head.set_position((MARGIN / width, 1 - MARGIN / height))
    for number, text in enumerate(texts):
        text.set_position(((left - 0.08) / width, 1 - (top + (number + 0.5) * ROW) / height))
    colors = points(SIGN["light"])
    rows = np.arange(len(labels))
    for number, (name, values) in enumerate(columns.items()):
        axes = figure.add_axes((0.0, 0.0, 0.1, 0.1), label=name)
        set_position(axes, left + number * (PANEL + GAP), MARGIN, PANEL, ROW * len(labels))
        axes.barh(rows, values, 0.72, color=[colors[-4] if value > 0 else colors[3] for value in values])
        axes.axvline(0, color=MUTED, linewidth=0.8)
        if total:
            axes.axhline(len(labels) - 1.5, color=BORDER, linewidth=0.8)
        axes.set_xlim(-largest * (1 + NUMBER_ROOM), largest * (1 + NUMBER_ROOM))
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xticks([])
        axes.set_yticks([])
        for side in axes.spines.values():
            side.set_color(BORDER)
        title_text = axes.set_title("", fontsize=TEXT, loc="left", color=INK)
        lettering.letter(title_text, name)
        for row, value in enumerate(values):
            side = 1 if value >= 0 else -1
            axes.text(
                value + side * 0.02 * largest, row, signed_number(float(value), largest), fontsize=NOTE, color=MUTED,
                ha="left" if side > 0 else "right", va="center",
            )  # fmt: skip
    return figure
