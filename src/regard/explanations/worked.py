"""A calculation around attention, worked through: from the inputs to the results that follow from the output."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.errors import ArgumentError, ShapeError, UnknownNameError
from regard.explanations.explain import explain
from regard.explanations.explanation import STEPS, Explanation
from regard.explanations.matrix_texts import html_tables
from regard.explanations.step import Step, json_numbers, json_text, step_figure
from regard.masks.mask import Mask
from regard.normalizers import Normalizing
from regard.scores import Scoring, as_score
from regard.shapes import whole_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType


@dataclass(frozen=True, eq=False, repr=False)
class WorkedCalculation:
    """The steps of a calculation in order: to print, to draw, to export.

    Attributes:
        steps: the steps.
        explanation: the attention among them, or None.
        heads: the number of heads.
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
            head: the head whose steps remain, from 0; None: all.
            names: of the steps that remain; None: all.

        Raises:
            UnknownNameError: no step has such a name.
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
                "name": step.name, "note": step.note, "head": step.head, "rows": step.row_labels,
                "columns": step.column_labels, "values": json_numbers(step.matrix),
            }
            for step in self.steps
        ]  # fmt: skip
        return json_text({"heads": self.heads, "steps": steps})


def work_through(
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    *,
    w_query: Tensor | None = None,
    w_key: Tensor | None = None,
    w_value: Tensor | None = None,
    heads: int = 1,
    w_output: Tensor | None = None,
    w_decoder: Tensor | None = None,
    score: Scoring = "scaled_dot",
    normalizer: Normalizing = "softmax",
    mask: Mask | Tensor | None = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
    input_name: str = "input",
) -> WorkedCalculation:
    """Every step of attention, with the projections before it and the results that follow from its output.

        query, key, value = input W_query, input W_key, input W_value      features split among the heads
        output_h          = attention of head h
        projected         = [output_1; …; output_heads] W_output           Vaswani et al. 2017, §3.2.2
        decoder output    = tanh(W_decoder [state; context])               Luong et al. 2015, eq. 5

    Args:
        query: ``[queries, dim]``; without weights and with one head also ``[1, heads, queries, dim]``.
        key: ``[keys, dim]``; the queries' input if not given.
        value: ``[keys, value_dim]``; the keys' input if not given.
        w_query: ``[dim, heads · head_dim]``, or None for none; likewise ``w_key`` and ``w_value``.
        heads: the number of heads that the projected features are split among.
        w_output: ``[heads · value_dim, dim]``, or None.
        w_decoder: ``[units, dim + value_dim]``, or None.
        score, normalizer, mask: as for `attend`.
        query_labels: a name for each query; those of the keys where both are one input.
        key_labels: a name for each key.
        input_name: the name of an input that is projected.

    Raises:
        As `attend`; ShapeError for weights of the wrong shape.
    """
    heads = whole_number("heads", heads, low=1)
    shared = key is None and value is None
    key = query if key is None else key
    value = key if value is None else value
    if query_labels is None and shared:
        query_labels = key_labels
    inputs = {"query": query, "key": key, "value": value}
    for name, tensor in inputs.items():
        if tensor.dim() > 2 and not (tensor.dim() == 4 and tensor.shape[0] == 1):
            raise ShapeError(
                f"{name} must be of one calculation, [length, dim] or [1, heads, length, dim]; "
                f"it has shape {list(tensor.shape)}"
            )
    weights = {"query": w_query, "key": w_key, "value": w_value}

    before: list[Step] = []
    if shared and any(weight is not None for weight in weights.values()):
        before.append(_step(input_name, "what goes in, a row each", query, _names("x", query, query_labels)))
    projected = {}
    for name, weight in weights.items():
        if weight is not None:
            labels = query_labels if name == "query" else key_labels
            if not shared:
                rows = _names(name[0], inputs[name], labels)
                before.append(_step(f"{name} {input_name}", "what goes in", inputs[name], rows))
            before.append(_step(f"W_{name}", f"{name} = {input_name} W_{name}", weight))
        projected[name] = _split(f"W_{name}", name, _projected(f"W_{name}", inputs[name], weight), heads)
    score = as_score(score)
    explanation = explain(**projected, score=score, normalizer=normalizer, mask=mask)
    explanation = explanation.labelled(query_labels, key_labels)
    unit_weights = None if explanation.units is None else explanation.units.weight
    before += [
        _step(f"score {name.replace('_', ' ')}", "weights of the score", parameter)
        for name, parameter in score.named_parameters()
        if parameter is not unit_weights
    ]

    after: list[Step] = []
    output = explanation.output
    if output.dim() == 4:
        output = output[0].transpose(0, 1).flatten(1)
        after.append(_step("concatenated", "the heads' outputs side by side", output, explanation.row_labels("output")))
    if w_output is not None:
        output = _projected("W_output", output, w_output)
        after.append(_step("W_output", "projected = output W_output", w_output))
        after.append(_step("projected", "the output, projected", output, explanation.row_labels("output")))
    if w_decoder is not None:
        labels = explanation.row_labels("output")
        after.append(_step("state and context", "[state; context]", _side_by_side(query, output), labels))
        after.append(_step("W_decoder", "a row for each unit of the tanh layer", w_decoder))
        final = decoder_output(query, output, w_decoder)
        after.append(_step("decoder output", "tanh(W_decoder [state; context])", final, labels))
    steps = (*before, *attention_steps(explanation), *after)
    return WorkedCalculation(steps, explanation, len(explanation.slices))


def attention_steps(explanation: Explanation) -> Iterator[Step]:
    """The steps of an Explanation without a batch axis, head after head."""
    for batch, head in explanation.slices:
        for step in explanation.matrix_steps(batch, head):
            yield replace(step, note=_scale_note(explanation)) if step.name == "scaled" else step


def _scale_note(explanation: Explanation) -> str:
    """The note of the scaled scores, with the scale if it is one number for all pairs."""
    if not explanation.scores.numel():
        return STEPS["scaled"]
    raw, scaled = (tensor.detach().double().flatten() for tensor in (explanation.scores, explanation.scaled))
    largest = raw.abs().argmax()
    factor = scaled[largest] / raw[largest]
    return f"scores × {factor.item():.4g}" if torch.allclose(raw * factor, scaled) else STEPS["scaled"]


def decoder_output(state: Tensor, context: Tensor, weight: Tensor) -> Tensor:
    """The output of a decoder, computed from its state and its context.

    .. math:: \\tanh(W [state; context])

    Luong et al. 2015, eq. 5; they put the context first.

    Args:
        state: ``[..., state_dim]``.
        context: ``[..., context_dim]``.
        weight: ``[units, state_dim + context_dim]``, the state's columns first.

    Returns:
        ``[..., units]``.

    Raises:
        ShapeError: the weight has the wrong shape.
    """
    joined = _side_by_side(state, context)
    if weight.dim() != 2 or weight.shape[1] != joined.shape[-1]:
        raise ShapeError(
            f"W_decoder must be [units, {joined.shape[-1]}]: {state.shape[-1]} features of the state and "
            f"{context.shape[-1]} of the context; it has shape {list(weight.shape)}"
        )
    return (joined @ weight.T).tanh()


def _side_by_side(state: Tensor, context: Tensor) -> Tensor:
    if state.shape[:-1] != context.shape[:-1]:
        raise ShapeError(
            f"state and context must agree but for their features; they have shapes {list(state.shape)} and "
            f"{list(context.shape)}"
        )
    return torch.cat((state, context), dim=-1)


def _projected(name: str, tensor: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return tensor
    if tensor.dim() != 2 or weight.dim() != 2 or weight.shape[0] != tensor.shape[1]:
        raise ShapeError(
            f"{name} must have a row for each feature of what it multiplies, which has shape {list(tensor.shape)}; "
            f"it has shape {list(weight.shape)}"
        )
    return tensor @ weight


def _split(weight: str, name: str, tensor: Tensor, heads: int) -> Tensor:
    if heads == 1:
        return tensor
    if tensor.dim() != 2:
        raise ArgumentError(f"{name} has heads already, in its shape {list(tensor.shape)}; leave heads out")
    if tensor.shape[1] % heads:
        raise ShapeError(
            f"heads must divide the features of {name}, the columns of {weight} if there is one; "
            f"heads is {heads} and the features are {tensor.shape[1]}"
        )
    return tensor.unflatten(1, (heads, -1)).transpose(0, 1)[None]


def _step(name: str, note: str, matrix: Tensor, rows: Sequence[str] | None = None) -> Step:
    matrix = matrix.detach().double()
    # A score's weights may be vectors or numbers, or have a matrix for each head.
    matrix = matrix.reshape(1, -1) if matrix.dim() < 2 else matrix.reshape(-1, matrix.shape[-1])
    columns = tuple(str(column) for column in range(matrix.shape[1]))
    if rows is None:
        rows = [str(row) for row in range(len(matrix))]
    return Step(name, note, matrix, tuple(rows), columns)


def _names(prefix: str, tensor: Tensor, labels: Sequence[str] | None) -> Sequence[str]:
    fits = labels is not None and len(labels) == tensor.shape[0]
    return labels if labels is not None and fits else [f"{prefix}{row}" for row in range(tensor.shape[0])]
