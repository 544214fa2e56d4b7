"""The matrices of a calculation as texts, for tables in a terminal (`regard.explanations.tables`) and in HTML."""

import math
from collections.abc import Sequence
from html import escape

import torch
from torch import Tensor

from regard.explanations.step import Step
from regard.records.shaded_table import CELL_STYLE, MOST_SHOWN, shade
from regard.summaries import CAPTION_STYLE, TABLE_STYLE

TABLE_LIMIT = 12
"""The most rows and the most columns of a table; the middle of more is left out."""

LONGEST_LABEL = 24
"""The most letters of a label; the end of a longer one is left out."""

HTML_DECIMALS = 4


class MatrixTexts:
    """A matrix with labels as texts, all numbers with the same number of decimals.

    Args:
        matrix: ``[rows, columns]``.
        decimals: the most digits after the point; fewer are written if they give every number exactly.
        additive: whether the columns that are left out are summed, as weights may be.
        most_rows: the most rows that are shown.
    """

    def __init__(
        self,
        matrix: Tensor,
        rows: Sequence[str],
        columns: Sequence[str],
        *,
        decimals: int,
        additive: bool = False,
        most_rows: int = TABLE_LIMIT,
    ):
        self.additive = additive
        self.matrix, self.rows, self.columns = matrix.detach().double().cpu(), rows, columns
        exact = (digits for digits in range(decimals) if is_whole(self.matrix * 10**digits, tolerance=1e-9))
        self.digits = next(exact, decimals)
        self.shown_rows = shortened(len(rows), most_rows)

    @property
    def labels(self) -> list[str]:
        """The labels of the rows that are shown, and the number of those that are left out."""
        left_out = f"… {len(self.rows) - len(self.shown_rows) + 1} more"
        return [left_out if row is None else clipped(self.rows[row]) for row in self.shown_rows]

    def styles(self, most: int) -> list[list[str]]:
        """Returns the shade of each cell that `drawn` returns, with an empty one for the label of the column."""
        finite = self.matrix[self.matrix.isfinite()]
        largest = float(finite.abs().max()) if finite.numel() else 0.0

        def style(row: int | None, column: int | None) -> str:
            return "" if row is None or column is None else shade(self.matrix[row, column].item(), largest)

        shown = shortened(len(self.columns), most)
        return [["", *(style(row, column) for row in self.shown_rows)] for column in shown]

    def drawn(self, most: int) -> list[list[str]]:
        """Returns at most so many columns: the label of each, then its cells in the rows that are shown.

        One column stands for those that are left out: it has their number, and the sums of weights.
        """
        shown = shortened(len(self.columns), most)
        return [self._left_out(shown) if column is None else self._column(column) for column in shown]

    def _left_out(self, shown: Sequence[int | None]) -> list[str]:
        columns = sorted(set(range(len(self.columns))) - set(shown))
        label = f"… {len(columns)} more"
        if not self.additive:
            return [label] + ["…"] * len(self.shown_rows)
        return [f"{label}, sum", *self._cells(self.matrix[:, columns].sum(-1))]

    def _column(self, column: int) -> list[str]:
        return [clipped(self.columns[column]), *self._cells(self.matrix[:, column])]

    def _cells(self, column: Tensor) -> list[str]:
        return ["…" if row is None else finite_or_text(column[row].item(), self.digits) for row in self.shown_rows]


def clipped(label: str) -> str:
    """Returns a label in one line, without the end of a long one; control characters are escaped."""
    from regard.pictures.fonts import visible_token

    return visible_token(label, LONGEST_LABEL)


def shortened(size: int, most: int) -> list[int | None]:
    """Returns all indices, or the first and last of many with a None between: at most ``most``, which is at least 3."""
    if size <= most:
        return list(range(size))
    last = 2 if most > 4 else 1
    return [*range(most - last - 1), None, *range(size - last, size)]


def finite_or_text(number: float, decimals: int) -> str:
    """Returns a number as the text of a cell: fixed decimals, "−∞" for a masked score, "NaN", no "−0"."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    text = f"{number:.{decimals}f}"
    return text.replace("-", "−") if float(text) != 0 else f"{0:.{decimals}f}"


def is_whole(tensor: Tensor, tolerance: float = 0.0) -> bool:
    """Whether every finite element is an integer up to a relative error, so that no decimals are needed."""
    finite = tensor[torch.isfinite(tensor)]
    near = (finite - finite.round()).abs() <= tolerance * finite.abs()
    return bool(near.all()) and bool((finite.abs() < 1e9).all())


def html_tables(steps: Sequence[Step], rest: str = "") -> str:
    """Returns HTML tables of numbered steps for notebooks: self-contained, without scripts; then the text ``rest``."""
    parts = [_table(number, step) for number, step in enumerate(steps, start=1)]
    return f"<div>{''.join(parts)}{f'<p>{escape(rest)}</p>' if rest else ''}</div>"


def _table(number: int, step: Step) -> str:
    additive = step.name == "weights"
    labels = step.row_labels, step.column_labels
    texts = MatrixTexts(step.matrix, *labels, decimals=HTML_DECIMALS, additive=additive, most_rows=MOST_SHOWN)
    columns = texts.drawn(MOST_SHOWN)
    shaded = list(zip(columns, texts.styles(MOST_SHOWN), strict=True))
    head = "".join(f"<th style='{CELL_STYLE}'>{_shown(label)}</th>" for label, *_ in columns)
    rows = [
        f"<tr><th style='{CELL_STYLE}'>{_shown(label)}</th>"
        + "".join(_cell(cells[row], style[row]) for cells, style in shaded)
        + "</tr>"
        for row, label in enumerate(texts.labels, start=1)
    ]
    shape = "×".join(str(size) for size in step.matrix.shape)
    slice_name = f", {step.slice_name}" if step.slice_name else ""
    caption = f"<b>{number}. {escape(step.name)}</b>{slice_name} [{shape}]: {escape(step.note)}"
    return (
        f"<table style='{TABLE_STYLE}'><caption style='{CAPTION_STYLE}'>{caption}</caption>"
        f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _cell(text: str, style: str) -> str:
    return f"<td style='{CELL_STYLE};{style}'>{escape(text)}</td>"


def _shown(label: str) -> str:
    # A label with another direction of writing must not reorder its neighbours.
    return f"<bdi>{escape(label)}</bdi>"
