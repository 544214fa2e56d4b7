"""The steps of a calculation as aligned tables in a terminal, by Rich."""

from collections.abc import Sequence
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from regard.explanations.matrix_texts import TABLE_LIMIT, MatrixTexts
from regard.explanations.step import Step


def step_tables(steps: Sequence[Step], decimals: int, rest: str = "") -> RenderableType:
    """Returns a table for each numbered step, below a line where batch row and head change; then the text ``rest``."""
    parts: list[RenderableType] = []
    slice_name = None
    for number, step in enumerate(steps, start=1):
        if step.slice_name != slice_name and any(other.slice_name for other in steps):
            parts += [Text(step.slice_name or "all heads", style="underline"), Text("")]
        slice_name = step.slice_name
        shape = "×".join(str(size) for size in step.matrix.shape)
        parts.append(Text(f"{number}. {step.name} [{shape}]: {step.note}", style="bold"))
        labels, additive = (step.row_labels, step.column_labels), step.name == "weights"
        parts.append(MatrixTable(step.matrix, *labels, decimals=decimals, additive=additive))
    if rest:
        parts.append(Text(rest, style="dim"))
    return Group(*parts)


def as_text(renderable: RenderableType) -> str:
    """Returns the output of Rich as plain text."""
    file = StringIO()
    Console(file=file, width=160, color_system=None, force_terminal=False, force_jupyter=False).print(renderable)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


class MatrixTable(MatrixTexts):
    """A matrix with labels, as wide as the terminal allows: columns of its middle are left out, never digits."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        labels = self.labels
        # Three spaces are between columns, and two at each end of the table.
        room = options.max_width - max((cell_len(label) for label in labels), default=0) - 4
        most = TABLE_LIMIT
        while True:
            drawn = self.drawn(most)
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
