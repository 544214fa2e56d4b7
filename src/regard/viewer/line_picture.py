"""The view of lines as a picture: two columns of tokens, and the weights of the query that asks as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.palette import INK, MUTED, SIGN, head_style, points
from regard.pictures.caption import MARGIN, as_caption
from regard.pictures.fonts import LONGEST_LABEL, Lettering, visible_token
from regard.pictures.numbers import cell_number, short_number
from regard.pictures.sheet import NOTE, TEXT, new_sheet, set_position, text_extent
from regard.pictures.weight_scale import Frame, draw_scale, scale_end, weight_scale
from regard.viewer.shown_head import Shown, check_length, head_text
from regard.viewer.words import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 2000
NEGATIVE_LINE, POSITIVE_LINE = points(SIGN["light"])[3::10]
LEAST_LINE_WEIGHT = 0.01
"""The least weight that is drawn as a line; of weights with signs, the least part of the scale."""

LINE_STEP, LINES_WIDTH, LINE_BAR = 0.23, 1.9, 0.6
"""The height of a token beside lines, the room between both sides, and the longest bar, in inches."""


def line_picture(shown: Shown) -> Figure:
    """Draws two columns of tokens, with a line for each weight in the colour and dash of its head; those of the query
    that asks before the others in grey, with its weights as bars."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection
    from matplotlib.colors import FuncNorm, ListedColormap
    from matplotlib.lines import Line2D

    record, head, row, _, caption, _ = shown
    check_length(record)
    assert record.weights is not None, "checked by _shown"
    sides = [[visible_token(text, LONGEST_LABEL) for text in side] for side in shown.labels]
    weights = np.nan_to_num(record.weights)
    if record.visible is not None:
        weights = np.where(record.visible, weights, 0.0)
    heads = range(weights.shape[0]) if head is None else [head]
    sizes = np.abs(weights)
    end = scale_end(float(sizes[heads].max(initial=0.0)), 0 if record.signed else len(sides[1]))
    least = LEAST_LINE_WEIGHT * (end if record.signed else 1.0)
    lines = np.argwhere(sizes >= least)
    lines = lines[np.isin(lines[:, 0], heads)]
    order = np.argsort(sizes[tuple(lines.T)] + (lines[:, 1] == row))[::-1][:MOST_LINES][::-1]
    language, count = caption.language, {"shown": f"{len(order):,}", "total": f"{len(lines):,}"}
    cut = say("strongestLines", language, **count) if len(order) < len(lines) else ""
    notes = [
        say("linesLegend", language, least=short_number(least), cut=cut),
        "" if row is None else say("linesFaint", language),
        say("linesSigned", language) if record.signed else "",
    ]
    caption = as_caption(caption, *notes)
    names = say("linesAsk", language), say("linesLooked", language)
    lettering = Lettering(caption.texts(*sides[0], *sides[1], *names, say("given", language)))
    sheet = new_sheet(1.0, 1.0)
    axes = sheet.add_axes((0, 0, 1, 1), label="lines")
    axes.set_axis_off()
    at = np.linspace(0, 1, 24)
    ease = at * at * (3 - 2 * at)
    segments, styles = [], []
    for one, query, key in lines[order].tolist():
        share = float(sizes[one, query, key]) / end
        asks = row is None or query == row
        color, dash = head_style(one) if len(heads) > 1 else (head_style(one)[0], ())
        if record.signed:
            color = NEGATIVE_LINE if weights[one, query, key] < 0 else POSITIVE_LINE
        segments.append(np.column_stack([at, query + (key - query) * ease]))
        style = (color, 0.15 + 0.85 * share, 0.45 + 1.8 * share**0.5, _dashes(dash))
        styles.append(style if asks else (MUTED, 0.05 + 0.15 * share, 0.4 + 0.75 * share**0.5, "-"))
    if segments:
        colors, opacities, thickness, dashes = zip(*styles, strict=True)
        axes.add_collection(
            LineCollection(segments, colors=colors, alpha=opacities, linewidths=thickness, linestyles=dashes)
        )
    labels = []
    for x, side, align in ((-0.025, sides[0], "right"), (1.025, sides[1], "left")):
        for number, text in enumerate(side):
            weight = "bold" if align == "right" and number == row else "normal"
            label = axes.text(x, number, "", ha=align, va="center", fontsize=TEXT, fontweight=weight)
            labels.append((align, text_extent(lettering.letter(label, text))[0]))
        heading = axes.text(x, -0.95, "", ha=align, va="center", fontsize=NOTE, color=MUTED)
        labels.append((align, text_extent(lettering.letter(heading, names[align == "left"]))[0]))
    left, right = (max(width for side, width in labels if side == align) + 0.15 for align in ("right", "left"))
    if row is not None:
        _line_bars(axes, shown.matrix()[row], end, 1 + right / LINES_WIDTH)
        heading = axes.text(1 + right / LINES_WIDTH, -0.95, "", va="center", fontsize=NOTE, color=MUTED)
        lettering.letter(heading, say("given", language))
        right += LINE_BAR + 0.35
    rows = max(len(side) for side in sides)
    keys = [
        Line2D([], [], label=head_text(record, one, language), color=color, linestyle=_dashes(dash))
        for one in heads
        for color, dash in [head_style(one)]
    ]
    keys = [] if len(keys) == 1 or record.signed else keys
    height, key_height = LINE_STEP * (rows + 1), 0.2 * -(-len(keys) // 6)
    widths = ScalarMappable(FuncNorm((np.sqrt, np.square), 0, end), ListedColormap(["white"]))
    even = None if record.signed else weight_scale(shown.matrix()).even
    bar = draw_scale(sheet, widths, caption, even=even)
    wedge = 0.09 + 0.32 * at
    bar.set_ticks([0, end / 4, end])
    bar.outline.set_visible(False)
    bar.ax.fill_between(
        end * at**2, 0.5 - wedge, 0.5 + wedge, color=INK, linewidth=0, transform=bar.ax.get_xaxis_transform()
    )
    width = left + LINES_WIDTH + right
    frame = Frame(sheet, lettering, caption, bar, width)
    full_width = frame.width + 2 * MARGIN
    sheet.set_size_inches(full_width, frame.above + height + key_height + frame.below)
    frame.draw()
    set_position(axes, MARGIN + left, frame.below + key_height, LINES_WIDTH, height)
    axes.set_xlim(0, 1)
    axes.set_ylim(rows - 0.5, -1.5)
    if keys:
        sheet.legend(
            handles=keys, loc="lower left", bbox_to_anchor=(MARGIN / full_width, frame.below / sheet.get_figheight()),
            ncols=6, fontsize=NOTE, frameon=False, borderpad=0,
        )  # fmt: skip
    return sheet


def _dashes(dash: tuple[int, ...]) -> Any:
    """Returns the dashes of a head's lines, as the viewer has them, for matplotlib."""
    return (0, [0.75 * length for length in dash]) if dash else "-"


def _line_bars(axes: Axes, row: NDArray[np.float64], end: float, x: float) -> None:
    """Draws the weights of the query that asks as bars beside the keys."""
    inch = 1 / LINES_WIDTH
    for key, weight in enumerate(row.tolist()):
        if not np.isfinite(weight):
            continue
        length = LINE_BAR * inch * abs(weight) / end
        axes.barh(key, length, 0.36, left=x, color=MUTED, clip_on=False)
        axes.text(x + length + 0.04 * inch, key, cell_number(weight), fontsize=NOTE, va="center", color=MUTED)
