"""Dropout in plain PyTorch, from random bits that cost a fifth of PyTorch's random numbers on a CPU."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.transforms import can_branch_on

_LEVELS = 1 << 16
"""Sixteen random bits decide about an element."""


class Draw(NamedTuple):
    """The random bits of a tensor's elements.

    Attributes:
        bits: int16, at least as many as the tensor has elements.
        threshold: an element whose bits are at least this is kept.
        factor: what kept elements are multiplied by.
    """

    bits: Tensor
    threshold: int
    factor: float

    def kept(self, like: Tensor) -> Tensor:
        """What the elements of a tensor are multiplied by: 0 or the factor."""
        return (self.bits[: like.numel()].view(like.shape) >= self.threshold).to(like.dtype).mul_(self.factor)


def draw(input: Tensor, p: float) -> Draw | None:
    """The random bits that drop elements of ``input`` with probability ``p``, from PyTorch's global generator.

    Four elements share the 64 bits of one number, so that ``p`` is rounded to a multiple of 1 / 65,536.

    Returns:
        None where nothing or everything is dropped, on other devices than CPUs, while PyTorch traces, and under
        `torch.func`: there `torch.nn.functional.dropout` is used.
    """
    dropped = round(p * _LEVELS)
    if p == 0 or dropped == _LEVELS or not (input.is_cpu and can_branch_on(input)):
        return None
    words = torch.empty((input.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    return Draw(words.view(torch.int16), dropped - _LEVELS // 2, _LEVELS / (_LEVELS - dropped))


def dropout(weights: Tensor, p: float) -> Tensor:
    """Weights set to 0 with probability ``p``, the others multiplied by ``1 / (1 − p)``.

    Srivastava et al. 2014, section 4 (inverted). On a CPU ``p`` is rounded to a multiple of 1 / 65,536: see `draw`.

    Args:
        weights: any floating-point tensor.
        p: probability of an element to be set to 0, in [0, 1].
    """
    if p == 0:
        return weights
    drawn = draw(weights, p)
    return F.dropout(weights, p) if drawn is None else weights * drawn.kept(weights)
