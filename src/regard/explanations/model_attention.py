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
from regard.explanations.explanation import Explanation
from regard.records import AttentionRecord, Axis, StepsRecord
from regard.records.attention_record import Kind
from regard.records.document import ORDER


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
        """The weights, with the tokens and what the mask hides."""
        weights = torch.cat([call.weights[0] for call in self.calls], dim=1) if self.weights is None else self.weights
        weights = weights[None] if weights.dim() == 2 else weights
        visible = None
        if any(call.problem.mask is not None for call in self.calls):
            visible = torch.cat([_visible(call.problem) for call in self.calls], dim=1)
            # One matrix where all heads have the same mask; none where it hides nothing.
            visible = (visible[0] if bool((visible == visible[:1]).all()) else visible).numpy()
            visible = None if visible.all() else visible
        return AttentionRecord(
            self.name, self.layer, self.kind, self.queries, self.keys, weights.float().cpu().numpy(), visible
        )

    def steps(self, head: int) -> StepsRecord:
        """The worked calculation of a head, from 0; ArgumentError if there is no such head."""
        if not 0 <= head < self.heads:
            raise ArgumentError(f"head must be from 0 to {self.heads - 1}; it is {head}")
        with torch.inference_mode():
            worked = [explain_problem(replace(call.problem, memory=None)) for call in self.calls]
        matrices = _joined([_matrices(one, head) for one in worked])
        products = matrices["query"] @ matrices["key"].T if _same_features(matrices) else None
        is_dot = products is not None and bool(np.allclose(products, matrices["scores"], rtol=1e-4, atol=1e-5))
        problem = self.calls[0].problem
        return StepsRecord(
            f"{self.name}, head {head}",
            matrices,
            self.queries.labels,
            self.keys.labels,
            "dot" if is_dot else type(problem.score).__name__,
            type(problem.normalizer).__name__.lower(),
            self.layer,
            head,
        )


def _visible(problem: Problem) -> Tensor:
    """The visible pairs, bool ``[heads, queries, keys]`` on the CPU."""
    heads, queries, keys = problem.query.shape[1], problem.query.shape[2], problem.key.shape[2]
    if problem.mask is None:
        return torch.ones(heads, queries, keys, dtype=torch.bool)
    return problem.mask.dense(problem.grid)[0].expand(heads, queries, keys).cpu()


def _matrices(worked: Explanation, head: int) -> dict[str, np.ndarray]:
    return {name: worked.matrix(name, 0, head).cpu().double().numpy() for name in worked.step_names if name in ORDER}


def _joined(parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The steps of all queries; keys and values are the same in each part."""
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return joined | {name: parts[0][name] for name in ("key", "value")}


def _same_features(matrices: dict[str, np.ndarray]) -> bool:
    return matrices["query"].shape[1] == matrices["key"].shape[1]
