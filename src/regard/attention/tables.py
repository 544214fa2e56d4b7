"""An Explanation as aligned tables in a terminal, by Rich."""

from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from regard.attention.explanation import STEPS, Explanation, finite_or_text, is_whole

LIMIT = 12
"""Rows or columns of a table beyond which its middle is left out."""


def tables(explanation: Explanation, *, decimals: int, slices: int) -> RenderableType:
    """One table a step, for each (batch row, head)."""
    parts: list[RenderableType] = []
    every = explanation.slices
    for batch, head in every[:slices]:
        if len(every) > 1:
            parts.append(Text(f"batch row {batch}, head {head}", style="bold underline"))
        for number, (name, _) in enumerate(explanation.steps(), start=1):
            shape = "×".join(str(size) for size in explanation.matrix(name, batch, head).shape)
            parts.append(Text(f"{number}. {name.replace('_', ' ')} [{shape}]: {STEPS[name]}", style="bold"))
            parts.append(_table(explanation, name, batch, head, decimals))
    if len(every) > slices:
        parts.append(Text(f"… and {len(every) - slices} more of batch × heads", style="dim"))
    return Group(*parts)


def as_text(renderable: RenderableType, width: int = 160) -> str:
    """What Rich would print, as plain text."""
    console = Console(file=StringIO(), width=width, color_system=None, force_terminal=False)
    console.print(renderable)
    file = console.file
    assert isinstance(file, StringIO)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def _table(explanation: Explanation, name: str, batch: int, head: int, decimals: int) -> Table:
    matrix = explanation.matrix(name, batch, head).double().cpu()
    digits = 0 if is_whole(matrix) else decimals
    rows, columns = (_shortened(size) for size in matrix.shape)
    row_labels, column_labels = explanation.row_labels(name), explanation.column_labels(name)
    table = Table(box=SIMPLE_HEAD)
    table.add_column("")
    for column in columns:
        table.add_column(Text("…" if column is None else column_labels[column]), justify="right", no_wrap=True)
    for row in rows:
        cells = [Text("…" if row is None else row_labels[row])]
        for column in columns:
            hidden = row is None or column is None
            cells.append(Text("…" if hidden else finite_or_text(matrix[row, column].item(), digits)))
        table.add_row(*cells)
    return table


def _shortened(size: int) -> list[int | None]:
    """All indices, or the first and last of many with a None between."""
    if size <= LIMIT:
        return list(range(size))
    return [*range(LIMIT - 3), None, size - 2, size - 1]
