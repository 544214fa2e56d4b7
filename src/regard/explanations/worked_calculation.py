"""The record of a calculation around attention: its steps in order, to print, to draw, to export."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

from regard.errors import UnknownNameError
from regard.explanations.explanation import Explanation
from regard.explanations.figures import step_figure
from regard.explanations.html_tables import html_tables
from regard.explanations.json_export import json_numbers, json_text
from regard.explanations.step import Step

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType


@dataclass(frozen=True, eq=False, repr=False)
class WorkedCalculation:
    """Steps in the order of a calculation: to print, to draw, to export.

    Attributes:
        steps: in order.
        explanation: the attention in the middle of them, or None.
        heads: how many heads there are.
    """

    steps: tuple[Step, ...]
    explanation: Explanation | None = None
    heads: int = 1

    def __getitem__(self, name: str) -> Tensor:
        """The matrix of the first step with this name."""
        for step in self.steps:
            if step.name == name:
                return step.matrix
        raise KeyError(name)

    def only(self, head: int | None = None, names: Sequence[str] | None = None) -> "WorkedCalculation":
        """Fewer steps, in their order.

        Args:
            head: the one whose steps stay, from 0; None: all.
            names: of the steps that stay; None: all.

        Raises:
            UnknownNameError: there is no step of a name.
        """
        known = {step.name: None for step in self.steps}
        for name in names or ():
            if name not in known:
                raise UnknownNameError("step", name, known)
        steps = [step for step in self.steps if head is None or step.head in (None, head)]
        return replace(self, steps=tuple(step for step in steps if names is None or step.name in names))

    def renderable(self, decimals: int = 4) -> "RenderableType":
        """Aligned tables of every step, for Rich to print; they fit the terminal's width."""
        # Imported here, because `import regard` does not import Rich.
        from regard.explanations.tables import headed_tables

        return headed_tables(self.steps, self.heads, decimals)

    def __str__(self) -> str:
        from regard.explanations.tables import as_text

        return as_text(self.renderable())

    def __repr__(self) -> str:
        return f"WorkedCalculation({len(self.steps)} steps, heads={self.heads})"

    def _repr_html_(self) -> str:
        return html_tables(self.steps, self.heads)

    def figure(self, title: str | None = None) -> "Figure":
        """Annotated heatmaps, one panel a step, every cell with its number.

        Raises:
            MissingPartError: matplotlib is not installed.
        """
        return step_figure(self.steps, heads=self.heads, title=title)

    def to_json(self) -> str:
        """``{"heads": …, "steps": [{"name", "note", "head", "rows", "columns", "values"}, …]}``.

        Heads count from 0; ±inf and NaN are the strings "inf", "-inf", "nan".
        """
        steps = [
            {
                "name": step.name,
                "note": step.note,
                "head": step.head,
                "rows": step.row_labels,
                "columns": step.column_labels,
                "values": json_numbers(step.matrix),
            }
            for step in self.steps
        ]
        return json_text({"heads": self.heads, "steps": steps})
