"""The steps of a calculation as aligned tables in a terminal, by Rich."""

from collections.abc import Mapping, Sequence
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from regard.explanations.matrix_texts import LIMIT, MatrixTexts
from regard.explanations.step import Step


def sliced_tables(slices: Mapping[tuple[int, int], Sequence[Step]], available: int, decimals: int) -> RenderableType:
    """One table for each step, for each (batch row, head).

    Args:
        slices: the steps of each (batch row, head) that is printed.
        available: how many of them the calculation has; the last line counts those that are not printed.
        decimals: digits after the point.
    """
    parts: list[RenderableType] = []
    for (batch, head), steps in slices.items():
        if available > 1:
            parts.append(Text(f"batch row {batch}, head {head}", style="bold underline"))
        for number, step in enumerate(steps, start=1):
            parts += _numbered_table(number, step, decimals)
    if available > len(slices):
        parts.append(Text(f"… and {available - len(slices)} more of batch × heads", style="dim"))
    return Group(*parts)


def headed_tables(steps: Sequence[Step], heads: int, decimals: int) -> RenderableType:
    """One table for each step, below a line that names the head where it changes.

    Args:
        steps: in order; they are numbered from 1.
        heads: how many heads the calculation has; a single one is not named.
        decimals: digits after the point.
    """
    parts: list[RenderableType] = []
    head = None
    for number, step in enumerate(steps, start=1):
        if heads > 1 and step.head != head:
            head = step.head
            parts.append(Text("all heads" if head is None else f"head {head}, one of {heads}", style="underline"))
            parts.append(Text(""))
        parts += _numbered_table(number, step, decimals)
    return Group(*parts)


def _numbered_table(number: int, step: Step, decimals: int) -> list[RenderableType]:
    """A line with the step's number, name, shape and note; and its table."""
    shape = "×".join(str(size) for size in step.matrix.shape)
    heading = Text(f"{number}. {step.name} [{shape}]: {step.note}", style="bold")
    labels = step.row_labels, step.column_labels
    return [heading, MatrixTable(step.matrix, *labels, decimals=decimals, additive=step.name == "weights")]


def as_text(renderable: RenderableType, width: int = 160) -> str:
    """The output of Rich as plain text."""
    console = Console(file=StringIO(), width=width, color_system=None, force_terminal=False)
    console.print(renderable)
    file = console.file
    assert isinstance(file, StringIO)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


class MatrixTable(MatrixTexts):
    """A matrix with labels, as wide as the terminal allows: columns of its middle are left out, never digits."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        labels = self.labels
        # Three spaces are between columns, and two at each end of the table.
        room = options.max_width - max((cell_len(label) for label in labels), default=0) - 4
        most = LIMIT
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
