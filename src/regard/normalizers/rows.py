"""The rows that a normalizer works on: their check at the door, and the largest score of each."""

import torch
from torch import Tensor

from regard.errors import ShapeError
from regard.shapes import check_floating


def check_rows(scores: Tensor, dim: int) -> None:
    """Raise KindError or ShapeError unless ``scores`` are floating-point numbers with an axis ``dim``."""
    check_floating("scores", scores)
    if not -scores.dim() <= dim < scores.dim():
        raise ShapeError(f"dim must be an axis of scores, which have shape {list(scores.shape)}; it is {dim}")


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
