"""A worked calculation as one flow that reads as its equation: matrices, and the operations between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from regard.palette import ACCENT, HEAD_HUES, INK, MUTED
from regard.pictures.calculation import Panel, panel_colors
from regard.pictures.fonts import Lettering, visible_token, wrapped
from regard.pictures.heatmap import color_map, draw_cells, draw_lines, form_note, forms_of, write_labels, write_numbers
from regard.pictures.numbers import Matrix, as_array, number_texts, short_number
from regard.pictures.sheet import new_sheet, set_position, text_extent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

MOST_SHOWN = 8
"""The most rows and columns of a matrix that are drawn."""

MARGIN, GAP, SIGN_GAP, ARROW = 0.2, 0.3, 0.09, 0.34  # inches, as all lengths below
LEAST_CELL, CELL_HEIGHT, WIDEST_LABEL = 0.42, 0.25, 0.66
LEAST_TITLE = 1.15
BAR = 1.5, 0.11
SLIDE = 13.3, 7.5
LETTERS, SIGN_LETTERS = 9.5, 15.0
ARROW_STYLE = {"arrowstyle": "-|>", "color": MUTED, "linewidth": 0, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 9}
NAME, NOTE, SENTENCE_SIZE = 12.0, 9.0, 13.0
LOOKED_AT = HEAD_HUES[2]
PLAIN_SIGNS = "×=·"
"""The last letters of operations that are written without an arrow."""

LONGEST_NAME = 14


class Term(NamedTuple):
    """A matrix of a flow, after the operation that leads to it.

    Attributes:
        sign: the operation; "" at the beginning of a lane.
        asks, looked_at: the rows of the traced query and of its key, or None.
        column: the column of the traced key, or None.
        outlined: the first and the last of the columns that belong to the shown head, or None.
    """

    sign: str
    panel: Panel
    asks: int | None = None
    looked_at: int | None = None
    column: int | None = None
    outlined: tuple[int, int] | None = None


@dataclass(frozen=True)
class Flow:
    """A calculation to draw.

    Attributes:
        lanes: the matrices up to the queries, up to the keys, and up to the values. Lanes that begin with the same
            panel share it; equal lanes are drawn once.
        scores: from the scores to the weights; the first sign is the comparison, such as ``"query · keyᵀ"``.
        result: from the output on; the first sign is ``"weights × value"``.
        asks, looked_at: the names of the traced query and of its key.
        sentences: the first says what is traced; the others are its calculation.
    """

    lanes: Sequence[Sequence[Term]]
    scores: Sequence[Term]
    result: Sequence[Term]
    asks: str
    looked_at: str
    sentences: Sequence[str]


@dataclass(eq=False)
class _Box:
    """A matrix on the sheet, and the inches that it needs around the centre of its cells."""

    term: Term
    axes: Axes
    image: AxesImage
    titles: list[Any]
    cells: tuple[float, float]
    labels: tuple[float, float]
    title: tuple[float, float]
    sign: Any = None
    left: float = 0.0
    middle: float = 0.0
    corner: list[Any] = field(default_factory=list)

    @property
    def width(self) -> float:
        return max(self.labels[0] + self.cells[0], self.title[0])

    @property
    def sign_width(self) -> float:
        """The width of the operation before the matrix, with the gaps at its sides."""
        if not self.term.sign:
            return 0.0
        width = text_extent(self.sign)[0]
        return width + 2 * SIGN_GAP if _is_plain(self.term.sign) else max(ARROW, width + 0.1) + 2 * SIGN_GAP

    @property
    def above(self) -> float:
        return self.cells[1] / 2 + self.labels[1] + self.title[1]

    @property
    def below(self) -> float:
        return self.cells[1] / 2

    @property
    def right(self) -> float:
        return self.left + self.labels[0] + self.cells[0]

    @property
    def end(self) -> float:
        return self.left + self.width


def calculation_flow(flow: Flow, *, title: str | None = None, width: float | None = None) -> Figure:
    """Draws a calculation from left to right: lanes to query, key and value, their comparison, weights and output.

    The lanes are stacked at the left. If the scores do not fit beside them, they follow below. Of more than eight rows
    or columns the others are counted.

    Args:
        title: above the picture.
        width: the inches that the picture should not exceed; no matrix is broken, however. None: the scores are beside
            the lanes or below them, whichever is larger on a slide.

    Returns:
        A figure as large as its matrices need.
    """
    drawing = _Drawing(flow, "" if title is None else wrapped(title, 60))
    drawing.arrange(width)
    return drawing.figure


class _Positions(NamedTuple):
    """Where scores and result lie beside the lanes: the centres of their first signs, and the ends of everything."""

    first: float
    middle: float
    second: float
    low: float
    right: float
    bottom: float


class _Drawing:
    """The sheet of a flow, with lengths in inches from its upper left corner."""

    def __init__(self, flow: Flow, heading: str):
        self.flow = flow
        terms = [term for line in (*flow.lanes, flow.scores, flow.result) for term in line]
        panels = [term.panel for term in terms]
        labels = [label for panel in panels for label in (*(panel.row_labels or ()), *(panel.column_labels or ()))]
        self.lettering = Lettering(
            [
                *(heading, flow.asks, flow.looked_at, *flow.sentences, "asks ↓ looked at → … ⋯"),
                *(visible_token(label, LONGEST_NAME) for label in labels),
                *(text for term in terms for text in (term.sign, term.panel.name, term.panel.note or "")),
            ]
        )
        self.figure = new_sheet(1.0, 1.0)
        self.canvas = self.figure.add_axes((0, 0, 1, 1), label="operations")
        self.canvas.set_axis_off()
        self.heading = self._text(heading, 13)
        boxes: dict[int, _Box] = {}
        for term in terms:
            if id(term.panel) not in boxes:
                boxes[id(term.panel)] = self._box(term)
        self.lanes = [[boxes[id(term.panel)] for term in lane] for lane in flow.lanes]
        self.scores, self.result = ([boxes[id(term.panel)] for term in line] for line in (flow.scores, flow.result))
        self.boxes = list(boxes.values())

    def _text(self, text: str, size: float, **style: Any) -> Any:
        artist = self.canvas.text(0, 0, "", fontsize=size, va="top", **{"color": INK, **style})
        return self.lettering.letter(artist, text)

    def _box(self, term: Term) -> _Box:
        """Draws the cells of a matrix; where they lie is decided by `arrange`."""
        panel, whole = term.panel, as_array(f"the matrix of {term.panel.name!r}", term.panel.matrix, 2)
        rows, columns = (
            shown_indices(size, traced)
            for size, traced in zip(whole.shape, ((term.asks, term.looked_at), (term.column,)), strict=True)
        )
        # What stands for the rows and columns that are left out is blank.
        drawn_texts, texts = cell_texts(whole), [["⋯"] * len(columns) for _ in rows]
        matrix = np.zeros((len(rows), len(columns)))
        for line, row in enumerate(rows):
            for number, column in enumerate(columns):
                if row is not None and column is not None:
                    texts[line][number], matrix[line, number] = drawn_texts[row][column], whole[row, column]
        names = (
            _folded(panel.row_labels, rows, whole.shape[0], " "),
            _folded(panel.column_labels, columns, whole.shape[1], "\n"),
        )
        axes = self.figure.add_axes((0, 0, 1, 1), label=panel.name)
        image = draw_cells(axes, matrix, **panel_colors(panel, whole, signed=True))
        probe = axes.text(0, 0, max((text for line in texts for text in line), key=len), fontsize=LETTERS)
        cell = max(LEAST_CELL, text_extent(probe)[0] + 0.08)
        probe.remove()
        drawn = [self.lettering.letter(axes.text(0, 0, "", fontsize=LETTERS), name) for name in names[1]]
        widest = max((text_extent(name)[0] + 0.08 for name in drawn), default=0.0)
        for name in drawn:
            name.remove()
        cell = max(cell, widest) if widest <= WIDEST_LABEL else cell
        labels = write_labels(axes, self.lettering, *names, LETTERS, (1, 1), cell - 0.02)
        draw_lines(axes, *matrix.shape, color="#ffffff" if panel.kind != "weights" else "#c3c8d0", width=0.8)
        write_numbers(axes, image, texts, LETTERS)
        traced = [None if each is None else rows.index(each) for each in (term.asks, term.looked_at)]
        column = None if term.column is None else columns.index(term.column)
        self._trace(axes, term, traced, column, matrix.shape)
        width = len(columns) * cell
        has_pairs = term.column is not None
        corner = [self._text(text, NOTE, color=MUTED) for text in ("asks ↓", "looked at →")] if has_pairs else []
        side, top = labels[0] + 0.08, labels[1] + 0.08 + (0.17 if has_pairs else 0.0)
        if has_pairs:
            side = max(side, text_extent(corner[0])[0] + 0.08)
        letters = max(LEAST_TITLE, side + width) / 0.07
        titles = [
            self._text(panel.name, NAME),
            self._text(wrapped(panel.note or "", max(12, int(letters))), NOTE, color=MUTED, linespacing=1.15),
        ]
        extents = [text_extent(each) if each.get_text() else (0.0, 0.0) for each in titles]
        hang = [text_extent(corner[1])[0] + side] if corner else []
        title = max(*(extent[0] for extent in extents), *hang), 0.23 + (extents[1][1] + 0.05 if panel.note else 0.0)
        sign = self._text(
            term.sign, SIGN_LETTERS if _is_plain(term.sign) else LETTERS + 1, ha="center", linespacing=1.1
        )
        return _Box(
            term, axes, image, titles, (width, len(rows) * CELL_HEIGHT), (side, top), title, sign, corner=corner
        )

    def arrange(self, page: float | None) -> None:
        """Decides where everything lies, draws the operations, and makes the sheet as large as that."""
        top = MARGIN + (text_extent(self.heading)[1] + 0.15 if self.heading.get_text() else 0.0)
        right, bottom = self._put_lanes(top, page)
        self.nodes = [text_extent(_boxed(line[0].sign))[0] + 0.16 for line in (self.scores, self.result)]
        at_side = self._positions(right, top)
        below = max(right, *(node + ARROW + _line_width(line) + MARGIN for line, node in self._lines_after_lanes()))
        length = bottom + sum(GAP + _above(line) + _below(line) for line, _ in self._lines_after_lanes())
        if page is None:
            # What is larger on a slide.
            is_wide = _scale(at_side.right, at_side.bottom) >= _scale(below, length)
        else:
            is_wide = at_side.right + MARGIN <= page
        if is_wide:
            self._draw_beside(at_side, right)
            right, bottom = at_side.right, max(bottom, at_side.bottom)
        else:
            right, bottom = self._draw_below(right, bottom, below + 0.01 if page is None else page - MARGIN)
        shared = self._shared()
        for line in (*self.lanes, self.scores, self.result):
            for before, box in pairwise(line):
                if box.middle == before.middle and before not in shared:
                    self._sign(box)
        for lane in {id(lane[-1]): lane for lane in self.lanes}.values():
            if lane[0].term.sign:
                self._sign(lane[0])
        self._finish(right, bottom)

    def _lines_after_lanes(self) -> list[tuple[list[_Box], float]]:
        return list(zip((self.scores, self.result), self.nodes, strict=True))

    def _positions(self, right: float, top: float) -> _Positions:
        """Returns where the scores and the result lie, if they are beside the lanes."""
        ends = [lane[-1] for lane in self.lanes]
        nodes, weights = self.nodes, self.scores[-1]
        first = right + 0.25 + nodes[0] / 2
        middle = max((ends[0].middle + ends[1].middle) / 2, top + _above(self.scores))
        end = first + nodes[0] / 2 + ARROW + _line_width(self.scores)
        length = nodes[1] / 2 + ARROW + _line_width(self.result)
        below_weights = end - weights.width + weights.labels[0] + weights.cells[0] / 2
        second = max(first + nodes[0] / 2 + nodes[1] / 2 + 0.15, min(below_weights, end - length))
        # Between the scores and the result, a line leads from the weights to their product with the values.
        low = max(ends[2].middle, middle + _below(self.scores) + GAP + max(_above(self.result), 0.4))
        return _Positions(first, middle, second, low, max(end, second + length), low + max(_below(self.result), 0.2))

    def _draw_beside(self, at: _Positions, right: float) -> None:
        """Draws scores and result beside the lanes, and the lines from the queries, the keys and the values to them."""
        ends, weights = [lane[-1] for lane in self.lanes], self.scores[-1]
        halves = [node / 2 for node in self.nodes]
        _put_line(self.scores, at.first + halves[0] + ARROW, at.middle)
        _put_line(self.result, at.second + halves[1] + ARROW, at.low)
        for line, x, y, half in (
            (self.scores, at.first, at.middle, halves[0]), (self.result, at.second, at.low, halves[1])
        ):  # fmt: skip
            self._write(line[0].sign, x, y)
            self._line((x + half, y), (line[0].left - 0.04, y))
        edges = [text_extent(line[0].sign)[1] / 2 + 0.08 for line in (self.scores, self.result)]
        for end in dict.fromkeys(ends[:2]):
            if abs(end.middle - at.middle) < edges[0]:
                self._line((end.right, at.middle), (at.first - halves[0], at.middle))
            else:
                edge = at.middle + (edges[0] if end.middle > at.middle else -edges[0])
                self._line((end.right, end.middle), (at.first, end.middle), (at.first, edge))
        source = ends[2].middle + (0.09 if ends[2] in ends[:2] else 0.0)
        turn = right + 0.12
        bend = [] if abs(source - at.low) < 0.02 else [(turn, source), (turn, at.low)]
        self._line((ends[2].right, source), *bend, (at.second - halves[1], at.low))
        down = weights.left + weights.labels[0] + weights.cells[0] / 2
        bus = at.middle + weights.below + 0.16
        bend = [] if abs(down - at.second) < 0.02 else [(down, bus), (at.second, bus)]
        self._line((down, at.middle + weights.below), *bend, (at.second, at.low - edges[1]))

    def _draw_below(self, right: float, bottom: float, end: float) -> tuple[float, float]:
        """Draws scores and result in lines below the lanes; returns the right and the lower end of everything."""
        rows: list[list[_Box]] = [[]]
        x = MARGIN
        for line, node in self._lines_after_lanes():
            for number, box in enumerate(line):
                before = box.sign_width if number else node + ARROW
                gap = GAP if rows[-1] and not number else 0.0
                if rows[-1] and x + gap + before + box.width > end:
                    rows.append([])
                    x, gap = MARGIN, 0.0
                box.left = x + gap + before
                x = box.end
                rows[-1].append(box)
        nodes = dict(zip((self.scores[0], self.result[0]), self.nodes, strict=True))
        for row in rows:
            middle = bottom + GAP + _above(row)
            for box in row:
                box.middle = middle
                if box in nodes:
                    start = box.left - ARROW
                    self._write(box.sign, start - nodes[box] / 2, middle)
                    self._line((start, middle), (box.left - 0.04, middle))
                elif box is row[0]:
                    self._sign(box)
            bottom, right = middle + _below(row), max(right, row[-1].end)
        return right, bottom

    def _shared(self) -> list[_Box]:
        """Returns the matrices with which more than one lane begins."""
        lanes = list({id(lane[-1]): lane for lane in self.lanes}.values())
        first = [lane[0] for lane in lanes if len(lane) > 1]
        return [box for box in dict.fromkeys(first) if first.count(box) > 1]

    def _put_lanes(self, top: float, page: float | None) -> tuple[float, float]:
        """Arranges the lanes below each other, right of the input that they share, or below it where a page is narrow.

        Returns their right and lower ends.
        """
        lanes = list({id(lane[-1]): lane for lane in self.lanes}.values())
        shared = self._shared()
        widths = [_line_width(lane) for lane in lanes]
        is_narrow = bool(shared) and page is not None and 2 * MARGIN + max(widths) + 0.2 > page
        left = MARGIN + (0.3 if is_narrow else max((box.width + 0.2 for box in shared), default=0.0))
        bottom, right, placed = top - GAP, 0.0, set[_Box]()
        for lane in lanes:
            source = lane[0] if lane[0] in shared else None
            if is_narrow and source is not None and source not in placed:
                _put_line([source], MARGIN, bottom + GAP + source.above)
                placed.add(source)
                bottom, right = source.middle + source.below, max(right, source.end)
            own = lane if source is None else lane[1:]
            middle = bottom + GAP + _above(own)
            start = left if source is not None else MARGIN
            _put_line(own, start + own[0].sign_width, middle)
            bottom, right = middle + _below(own), max(right, own[-1].end)
        if not is_narrow:
            # The last matrices of all lanes are above each other.
            for lane in lanes:
                lane[-1].left += right - lane[-1].end
        for box in shared:
            own = [lane[1] for lane in lanes if lane[0] is box]
            if is_narrow:
                turn, start = MARGIN + 0.1, box.left + box.labels[0] + 0.1
                bend = box.middle + box.below + 0.1
                path = [(start, box.middle + box.below), (start, bend), (turn, bend)]
            else:
                _put_line([box], MARGIN, (own[0].middle + own[-1].middle) / 2)
                turn = box.end + 0.1
                path = [(box.right, box.middle), (turn, box.middle)]
            for each in own:
                self._line(*path, (turn, each.middle), (turn + 0.1, each.middle), arrow=False)
                self._write(each.sign, turn + 0.1 + each.sign_width / 2, each.middle)
        return right, bottom

    def _sign(self, box: _Box) -> None:
        """Draws the operation before a matrix."""
        middle, end = box.middle, box.left - SIGN_GAP
        start = box.left - box.sign_width + SIGN_GAP
        if _is_plain(box.term.sign):
            self._write(box.sign, (start + end) / 2, middle)
        else:
            box.sign.set_va("bottom")
            self._write(box.sign, (start + end) / 2, middle - 0.05)
            self._line((start, middle), (end + 0.04, middle))

    def _write(self, artist: Any, x: float, y: float) -> None:
        if artist.get_va() == "top":
            artist.set_va("center")
        artist.set_position((x, y))

    def _line(self, *points: tuple[float, float], arrow: bool = True) -> None:
        """Draws a line through points, with an arrow at its end."""
        x, y = zip(*points, strict=True)
        self.canvas.plot(x, y, color=MUTED, linewidth=1.0, solid_joinstyle="round", solid_capstyle="butt")
        if arrow:
            (x0, y0), (x1, y1) = points[-2:]
            size = max(abs(x1 - x0), abs(y1 - y0)) or 1.0
            back = (x1 - 0.05 * (x1 - x0) / size, y1 - 0.05 * (y1 - y0) / size)
            self.canvas.annotate("", (x1, y1), back, arrowprops=ARROW_STYLE)

    def _finish(self, right: float, bottom: float) -> None:
        """Writes titles and what is below the matrices, and sets the size of the sheet."""
        for box in self.boxes:
            self._title(box)
        right = max(right, MARGIN + 5.0, MARGIN + text_extent(self.heading)[0])
        y = bottom + 0.3
        for number, sentence in enumerate(self.flow.sentences):
            artist = self._text("", SENTENCE_SIZE if not number else LETTERS + 1, linespacing=1.35)
            letters = max(24, int((right - MARGIN) / 0.06))
            while text_extent(self.lettering.letter(artist, wrapped(sentence, letters, 12)))[0] > right - MARGIN:
                letters -= 2
            artist.set_position((MARGIN, y))
            y += text_extent(artist)[1] + 0.1
        bottom = self._keys(y + 0.08, right)
        width, height = right + MARGIN, bottom + MARGIN
        self.figure.set_size_inches(width, height)
        self.canvas.set(xlim=(0, width), ylim=(height, 0))
        self.heading.set_position((MARGIN, MARGIN))
        for box in self.boxes:
            left, top = box.left + box.labels[0], box.middle - box.cells[1] / 2
            set_position(box.axes, left, height - top - box.cells[1], *box.cells)
        for axes, (x, y, w, h) in self.bars:
            set_position(axes, x, height - y - h, w, h)

    def _title(self, box: _Box) -> None:
        top = box.middle - box.above
        box.titles[0].set_position((box.left, top))
        box.titles[1].set_position((box.left, top + 0.23))
        cells_top = box.middle - box.cells[1] / 2
        for artist, x, y in zip(
            box.corner,
            (box.left + box.labels[0] - 0.06, box.left + box.labels[0]),
            (cells_top - 0.16, cells_top - box.labels[1]),
            strict=False,
        ):
            artist.set_position((x, y))
        if box.corner:
            box.corner[0].set_ha("right")

    def _trace(
        self, axes: Axes, term: Term, rows: Sequence[int | None], column: int | None, shape: tuple[int, ...]
    ) -> None:
        """Outlines the traced rows of a matrix, and colours their names."""
        for row, color in zip(rows, (ACCENT, LOOKED_AT), strict=True):
            if row is not None:
                _outline(axes, (0, row), (shape[1], 1), color, 1.6)
                for label in axes.get_yticklabels()[row : row + 1]:
                    label.set_color(color)
        if column is not None:
            for label in axes.get_xticklabels()[column : column + 1]:
                label.set_color(LOOKED_AT)
            if rows[0] is not None:
                _outline(axes, (column, rows[0]), (1, 1), LOOKED_AT, 2.4)
        if term.outlined is not None and term.outlined[1] < MOST_SHOWN - 1:
            first, last = term.outlined
            _outline(axes, (first, 0), (last - first + 1, shape[0]), INK, 1.4)

    def _keys(self, top: float, right: float) -> float:
        """Draws what the colours mean, each once, from left to right; returns the lower end."""
        self.bars: list[tuple[Axes, tuple[float, float, float, float]]] = []
        weights = next(box for box in self.boxes if box.term.panel.kind == "weights")
        ends = [short_number(end) for end in weights.image.get_clim()]
        signed = any(box.image.get_cmap().name == "sign" for box in self.boxes)
        entries = [
            *([("sign", "numbers (darkest: the largest of each matrix)", ("−", "0", "+"))] if signed else []),
            (weights.image.get_cmap().name, "attention weight", tuple(ends)),
        ]
        left, line = MARGIN, top
        for colors, name, marks in entries:
            label = self._text(name, NOTE, color=MUTED)
            room = max(BAR[0], text_extent(label)[0])
            if left > MARGIN and left + room > right:
                left, line = MARGIN, line + 0.5
            label.set_position((left, line))
            axes = self.figure.add_axes((0, 0, 1, 1), label=f"key of {name}")
            axes.imshow(np.linspace(0, 1, 128)[None], cmap=color_map(colors), aspect="auto", extent=(0, 1, 0, 1))
            axes.set(yticks=[], xticks=np.linspace(0, 1, len(marks)).tolist(), xticklabels=marks)
            axes.tick_params(length=0, labelsize=NOTE, pad=2)
            for spine in axes.spines.values():
                spine.set(color="#808080", linewidth=0.6)
            self.bars.append((axes, (left, line + 0.15, *BAR)))
            left += room + 0.35
        notes = [(ACCENT, f"asks: {visible_token(self.flow.asks)}")]
        notes += [(LOOKED_AT, f"looked at: {visible_token(self.flow.looked_at)}")]
        matrices = [np.asarray(box.term.panel.matrix) for box in self.boxes]
        forms = form_note({form for each in matrices for form in forms_of(each)} - {"zero"})
        for color, text in [*notes, *([(MUTED, forms)] if forms else [])]:
            artist = self._text(text, LETTERS + 1 if color != MUTED else NOTE, color=color)
            extent = text_extent(artist)[0]
            if left > MARGIN and left + extent > right:
                left, line = MARGIN, line + 0.5
            artist.set_position((left, line + 0.12))
            left += extent + 0.35
        return line + 0.42


def shown_indices(size: int, traced: Sequence[int | None]) -> list[int | None]:
    """Returns all rows or columns, or seven of many with the traced ones, and a None for the others."""
    if size <= MOST_SHOWN:
        return list(range(size))
    first, late = MOST_SHOWN - 1, set[int]()
    for _ in traced:
        late = {index for index in traced if index is not None and index >= first}
        first = MOST_SHOWN - 1 - len(late)
    return [*range(first), None, *sorted(late)]


def cell_texts(matrix: Matrix) -> list[list[str]]:
    """Returns the numbers of a matrix with two decimals, or with more where all of them are small."""
    largest = float(np.abs(matrix[np.isfinite(matrix)]).max(initial=0.0))
    decimals = next((count for count in (2, 3) if not largest or largest >= 10.0 ** (1 - count)), 4)
    return number_texts(matrix, most_decimals=decimals)


def _folded(labels: Sequence[str] | None, shown: Sequence[int | None], size: int, space: str) -> list[str]:
    more = f"… {size - len(shown) + 1:,}{space}more"
    return [more if index is None else visible_token(labels[index], LONGEST_NAME) for index in shown] if labels else []


def _outline(axes: Axes, corner: tuple[int, int], size: tuple[int, int], color: str, width: float) -> None:
    """Draws a frame around cells, from the column and the row of the first one."""
    from matplotlib.patches import Rectangle

    column, row = corner
    frame = Rectangle((column - 0.5, row - 0.5), *size, fill=False, edgecolor=color, linewidth=width, zorder=4)
    axes.add_patch(frame).set_clip_on(False)


def _is_plain(sign: str) -> bool:
    """Whether a sign stands alone between two matrices; every other operation is written above an arrow."""
    return sign[-1:] in PLAIN_SIGNS


def _boxed(sign: Any) -> Any:
    """Gives an operation that joins two matrices its frame."""
    sign.set(fontsize=LETTERS + 1, bbox={"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": MUTED})
    return sign


def _scale(width: float, height: float) -> float:
    """Returns the size on a slide of a picture, of which the text below the matrices is not counted."""
    return min(SLIDE[0] / width, SLIDE[1] / (height + 1.7))


def _above(line: Sequence[_Box]) -> float:
    return max(box.above for box in line)


def _below(line: Sequence[_Box]) -> float:
    return max(box.below for box in line)


def _line_width(line: Sequence[_Box]) -> float:
    """Returns the width of matrices with the operations between them, without the one before the first."""
    return sum(box.width + box.sign_width for box in line) - line[0].sign_width


def _put_line(line: Sequence[_Box], left: float, middle: float) -> None:
    """Puts matrices beside each other, the first one at ``left``."""
    for number, box in enumerate(line):
        box.left, box.middle = left + (box.sign_width if number else 0.0), middle
        left = box.end
