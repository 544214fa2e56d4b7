"""The record of one attention calculation: every intermediate by name, to print, to draw, to export."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from regard.atomic_file import write_atomically
from regard.errors import ShapeError, UnknownNameError
from regard.explanations.matrix_texts import html_tables
from regard.explanations.step import Step, json_numbers, json_text, step_figure
from regard.scores.score import PairUnits
from regard.summaries import record_html, record_summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

STEPS = {
    "query": "what asks",
    "key": "what it is compared with",
    "value": "what is mixed",
    "scores": "each query compared with each key",
    "scaled": "scores × scale",
    "capped": "after the score's cap or function",
    "biased": "+ bias",
    "masked": "−∞ where the mask forbids",
    "weights": "each row normalized",
    "weighted_values": "weight × value, for each query and key",
    "output": "sum of the weighted values",
}
"""The steps in the order of the calculation, with a note on each."""

PROJECTED = {"query": "what asks, projected by the score (W q)", "key": "what it is compared with, projected (U k)"}
"""The notes of steps that the score has projected (Bahdanau et al. 2015, Luong et al. 2015)."""

UNIT_WEIGHTS = {"unit_weights": "how much each unit counts", "unit_bias": "added to each weighted sum of units"}
"""The notes on the parameters that turn the units of a score into scores, and their names."""

OPTIONAL = ("scaled", "capped", "biased", "masked")
"""Steps that a calculation may lack; their tensor is then that of the previous step."""


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """One attention calculation, step by step; all tensors are differentiable.

    The shapes below have all four axes; heads, or batch and heads, that the input lacks are missing here too. A step
    that the calculation does not have (no scale, no cap, no bias, no mask) is the same tensor as the previous step.
    ``explanation["scores"]`` is a step by its name, of the score's own units as well.

    Attributes:
        query: after the score's own projection, ``[batch, heads, queries, dim]``.
        key: after the score's own projection, ``[batch, kv_heads, keys, dim]``.
        value: ``[batch, kv_heads, keys, value_dim]``.
        scores: raw, ``[batch, heads, queries, keys]``; so are the following five.
        scaled: scores × scale.
        capped: after `SoftCap` and `Modified`.
        biased: with the bias added.
        masked: −inf where the mask forbids.
        weights: normalized, before dropout.
        output: ``[batch, heads, queries, value_dim]``, after dropout if there is any.
        query_labels: a name for each query, or None.
        key_labels: a name for each key, or None.
        projected: which of ``query`` and ``key`` the score's own projection has changed.
        units: what the score computes for each pair before the scores, or None. Additive scores have the steps ``sum``,
            ``tanh`` and ``unit_weights``; MLP scores the layers of their network, such as ``network.0``.

    Example:
        >>> import regard
        >>> steps = regard.explain([[1, 0], [0, 1]], [[1, 0], [0, 1]], [[10], [20]], mask="causal")
        >>> steps.step_names
        ('query', 'key', 'value', 'scores', 'scaled', 'masked', 'weights', 'weighted_values', 'output')
        >>> steps.masked
        tensor([[0.7071,   -inf],
                [0.0000, 0.7071]])
        >>> steps = steps.labelled(["le", "chat"], ["the", "cat"])
        >>> steps.row_labels("weights"), steps.column_labels("weights")
        (['le', 'chat'], ['the', 'cat'])
        >>> steps.to_json("steps.json")[:34]
        '{"query_labels": ["le", "chat"], "'
        >>> figure = steps.figure(title="two words")
        >>> len(figure.axes)  # a panel for each step
        9
        >>> import torch
        >>> additive = regard.scores.Additive(torch.tensor([1.0, -1.0]))
        >>> steps = regard.explain([[1.0, 2.0]], [[3.0, 4.0], [0.0, 1.0]], [[1.0], [2.0]], score=additive)
        >>> steps["sum"].tolist()
        [[[4.0, 6.0], [1.0, 3.0]]]
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scores: Tensor
    scaled: Tensor
    capped: Tensor
    biased: Tensor
    masked: Tensor
    weights: Tensor
    output: Tensor
    query_labels: tuple[str, ...] | None = None
    key_labels: tuple[str, ...] | None = None
    projected: tuple[str, ...] = ()
    units: PairUnits | None = None

    def __getitem__(self, step: str) -> Tensor:
        if step in STEPS:
            return getattr(self, step)
        if step in self._unit_steps:
            return self._unit_steps[step][1]
        raise UnknownNameError("step", step, self.step_names)

    @property
    def _unit_steps(self) -> dict[str, tuple[str, Tensor]]:
        """The steps of the score's units by name: the note and the tensor of each."""
        if self.units is None:
            return {}
        parameters = zip(UNIT_WEIGHTS.items(), (self.units.weight, self.units.bias), strict=True)
        return {step.name: (step.note, step.values) for step in self.units.steps} | {
            name: (note, tensor) for (name, note), tensor in parameters if tensor is not None
        }

    @property
    def weighted_values(self) -> Tensor:
        """weight × value before the sum, ``[batch, heads, queries, keys, value_dim]``; computed on each access."""
        value = self.value.to(self.weights.dtype)
        if value.dim() > 2 and value.shape[-3] != self.weights.shape[-3]:
            value = value.repeat_interleave(self.weights.shape[-3] // value.shape[-3], dim=-3)
        return self.weights[..., None] * value[..., None, :, :]

    def labelled(self, queries: Sequence[str] | None = None, keys: Sequence[str] | None = None) -> "Explanation":
        """The same calculation with tokens for its rows and columns.

        Raises:
            ShapeError: not as many labels as queries or keys.
        """
        for name, labels, expected in (("queries", queries, self.query.shape[-2]), ("keys", keys, self.key.shape[-2])):
            if labels is not None and len(labels) != expected:
                raise ShapeError(f"{name} must have {expected} labels; got {len(labels)}")
        return replace(
            self,
            query_labels=None if queries is None else tuple(queries),
            key_labels=None if keys is None else tuple(keys),
        )

    @property
    def step_names(self) -> tuple[str, ...]:
        """The names of the steps that this calculation has, in its order."""
        names, before = [], self.scores
        for name in self._named_tensors:
            if name in OPTIONAL:
                tensor: Tensor = getattr(self, name)
                if tensor is before:
                    continue
                before = tensor
            names.append(name)
        return tuple(names)

    @property
    def _named_tensors(self) -> tuple[str, ...]:
        """The names of all tensors in the order of the calculation, and of steps that it does not have."""
        before_scores = list(STEPS).index("scores")
        return (*list(STEPS)[:before_scores], *self._unit_steps, *list(STEPS)[before_scores:])

    def steps(self) -> Iterator[tuple[str, Tensor]]:
        """The steps that this calculation has, in its order, as (name, tensor)."""
        return ((name, self[name]) for name in self.step_names)

    def row_labels(self, step: str) -> list[str]:
        """The labels of a step's rows: queries, keys, or query → key; a score's parameter is one row."""
        if step in UNIT_WEIGHTS:
            return [step.removeprefix("unit_")]
        queries = list(self.query_labels or _numbered("q", self.query.shape[-2]))
        keys = list(self.key_labels or _numbered("k", self.key.shape[-2]))
        if step in ("key", "value"):
            return keys
        if step == "weighted_values" or step in self._unit_steps:
            return [f"{query} → {key}" for query, key in product(queries, keys)]
        return queries

    def column_labels(self, step: str) -> list[str]:
        """The labels of a step's columns: keys, or features."""
        if step in ("scores", "scaled", "capped", "biased", "masked", "weights"):
            return list(self.key_labels or _numbered("k", self.key.shape[-2]))
        features = self.value if step == "weighted_values" else self[step]
        return _numbered("", features.shape[-1])

    def matrix(self, step: str, batch: int = 0, head: int = 0) -> Tensor:
        """One step of one batch row and head as a matrix, detached.

        Weighted values, and the units of a score, have a row for each (query, key).
        """
        if step == "weighted_values":
            # For this slice alone: those of all slices are the largest tensor of a calculation.
            weights, value = self.matrix("weights", batch, head), self.matrix("value", batch, head)
            return (weights[..., None] * value.to(weights.dtype)).flatten(0, 1)
        tensor = self[step].detach()
        if step in UNIT_WEIGHTS:
            return (tensor if tensor.dim() == 1 or step == "unit_bias" else tensor[head])[None]
        if step in self._unit_steps:
            return tensor[(batch, head)[: tensor.dim() - 3]].flatten(0, 1)
        leading = tensor.shape[:-2]
        if leading:
            tensor = tensor[batch]
        if len(leading) == 2:
            # A group of query heads shares one head of keys and values.
            heads = self.scores.shape[-3]
            tensor = tensor[head // (heads // tensor.shape[0])]
        return tensor

    @property
    def slices(self) -> list[tuple[int, int]]:
        """Every (batch row, head) of the calculation."""
        leading = self.scores.shape[:-2]
        batch, heads = tuple(leading) + (1,) * (2 - len(leading))
        return list(product(range(batch), range(heads)))

    def matrix_steps(self, batch: int = 0, head: int = 0) -> list[Step]:
        """The steps of one batch row and head as labelled matrices of float64."""

        def step(name: str) -> Step:
            matrix, rows, columns = self.matrix(name, batch, head), self.row_labels(name), self.column_labels(name)
            note = PROJECTED[name] if name in self.projected else self._note(name)
            return Step(name.replace("_", " "), note, matrix.double(), tuple(rows), tuple(columns), head)

        return [step(name) for name in self.step_names]

    def _note(self, name: str) -> str:
        if name == "scores" and self.units is not None and self.units.weight is not None:
            bias = "" if self.units.bias is None else " + unit bias"
            return f"{self.units.steps[-1].name} · unit weights{bias}, for each query and key"
        return self._unit_steps[name][0] if name in self._unit_steps else STEPS[name]

    def arithmetic(self, query: int, *, batch: int = 0, head: int = 0, decimals: int = 4) -> str:
        """The calculation of one query's output, number by number.

        A formula is written only if it yields these numbers.

        Args:
            query: its number, from 0.
            batch: which batch row.
            head: which query head.
            decimals: digits after the point.

        Raises:
            ArgumentError: there is no such query.
        """
        from regard.explanations.arithmetic import arithmetic

        return arithmetic(self, query, batch=batch, head=head, decimals=decimals)

    def renderable(self, decimals: int = 4, slices: int = 4) -> "RenderableType":
        """Returns aligned tables of every step, for Rich to print.

        Args:
            decimals: digits after the point.
            slices: print at most so many (batch row, head) pairs.
        """
        # Imported here, because `import regard` does not import Rich.
        from regard.explanations.tables import sliced_tables

        printed = {pair: self.matrix_steps(*pair) for pair in self.slices[:slices]}
        return sliced_tables(printed, len(self.slices), decimals)

    def __str__(self) -> str:
        from regard.explanations.tables import as_text

        return as_text(self.renderable())

    def __repr__(self) -> str:
        # Weighted values are computed on access, and are the largest.
        return record_summary(
            "Explanation", ((name, self[name]) for name in self.step_names if name != "weighted_values")
        )

    def _repr_html_(self) -> str:
        shown, *others = self.slices or [None]
        if shown is None:
            return record_html("Explanation", self.steps())
        rest = f"batch row {shown[0]}, head {shown[1]}; {len(others)} more of batch × heads are not shown"
        return html_tables(self.matrix_steps(*shown), 1, rest if others else "")

    def figure(self, batch: int = 0, head: int = 0, title: str | None = None) -> "Figure":
        """Annotated heatmaps, one panel a step in the order of the calculation, every cell with its number.

        Args:
            batch: which batch row.
            head: which query head.
            title: over the whole picture.

        Returns:
            A figure of matplotlib.

        Raises:
            MissingPartError: matplotlib is not installed.
            IndexError: there is no such batch row or head.
        """
        return step_figure(self.matrix_steps(batch, head), title=title)

    def to_json(self, path: str | Path | None = None) -> str:
        """Every step as nested lists, in the calculation's order; ±inf and NaN as the strings "inf", "-inf", "nan".

        Args:
            path: write it there as well.

        Returns:
            The text.

        Raises:
            DataError: the file cannot be written.
        """
        steps = {name: json_numbers(self[name]) for name in self._named_tensors}
        text = json_text({"query_labels": self.query_labels, "key_labels": self.key_labels, **steps})
        if path is not None:
            # Half a surrogate pair in a label becomes an escape of JSON.
            write_atomically(path, (text + "\n").encode("utf-8", "backslashreplace"))
        return text


def _numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{i}" for i in range(count)]
