"""The rows that a normalizer works on: their check, their hidden pairs, their largest scores and their log-sum-exp."""

import math

import torch
from torch import Tensor

from regard.errors import ShapeError
from regard.shapes import check_floating
from regard.transforms import can_branch_on


def check_rows(scores: Tensor, dim: int) -> None:
    """Raise KindError or ShapeError unless ``scores`` are floating-point numbers with an axis ``dim``."""
    check_floating("scores", scores)
    if not -scores.dim() <= dim < scores.dim():
        raise ShapeError(f"dim must be an axis of scores, which have shape {list(scores.shape)}; it is {dim}")


def hidden_pairs(scores: Tensor) -> Tensor | None:
    """Bool, true where a score is −inf; None if all scores are known to be finite.

    One sum tells that they are, on a CPU; on other devices reading it would cost more than it saves.
    """
    if scores.device.type == "cpu" and can_branch_on(scores) and math.isfinite(scores.detach().sum().item()):
        return None
    return scores == -torch.inf


def first_is_finite(rows: Tensor, dim: int) -> bool:
    """Whether the sum of the first elements of all rows is finite: a cheap test for rows that are NaN throughout."""
    return math.isfinite(rows.detach().narrow(dim, 0, min(1, rows.shape[dim])).sum().item())


def largest(scores: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The largest score of each row, and whether the row has nothing to see.

    Returns:
        The largest score, but 0 for a row of −inf only, so that it can be subtracted without making NaN; and bool, true
        for these rows. Both keep ``dim`` with length 1.
    """
    if scores.shape[dim] == 0:
        shape = list(scores.shape)
        shape[dim] = 1
        return scores.new_zeros(shape), torch.ones(shape, dtype=torch.bool, device=scores.device)
    top = scores.amax(dim, keepdim=True)
    empty = top == -torch.inf
    return top.masked_fill(empty, 0.0), empty


def log_sum_exp(scores: Tensor) -> Tensor:
    """``log Σ exp`` of the last axis's rows: −inf, with gradient 0, for a row of −inf only; NaN for a row with NaN,
    else +inf for one with +inf."""
    hidden = hidden_pairs(scores)
    if hidden is None and scores.shape[-1]:
        return torch.logsumexp(scores, dim=-1)
    hidden = scores == -torch.inf if hidden is None else hidden
    empty = hidden.all(-1, keepdim=True)
    # The first filling changes no number: it only stops gradients at hidden pairs.
    shown = scores.masked_fill(hidden, -torch.inf).masked_fill(empty, 0.0)
    return torch.logsumexp(shown, dim=-1).masked_fill(empty.squeeze(-1), -torch.inf)
