"""One attention of a model on an input: its record for pictures, and the worked steps of its heads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from regard.attention.execution import RecordedCall
from regard.attention.problem import Problem
from regard.errors import ArgumentError
from regard.explanations.explain import explain_problem
from regard.explanations.worked_head import head_arguments, head_matrices
from regard.records import AttentionRecord, Axis, StepsRecord
from regard.records.attention_record import Kind


@dataclass(frozen=True, eq=False)
class ModelAttention:
    """One attention of a model, as it ran on one input.

    Attributes:
        name: of the module, such as ``"decoder.layers.0.multihead_attn"``.
        layer: from 0.
        kind: ``"self"``, ``"causal"`` or ``"cross"``.
        queries: the axis of the queries of all calls.
        keys: the axis of the keys.
        calls: the calls for a batch of one: one for all queries, or one for each step of a decoder.
        weights: weights that the model used instead of those of ``calls``, ``[queries, keys]``: the choices of hard
            attention. None: those of ``calls``.
    """

    name: str
    layer: int
    kind: Kind
    queries: Axis
    keys: Axis
    calls: Sequence[RecordedCall]
    weights: Tensor | None = None

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
            self.name, self.layer, self.kind, self.queries, self.keys, weights.float().cpu().numpy(), visible
        )

    def steps(self, head: int) -> StepsRecord:
        """Returns the worked calculation of a head, from 0; raises ArgumentError if there is no such head."""
        if not 0 <= head < self.heads:
            raise ArgumentError(f"head must be from 0 to {self.heads - 1}; it is {head}")
        parts = [call.parts or (call,) for call in self.calls]
        number, own = divmod(head, parts[0][0].weights.shape[1])
        name = self.name if len(parts[0]) == 1 else f"{self.name}, map {number + 1}"
        problems = [each[number].problem for each in parts]
        return worked_steps(problems, own, name, self.layer, self.queries, self.keys)


def _visible(problem: Problem) -> Tensor:
    """Returns the visible pairs, bool ``[heads, queries, keys]`` on the CPU."""
    heads, queries, keys = problem.query.shape[1], problem.query.shape[2], problem.key.shape[2]
    if problem.mask is None:
        return torch.ones(heads, queries, keys, dtype=torch.bool)
    return problem.mask.dense(problem.grid)[0].expand(heads, queries, keys).cpu()


def _joined(parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
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
