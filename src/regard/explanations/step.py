"""The steps of a calculation, each a matrix with its name, a note and labels: as a figure and as JSON.

JSON has no NaN and no infinity: they are the strings "nan", "inf" and "-inf".
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure


STEP_NOTES = {
    "query": "what asks",
    "key": "what it is compared with",
    "value": "what is mixed",
    "scores": "each query compared with each key",
    "scaled": "scores × scale",
    "capped": "after the score's cap or function",
    "biased": "+ bias",
    "masked": "−∞ where the mask forbids",
    "weights": "normalized over the keys",
    "weighted_values": "weight × value, for each query and key",
    "output": "sum of the weighted values",
}
"""The steps in the order of the calculation, with a note on each."""

PROJECTED_NOTES = {
    "query": "what asks, projected by the score (W q)",
    "key": "what it is compared with, projected (U k)",
}
"""The notes of steps that the score has projected (Bahdanau et al. 2015, Luong et al. 2015)."""

UNIT_WEIGHTS = {"unit_weights": "how much each unit counts", "unit_bias": "added to each weighted sum of units"}
"""The notes on the parameters that turn the units of a score into scores, and their names."""


@dataclass(frozen=True, eq=False, repr=False)
class Step:
    """One matrix of a calculation.

    Attributes:
        name: such as ``"W_query"``.
        note: its computation in a few words.
        matrix: ``[rows, columns]``, detached.
        batch: its batch row, from 0; None if all batch rows share it.
        head: its head, from 0; None if all heads share it.
        slice_name: its batch row and head in words; empty if all share it, or there is only one.
    """

    name: str
    note: str
    matrix: Tensor
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    batch: int | None = None
    head: int | None = None
    slice_name: str = ""

    def __repr__(self) -> str:
        slice_name = f", {self.slice_name}" if self.slice_name else ""
        return f"Step({self.name!r}, {list(self.matrix.shape)}{slice_name})"

    @property
    def title(self) -> str:
        """The name, with the batch row and the head if there are several."""
        return f"{self.name}, {self.slice_name}" if self.slice_name else self.name

    def transposed(self) -> "Step":
        """Returns the same step with a column for each vector."""
        return replace(self, matrix=self.matrix.mT, row_labels=self.column_labels, column_labels=self.row_labels)


def plain_name(name: str) -> str:
    """Returns a step's name without the differences between letters and between underscores, hyphens and spaces."""
    return name.strip().lower().replace("_", " ").replace("-", " ")


def scale_note(scores: Tensor, scaled: Tensor) -> str:
    """Returns the note of the scaled scores, with the scale if it is one number for all pairs."""
    if not scores.numel():
        return "scores × scale"
    raw, scaled = (tensor.detach().double().flatten() for tensor in (scores, scaled))
    largest = raw.abs().argmax()
    factor = scaled[largest] / raw[largest]
    return f"scores × {factor.item():.4g}" if torch.allclose(raw * factor, scaled) else "scores × scale"


def step_figure(
    steps: Iterable[Step],
    *,
    title: str | None = None,
    color_map: str | Mapping[str, str] | None = None,
    language: Literal["en", "zh"] = "en",
) -> "Figure":
    """Draws annotated heatmaps of at least one step, one panel a step, every cell with its number.

    The colour map is one of matplotlib for all panels, or one for each step by name; None: blue for more, red for less
    than 0.
    """
    from regard.pictures import Panel, calculation
    from regard.pictures.flow_words import say_words

    colors = step_colors(steps, color_map)
    return calculation(
        [
            Panel(
                say_words(step.title, language), step.matrix, step.row_labels, step.column_labels,
                say_words(step.note, language),
                "weights" if plain_name(step.name) == "weights" else "heatmap",
                color_map=colors.get(plain_name(step.name)),
            )
            for step in steps
        ],
        title=title,
        language=language,
    )  # fmt: skip


def step_colors(steps: Iterable[Step], color_map: str | Mapping[str, str] | None) -> dict[str, str | None]:
    """Returns the colour map of each step that has one of its own, by `plain_name`."""
    if isinstance(color_map, Mapping):
        return {plain_name(name): color for name, color in color_map.items()}
    return dict.fromkeys((plain_name(step.name) for step in steps), color_map)


def steps_json(steps: Iterable[Step]) -> str:
    """Returns ``{"steps": [{"name", "note", "batch", "head", "rows", "columns", "values"}, …]}``."""
    return json_text(
        {
            "steps": [
                {
                    "name": step.name, "note": step.note, "batch": step.batch, "head": step.head,
                    "rows": step.row_labels, "columns": step.column_labels, "values": json_numbers(step.matrix),
                }
                for step in steps
            ]
        }
    )  # fmt: skip


def json_numbers(tensor: Tensor) -> Any:
    """Returns a tensor as nested lists of numbers, or as one number if it has no axes."""
    return _replaced(tensor.detach().cpu().double().tolist())


def json_text(record: dict[str, Any]) -> str:
    """Returns a record as one line of JSON; letters of any script stay as they are."""
    return json.dumps(record, ensure_ascii=False, allow_nan=False)


def _replaced(value: Any) -> Any:
    if isinstance(value, list):
        return [_replaced(item) for item in value]
    return value if math.isfinite(value) else str(value)
