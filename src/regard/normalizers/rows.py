"""Operations on rows of scores: checks, hidden pairs, maxima and the log-sum-exp."""

import math

import torch
from torch import Tensor

from regard.errors import ShapeError
from regard.shapes import check_floating
from regard.transforms import can_branch_on


def check_rows(scores: Tensor, dim: int) -> None:
    """Raises KindError or ShapeError unless ``scores`` is a floating-point tensor with an axis ``dim``."""
    check_floating("scores", scores)
    if not -scores.dim() <= dim < scores.dim():
        raise ShapeError(f"dim must be an axis of scores, which have shape {list(scores.shape)}; it is {dim}")


def hidden_pairs(scores: Tensor) -> Tensor | None:
    """Returns a bool tensor, True where a score is −inf, or None if all scores are known to be finite.

    On a CPU one sum tells whether they are; on other devices reading it would cost more than it saves.
    """
    if scores.device.type == "cpu" and can_branch_on(scores) and math.isfinite(scores.detach().sum().item()):
        return None
    return scores == -torch.inf


def first_is_finite(rows: Tensor, dim: int) -> bool:
    """Whether the first elements of all rows have a finite sum: a cheap test for rows that are entirely NaN."""
    return math.isfinite(rows.detach().narrow(dim, 0, min(1, rows.shape[dim])).sum().item())


def row_maximum(scores: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Returns the maximum of each row, and which rows are empty: they have no visible key.

    Returns:
        The maximum, but 0 for an empty row, so that subtracting it gives no NaN; and a bool tensor, True for empty
        rows. Both keep ``dim`` with length 1.
    """
    if scores.shape[dim] == 0:
        shape = list(scores.shape)
        shape[dim] = 1
        return scores.new_zeros(shape), torch.ones(shape, dtype=torch.bool, device=scores.device)
    maximum = scores.amax(dim, keepdim=True)
    empty = maximum == -torch.inf
    return maximum.masked_fill(empty, 0.0), empty


def log_sum_exp(scores: Tensor) -> Tensor:
    """Returns ``log Σ exp`` over the last axis.

    It is −inf, with gradient 0, for an empty row; NaN for a row with NaN; otherwise +inf for a row with +inf.
    """
    hidden = hidden_pairs(scores)
    if hidden is None and scores.shape[-1]:
        return torch.logsumexp(scores, dim=-1)
    hidden = scores == -torch.inf if hidden is None else hidden
    empty = hidden.all(-1, keepdim=True)
    # The first fill changes no value: it only stops gradients at hidden pairs.
    visible = scores.masked_fill(hidden, -torch.inf).masked_fill(empty, 0.0)
    return torch.logsumexp(visible, dim=-1).masked_fill(empty.squeeze(-1), -torch.inf)
