"""What a problem that regard itself runs computes: it is a problem already."""

from dataclasses import replace
from numbers import Real

import torch
from torch import Tensor

from regard.attention.problem import Problem
from regard.errors import ArgumentError
from regard.scores import ScaledDot, Score, SoftCap
from regard.scores.modifiers import Wrapper
from regard.watching.intercepted import Intercepted
from regard.watching.mask_kind import is_causal, kind_of_mask

SOURCE = "regard"


@torch.no_grad()
def read_problem(problem: Problem, weights: Tensor | None) -> Intercepted:
    """The call, with detached tensors.

    Args:
        problem: what was run.
        weights: those that the call gave, if it did; random weights are known by them alone.
    """
    detached = replace(
        problem,
        query=problem.query.detach(),
        key=problem.key.detach(),
        value=problem.value.detach(),
        dropout=0.0,
        memory=None,
    )
    visible = problem.mask
    if problem.normalizer.random and weights is None:
        raise ArgumentError("its weights are drawn at random, and observe does not give those that it drew")
    row = problem.row
    innermost = _innermost(problem.score)
    factor = getattr(innermost, "scale", None)
    if isinstance(innermost, ScaledDot) and factor is None:
        factor = problem.query.shape[-1] ** -0.5
    drawn = problem.normalizer.random
    return Intercepted(
        source=SOURCE,
        mask=kind_of_mask(visible, problem.grid),
        visible=visible,
        causal=is_causal(visible),
        problem=None if drawn and weights is not None else detached,
        weights=weights.detach() if drawn and weights is not None else None,
        value=detached.value,
        has_bias=problem.bias is not None,
        scale=float(factor) if isinstance(factor, Real) else None,
        cap=problem.score.cap if isinstance(problem.score, SoftCap) else None,
        has_sink=row is not None and row.sink is not None,
        dropout=problem.dropout,
    )


def _innermost(score: Score) -> Score:
    while isinstance(score, Wrapper):
        score = score.score
    return score
