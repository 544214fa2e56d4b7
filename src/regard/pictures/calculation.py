"""A worked calculation: its matrices in order, every number written into its cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from regard.errors import ArgumentError, ShapeError, UnknownNameError
from regard.pictures.flow_words import say, say_words
from regard.pictures.fonts import Lettering, visible, visible_token, wrapped
from regard.pictures.heatmap import draw_cells, draw_lines, form_note, forms_of, write_numbers
from regard.pictures.numbers import Matrix, as_array, number_texts
from regard.pictures.sheet import new_sheet, set_position, text_extent
from regard.pictures.weight_scale import LEAST_END, titled_bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

Kind = Literal["heatmap", "weights", "table"]

MOST_NUMBERED_COLUMNS = 24
MOST_NUMBERED_ROWS = 48
"""The most columns and rows of a panel with numbers; a larger panel has a scale, and says so."""

PAGE_WIDTH = 13.0  # inches, as all lengths below; panels flow to the next line beyond it
MARGIN = 0.2
GAP = 0.45
CELL_HEIGHT = 0.27
TITLE_HEIGHT = 0.24
WIDEST_FOR_LABELS = 0.8
LARGEST_BARE_SIDE = 5.0
SCALE_WIDTH = 0.12
SCALE_GAP = 0.1
LEAST_SCALE = 0.8
LARGEST_SCALE = 2.5
PALE_INK = "#505050"


@dataclass(frozen=True)
class Panel:
    """One step of a calculation.

    Attributes:
        name: such as ``"scores"``.
        matrix: ``[rows, columns]``, or ``[columns]`` for one row; −inf is a masked pair.
        row_labels: one for each row, or None.
        column_labels: one for each column, or None.
        note: the equation or a sentence, below the name.
        kind: ``"heatmap"``: blue for more, and red for less than 0. ``"weights"``: from paper for 0 to ink for the
            largest weight, or for four times an even one; as a heatmap if one is negative. ``"table"``: no colours.
        color_map: of matplotlib, instead of the kind's; a table has none.

    Example:
        >>> from regard import pictures
        >>> panel = pictures.Panel("weights", [[0.7, 0.3]], ["cat"], ["le", "chat"], "softmax(scores)", "weights")
        >>> figure = pictures.calculation([panel])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['0.7', '0.3']
    """

    name: str
    matrix: Any
    row_labels: Sequence[str] | None = None
    column_labels: Sequence[str] | None = None
    note: str | None = None
    kind: Kind = "heatmap"
    color_map: str | None = None


@dataclass
class _Block:
    """A panel with its checked matrix, its axes and the inches that its parts need."""

    panel: Panel
    matrix: Matrix
    title: str
    note: str
    rows: list[str]
    columns: list[str]
    axes: Axes | None = None
    head: tuple[float, float] = (0.0, 0.0)
    labels: tuple[float, float] = (0.0, 0.0)
    cells: tuple[float, float] = (0.0, 0.0)
    scale: Axes | None = None
    scale_width: float = 0.0
    artists: list[Any] = field(default_factory=list)

    @property
    def width(self) -> float:
        return max(self.head[0], self.labels[0] + self.cells[0] + self.scale_width)

    @property
    def body_height(self) -> float:
        return max(self.cells[1], 0.0 if self.scale is None else LEAST_SCALE)


def calculation(panels: Sequence[Panel], *, title: str | None = None, language: Literal["en", "zh"] = "en") -> Figure:
    """Draws a calculation, one panel for each step, in reading order; panels are numbered from 1.

    Args:
        panels: the steps, in the order of the calculation; at least one.
        title: above all of them.
        language: of the words that the picture adds.

    Returns:
        A figure as large as its panels need, at most about 13 inches wide if no single panel is wider.

    Raises:
        ArgumentError: there is no panel.
        UnknownNameError: a panel's kind or colour map does not exist.
        ShapeError: a panel's labels do not match its matrix, or this does not have one or two axes.
        MissingPartError: matplotlib is not installed.

    Example:
        >>> from regard import pictures
        >>> scores = pictures.Panel("scores", [[2.0, 1.0]], ["cat"], ["le", "chat"])
        >>> weights = pictures.Panel("weights", [[0.731, 0.269]], ["cat"], ["le", "chat"], kind="weights")
        >>> figure = pictures.calculation([scores, weights], title="one query")
        >>> [text.get_text() for text in figure.texts if text.get_text()]
        ['1  scores', '2  weights', 'one query']
    """
    if not panels:
        raise ArgumentError("panels must hold at least one panel; it is empty")
    blocks = [_checked(number, panel, language) for number, panel in enumerate(panels, start=1)]
    heading = "" if title is None else wrapped(title, 100)
    lettering = Lettering(
        [heading, *(text for block in blocks for text in (block.title, block.note, *block.rows, *block.columns))]
    )
    figure = new_sheet(1.0, 1.0)
    for block in blocks:
        block.axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), label=block.panel.name)
        image = _draw(block, block.axes, lettering)
        if image is not None:
            _draw_scale(block, image, say_words("weight" if block.panel.kind == "weights" else "value", language))
        block.artists = [
            # Aligned by the base line, so that names with and without descenders are level.
            lettering.letter(figure.text(0, 0, "", fontsize=11, va="baseline"), block.title),
            lettering.letter(
                figure.text(0, 0, "", fontsize=8.5, va="top", linespacing=1.25, color=PALE_INK), block.note
            ),
        ]
        extents = [text_extent(artist) if artist.get_text() else (0.0, 0.0) for artist in block.artists]
        block.head = max(extents)[0], TITLE_HEIGHT + (extents[1][1] + 0.07 if block.note else 0.0)

    lines: list[list[_Block]] = [[]]
    for block in blocks:
        used = sum(other.width + GAP for other in lines[-1])
        if lines[-1] and used + block.width > PAGE_WIDTH:
            lines.append([])
        lines[-1].append(block)
    heading_text = lettering.letter(figure.text(0, 1, "", fontsize=13, va="top"), heading)
    heading_width, heading_height = text_extent(heading_text) if heading else (0.0, -GAP * 0.6)
    heights = [_line_height(line) for line in lines]
    line_widths = [sum(block.width + GAP for block in line) - GAP for line in lines]
    width = max(*line_widths, heading_width) + 2 * MARGIN
    height = 2 * MARGIN + heading_height + GAP * 0.6 + sum(heights) + GAP * (len(lines) - 1)
    figure.set_size_inches(width, height)
    heading_text.set_position((MARGIN / width, 1 - MARGIN / height))
    top = height - MARGIN - heading_height - GAP * 0.6
    for line, line_height in zip(lines, heights, strict=True):
        _put(line, MARGIN, top, width, height)
        top -= line_height + GAP
    return figure


def _checked(number: int, panel: Panel, language: str) -> _Block:
    name = f"panel {number} ({panel.name!r})"
    if panel.kind not in get_args(Kind):
        raise UnknownNameError("kind of panel", panel.kind, get_args(Kind))
    matrix = np.atleast_2d(as_array(f"the matrix of {name}", panel.matrix, 1, 2))
    for axis, labels in (("row", panel.row_labels), ("column", panel.column_labels)):
        length = matrix.shape[axis == "column"]
        if labels is not None and len(labels) != length:
            raise ShapeError(
                f"{name} must have one {axis} label for each of its {length} {axis}s; it has {len(labels)}"
            )
    rows, columns = (_thinned(labels or ()) for labels in (panel.row_labels, panel.column_labels))
    note = [] if not panel.note else [wrapped(panel.note, 46)]
    if not matrix.size:
        note.append(f"{say('empty', language)}: {matrix.shape[0]} × {matrix.shape[1]}")
    elif not _numbered(matrix):
        finite = matrix[np.isfinite(matrix)]
        if finite.size:
            ((low, high),) = number_texts(np.array([[finite.min(), finite.max()]]))
            span = say("from {low} to {high}", language, low=low, high=high)
        else:
            span = say("none is finite", language)
        many = say("too many to write the numbers", language)
        note.append(f"{matrix.shape[0]} × {matrix.shape[1]}, {many}; {span}")
        note += [say(form, language) for form in form_note(forms_of(matrix)).split(", ") if form]
    return _Block(panel, matrix, f"{number}  {visible(panel.name, 60)}", "\n".join(note), rows, columns)


def _thinned(labels: Sequence[str]) -> list[str]:
    """Returns the labels of rows or columns; at most about a thousand of them are drawn."""
    step = max(1, len(labels) // 1000)
    return [visible_token(text, 18) if index % step == 0 else "" for index, text in enumerate(labels)]


def _numbered(matrix: Matrix) -> bool:
    return matrix.shape[0] <= MOST_NUMBERED_ROWS and matrix.shape[1] <= MOST_NUMBERED_COLUMNS


def _draw(block: _Block, axes: Axes, lettering: Lettering) -> AxesImage | None:
    """Draws cells, numbers and labels, and notes the inches that they need; the image is returned if it needs a
    scale."""
    rows, columns = block.matrix.shape
    axes.xaxis.tick_top()
    if not block.matrix.size:
        axes.set_axis_off()
        return None
    numbered = _numbered(block.matrix)
    texts = number_texts(block.matrix) if numbered else []
    if numbered:
        longest = max((text for line in texts for text in line), key=len)
        probe = axes.text(0, 0, longest, fontsize=8.5)
        cell_width, cell_height = max(text_extent(probe)[0] + 0.14, 0.36), CELL_HEIGHT
        probe.remove()
    else:
        cell_width, cell_height = (min(0.2, LARGEST_BARE_SIDE / count) for count in (columns, rows))

    image = draw_cells(axes, block.matrix, **panel_colors(block.panel, block.matrix))
    # Labels that would overlap are thinned out.
    row_step, column_step = (max(1, int(np.ceil(0.14 / size))) for size in (cell_height, cell_width))
    axes.tick_params(length=0, pad=3, labelsize=8.5)
    row_ticks, column_ticks = range(0, len(block.rows), row_step), range(0, len(block.columns), column_step)
    axes.set_yticks(row_ticks, [lettering.drawable(block.rows[row]) for row in row_ticks])
    axes.set_xticks(column_ticks, [lettering.drawable(block.columns[column]) for column in column_ticks])
    at_left, on_top = axes.get_yticklabels(), axes.get_xticklabels()
    for label in (*at_left, *on_top):
        lettering.letter(label)
    widest = max((text_extent(label)[0] + 0.1 for label in on_top), default=0.0)
    if widest > cell_width:
        if numbered and widest <= WIDEST_FOR_LABELS:
            cell_width = widest
        else:
            for label in on_top:
                label.set_rotation(90)
    if numbered:
        draw_lines(axes, rows, columns, color="#ffffff" if block.panel.kind == "heatmap" else "#a0a0a0", width=0.8)
        write_numbers(axes, image, texts, 8.5)
    block.cells = columns * cell_width, rows * cell_height
    block.labels = (
        max((text_extent(label)[0] + 0.08 for label in at_left), default=0.0),
        max((text_extent(label)[1] + 0.08 for label in on_top), default=0.0),
    )
    explained = numbered or block.panel.kind == "table" or not np.isfinite(block.matrix).any()
    return None if explained else image


def _draw_scale(block: _Block, image: AxesImage, title: str) -> None:
    """Draws the scale of a panel whose cells have no numbers."""
    figure = image.get_figure(root=True)
    assert figure is not None, "draw_cells drew the image on a sheet"
    block.scale = figure.add_axes((0.0, 0.0, 0.1, 0.1), label=f"scale of {block.panel.name}")
    bar = titled_bar(figure, image, title, cax=block.scale)
    widest = max((text_extent(label)[0] for label in bar.ax.get_yticklabels()), default=0.0)
    block.scale_width = SCALE_GAP + SCALE_WIDTH + 0.28 + widest


def panel_colors(panel: Panel, matrix: Matrix, *, signed: bool = False) -> dict[str, Any]:
    """Returns the colour map of a panel and the values of its ends.

    Args:
        matrix: that of the panel, as an array.
        signed: whether numbers that are no weights have the colours of signs even if none is negative.
    """
    finite = matrix[np.isfinite(matrix)]
    low, high = float(finite.min(initial=0.0)), float(finite.max(initial=0.0))
    if panel.kind == "table":
        return {"colors": "Greys", "low": 2 * abs(high) + 1.0, "high": 2 * abs(high) + 2.0}
    if panel.kind == "weights" and low == 0.0:
        # As in `weight_scale`: weights that differ little look alike.
        high = max(high, min(1.0, LEAST_END / matrix.shape[1]))
        return {"colors": panel.color_map or "amount", "low": 0.0, "high": high}
    if low < 0 or signed:
        end = max(-low, high) or 1.0
        return {"colors": panel.color_map or "sign", "low": -end, "high": end}
    return {"colors": panel.color_map or "amount", "low": 0.0, "high": high or 1.0}


def _line_height(line: list[_Block]) -> float:
    return (
        max(block.head[1] for block in line)
        + max(block.labels[1] for block in line)
        + max(block.body_height for block in line)
    )


def _put(line: list[_Block], left: float, top: float, sheet_width: float, sheet_height: float) -> None:
    """Arranges the panels of one line; their names and their cells begin at the same heights."""
    head = max(block.head[1] for block in line)
    labels = max(block.labels[1] for block in line)
    for block in line:
        title, note = block.artists
        title.set_position((left / sheet_width, (top - 0.15) / sheet_height))
        note.set_position((left / sheet_width, (top - TITLE_HEIGHT) / sheet_height))
        width, height = block.cells
        if block.axes is not None and block.matrix.size:
            set_position(block.axes, left + block.labels[0], top - head - labels - height, width, height)
        if block.scale is not None:
            side = left + block.labels[0] + width + SCALE_GAP
            length = min(block.body_height, LARGEST_SCALE)
            set_position(block.scale, side, top - head - labels - length, SCALE_WIDTH, length)
        left += block.width + GAP
