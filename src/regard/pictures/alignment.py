"""The alignment of target words with source words: the heatmap of Bahdanau et al. (2015), figure 3."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import ArgumentError, ShapeError
from regard.palette import MUTED
from regard.pictures.caption import COLUMN, LONGEST_STRIP, MARGIN, Caption, as_caption, draw_row_bars, mark
from regard.pictures.fonts import LONGEST_LABEL, Lettering, visible_token
from regard.pictures.heatmap import draw_cells, draw_lines, forms_of, label_note, write_labels, write_numbers
from regard.pictures.numbers import Matrix, as_array
from regard.pictures.sheet import NOTE, TEXT, new_sheet, set_position, text_extent
from regard.pictures.weight_scale import Frame, draw_scale, weight_scale
from regard.records import join_pieces

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINK_COLOR = "#E8590C"
"""Visible on black and on white."""

BARS_GAP, BARS_WIDTH, BOTH_SIDES, WIDEST_BESIDE = 0.2, 1.8, 2.3, 2.0  # inches, as all lengths below
AXIS_NAME = 0.18
SMALL_SIDE, LARGEST_CELL, LEAST_NUMBERED_CELL = 3.08, 0.36, 0.22
LABELLED_CELL = 0.19
APART = 0.05
LARGEST_SIDE = 7.0
LEAST_LETTERS = 5.0  # points
LONGEST_SIDE = 40.0

MOST_TOKENS = 10_000
"""The most tokens of one side."""


def merge(weights: Any, rows: Sequence[range] | None = None, columns: Sequence[range] | None = None) -> Matrix:
    """Merges attention between sub-words into attention between words.

    A word receives the sum of the weights that its parts receive, and gives the mean of those that its parts give,

    .. math::

        merged[i, j] = mean over t in rows[i] of (sum over s in columns[j] of weights[t, s])

    so rows that sum to 1 still do.

    Args:
        weights: ``[target, source]``.
        rows: the positions of each target word: consecutive ranges from 0 to ``target``; None: one each.
        columns: the positions of each source word, likewise.

    Returns:
        float64 ``[target words, source words]``.

    Raises:
        ShapeError: ``weights`` does not have two axes.
        ArgumentError: the ranges leave positions out, overlap or are empty.

    Example:
        >>> from regard import pictures
        >>> weights = [[0.5, 0.3, 0.2], [0.1, 0.5, 0.4]]
        >>> pictures.merge(weights, columns=[range(0, 2), range(2, 3)])  # the first two columns are one word
        array([[0.8, 0.2],
               [0.6, 0.4]])
        >>> pictures.merge(weights, rows=[range(0, 2)])
        array([[0.3, 0.4, 0.3]])
    """
    matrix = as_array("weights", weights, 2)
    if columns is not None:
        starts = _starts("columns", columns, matrix.shape[1])
        matrix = np.add.reduceat(matrix, starts, axis=1) if starts else matrix
    if rows is not None:
        starts = _starts("rows", rows, matrix.shape[0])
        lengths = np.array([len(group) for group in rows], dtype=np.float64)
        matrix = np.add.reduceat(matrix, starts, axis=0) / lengths[:, None] if starts else matrix
    return matrix


def alignment(
    weights: Any,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    *,
    title: str | Caption | None = None,
    source_groups: Sequence[range] | None = None,
    target_groups: Sequence[range] | None = None,
    links: Iterable[tuple[int, int]] | None = None,
    annotate: bool | None = None,
    color_map: str = "amount",
    maximum: float | None = 1.0,
    color_bar: bool = True,
    axis_names: tuple[str, str] | None = None,
    marked: tuple[int, int | None] | None = None,
) -> Figure:
    """Draws attention weights: source on x (labels on top), target on y (read downwards), darker for more attention.

    Args:
        weights: ``[target, source]``, a tensor or array; −inf (masked) is hatched, NaN and inf are crossed.
        source_tokens: a label for each column; with groups, one for each position (joined into words) or for each word.
        target_tokens: a label for each row, likewise.
        title: above the picture: a text, or a `Caption`; a long one is wrapped.
        source_groups: positions of each source word, to `merge` sub-words; ranges from 0 to ``source``.
        target_groups: positions of each target word.
        links: true alignments as ``(source, target)`` indices of drawn columns and rows, marked with hollow squares.
        annotate: write each weight into its cell; None: where it fits.
        color_map: ``"amount"``, from paper to ink (with a negative weight: red below 0, blue above), or one of
            matplotlib; ``"gray"`` is that of Bahdanau et al., from black (0) to white.
        maximum: the least weight of the last colour; None: that of `scale_end`.
        color_bar: draw the scale.
        axis_names: what rows and columns are; None: "each row asks ↓" and "each column is looked at →".
        marked: the row that is spoken of, whose largest weights are drawn as bars below or beside the cells, and the
            column of its cell or None.

    Returns:
        A figure, as large as its text and cells need. A note in it says that weights are nearly uniform, and which
        tokens have labels if there is no room for all.

    Raises:
        ShapeError: ``weights`` does not match the tokens.
        ArgumentError: the groups are no partition, or links are outside the picture.
        UnknownNameError: no such colour map.
        MissingPartError: matplotlib is not installed.

    Example:
        >>> from regard import pictures
        >>> weights = [[0.9, 0.06, 0.04], [0.1, 0.7, 0.2]]
        >>> words = [range(0, 1), range(1, 3)]
        >>> figure = pictures.alignment(weights, ["le", "ch", "at"], ["the", "cat"], source_groups=words, annotate=True)
        >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
        ['le', 'chat']
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['.90', '.10', '.10', '.90']
    """
    matrix = as_array("weights", weights, 2)
    source = _labels("source", source_tokens, source_groups, matrix.shape[1], "column")
    target = _labels("target", target_tokens, target_groups, matrix.shape[0], "row")
    hidden = np.isneginf(matrix)
    matrix = merge(np.where(hidden, 0.0, matrix), target_groups, source_groups)
    matrix[merge(~hidden, target_groups, source_groups) == 0] = -np.inf
    rows, columns = matrix.shape
    true_links = sorted(set(links or ()))
    for link in true_links:
        if not (0 <= link[0] < columns and 0 <= link[1] < rows):
            raise ArgumentError(
                f"links must be (source, target) with source < {columns} and target < {rows}; one is {tuple(link)}"
            )

    title = as_caption(title)
    # A difference ends at its largest number, as in the viewer.
    scale = weight_scale(matrix, maximum, rounded=not title.bars)
    texts = [[title.number(value) for value in line] for line in matrix.tolist()]
    figure = new_sheet(1.0, 1.0)
    longest = figure.text(0, 0, max((text for line in texts for text in line), key=len, default=""), fontsize=NOTE)
    wide = text_extent(longest)[0] if longest.get_text() else 0.0
    longest.remove()
    cell = _cell_size(max(rows, columns, 1), bool(annotate), wide)
    numbered = bool(matrix.size) and (annotate or (annotate is None and cell >= LEAST_NUMBERED_CELL))
    # A few rows of many columns stay high enough for their labels.
    high = max(cell, min(LABELLED_CELL, LARGEST_SIDE / max(rows, 1)))
    letter_size = min(TEXT, max(LEAST_LETTERS, 0.62 * cell * 72))
    # Labels that would overlap are thinned out.
    steps = math.ceil(letter_size * 1.05 / 72 / high), math.ceil(letter_size * 1.05 / 72 / cell)
    notes = [
        label_note("token", step, count, title.language) for step, count in {(steps[0], rows), (steps[1], columns)}
    ]
    if (
        numbered
        and (title.bars or scale.low == 0)
        and (np.isfinite(matrix) & (matrix != 0))[np.array(texts) == ""].any()
    ):
        notes.append(title.say("differenceBlank" if title.bars else "blankNote"))
    caption = scale.captioned(title, *notes)
    names = axis_names or (caption.say("axisQuery"), caption.say("axisKey"))
    lettering = Lettering(caption.texts(*source, *target, *names))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_label("alignment")
    label_width, label_height = write_labels(
        axes, lettering, target, source, letter_size, steps, 0.9 * cell, marked or (None, None)
    )

    width, height = max(columns, 1) * cell, max(rows, 1) * high
    if matrix.size:
        image = draw_cells(axes, matrix, colors=scale.colors(color_map), low=scale.low, high=scale.high)
        if title.bars:  # small differences are neutral, as in the viewer
            image.set_data(np.ma.masked_where(np.abs(matrix) < scale.high / 16, matrix))
        if cell >= 0.1:
            draw_lines(axes, rows, columns)
        if numbered:
            write_numbers(
                axes, image, texts, min(letter_size, NOTE * min(1.0, (cell - APART) / wide) if wide else NOTE)
            )
        if true_links:
            x, y = np.array(true_links).T
            side = cell * 72 * 0.72
            axes.scatter(
                x, y, s=side**2, marker="s", facecolors="none", edgecolors=LINK_COLOR, linewidths=1.1, label="true link"
            )
    else:
        image = None
        axes.text(0.5, 0.5, "no tokens", transform=axes.transAxes, ha="center", va="center", fontsize=8)
    axes.set_xlim(-0.5, max(columns, 1) - 0.5)
    axes.set_ylim(max(rows, 1) - 0.5, -0.5)

    corner, over = (
        lettering.letter(figure.text(0, 0, "", fontsize=NOTE, color=MUTED, va="bottom", ha=align), name)
        for name, align in zip(names, ("right", "left"), strict=True)
    )
    left = MARGIN + max(label_width + 0.06, text_extent(corner)[0])
    across = left - MARGIN + max(width, text_extent(over)[0])
    body, bars, bars_down, room, at_side = height, None, 0.0, 0.0, False
    if marked is not None and image is not None:
        mark(axes, *marked, columns)
        if columns > 1:
            at_side = width <= WIDEST_BESIDE
            strip = max(LONGEST_STRIP, across) if caption.bars else min(LONGEST_STRIP, max(across, COLUMN))
            room = (BOTH_SIDES if caption.bars else BARS_WIDTH) if at_side else strip
            row, least = marked[0], 0.0 if at_side else left - MARGIN
            bars, bars_down = draw_row_bars(
                figure, lettering, caption, target[row], source, matrix[row], image, least, room, marked[1]
            )
            across = across + BARS_GAP + room if at_side else max(across, room)
            body = max(height, bars_down) if at_side else height + BARS_GAP + bars_down
    bar = None
    if image is not None and color_bar:
        bar = draw_scale(figure, image, caption, even=scale.even, forms=forms_of(matrix))
    frame = Frame(figure, lettering, caption, bar, across)
    above = frame.above + AXIS_NAME + label_height + 0.06
    below = frame.below + (0.2 if true_links else 0.0)
    sheet_width, sheet_height = frame.width + 2 * MARGIN, above + body + below
    figure.set_size_inches(sheet_width, sheet_height)
    top = sheet_height - above
    set_position(axes, left, top - height, width, height)
    frame.draw()
    corner.set_position(((left - 0.04) / sheet_width, (top + 0.06) / sheet_height))
    over.set_position((left / sheet_width, (top + label_height + 0.08) / sheet_height))
    if bars is not None and marked is not None:
        asking = top - (marked[0] + 0.5) * high
        foot = min(max(asking - bars_down / 2, top - body), top - bars_down) if at_side else below
        set_position(bars, left + width + BARS_GAP if at_side else MARGIN, foot, room, bars_down)
    if true_links:
        key = figure.text(left / sheet_width, frame.below / sheet_height, "□ true link", va="bottom", fontsize=NOTE)
        key.set_color(LINK_COLOR)
    return figure


def _labels(side: str, tokens: Sequence[str], groups: Sequence[range] | None, length: int, line: str) -> list[str]:
    """Returns the labels of one side, after groups are joined."""
    if len(tokens) > MOST_TOKENS:
        raise ShapeError(f"{side}_tokens must have at most {MOST_TOKENS:,} tokens to be drawn; it has {len(tokens):,}")
    tokens = list(tokens)
    if groups is None:
        if len(tokens) != length:
            raise ShapeError(
                f"weights must have one {line} for each {side} token; {side}_tokens has {len(tokens)} and weights has "
                f"{length} {line}s (weights is [target, source])"
            )
        words = tokens
    else:
        _starts(f"{side}_groups", groups, length)
        if len(tokens) == length:
            words = [_word([tokens[position] for position in group]) for group in groups]
        elif len(tokens) == len(groups):
            words = tokens
        else:
            raise ShapeError(
                f"{side}_tokens must have one label for each of the {length} {line}s of weights or for each of the "
                f"{len(groups)} groups; it has {len(tokens)}"
            )
    return [visible_token(word, LONGEST_LABEL) for word in words]


def _word(parts: list[str]) -> str:
    """Joins sub-words; a space that is a piece of its own, which regard's own tokenizers mark by ``␣``, is left out."""
    return join_pieces([parts[0].removeprefix("␣"), *parts[1:]] if len(parts) > 1 else parts)


def _starts(name: str, groups: Sequence[range], length: int) -> list[int]:
    """Returns the start of each group; raises unless the groups are a partition of 0 … length."""
    position = 0
    for number, group in enumerate(groups):
        if group.step != 1 or group.start != position or group.stop <= group.start:
            raise ArgumentError(
                f"{name} must be ranges that are not empty and follow one another from 0 to {length}; "
                f"number {number} is {group} and should start at {position}"
            )
        position = group.stop
    if position != length:
        raise ArgumentError(f"{name} must be ranges that follow one another from 0 to {length}; they end at {position}")
    return [group.start for group in groups]


def _cell_size(longest: int, annotate: bool, wide: float) -> float:
    """Returns the side of a cell in inches: large if there are few, readable for sentences, smaller for long ones.

    Args:
        wide: the inches of the longest number.
    """
    numbered = max(LEAST_NUMBERED_CELL, wide + APART)
    smallest = max(0.34, numbered) if annotate else 0.04
    fitting = max(numbered, min(LARGEST_CELL, SMALL_SIDE / longest))
    return min(max(smallest, min(fitting, LARGEST_SIDE / longest)), LONGEST_SIDE / longest)
