"""A worked calculation as one flow that reads as its equation: matrices, and the operations between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.palette import ACCENT, HEAD_HUES, INK, MUTED
from regard.pictures.calculation import panel_colors
from regard.pictures.caption import Caption, Heading
from regard.pictures.flow_terms import Flow, Term
from regard.pictures.flow_words import say
from regard.pictures.fonts import Lettering, visible_token, wrapped
from regard.pictures.heatmap import color_map, draw_cells, draw_lines, form_note, forms_of, write_labels, write_numbers
from regard.pictures.numbers import MOST_SHOWN, as_array, cell_texts, short_number, shown_indices
from regard.pictures.sheet import new_sheet, set_position, text_extent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

MARGIN, GAP, STEP, SIGN_GAP, ARROW, TURN = 0.15, 0.18, 0.28, 0.08, 0.25, 0.14  # inches, as all lengths below
LEAST_CELL, PAIR_CELL, CELL_HEIGHT, WIDEST_LABEL, LEAST_TITLE, NAME_HEIGHT = 0.4, 0.5, 0.21, 0.66, 1.9, 0.2
WIDEST_LINE = 5.0
"""The width up to which a matrix after the scores stands right of the one that it is multiplied with, or equals."""

BAR = 1.0, 0.11
LANDSCAPE, PAPER = (11.7, 8.3), 9.5
LEAST_SCALE, TEXT_HEIGHT = 0.5, 1.25
"""The smallest letters of a narrow picture, and about the height of the text above and below the matrices."""

LETTERS, SIGN_LETTERS, NAME, NOTE = 9.5, 14.0, 11.5, 8.5
ARROW_STYLE = {"arrowstyle": "-|>", "color": MUTED, "linewidth": 0, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 9}
LOOKED_AT = HEAD_HUES[2]
LONGEST_NAME = 14
MORE = "… {count}{space}more"
FORMS = ("hatched: masked", "crossed: NaN")
FIXED_WORDS = (MORE, "asks: {name}", "looked at: {name}", "numbers of each matrix", "max", *FORMS)
"""What every flow says."""


@dataclass(eq=False)
class _Box:
    """A matrix on the sheet, with what it needs left of its cells, of it for the names of rows, and above them;
    ``texts`` have their distances from the upper left cell."""

    term: Term
    axes: Axes
    image: AxesImage
    texts: list[tuple[Any, float, float]]
    sign: Any
    rows: Sequence[int | None]
    columns: Sequence[int | None]
    cells: tuple[float, float]
    side: float
    named: float
    above: float
    width: float
    left: float = 0.0
    middle: float = 0.0

    @property
    def x(self) -> float:
        return self.left + self.side

    @property
    def right(self) -> float:
        return self.x + self.cells[0]

    @property
    def level(self) -> float:
        """The middle of the traced row: of the query, else of its key, else of all rows."""
        return self.row(self.term.looked_at if self.term.asks is None else self.term.asks)

    def row(self, index: int | None) -> float:
        return self.middle if index is None else self.top + (self.rows.index(index) + 0.5) * CELL_HEIGHT

    @property
    def traced(self) -> float:
        """The middle of the traced column, else of the first columns."""
        column = None if self.term.column is None else self.columns.index(self.term.column) + 0.5
        return self.x + (min(self.cells[0] / 2, 0.6) if column is None else column * self.cells[0] / len(self.columns))

    @property
    def top(self) -> float:
        return self.middle - self.cells[1] / 2

    @property
    def bottom(self) -> float:
        return self.middle + self.cells[1] / 2

    @property
    def sign_width(self) -> float:
        return text_extent(self.sign)[0] + 2 * SIGN_GAP if self.term.sign else 0.0


_Line = list[_Box]


def calculation_flow(flow: Flow, *, title: str | None = None, width: float | None = None) -> Figure:
    """Draws a calculation from left to right: lanes to query, key and value; then scores to output in columns.

    Of more than eight rows or columns the others are counted.

    Args:
        title: above the picture.
        width: the inches that the picture should not exceed: its letters shrink to a half where it needs more. None: as
            large as its matrices need, in the form that is largest on a page of A4.
    """
    drawing = _Drawing(flow)
    page = LANDSCAPE if width is None else (width, PAPER)
    sizes = {}
    for stacked in (False, True):
        for limit in drawing.limits:
            across, down = drawing.arrange(stacked, limit)
            fit = min(page[0] / across, page[1] / (down + TEXT_HEIGHT))
            sizes[stacked, limit] = fit if width is None else min(1.0, fit)
    across, _ = drawing.arrange(*max(sizes, key=lambda form: sizes[form]))
    drawing.draw(across, title or "", 1.0 if width is None else min(1.0, max(LEAST_SCALE, width / across)))
    return drawing.figure


class _Drawing:
    """The sheet of a flow, with lengths in inches from the upper left corner of its matrices."""

    def __init__(self, flow: Flow):
        self.flow = flow
        terms = [term for line in (*flow.lanes, flow.scores, flow.result) for term in line]
        labels = [
            label for term in terms for label in (*(term.panel.row_labels or ()), *(term.panel.column_labels or ()))
        ]
        self.caption = Caption(language="zh" if flow.language == "zh" else "en")
        parts = [part for term in terms for part in (term.sign, term.panel.name, term.panel.note or "")]
        spoken = [*parts, *(FIXED_WORDS), *flow.sentences]
        names = (visible_token(label, LONGEST_NAME) for label in labels)
        texts = (flow.asks, flow.looked_at, "… ⋯", *(say(text, flow.language) for text in spoken), *names)
        self.lettering = Lettering(self.caption.texts(*texts))
        self.figure = new_sheet(1.0, 1.0)
        self.canvas = self.figure.add_axes((0, 0, 1, 1), label="operations")
        self.canvas.set_axis_off()
        boxes: dict[int, _Box] = {}
        self.titled = False
        for term in terms:
            if id(term.panel) not in boxes:
                boxes[id(term.panel)] = self._box(term)
        self.boxes = list(boxes.values())
        lanes = [[boxes[id(term.panel)] for term in lane] for lane in flow.lanes]
        self.ends = [lane[-1] for lane in lanes]
        self.lanes = list({id(lane[-1]): lane for lane in lanes}.values())
        first = [lane[0] for lane in self.lanes if len(lane) > 1]
        self.shared = [box for box in dict.fromkeys(first) if first.count(box) > 1]
        scores, result = ([boxes[id(term.panel)] for term in line] for line in (flow.scores, flow.result))
        self.weights, self.nodes = scores[-1], (scores[0], result[0])
        for box in self.nodes:
            frame = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": MUTED}
            box.sign.set(fontsize=LETTERS, va="center", bbox=frame)
        self.lines: list[_Line] = []
        for box in (*scores, *result):
            joined = self.lines and box not in self.nodes and box.term.sign[-1] in "×="
            if joined and _width(self.lines[-1]) + box.sign_width + box.width < WIDEST_LINE:
                self.lines[-1].append(box)
            else:
                self.lines.append([box])
        spans = [self.lines[i:j] for i in range(len(self.lines)) for j in range(i + 1, len(self.lines) + 1)]
        widest = max(_height([line], STEP) for line in self.lines)
        self.limits = sorted({round(_height(span, STEP), 4) for span in spans if _height(span, STEP) >= widest})
        """The heights of columns that may be filled with the lines after the lanes."""

    def _text(self, text: str, size: float, **style: Any) -> Any:
        artist = self.canvas.text(0, 0, "", fontsize=size, **{"color": INK, "va": "baseline", **style})
        return self.lettering.letter(artist, say(text, self.flow.language))

    def _box(self, term: Term) -> _Box:
        """Draws the cells of a matrix; where they lie is decided by `arrange`."""
        panel, whole = term.panel, as_array(f"the matrix of {term.panel.name!r}", term.panel.matrix, 2)
        rows = shown_indices(whole.shape[0], (term.asks, term.looked_at))
        columns = shown_indices(whole.shape[1], (term.column,))
        # What stands for the rows and columns that are left out is blank.
        drawn_texts, texts = cell_texts(whole), [["⋯"] * len(columns) for _ in rows]
        matrix = np.zeros((len(rows), len(columns)))
        for line, row in enumerate(rows):
            for number, column in enumerate(columns):
                if row is not None and column is not None:
                    texts[line][number], matrix[line, number] = drawn_texts[row][column], whole[row, column]
        has_pairs, has_words = term.column is not None, (term.asks, term.looked_at) != (None, None)
        names = (
            self._folded(panel.row_labels, rows, whole.shape[0], " ", has_words),
            self._folded(panel.column_labels, columns, whole.shape[1], "\n", has_pairs),
        )
        axes = self.figure.add_axes((0, 0, 1, 1), label=panel.name)
        image = draw_cells(axes, matrix, **panel_colors(panel, whole, signed=True))
        longest = self._text(max((text for line in texts for text in line), key=len), LETTERS)
        cell = max(PAIR_CELL if has_pairs else LEAST_CELL, text_extent(longest)[0] + 0.06)
        widest = max((text_extent(self.lettering.letter(longest, name))[0] + 0.08 for name in names[1]), default=0.0)
        longest.remove()
        cell = max(cell, widest) if widest <= WIDEST_LABEL else cell
        side, above = (each + 0.07 if each else 0.0 for each in write_labels(
            axes, self.lettering, *names, LETTERS, (1, 1), cell - 0.02
        ))  # fmt: skip
        named_rows = side
        draw_lines(axes, *matrix.shape, color="#ffffff" if panel.kind != "weights" else "#c3c8d0", width=0.8)
        write_numbers(axes, image, texts, LETTERS)
        width, above = len(columns) * cell, above + 0.08 if above else 0.06
        _trace(axes, term, rows, columns)
        drawn: list[tuple[Any, float, float]] = []
        titled, self.titled = has_pairs and not self.titled, self.titled or has_pairs
        if titled:
            asks, looked_at = (
                self._text(text, NOTE, color=MUTED) for text in map(self.caption.say, ("axisQuery", "axisKey"))
            )
            asks.set_ha("right")
            side = max(side, text_extent(asks)[0] + 0.06)
            drawn = [(asks, -0.06, -0.08), (looked_at, width + 0.08, -0.08)]
        name, note = self._text(panel.name, NAME), self._text(panel.note or "", NOTE, color=MUTED)
        named, noted = text_extent(name)[0], text_extent(note)[0] if panel.note else 0.0
        room = max(LEAST_TITLE, side + width)
        if panel.note and named + 0.1 + noted > room:
            text = note.get_text()
            self.lettering.letter(note, wrapped(text, max(8, int(len(text) * room / noted))))
            note.set(va="bottom", linespacing=1.1)
            drawn.append((note, -side, -above))
            title, lower = max(named, text_extent(note)[0]), text_extent(note)[1] + 0.05
        else:
            drawn.append((note, named + 0.1 - side, -above))
            title, lower = named + noted + 0.1, 0.0
        drawn.append((name, -side, -above - lower))
        wide = text_extent(drawn[1][0])[0] if titled else 0.0
        if titled and title + 0.3 + wide < side + width:  # in the line of the name, where that has room
            drawn[1], wide = (drawn[1][0], width - wide, -above), 0.0
        widths = (side + width + (wide and 1.05 * wide + 0.08), title)
        size = SIGN_LETTERS if term.sign in ("×", "=") else LETTERS
        sign = self._text(term.sign, size, ha="center", va="center", linespacing=1.1)
        cells = width, len(rows) * CELL_HEIGHT
        return _Box(
            term, axes, image, drawn, sign, rows, columns, cells, side, named_rows, above + lower + NAME_HEIGHT,
            max(widths),
        )  # fmt: skip

    def _folded(
        self, labels: Sequence[str] | None, shown: Sequence[int | None], size: int, space: str, has_words: bool
    ) -> list[str]:
        """Returns the names of the rows or columns that are drawn; none if they only count them all from 0."""
        if not labels or (not has_words and None not in shown and list(labels) == [str(k) for k in range(size)]):
            return []
        more = say(MORE, self.flow.language, count=f"{size - len(shown) + 1:,}", space=space)
        return [more if index is None else visible_token(labels[index], LONGEST_NAME) for index in shown]

    def arrange(self, stacked: bool, limit: float) -> tuple[float, float]:
        """Puts the lanes above each other and all that follows in columns at their right; returns the size.

        An input that lanes share is above them if ``stacked``, else at their left; a column is at most ``limit`` high.
        """
        lanes = [lane[1:] if lane[0] in self.shared else lane for lane in self.lanes]
        lines = list(lanes)
        for box in self.shared:
            if stacked:
                lines.insert(lines.index(next(lane[1:] for lane in self.lanes if lane[0] is box)), [box])
        self.columns: list[list[_Line]] = [[]]
        for line in self.lines:
            if self.columns[-1] and _height([*self.columns[-1], line], STEP) > limit + 1e-3:
                self.columns.append([])
            self.columns[-1].append(line)
        stacks = [(lines, GAP), *((column, STEP) for column in self.columns)]
        self.height = max(_height(*stack) for stack in stacks)
        for column, gap in stacks:
            more = min(0.4, (self.height - _height(column, gap)) / max(1, len(column) - 1)) if column[1:] else 0.0
            y = (self.height - _height(column, gap) - more * (len(column) - 1)) / 2
            for line in column:
                for box in line:
                    box.middle = y + _above(line)
                y = line[0].middle + _below(line) + gap + more
        indent = 0.28 if stacked else max((box.width + 0.22 for box in self.shared), default=0.0)
        for box in self.shared:
            box.left = 0.0
            own = [lane[1].middle for lane in self.lanes if lane[0] is box]
            box.middle = box.middle if stacked else (own[0] + own[-1]) / 2
        for lane, line in zip(self.lanes, lanes, strict=True):
            _put(line, (indent if lane[0] in self.shared else 0.0) + line[0].sign_width)
        last = max(end.x for end in self.ends)
        for end in self.ends:
            end.left = last - end.side
        right = max(line[-1].left + line[-1].width if line[0] not in self.shared else 0.0 for line in lines)
        self.turns: list[float] = []
        for number, column in enumerate(self.columns):
            self.turns.append(right + TURN)
            gutter = max(
                text_extent(line[0].sign)[0] + 0.2 + ARROW if line[0] in self.nodes else 0.0 for line in column
            )
            if number and column[0][0] not in self.nodes:
                gutter = max(gutter, column[0][0].sign_width + 0.1)
            side = max(line[0].side for line in column)
            for line in column:
                _put(line, right + TURN + gutter + side - line[0].side)
            right = max(line[-1].left + line[-1].width for line in column)
        is_below = not any(line[0] is self.nodes[1] for line in self.columns[0])
        self.bus = self.height + 0.1 if is_below else 0.0
        signs = [
            line[0].traced + 0.09 + text_extent(line[0].sign)[0] for line in self.lines if line[0] not in self.nodes
        ]
        right = max(right, *signs, *(box.left + box.width for box in self.boxes))
        return right + 2 * MARGIN, max(self.height, self.bus)

    def draw(self, across: float, title: str, scale: float) -> None:
        """Draws operations and texts, and makes the sheet as large as that, times a scale."""
        self._connect_lanes()
        chain = [line for column in self.columns for line in column]
        for number, line in enumerate(chain):
            for box in line[1:]:
                box.sign.set_position((box.left - box.sign_width / 2, box.middle))
            self._connect(line[0], chain[number - 1][-1] if number else None)
        headline, *sums = self.flow.sentences
        lettering = Lettering([title, *self.flow.sentences])
        # Small letters are up to a twentieth wider than their part of large ones.
        room = (across - 2 * MARGIN) * (0.95 if scale < 1.0 else 1.0)
        heading, foot = (
            Heading(self.figure, lettering, caption, room)
            for caption in (Caption(title, headline), Caption(shares="\n".join(sums)))
        )
        across = max(across, *(part.width + 2 * MARGIN for part in (heading, foot)))
        start, top = max(self.height, self.bus) + 0.15, heading.height + MARGIN + 0.06
        end = self._keys(start + foot.height + 0.06, across - 2 * MARGIN) + MARGIN
        self.figure.set_size_inches(across, top + end)
        self.canvas.set(xlim=(-MARGIN, across - MARGIN), ylim=(end, -top))
        heading.draw_at(MARGIN, MARGIN)
        foot.draw_at(MARGIN, top + start)
        for box in self.boxes:
            set_position(box.axes, MARGIN + box.x, end - box.bottom, *box.cells)
            for artist, x, y in box.texts:
                artist.set_position((box.x + x, box.top + y))
        if scale < 1.0:
            self.figure.set_size_inches(scale * across, scale * (top + end))
            for axes in self.figure.axes:
                axes.tick_params(labelsize=scale * LETTERS, pad=3 * scale)
            for text in (*self.figure.texts, *(text for axes in self.figure.axes for text in axes.texts)):
                text.set_fontsize(scale * float(text.get_fontsize()))

    def _connect_lanes(self) -> None:
        """Draws the operations of the lanes, and lines from the inputs that they share."""
        for lane in self.lanes:
            for box in lane:
                box.sign.set_position((box.left - box.sign_width / 2, box.middle))
        for box in self.shared:
            own = [lane for lane in self.lanes if lane[0] is box]
            turn = min(lane[1].left - lane[1].sign_width for lane in own) - 0.08
            for lane in own:
                asks, each = lane[-1].term.asks is not None, lane[1]
                side, y = (turn - 0.07 * asks, box.row(box.term.asks if asks else box.term.looked_at))
                path, color = [(box.right, y), (side, y)], ACCENT if asks else LOOKED_AT
                if box.right > turn:  # one line for all rows
                    down, low = box.x + 0.06, box.bottom + 0.08
                    path, side, color = [(down, box.bottom), (down, low), (turn, low)], turn, MUTED
                end = (each.left - each.sign_width + 0.04, each.middle)
                self._path(*path, (side, each.middle), end, arrow=False, color=color)

    def _connect(self, box: _Box, before: _Box | None) -> None:
        """Draws the operation that leads to the first matrix of a line, and the lines that lead to the operation."""
        middle, end = box.level, box.left - 0.07
        column = next(k for k, column in enumerate(self.columns) if any(line[0] is box for line in column))
        is_top, turn = self.columns[column][0][0] is box, self.turns[column]
        if box not in self.nodes:
            assert before is not None, "the first matrix is compared"
            if is_top:
                box.sign.set_va("bottom")
                box.sign.set_position(((turn + end) / 2, middle - 0.04))
                self._path((before.right, before.level), (turn, before.level), (turn, middle), (end, middle))
            else:
                line = next(line for line in self.lines if before in line)
                top, bend = box.top - box.above - 0.02, line[0].middle + _below(line) + 0.08
                x, start = box.traced, before.traced
                box.sign.set_ha("left")
                box.sign.set_position((x + 0.09, (bend + top) / 2))
                self._path((start, before.bottom), (start, bend), (x, bend), (x, top))
            return
        width, height = (each / 2 for each in text_extent(box.sign))
        left, edge = end - ARROW - 2 * width - 0.12, height + 0.07
        x = left + width + 0.06
        box.sign.set_position((x, middle))
        self._path((end - ARROW, middle), (box.x - box.named - 0.07, middle))
        if box is self.nodes[0]:
            for source, color in zip(self.ends[:2], (ACCENT, LOOKED_AT), strict=True):
                y = source.level if color == ACCENT else source.row(source.term.looked_at)
                if abs(y - middle) < edge:
                    self._path((source.right, y), (left, y), color=color)
                elif not self.bus and y > self.nodes[1].level - 0.3:
                    # Its line goes around the product of the weights with the values.
                    side = turn - 0.07
                    self._path((source.right, y), (side, y), (side, middle), (left, middle), color=color)
                else:
                    side, at = edge if y > middle else -edge, x - (0.12 if color == ACCENT else 0.0)
                    self._path((source.right, y), (at, y), (at, middle + side), color=color)
            return
        source, weights = self.ends[2], self.weights
        y = source.middle + (0.06 if source in self.ends[:2] else 0.0)
        self._path((source.right + 0.05, source.top), (source.right + 0.05, source.bottom), arrow=False)  # all rows
        if self.bus:
            side = self.turns[0] - 0.06
            self._path((source.right + 0.05, y), (side, y), (side, self.bus), (x, self.bus), (x, middle + edge))
        else:
            side = self.turns[0]
            bend = [] if abs(y - middle) < 0.02 else [(side, y), (side, middle)]
            self._path((source.right + 0.05, y), *bend, (left, middle))
        if is_top:
            bend = [] if abs(weights.level - middle) < 0.02 else [(turn, weights.level), (turn, middle)]
            self._path((weights.right, weights.level), *bend, (left, middle), color=ACCENT)
        else:
            side, bend = weights.right + 0.12, weights.bottom + 0.1
            points = [(weights.right, weights.level), (side, weights.level), (side, bend), (x + 0.08, bend)]
            self._path(*points, (x + 0.08, middle - edge), color=ACCENT)

    def _path(self, *points: tuple[float, float], arrow: bool = True, color: str = MUTED) -> None:
        """Draws a line through points, with an arrow at its end."""
        x, y = zip(*points, strict=True)
        self.canvas.plot(x, y, color=color, linewidth=1.0, solid_joinstyle="round", solid_capstyle="butt")
        if arrow:
            (x0, y0), (x1, y1) = points[-2:]
            size = max(abs(x1 - x0), abs(y1 - y0)) or 1.0
            back = (x1 - 0.05 * (x1 - x0) / size, y1 - 0.05 * (y1 - y0) / size)
            self.canvas.annotate("", (x1, y1), back, arrowprops={**ARROW_STYLE, "color": color})

    def _keys(self, top: float, right: float) -> float:
        """Draws what the colours mean, each once, from left to right; returns the lower end."""
        low, high = (short_number(end) for end in self.weights.image.get_clim())
        matrices = [np.asarray(box.term.panel.matrix) for box in self.boxes]
        language = self.flow.language
        forms = form_note({form for each in matrices for form in forms_of(each)} - {"zero"})
        forms = ", ".join(say(form, language) for form in forms.split(", "))
        asks, looked_at = (
            say(text, language, name=visible_token(name))
            for text, name in (("asks: {name}", self.flow.asks), ("looked at: {name}", self.flow.looked_at))
        )
        left, y = 0.0, top + 0.08
        for before, colors, after, color in (
            (asks, "", "", ACCENT),
            (looked_at, "", "", LOOKED_AT),
            (f"{self.caption.say('weightTitle')}  {low}", self.weights.image.get_cmap().name, high, MUTED),
            (f"{say('numbers of each matrix', language)}  −{say('max', language)}", "sign", "max", MUTED),
            (forms, "", "", MUTED),
        ):
            if not before or (colors == "sign" and not any(b.image.get_cmap().name == "sign" for b in self.boxes)):
                continue
            texts = [self._text(text, NOTE, color=color, va="center") for text in (before, after)]
            widths = [text_extent(text)[0] if text.get_text() else 0.0 for text in texts]
            width = sum(widths) + (BAR[0] + 0.16 if colors else 0.0)
            if left and left + width > right:
                left, y = 0.0, y + 0.2
            texts[0].set_position((left, y))
            texts[1].set_position((left + width - widths[1], y))
            if colors:
                x = left + widths[0] + 0.08
                box = (x, x + BAR[0], y + BAR[1] / 2, y - BAR[1] / 2)
                self.canvas.imshow(np.linspace(0, 1, 128)[None], cmap=color_map(colors), aspect="auto", extent=box)
            left += width + 0.3
        return y + 0.08


def _trace(axes: Axes, term: Term, rows: Sequence[int | None], columns: Sequence[int | None]) -> None:
    """Outlines the traced rows and the traced pair of a matrix, and colours their names."""
    from matplotlib.patches import Rectangle

    frames: list[tuple[int, int, int, int, str, float]] = []
    for index, color in ((term.asks, ACCENT), (term.looked_at, LOOKED_AT)):
        if index is not None:
            row = rows.index(index)
            frames.append((0, row, len(columns), 1, color, 1.6))
            for label in axes.get_yticklabels()[row : row + 1]:
                label.set_color(color)
    if term.column is not None:
        column = columns.index(term.column)
        for label in axes.get_xticklabels()[column : column + 1]:
            label.set_color(LOOKED_AT)
        frames += [(column, rows.index(term.asks), 1, 1, LOOKED_AT, 2.4)] if term.asks is not None else []
    if term.outlined is not None and term.outlined[1] < MOST_SHOWN - 1:
        first, last = term.outlined
        frames.append((first, 0, last - first + 1, len(rows), INK, 1.4))
    for x, y, width, height, color, line in frames:
        frame = Rectangle((x - 0.5, y - 0.5), width, height, fill=False, edgecolor=color, linewidth=line, zorder=4)
        axes.add_patch(frame).set_clip_on(False)


def _above(line: _Line) -> float:
    return max(box.above + box.cells[1] / 2 for box in line)


def _below(line: _Line) -> float:
    return max(box.cells[1] / 2 for box in line)


def _height(lines: Sequence[_Line], gap: float) -> float:
    return sum(_above(line) + _below(line) for line in lines) + gap * (len(lines) - 1)


def _width(line: _Line) -> float:
    """Returns the width of matrices with the operations between them, without the one before the first."""
    return sum(box.width + box.sign_width for box in line) - line[0].sign_width


def _put(line: _Line, left: float) -> None:
    """Puts matrices beside each other, the first one at ``left``."""
    for number, box in enumerate(line):
        box.left = left + (box.sign_width if number else 0.0)
        left = box.left + box.width
