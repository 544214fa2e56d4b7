"""The words of a text, each with its weight below."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import ShapeError
from regard.palette import ACCENT, BORDER, INK, MUTED
from regard.pictures.caption import MARGIN, Caption
from regard.pictures.fonts import LONGEST_LABEL, Lettering, visible_token
from regard.pictures.heatmap import color_map as named_colors
from regard.pictures.heatmap import colored, draw_forms, forms_of, ink_on
from regard.pictures.numbers import adds_up, as_array, cell_number, percent, short_weight
from regard.pictures.sheet import NOTE, TEXT, new_sheet, text_extent
from regard.pictures.weight_scale import Frame, draw_scale, weight_scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORD_HEIGHT = 0.27  # inches, as all lengths below
CELL_HEIGHT = 0.17
NARROWEST_CELL = 0.26
GAP = 0.05
LINE_GAP = 0.12
CURVE = 0.16

WORD_SIZE, NUMBER_SIZE, SPECIAL_SIZE = 11, 8, 6.6
"""Sizes of letters in points."""

HEADING = 0.27
LEAST_SHADE = 0.2
"""The part of the scale from which on a mark that the model adds is not grey."""

MOST_WORDS, MOST_MARKED = 4000, 3
"""The most words, and how many keys of a sentence have their weights below them."""

CLOSING, OPENING = set(".,;:!?…%)]}»”’、。，！？；：」』）】》"), set("([{«“‘「『（【《")
"""Marks that stand at the word before them, and at the word after them."""


def word_weights(
    words: Sequence[str],
    weights: Any,
    *,
    title: str | Caption | None = None,
    width: float = 9.0,
    color_map: str = "amount",
    marked: int | None = None,
    special: Collection[int] = (),
    asking: tuple[Sequence[str], str, str] | None = None,
) -> Figure:
    """Draws a text word by word, each on the colour of its weight, darker for more, its hundredths below.

    Several heads have a row of cells each below a line. All have one scale, which ends at `scale_end` of the largest
    weight. A note says that weights are nearly uniform. Below a sentence, the words of one head that have at most the
    equal share have no box, the three strongest of those with twice as much have percent, and an arrow runs from the
    word that asks to the one that it looks at most.

    Args:
        words: the words.
        weights: ``[heads, words]``, at least 0; −inf (masked) is hatched, NaN and inf are crossed.
        title: above the text: a text, or a `Caption`.
        width: the most inches of a line.
        color_map: ``"amount"``, from paper to ink, or one of matplotlib.
        marked: the word that asks, outlined; None: it is not one of them.
        special: the positions of marks that the model adds, which are small and grey.
        asking: of one head, the text that asks where it is another one: its words, which stand above and from which
            ``marked`` and ``special`` then count, and the titles of both texts; None: no other text.

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
    from matplotlib.cm import ScalarMappable
    from matplotlib.patches import FancyArrowPatch, Rectangle
    from matplotlib.path import Path

    above, *headings = asking or ((), "", "")
    count = len(above)
    shown = [visible_token(word, LONGEST_LABEL) for word in (*above, *words)]
    scale = weight_scale(matrix)
    color_map = scale.colors(color_map)
    caption = scale.captioned(title)
    lettering = Lettering(caption.texts(*shown, *headings))
    figure = new_sheet(width, 1.0)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), label="words", zorder=-1)
    left = MARGIN + (0.0 if heads == 1 else 0.55)
    texts = [
        lettering.letter(
            figure.text(0, 0, "", fontsize=SPECIAL_SIZE if number in special else WORD_SIZE, va="center", ha="center"),
            word,
        )
        for number, word in enumerate(shown)
    ]
    is_text = heads == 1 and bool(caption.sentence)
    narrowest, gap, line_gap = (0.12, 0.02, 2 * LINE_GAP) if is_text else (NARROWEST_CELL, GAP, LINE_GAP)
    widths = [max(narrowest, text_extent(text)[0] + 0.08) for text in texts]
    line_height = WORD_HEIGHT + heads * CELL_HEIGHT + line_gap
    positions, x, y = [], left, HEADING if count else 0.0
    for number, one in enumerate(widths):
        if number == count > 0:
            x, y = left, y + line_height - CELL_HEIGHT + HEADING
        elif is_text and number and (set(shown[number]) <= CLOSING or set(shown[number - 1]) <= OPENING):
            x -= gap + 0.08  # up to the letters of the word before it
        elif x > left and x + one > width - MARGIN:
            x, y = left, y + line_height
        positions.append((x, y))
        x += one + gap
    right = max(x + one for (x, _), one in zip(positions, widths, strict=True))
    shades = ScalarMappable(scale.norm(), named_colors(color_map))
    forms = [form for form in forms_of(matrix) if form != "zero"]
    bar = draw_scale(figure, shades, caption, even=scale.even, forms=forms)
    frame = Frame(figure, lettering, caption, bar, right - MARGIN)
    even = scale.even if caption.even is None else caption.even[0]
    quiet = np.zeros(matrix.shape, np.bool_) if even is None or not is_text else matrix <= even
    sizes = np.where(np.isfinite(matrix[0]), np.abs(matrix[0]), 0.0)
    order = np.argsort(-sizes, kind="stable")[:MOST_MARKED].tolist()
    strongest = order[0]
    named = {key for key in order if key == strongest or sizes[key] > 2 * (even or 0.0)}
    is_whole = bool(adds_up(sizes)) and not (np.isfinite(matrix[0]) & (matrix[0] < 0)).any()
    curved = is_text and not count and marked not in (None, strongest)
    full_width, top = frame.width + 2 * MARGIN, frame.above + (CURVE if curved else 0.0)
    height = top + y + line_height - line_gap + frame.below
    figure.set_size_inches(full_width, height)
    frame.draw()
    axes.set_axis_off()
    axes.set_xlim(0, full_width)
    axes.set_ylim(height, 0)

    filled = np.asarray(shades.to_rgba(colored(matrix, color_map)))
    inks = ink_on(filled)
    for heading, (_, y) in zip(headings, (positions[0], positions[count]), strict=True):
        at = left / full_width, 1 - (top + y - HEADING / 2) / height
        lettering.letter(figure.text(*at, "", fontsize=TEXT, fontweight="bold", va="center", color=INK), heading)
    for number, ((x, y), one, text) in enumerate(zip(positions, widths, texts, strict=True)):
        column, y = number - count, top + y
        text.set_position(((x + one / 2) / full_width, 1 - (y + WORD_HEIGHT / 2) / height))
        if number == marked:
            axes.add_patch(Rectangle((x, y), one, WORD_HEIGHT, fill=False, edgecolor=ACCENT, linewidth=1.8, zorder=3))
        if number in special and (column < 0 or not matrix[0, column] > LEAST_SHADE * scale.high):
            text.set_color(MUTED)
        for head in range(heads if column >= 0 else 0):
            under = y + WORD_HEIGHT + head * CELL_HEIGHT
            cell_top, cell_height = (y, WORD_HEIGHT) if heads == 1 else (under, CELL_HEIGHT * 0.92)
            if not np.isfinite(matrix[head, column]):
                draw_forms(axes, matrix[[head]][:, [column]], extent=(x, x + one, cell_top, cell_top + cell_height))
                continue
            ink = INK if quiet[head, column] else str(inks[head, column])
            if not quiet[head, column]:
                color = filled[head, column]
                axes.bar(x + one / 2, cell_height, one, cell_top, color=color, edgecolor=BORDER, linewidth=0.4)
            if heads == 1 and (number not in special or matrix[0, column] > LEAST_SHADE * scale.high):
                text.set_color(ink)
            weight = float(matrix[head, column])
            style: dict[str, Any] = {"color": MUTED if heads == 1 else ink}
            label, low = cell_number(weight), 0.46
            if is_text:
                label = percent(weight, caption.language) if is_whole else short_weight(weight)
                label, low, style = label if column in named else "", 0.58, {"color": INK, "fontweight": "bold"}
            middle = {"ha": "center", "va": "center", "fontsize": NUMBER_SIZE}
            axes.text(x + one / 2, under + CELL_HEIGHT * low, label, **middle, **style)
    if curved and marked is not None:
        (x0, y0), (x1, y1) = ((positions[n][0] + widths[n] / 2, top + positions[n][1]) for n in (marked, strongest))
        if y0 == y1:
            bends = [(x0, y0 - 1.2 * CURVE), (x1, y1 - 1.2 * CURVE)]
        else:
            y0, y1 = (y0, y1 + WORD_HEIGHT + CELL_HEIGHT) if y0 > y1 else (y0 + WORD_HEIGHT, y1)
            bends = [(x0, (y0 + y1) / 2), (x1, (y0 + y1) / 2)]
        curve = Path([(x0, y0), *bends, (x1, y1)], [Path.MOVETO, *[Path.CURVE4] * 3])
        axes.add_patch(
            FancyArrowPatch(
                path=curve, arrowstyle="->", mutation_scale=7, color=ACCENT, linewidth=1.0, label="looks at"
            )
        )
    for line in {y for _, y in positions} if heads > 1 else ():
        for head in range(heads):
            y = top + line + WORD_HEIGHT + (head + 0.46) * CELL_HEIGHT
            axes.text(MARGIN, y, f"head {head}", fontsize=NOTE, va="center", ha="left")
    return figure
