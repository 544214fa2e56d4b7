"""The words of a text, each with its weight below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import ShapeError
from regard.pictures.fonts import LONGEST_LABEL, Lettering, titled, visible_token
from regard.pictures.heatmap import color_map as named_colors
from regard.pictures.heatmap import colored, draw_forms, form_note, ink_on
from regard.pictures.numbers import as_array, cell_number
from regard.pictures.sheet import new_sheet, set_position, text_extent
from regard.pictures.weight_scale import draw_bar, weight_scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARGIN = 0.15  # inches, as all lengths below
WORD_HEIGHT = 0.26
CELL_HEIGHT = 0.17
NARROWEST_CELL = 0.26
GAP = 0.05
LINE_GAP = 0.14

BAR_LENGTH, BAR_HEIGHT, BAR_ROOM = 2.4, 0.1, 0.74
"""The length and the height of the bar, and the height with its title."""

MOST_WORDS = 4000


def word_weights(
    words: Sequence[str], weights: Any, *, title: str | None = None, width: float = 9.0, color_map: str = "amount"
) -> Figure:
    """Draws a text word by word, with a row of cells for each head below each line: darker for more weight.

    A cell shows its weight in hundredths; all heads have one scale, which ends at the largest weight, or at four times
    the weight that all words would have if they were alike. The title also says that weights are nearly uniform.

    Args:
        words: the words.
        weights: ``[heads, words]``, at least 0; −inf (masked) is hatched, NaN and inf are crossed.
        title: above the text.
        width: the most inches of a line.
        color_map: ``"amount"``, from paper to ink, or one of matplotlib.

    Returns:
        A figure; its height is what the lines need.

    Raises:
        ShapeError: ``weights`` do not match the words; or there are more than `MOST_WORDS`.
        UnknownNameError: no such colour map.
        MissingPartError: matplotlib is not installed.

    Example:
        >>> from regard import pictures
        >>> figure = pictures.word_weights(["a", "very", "good", "film"], [[0.02, 0.1, 0.8, 0.08]])
        >>> [text.get_text() for text in figure.axes[0].texts]  # hundredths
        ['.02', '.10', '.80', '.08']
    """
    matrix = as_array("weights", weights, 2)
    heads = matrix.shape[0]
    if not len(words) or len(words) > MOST_WORDS or matrix.shape[1] != len(words):
        raise ShapeError(
            f"weights must have a column for each of 1 to {MOST_WORDS:,} words; there are {len(words):,} words, and "
            f"weights have shape {list(matrix.shape)}"
        )
    hidden, missing = np.isneginf(matrix), ~np.isfinite(matrix) & ~np.isneginf(matrix)
    matrix = np.where(hidden | missing, 0.0, matrix)
    from matplotlib.cm import ScalarMappable

    shown = [visible_token(word, LONGEST_LABEL) for word in words]
    scale = weight_scale(matrix)
    color_map = scale.colors(color_map)
    heading = titled(title, 90, scale.note, form_note(False, bool(hidden.any()), bool(missing.any())))
    lettering = Lettering([*shown, heading])
    figure = new_sheet(width, 1.0)

    def written(text: str, size: float) -> Any:
        return lettering.letter(figure.text(0, 0, "", fontsize=size, va="center", ha="center"), text)

    names = [""] if heads == 1 else [f"head {head}" for head in range(heads)]
    left = MARGIN + (0.0 if heads == 1 else 0.55)
    title_text = figure.text(0, 1, "", fontsize=11, va="top", ha="left")
    lettering.letter(title_text, heading)
    title_height = text_extent(title_text)[1] + 0.12 if heading else 0.0

    texts = [written(word, 10) for word in shown]
    widths = [max(NARROWEST_CELL, text_extent(text)[0] + 0.06) for text in texts]
    positions, x, line = [], left, 0
    for one in widths:
        if x > left and x + one > width - MARGIN:
            x, line = left, line + 1
        positions.append((x, line))
        x += one + GAP
    line_height = WORD_HEIGHT + heads * CELL_HEIGHT + LINE_GAP
    right = max(x + one for (x, _), one in zip(positions, widths, strict=True))
    full_width = max(right, left + BAR_LENGTH + MARGIN) + MARGIN
    full_width = max(full_width, text_extent(title_text)[0] + 2 * MARGIN if heading else 0.0)
    height = 2 * MARGIN + title_height + (line + 1) * line_height + BAR_ROOM
    figure.set_size_inches(full_width, height)
    title_text.set_position((MARGIN / full_width, 1 - MARGIN / height))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), label="words")
    axes.set_axis_off()
    axes.set_xlim(0, full_width)
    axes.set_ylim(height, 0)

    shades = ScalarMappable(scale.norm(), named_colors(color_map))
    filled = np.asarray(shades.to_rgba(colored(matrix, color_map)))
    inks = ink_on(filled)
    top = MARGIN + title_height
    for number, ((x, line), one, text) in enumerate(zip(positions, widths, texts, strict=True)):
        y = top + line * line_height
        text.set_position(((x + one / 2) / full_width, 1 - (y + WORD_HEIGHT / 2) / height))
        for head in range(heads):
            cell_top = y + WORD_HEIGHT + head * CELL_HEIGHT
            if hidden[head, number] or missing[head, number]:
                form = [np.array([[cells[head, number]]]) for cells in (hidden, missing)]
                draw_forms(axes, *form, extent=(x, x + one, cell_top, cell_top + CELL_HEIGHT * 0.92))
                continue
            axes.bar(
                x + one / 2, CELL_HEIGHT * 0.92, one, cell_top, color=filled[head, number], edgecolor="#b0b0b0",
                linewidth=0.4,
            )  # fmt: skip
            weight = float(matrix[head, number])
            if label := cell_number(weight):
                middle = cell_top + CELL_HEIGHT * 0.46
                color = str(inks[head, number])
                axes.text(x + one / 2, middle, label, ha="center", va="center", fontsize=6.5, color=color)
    for line in {line for _, line in positions} if heads > 1 else ():
        for head, name in enumerate(names):
            y = top + line * line_height + WORD_HEIGHT + (head + 0.46) * CELL_HEIGHT
            axes.text(MARGIN, y, name, fontsize=7.5, va="center", ha="left")
    bar = figure.add_axes((0.0, 0.0, 0.1, 0.1), label="weight")
    set_position(bar, left, MARGIN + BAR_ROOM - BAR_HEIGHT - 0.12, BAR_LENGTH, BAR_HEIGHT)
    draw_bar(figure, shades, scale, cax=bar, orientation="horizontal")
    return figure
