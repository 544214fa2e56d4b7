"""The steps of a calculation as a figure, by `regard.pictures`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from regard.explanations.step import Step

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def step_figure(steps: Iterable[Step], *, heads: int = 1, title: str | None = None) -> "Figure":
    """Annotated heatmaps, one panel a step, every cell with its number.

    Args:
        steps: in order, at least one.
        heads: how many heads the calculation has; with more than one, the names of the panels say which.
        title: over the whole picture.

    Raises:
        ArgumentError: there is no step.
        MissingPartError: matplotlib is not installed.
    """
    # Imported here, because `import regard` imports no pictures.
    from regard.pictures import Panel, calculation

    panels = [
        Panel(
            name=step.name if step.head is None or heads == 1 else f"{step.name}, head {step.head}",
            matrix=step.matrix,
            row_labels=step.row_labels,
            column_labels=step.column_labels,
            note=step.note,
        )
        for step in steps
    ]
    return calculation(panels, title=title)
