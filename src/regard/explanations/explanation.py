"""The record of one attention calculation: every intermediate by name, to print, to draw, to export."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from regard.errors import ArgumentError, ShapeError, UnknownNameError
from regard.explanations.arithmetic import arithmetic_of
from regard.explanations.layers import Layer
from regard.explanations.matrix_texts import html_tables
from regard.explanations.settings import Settings
from regard.explanations.step import (
    PROJECTED_NOTES,
    STEP_NOTES,
    UNIT_WEIGHTS,
    Step,
    plain_name,
    scale_note,
    step_colors,
    step_figure,
    steps_json,
)
from regard.files.atomic import write_atomically
from regard.records.document import PAIR_STEPS
from regard.scores.score import PairUnits
from regard.shapes.checks import whole_number
from regard.summaries import record_html, record_summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_SLICES = 4
"""The most (batch row, head) pairs that are printed by default."""

OPTIONAL_STEPS = ("scaled", "capped", "biased", "masked")
"""Steps that a calculation may lack; their tensor is then that of the previous step."""


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """One attention calculation, step by step; all tensors are differentiable.

    The shapes below have all four axes; heads, or batch and heads, that the input lacks are missing here too. A step
    that the calculation does not have (no scale, no cap, no bias, no mask) is the same tensor as the previous step.
    ``explanation["scores"]`` is a step by its name. The score's own units and weights and the layers around the
    attention are steps as well: ``explanation["W_query"]``, ``explanation["decoder_output"]``. Capitals, spaces,
    hyphens and underscores of a name make no difference.

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
        units: the score's computation for each pair before the scores, or None. Additive scores have the steps ``sum``,
            ``tanh`` and ``unit_weights``; MLP scores the layers of their network, such as ``network.0``.
        before: the steps before the attention: inputs, their projections and the weights of the score.
        after: the steps after it: the heads side by side, the projected output and the decoder's tanh layer.
        one_input: whether queries, keys and values come from one input; a label of a key is then that of a query too.
        settings: the names and parameters of the score and the normalizer, or None.

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
        >>> steps.to_json("steps.json")[:35]
        '{"steps": [{"name": "query", "note"'
        >>> figure = steps.figure(title="two words")
        >>> "softmax" in [text.get_text() for text in figure.axes[0].texts]
        True
        >>> steps.print("weights")
        1. weights [2×2]: normalized over the keys
        ...
          le     1.0000   0.0000...
          chat   0.3302   0.6698...
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
    before: tuple[Layer, ...] = ()
    after: tuple[Layer, ...] = ()
    one_input: bool = False
    settings: Settings | None = None

    def __getitem__(self, step: str) -> Tensor:
        name = self._name(step)
        if name in STEP_NOTES:
            return getattr(self, name)
        return self._unit_steps[name][1] if name in self._unit_steps else self._layers[name].values

    def _name(self, step: str) -> str:
        """Returns the name of a step, as in `step_names`; raises UnknownNameError if there is none."""
        known = {plain_name(name): name for name in (*self._named_tensors, *self._layers)}
        if not isinstance(step, str) or plain_name(step) not in known:
            raise UnknownNameError("step", step, self.step_names)
        return known[plain_name(step)]

    @property
    def _layers(self) -> dict[str, Layer]:
        return {layer.name: layer for layer in (*self.before, *self.after)}

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
        """Returns the same calculation with tokens for its rows and columns.

        Args:
            queries: a label for each query; None: those of the keys if both come from one input, else q0, q1, ….
            keys: a label for each key; None: those of the queries if both come from one input, else k0, k1, ….

        Raises:
            ShapeError: not as many labels as queries or keys.
        """
        if self.one_input:
            queries, keys = (keys if queries is None else queries), (queries if keys is None else keys)
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
        names, previous = [], self.scores
        for name in self._named_tensors:
            if name in OPTIONAL_STEPS:
                tensor: Tensor = getattr(self, name)
                if tensor is previous:
                    continue
                previous = tensor
            names.append(name)
        before, after = (tuple(layer.name for layer in layers) for layers in (self.before, self.after))
        return (*before, *names, *after)

    @property
    def _named_tensors(self) -> tuple[str, ...]:
        """The names of the attention's tensors in their order, and of steps that it does not have."""
        before_scores = list(STEP_NOTES).index("scores")
        return (*list(STEP_NOTES)[:before_scores], *self._unit_steps, *list(STEP_NOTES)[before_scores:])

    def steps(self) -> Iterator[tuple[str, Tensor]]:
        """Yields the steps that this calculation has, in its order, as (name, tensor)."""
        return ((name, self[name]) for name in self.step_names)

    def row_labels(self, step: str) -> list[str]:
        """Returns the labels of a step's rows: queries, keys, query → key, numbers, or a parameter's name."""
        step = self._name(step)
        queries = list(self.query_labels or _numbered("q", self.query.shape[-2]))
        keys = list(self.key_labels or _numbered("k", self.key.shape[-2]))
        if step in self._layers:
            layer = self._layers[step]
            inputs = list(self.query_labels or _numbered("x", self.query.shape[-2]))
            rows = {"queries": queries, "keys": keys, "inputs": inputs}
            return rows.get(layer.rows) or _numbered("", len(_as_matrix(layer.values)))
        if step in UNIT_WEIGHTS:
            return [step.removeprefix("unit_")]
        if step in ("key", "value"):
            return keys
        if step == "weighted_values" or step in self._unit_steps:
            return [f"{query} → {key}" for query, key in product(queries, keys)]
        return queries

    def column_labels(self, step: str) -> list[str]:
        """Returns the labels of a step's columns: keys, or features."""
        step = self._name(step)
        if step in PAIR_STEPS:
            return list(self.key_labels or _numbered("k", self.key.shape[-2]))
        features = self.value if step == "weighted_values" else self[step]
        return _numbered("", features.shape[-1] if features.dim() else 1)

    def matrix(self, step: str, batch: int = 0, head: int = 0) -> Tensor:
        """Returns one step of one batch row and head as a matrix, detached.

        Weighted values, and the units of a score, have a row for each (query, key).

        Raises:
            UnknownNameError: there is no such step.
            ArgumentError: there is no such batch row or head.
        """
        step = self._name(step)
        self.check_slice(batch, head)
        if step == "weighted_values":
            # Only for this slice: the weighted values of all slices are the largest tensor of a calculation.
            weights, value = self.matrix("weights", batch, head), self.matrix("value", batch, head)
            return (weights[..., None] * value.to(weights.dtype)).flatten(0, 1)
        tensor = self[step].detach()
        if step in self._layers:
            of_rows = self._layers[step].rows != "numbers"
            return tensor[batch] if of_rows and tensor.dim() == 3 else _as_matrix(tensor)
        if step in UNIT_WEIGHTS:
            return (tensor if tensor.dim() == 1 or step == "unit_bias" else tensor[head])[None]
        if step in self._unit_steps:
            return tensor[(batch, head)[: tensor.dim() - 3]].flatten(0, 1)
        has_heads = tensor.dim() == 4
        tensor = tensor[batch] if tensor.dim() > 2 else tensor
        if has_heads:
            # A group of query heads shares one head of keys and values.
            heads = self.scores.shape[-3]
            tensor = tensor[head // (heads // tensor.shape[0])]
        return tensor

    def check_slice(self, batch: int, head: int) -> None:
        """Raises ArgumentError if there is no such batch row or head."""
        if (batch, head) not in self.slices:
            batches, heads = self._sizes
            raise ArgumentError(
                f"batch must be from 0 to {batches - 1} and head from 0 to {heads - 1}; they are {batch!r} and {head!r}"
            )

    @property
    def _sizes(self) -> tuple[int, int]:
        """The number of batch rows and of heads."""
        batches, heads = (*self.scores.shape[:-2], 1, 1)[:2]
        return batches, heads

    @property
    def slices(self) -> list[tuple[int, int]]:
        """Every (batch row, head) of the calculation."""
        batches, heads = self._sizes
        return list(product(range(batches), range(heads)))

    def matrix_steps(
        self, steps: str | Sequence[str] | None = None, *, batch: int | None = 0, head: int | None = 0
    ) -> list[Step]:
        """Returns the steps as labelled matrices of float64.

        Args:
            steps: the names of the steps, a list or between commas; None: all.
            batch: the batch row, from 0; None: all.
            head: the head, from 0; None: all. Steps that all heads share are there for each choice.

        Raises:
            UnknownNameError: there is no such step.
            ArgumentError: there is no such batch row or head.
        """
        batches, heads = self._sizes
        self.check_slice(batch or 0, head or 0)
        chosen = range(batches) if batch is None else [batch], range(heads) if head is None else [head]
        return self._steps(product(*chosen), steps)

    def _steps(self, slices: Iterable[tuple[int, int]], steps: str | Sequence[str] | None = None) -> list[Step]:
        """Returns the steps of these (batch row, head) pairs, with those that heads or batch rows share once."""
        names = self._chosen(steps)
        before, after = (
            [layer.name for layer in layers if layer.name in names] for layers in (self.before, self.after)
        )
        own = [name for name in names if name not in self._layers]
        listed: list[Step] = []
        for batch, group in groupby(slices, key=lambda pair: pair[0]):
            first = not listed
            listed += [self._step(name, batch) for name in before if first or self._has_batch(name)]
            listed += [self._step(name, batch, head) for _, head in group for name in own]
            listed += [self._step(name, batch) for name in after if first or self._has_batch(name)]
        return listed

    def _chosen(self, steps: str | Sequence[str] | None) -> list[str]:
        """Returns the names of the chosen steps in the order of the calculation; all if None."""
        names = list(self.step_names)
        chosen = names if steps is None else steps.split(",") if isinstance(steps, str) else steps
        known = set(map(plain_name, names))
        for step in chosen:
            if plain_name(step) not in known:
                raise UnknownNameError("step", step, names)
        plain = set(map(plain_name, chosen))
        return [name for name in names if plain_name(name) in plain]

    def _has_batch(self, name: str) -> bool:
        return self._layers[name].rows != "numbers" and self._layers[name].values.dim() == 3

    def _step(self, name: str, batch: int, head: int | None = None) -> Step:
        batches, heads = self._sizes
        has_batch = head is not None or self._has_batch(name)
        row = f"batch row {batch}" if batches > 1 and has_batch else ""
        slice_name = ", ".join(part for part in (row, f"head {head}" if heads > 1 and head is not None else "") if part)
        # W_query is a letter and its index, not two words.
        shown = name if name.startswith("W_") else name.replace("_", " ")
        labels = tuple(self.row_labels(name)), tuple(self.column_labels(name))
        matrix = self.matrix(name, batch, head or 0).double()
        return Step(shown, self._note(name), matrix, *labels, batch if has_batch else None, head, slice_name)

    def _note(self, name: str) -> str:
        if name in self._layers:
            return self._layers[name].note
        if name in self.projected:
            return PROJECTED_NOTES[name]
        if name == "scaled":
            return scale_note(self.scores, self.scaled)
        if name == "scores" and self.units is not None and self.units.weight is not None:
            bias = "" if self.units.bias is None else " + unit bias"
            return f"{self.units.steps[-1].name} · unit weights{bias}, for each query and key"
        return self._unit_steps[name][0] if name in self._unit_steps else STEP_NOTES[name]

    def arithmetic(
        self, query: int, steps: str | Sequence[str] | None = None, *, batch: int = 0, head: int = 0, decimals: int = 4
    ) -> str:
        """Returns the calculation of one query's output, number by number.

        A formula is written only if it yields these numbers.

        Args:
            query: its number, from 0.
            steps: the names of the steps whose arithmetic is written, a list or between commas; None: all.
            batch: which batch row.
            head: which query head.
            decimals: digits after the point.

        Raises:
            ArgumentError: there is no such query, batch row or head.
            UnknownNameError: there is no such step.
        """
        self.check_slice(batch, head)
        queries = self.query.shape[-2]
        if not 0 <= whole_number("query", query) < queries:
            raise ArgumentError(f"query must be from 0 to {queries - 1}, one of {queries}; it is {query}")
        numbers = arithmetic_of(self, query, batch, head, decimals)
        return numbers.written(None if steps is None else self._chosen(steps))

    def print(
        self,
        steps: str | Sequence[str] | None = None,
        *,
        batch: int | None = 0,
        head: int | None = 0,
        decimals: int = 4,
    ) -> None:
        """Prints an aligned table of each step, as wide as the terminal allows.

        ``print(explanation)`` prints all steps of the first four (batch row, head) pairs.

        Args:
            steps, batch, head: as for `matrix_steps`.
            decimals: digits after the point.

        Raises:
            As `matrix_steps`.
        """
        from rich.console import Console

        from regard.explanations.tables import step_tables

        Console().print(step_tables(self.matrix_steps(steps, batch=batch, head=head), decimals))

    def __str__(self) -> str:
        from regard.explanations.tables import as_text, step_tables

        return as_text(step_tables(self._steps(self.slices[:SHOWN_SLICES]), 4, self._rest))

    @property
    def _rest(self) -> str:
        """A line about the (batch row, head) pairs that are not shown by themselves; "" if there are none."""
        others = len(self.slices) - SHOWN_SLICES
        return f"… and {others} more of batch × heads are not shown" if others > 0 else ""

    def __repr__(self) -> str:
        # Weighted values are computed on access, and are the largest.
        return record_summary(
            "Explanation", ((name, self[name]) for name in self.step_names if name != "weighted_values")
        )

    def _repr_html_(self) -> str:
        shown = self.slices[:SHOWN_SLICES]
        return html_tables(self._steps(shown), self._rest) if shown else record_html("Explanation", self.steps())

    def figure(
        self,
        steps: str | Sequence[str] | None = None,
        *,
        batch: int | None = 0,
        head: int | None = 0,
        title: str | None = None,
        color_map: str | Mapping[str, str] | None = None,
        transposed: bool = False,
        width: float | None = None,
        language: Literal["en", "zh"] = "en",
    ) -> "Figure":
        """Draws the calculation as a flow from left to right, or chosen steps as annotated heatmaps.

        The flow traces one pair of words: the one with the largest weight between different words. Of more than eight
        rows or columns the others are counted. ``figure("weights", color_map="Oranges")`` is one heat map.

        Args:
            steps, batch, head: as for `matrix_steps`. With steps, or with all batch rows or heads, each step has a
                panel in the order of the calculation, every cell with its number.
            title: over the whole picture.
            color_map: of matplotlib for all steps, or for each step by name, ``{"key": "Oranges"}``; None: blue for
                more, and red for less than 0.
            transposed: whether to draw panels whose vectors are columns: a query, a key or a value for each column.
            width: the most inches of a flow, such as 7 for a paper; None: as large as its matrices need.
            language: of the words of the picture.

        Returns:
            A figure of matplotlib.

        Raises:
            MissingPartError: matplotlib is not installed.
            UnknownNameError: there is no such step or colour map.
            ArgumentError: there is no such batch row or head, or the width is not positive.
        """
        if isinstance(color_map, Mapping):
            color_map = {self._name(name): color for name, color in color_map.items()}
        if width is not None and not width > 0:
            raise ArgumentError(f"width must be a positive number of inches; it is {width!r}")
        drawn = self.matrix_steps(steps, batch=batch, head=head)
        is_whole = steps is None and not transposed and all(step.matrix.numel() for step in drawn)
        if is_whole and batch is not None and head is not None:
            from regard.explanations.flow import flow_of
            from regard.pictures.calculation_flow import calculation_flow

            flow = flow_of(self, batch, head, step_colors(drawn, color_map), language)
            return calculation_flow(flow, title=title, width=width)
        shown = [step.transposed() for step in drawn] if transposed else drawn
        return step_figure(shown, title=title, color_map=color_map, language=language)

    def to_json(
        self,
        path: str | Path | None = None,
        steps: str | Sequence[str] | None = None,
        *,
        batch: int | None = None,
        head: int | None = None,
    ) -> str:
        """Returns the steps in order: ``{"steps": [{"name", "note", "batch", "head", "rows", …}, …]}``.

        A step has its labels in ``rows`` and ``columns`` and its numbers in ``values``, a list for each row; ±inf and
        NaN are the strings "inf", "-inf", "nan". ``batch`` and ``head`` count from 0, and are null if all share a step.

        Args:
            path: write it there as well.
            steps, batch, head: as for `matrix_steps`; default: all.

        Returns:
            The text.

        Raises:
            DataError: the file cannot be written.
            UnknownNameError, ArgumentError: as `matrix_steps`.
        """
        chosen = self.matrix_steps(steps, batch=batch, head=head) if self.slices else []
        text = steps_json(chosen)
        if path is not None:
            # Half a surrogate pair in a label becomes an escape of JSON.
            write_atomically(path, (text + "\n").encode("utf-8", "backslashreplace"))
        return text


def _numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{i}" for i in range(count)]


def _as_matrix(parameter: Tensor) -> Tensor:
    """Returns a parameter as a matrix; it may be a number or a vector, or have a matrix for each head."""
    return parameter.reshape(1, -1) if parameter.dim() < 2 else parameter.reshape(-1, parameter.shape[-1])
