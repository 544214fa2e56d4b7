"""The steps of a calculation as aligned tables in a terminal, by Rich."""

from collections.abc import Sequence
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text
from torch import Tensor

from regard.explanations.explanation import STEPS, Explanation, finite_or_text, is_whole

LIMIT = 12
"""Rows or columns of a table beyond which its middle is left out."""

LONGEST_LABEL = 24
"""Letters of a label beyond which its end is left out."""


def tables(explanation: Explanation, *, decimals: int, slices: int) -> RenderableType:
    """One table a step, for each (batch row, head)."""
    parts: list[RenderableType] = []
    every = explanation.slices
    for batch, head in every[:slices]:
        if len(every) > 1:
            parts.append(Text(f"batch row {batch}, head {head}", style="bold underline"))
        for number, (name, _) in enumerate(explanation.steps(), start=1):
            matrix = explanation.matrix(name, batch, head)
            parts.append(heading(number, name.replace("_", " "), matrix, STEPS[name]))
            parts.append(
                MatrixTable(matrix, explanation.row_labels(name), explanation.column_labels(name), decimals=decimals)
            )
    if len(every) > slices:
        parts.append(Text(f"… and {len(every) - slices} more of batch × heads", style="dim"))
    return Group(*parts)


def heading(number: int, name: str, matrix: Tensor, note: str) -> Text:
    """The line above a step's table: its number, name, shape and what it is."""
    shape = "×".join(str(size) for size in matrix.shape)
    return Text(f"{number}. {name} [{shape}]: {note}", style="bold")


def as_text(renderable: RenderableType, width: int = 160) -> str:
    """What Rich would print, as plain text."""
    console = Console(file=StringIO(), width=width, color_system=None, force_terminal=False)
    console.print(renderable)
    file = console.file
    assert isinstance(file, StringIO)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


class MatrixTable:
    """A matrix with labels, as wide as the terminal allows: columns of its middle are left out, digits never.

    Args:
        matrix: ``[rows, columns]``.
        rows: a label for each row.
        columns: a label for each column.
        decimals: most digits after the point; as few are written as say every number exactly.
    """

    def __init__(self, matrix: Tensor, rows: Sequence[str], columns: Sequence[str], *, decimals: int):
        self.matrix, self.rows, self.columns = matrix.detach().double().cpu(), rows, columns
        exact = (digits for digits in range(decimals) if is_whole(self.matrix * 10**digits, tolerance=1e-9))
        self.digits = next(exact, decimals)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = _shortened(len(self.rows), LIMIT)
        labels = ["…" if row is None else clipped(self.rows[row]) for row in rows]
        # A column has a space on either side, columns have a third between them, and the table one at either end.
        room = options.max_width - max((cell_len(label) for label in labels), default=0) - 4
        most = LIMIT
        while True:
            drawn = [self._column(rows, column) for column in _shortened(len(self.columns), most)]
            width = sum(3 + max(map(cell_len, cells)) for cells in drawn)
            if most <= 3 or width <= room:
                break
            most -= 1
        table = Table(box=SIMPLE_HEAD)
        table.add_column("", no_wrap=True)
        for head, *_ in drawn:
            table.add_column(Text(head), justify="right", no_wrap=True)
        for number, label in enumerate(labels, start=1):
            table.add_row(Text(label), *(Text(cells[number]) for cells in drawn))
        yield table

    def _column(self, rows: Sequence[int | None], column: int | None) -> list[str]:
        # The label, then the cells.
        if column is None:
            return ["…"] * (len(rows) + 1)
        cells = ["…" if row is None else finite_or_text(self.matrix[row, column].item(), self.digits) for row in rows]
        return [clipped(self.columns[column]), *cells]


def clipped(label: str) -> str:
    """A label, without the end of a long one."""
    return label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…"


def _shortened(size: int, most: int) -> list[int | None]:
    """All indices, or the first and last of many with a None between: at most ``most``, which is at least 3."""
    if size <= most:
        return list(range(size))
    last = 2 if most > 4 else 1
    return [*range(most - last - 1), None, *range(size - last, size)]
