"""The steps of a calculation, each a matrix with its name, a note and labels: as a figure and as JSON.

JSON has no NaN and no infinity: they are the strings "nan", "inf" and "-inf".
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Step:
    """One matrix of a calculation.

    Attributes:
        name: such as ``"W_query"``.
        note: how it is computed, in a few words.
        matrix: ``[rows, columns]``, detached.
        row_labels: one for each row.
        column_labels: one for each column.
        head: its head, from 0; None if all heads share it.
    """

    name: str
    note: str
    matrix: Tensor
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    head: int | None = None

    def __repr__(self) -> str:
        head = "" if self.head is None else f", head={self.head}"
        return f"Step({self.name!r}, {list(self.matrix.shape)}{head})"


def step_figure(steps: Iterable[Step], *, heads: int = 1, title: str | None = None) -> "Figure":
    """Annotated heatmaps, one panel a step, every cell with its number.

    Args:
        steps: in order, at least one.
        heads: how many heads the calculation has; if it has several, the names of the panels include theirs.
        title: over the whole picture.

    Raises:
        ArgumentError: there is no step.
        MissingPartError: matplotlib is not installed.
    """
    # Imported here, because `import regard` imports no pictures.
    from regard.pictures import Panel, calculation

    def panel(step: Step) -> Panel:
        name = step.name if step.head is None or heads == 1 else f"{step.name}, head {step.head}"
        return Panel(name, step.matrix, step.row_labels, step.column_labels, step.note)

    return calculation([panel(step) for step in steps], title=title)


def json_numbers(tensor: Tensor) -> Any:
    """A tensor as nested lists of numbers, or as one number if it has no axes."""
    return _replaced(tensor.detach().cpu().double().tolist())


def json_text(record: dict[str, Any]) -> str:
    """A record as one line of JSON; letters of any script stay as they are."""
    return json.dumps(record, ensure_ascii=False, allow_nan=False)


def _replaced(value: Any) -> Any:
    if isinstance(value, list):
        return [_replaced(item) for item in value]
    return value if math.isfinite(value) else str(value)
