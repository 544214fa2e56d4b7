"""One attention of a model on an input: its record for pictures, and the worked steps of its heads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attention.execution import RecordedCall
from regard.attention.problem import Problem
from regard.errors import ArgumentError, RegardError
from regard.explanations.explain import explain_problem
from regard.explanations.explanation import Explanation
from regard.records import AttentionRecord, Axis, StepsRecord
from regard.records.attention_record import Kind
from regard.records.document import STEP_ORDER
from regard.scores import Additive, Score

Matrices = dict[str, NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class ModelAttention:
    """One attention of a model, as it ran on one input.

    Attributes:
        name: the name of the module, such as ``"decoder.layers.0.multihead_attn"``.
        queries: the axis of the queries of all calls.
        calls: the calls for a batch of one: one for all queries, or one for each step of a decoder.
        weights: weights that the model used instead of those of ``calls``, ``[queries, keys]``: the choices of hard
            attention. None: those of ``calls``.
        score: the score whose projections the calls have applied before; None: the calls have the whole score.
        states: the queries of each call before that projection, ``[1, queries, dim]``.
    """

    name: str
    layer: int
    kind: Kind
    queries: Axis
    keys: Axis
    calls: Sequence[RecordedCall]
    weights: Tensor | None = None
    score: Score | None = None
    states: Sequence[Tensor] = ()

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.calls[0].weights.shape[1]

    def record(self) -> AttentionRecord:
        """Returns the weights, with the tokens and the pairs that the mask hides."""
        weights = torch.cat([call.weights[0] for call in self.calls], dim=1) if self.weights is None else self.weights
        weights = weights[None] if weights.dim() == 2 else weights
        visible = None
        if any(call.problem.mask is not None for call in self.calls):
            visible = torch.cat(
                [torch.cat([_visible(part.problem) for part in call.parts or (call,)]) for call in self.calls], dim=1
            )
            # One matrix where all heads have the same mask; none where it hides nothing.
            visible = (visible[0] if bool((visible == visible[:1]).all()) else visible).numpy()
            visible = None if visible.all() else visible
        return AttentionRecord(
            self.name, self.layer, self.kind, self.queries, self.keys, weights.float().cpu().numpy(), visible,
            worked=self.steps,
        )  # fmt: skip

    def steps(self, head: int) -> StepsRecord:
        """Returns the worked calculation of a head, from 0; raises ArgumentError if there is no such head."""
        if not 0 <= head < self.heads:
            raise ArgumentError(f"head must be from 0 to {self.heads - 1}; it is {head}")
        parts = [call.parts or (call,) for call in self.calls]
        number, own = divmod(head, parts[0][0].weights.shape[1])
        name = self.name if len(parts[0]) == 1 else f"{self.name}, map {number + 1}"
        problems = [each[number].problem for each in parts]
        steps = worked_steps(problems, own, name, self.layer, self.queries, self.keys)
        if self.score is None or len(self.states) != len(self.calls):
            return steps
        states = torch.cat(list(self.states), dim=1)[0]
        inputs = score_inputs(self.score, own, steps.matrices, states, torch.from_numpy(steps.matrices["value"]))
        return replace(steps, matrices={**steps.matrices, **inputs}, comparison=type(self.score).__name__)


def _visible(problem: Problem) -> Tensor:
    """Returns the visible pairs, bool ``[heads, queries, keys]`` on the CPU."""
    heads, queries, keys = problem.query.shape[1], problem.query.shape[2], problem.key.shape[2]
    if problem.mask is None:
        return torch.ones(heads, queries, keys, dtype=torch.bool)
    return problem.mask.dense(problem.grid)[0].expand(heads, queries, keys).cpu()


def _joined(parts: Sequence[Matrices]) -> Matrices:
    """Joins the steps of all queries; keys and values are the same in each part."""
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return joined | {name: parts[0][name] for name in ("key", "value")}


def worked_steps(
    problems: Sequence[Problem], head: int, name: str, layer: int, queries: Axis, keys: Axis
) -> StepsRecord:
    """Returns the worked calculation of a head, from 0, of the first batch row.

    There is one problem for all queries, or one for each step of a decoder; these have the same keys and values. The
    axis ``queries`` is that of the queries of all problems.
    """
    with torch.inference_mode():
        worked = [explain_problem(replace(problem, memory=None)) for problem in problems]
    matrices = _joined([head_matrices(one, 0, head) for one in worked])
    if worked[0].projected:
        shared = head * problems[0].key.shape[1] // max(1, problems[0].query.shape[1])
        queries_before = torch.cat([problem.query[0, head] for problem in problems])
        matrices |= score_inputs(problems[0].score, head, matrices, queries_before, problems[0].key[0, shared])
    return StepsRecord(
        f"{name}, head {head}",
        matrices,
        queries.labels,
        keys.labels,
        layer=layer,
        head=head,
        attention=name,
        **head_arguments(worked[0], 0, head, matrices),
    )


def score_inputs(score: Score, head: int, matrices: Mapping[str, Any], query: Tensor, key: Tensor) -> Matrices:
    """Returns what a score projects, with the matrices of its projections, and the weights of an additive score.

    A constant that is added is the last row of the matrix, and the last feature of the input is then 1.

    Args:
        matrices: with ``query`` and ``key`` after the projections.
        query: ``[queries, dim]``, before the projection; ``key`` likewise.
    """
    inputs: Matrices = {}
    for name, rows, project in (("query", query, score.project_query), ("key", key, score.project_key)):
        before = rows.detach().cpu().double().numpy()
        count = before.shape[1]
        probes = torch.cat([torch.eye(count), torch.zeros(1, count)])[None, None].to(key.device, torch.float32)
        try:
            with torch.inference_mode():
                after = project(probes)
        except RegardError:
            continue  # the rows are projected already
        if after is probes:
            continue
        of_head = after[0, head if after.shape[1] > 1 else 0].detach().cpu().double().numpy()
        constant = of_head[-1:]
        weight = of_head[:-1] - constant
        if constant.any():
            before, weight = np.hstack([before, np.ones((len(before), 1))]), np.vstack([weight, constant])
        if np.allclose(before @ weight, matrices[name], rtol=1e-3, atol=1e-4):
            inputs |= {f"{name}_input": before, f"w_{name}": weight}
    if isinstance(score, Additive):
        units = score.weight if score.weight.dim() == 1 else score.weight[head]
        weight = units.detach().cpu().double().numpy()[:, None]
        sums = np.tanh(matrices["query"][:, None] + matrices["key"])
        if np.allclose((sums @ weight)[..., 0], matrices["scores"], rtol=1e-3, atol=1e-4, equal_nan=True):
            inputs["w_score"] = weight
    return inputs


def head_matrices(explanation: Explanation, batch: int, head: int) -> Matrices:
    """Returns the steps of one batch row and head, both from 0, with inputs and projections, if any."""

    def matrix(name: str) -> NDArray[np.float64]:
        return explanation.matrix(name, batch, head).cpu().double().numpy()

    names = explanation.step_names
    matrices = {name: matrix(name) for name in names if name in STEP_ORDER}
    for name in ("query", "key", "value"):
        source = "input" if explanation.one_input else f"{name}_input"
        # A score with a projection of its own projects once more.
        if f"W_{name}" in names and source in names and name not in explanation.projected:
            features = matrices[name].shape[1]
            weight = matrix(f"W_{name}")
            first = features * (head if weight.shape[1] > features else 0)
            matrices |= {f"{name}_input": matrix(source), f"w_{name}": weight[:, first : first + features]}
    return matrices


def head_arguments(explanation: Explanation, batch: int, head: int, matrices: Matrices) -> dict[str, Any]:
    """Returns the other arguments of the record: how the scores are computed, scaled and normalized.

    The score is ``"dot"`` if its numbers are the inner products of queries and keys.
    """
    assert explanation.settings is not None, "explanations of a problem have settings"
    arguments = explanation.settings.of_head(batch, head)
    query, key, scores = matrices["query"], matrices["key"], matrices["scores"]
    if query.shape[1] == key.shape[1] and np.allclose(query @ key.T, scores, rtol=1e-4, atol=1e-5, equal_nan=True):
        arguments["score"] = "dot"
    return arguments | {"comparison": explanation.settings.score}
