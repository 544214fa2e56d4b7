"""The sum of a row's weights, as the output for a value of 1."""

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.shapes.axes import Float


def with_ones(value: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape columns"]:
    """Returns values with one more column, of 1."""
    return F.pad(value, (0, 1), value=1.0)


def divided(output: Float[Tensor, "*shape columns"]) -> Float[Tensor, "*shape dim"]:
    """Returns the outputs of such values divided by their last column, the sum of their weights, without it.

    An infinite sum makes a row NaN, as keys compete; where the sum is 0 or has no inverse, the row is 0.
    """
    sums, total = output[..., :-1], output[..., -1:]
    is_empty = total.abs() < torch.finfo(total.dtype).tiny
    return sums / torch.where(is_empty, torch.inf, total + 0.0 * total.detach())
