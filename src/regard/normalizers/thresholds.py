"""Forward solutions of the entmax problem: by sorting where there is a closed form, and by root finding for any alpha.

All take scores in float32 or float64, with −inf for what may not be seen, and give weights that are exactly 0 there.
"""

import math

import torch
from torch import Tensor
from torch.library import Library

from regard.normalizers.rows import largest
from regard.transforms import can_branch_on

# Scores this far below the largest (in units where weights are (z − τ)₊ ^ …, and τ ≥ −1) have weight 0 in any case;
# lifting them to it keeps −inf and huge numbers out of the sums.
_FLOOR = -2.0

_CORRECTIONS = 2
"""Newton's steps from the threshold by sorting: sums of sorted scores lose digits in long rows. The threshold's own
last digit is not enough there, so what is above it is corrected, and not the threshold."""

_NEWTON_STEPS = 32
"""Newton's method takes three to ten steps, twenty where many weights leave 0 together. After so many the bracket is
halved until its ends are neighbouring numbers."""

_ROUNDINGS = 8.0
"""A sum that differs from 1 by so many roundings is 1."""


def sparsemax_by_sort(scores: Tensor, dim: int) -> Tensor:
    """``(s − τ)₊`` with sum 1, the threshold τ by sorting (Martins & Astudillo 2016, algorithm 1)."""
    top, empty = largest(scores, dim)
    shifted = (scores - top).clamp_min_(_FLOOR)
    ordered = shifted.sort(dim, descending=True).values
    rank = _ranks(ordered, dim)
    excess = ordered.cumsum(dim).sub_(1.0)
    support = (rank * ordered > excess).sum(dim, keepdim=True).clamp_min_(1)
    above = shifted.sub_(excess.gather(dim, support - 1) / support)
    for _ in range(_CORRECTIONS):
        weights = above.clamp_min(0.0)
        step = weights.sum(dim, keepdim=True).sub_(1.0).div_((weights > 0.0).sum(dim, keepdim=True).clamp_min_(1))
        above = above.sub_(step)
    return above.clamp_min_(0.0).masked_fill_(empty, 0.0)


def entmax15_by_sort(scores: Tensor, dim: int) -> Tensor:
    """``(s/2 − τ)₊²`` with sum 1, the threshold τ by sorting (Peters, Niculae & Martins 2019, algorithm 2)."""
    top, empty = largest(scores, dim)
    halved = (scores - top).div_(2.0).clamp_min_(_FLOOR)
    ordered = halved.sort(dim, descending=True).values
    rank = _ranks(ordered, dim)
    mean = ordered.cumsum(dim).div_(rank)
    spread = ordered.square().cumsum(dim).div_(rank).sub_(mean.square())
    candidates = mean.sub_((1.0 / rank - spread).clamp_min_(0.0).sqrt_())
    support = (candidates <= ordered).sum(dim, keepdim=True).clamp_min_(1)
    above = halved.sub_(candidates.gather(dim, support - 1))
    for _ in range(_CORRECTIONS):
        root = above.clamp_min(0.0)
        norm = root.square().sum(dim, keepdim=True).sqrt_()
        above = above.sub_((norm - 1.0) * norm / root.sum(dim, keepdim=True).clamp_min_(torch.finfo(scores.dtype).tiny))
    weights = above.clamp_min_(0.0)
    weights.mul_(weights)
    return weights.div_(weights.sum(dim, keepdim=True)).masked_fill_(empty, 0.0)


def entmax_by_root(scores: Tensor, alpha: Tensor, dim: int) -> Tensor:
    """The weights for any alpha > 1, by finding the largest weight of each row.

    Let :math:`a = \\alpha - 1`, and :math:`q` the weight of the row's largest score :math:`s_1`. Then all weights are

    .. math:: p_j = q \\, \\big(1 + a (s_j - s_1) \\, q^{-a}\\big)_+^{1/a}

    and their sum grows with :math:`q` in :math:`[1/n, 1]`. Unlike the threshold itself, :math:`q` is as well
    conditioned near :math:`a = 0` (where the formula becomes :math:`q \\exp(s_j - s_1)`) as for a large alpha. The
    logarithm of the sum grows with that of :math:`q` at least in proportion, so a sum within a few roundings of 1 has
    a :math:`q` as good. It is nearly a straight line, but for kinks where weights leave 0; so Newton's method takes a
    step where it stays in the bracket and the step before has halved the distance, and else the bracket is halved. A
    row that has arrived stays as it is, so that its weights do not depend on its neighbours.

    Args:
        scores: any shape.
        alpha: broadcastable to scores with length 1 along ``dim``; above 1.
        dim: the axis to normalize.
    """
    power = alpha - 1.0
    top, empty = largest(scores, dim)
    shifted = scores - top
    close = _ROUNDINGS * torch.finfo(scores.dtype).eps
    # The bracket is open: a row of equal scores has its root at 1/n, and one with a single weight at 1.
    low = torch.full_like(top, (1.0 - close) / shifted.shape[dim])
    high = torch.full_like(top, 1.0 + close)
    best, distance = torch.ones_like(top), torch.full_like(top, torch.inf)
    moving = ~empty
    readable = can_branch_on(scores, alpha)
    halvings = 1 - math.floor(math.log2(torch.finfo(scores.dtype).eps / shifted.shape[dim]))
    for step in range(_NEWTON_STEPS + halvings):
        ratio, base = _ratios(shifted, power, best)
        total = ratio.sum(dim, keepdim=True)
        slope = ratio.div_(base).masked_fill_(base <= 0.0, 0.0).sum(dim, keepdim=True)
        mass = best * total
        above = mass > 1.0
        high, low = torch.where(moving & above, best, high), torch.where(moving & ~above, best, low)
        arrived = moving & ((mass - 1.0).abs() <= close)
        # Both ends of the bracket of a row that has arrived are its q.
        high, low = torch.where(arrived, best, high), torch.where(arrived, best, low)
        middle = (low + high) / 2.0
        # NaN, too, ends with a bracket that can't be halved.
        moving = moving & ~arrived & (low < middle) & (middle < high)
        if readable and not bool(moving.any()):
            break
        logarithm = mass.log()
        newton = best * (-logarithm * total / slope).exp()
        straight = (logarithm.abs() <= distance / 2.0) & (low < newton) & (newton < high)
        best = torch.where(moving, torch.where(straight, newton, middle) if step < _NEWTON_STEPS else middle, best)
        distance = logarithm.abs()
    # Above a = 1 a rounding of q moves a weight near its kink by up to ε^{1/a}, so that no q need give the sum 1.
    # What lies between the weights of two neighbouring q does, and solves the problem to within that rounding.
    least = low * _ratios(shifted, power, low)[0]
    between = high * _ratios(shifted, power, high)[0] - least
    missing = 1.0 - least.sum(dim, keepdim=True)
    part = missing / between.sum(dim, keepdim=True).clamp_min(torch.finfo(scores.dtype).tiny)
    weights = least + part.clamp(0.0, 1.0) * between
    return weights.div_(weights.sum(dim, keepdim=True)).masked_fill_(empty, 0.0)


def _ratios(shifted: Tensor, power: Tensor, best: Tensor) -> tuple[Tensor, Tensor]:
    """``p / q`` for each score, and what the power 1/a was taken of."""
    # Finite, so that the largest score's 0 stays 0 in the product.
    steepness = (power * best.pow(-power)).clamp(max=torch.finfo(best.dtype).max)
    step = (shifted * steepness).clamp_min_(-1.0)
    base = step + 1.0
    return step.log1p_().div_(power).exp_(), base


def _ranks(ordered: Tensor, dim: int) -> Tensor:
    """1, 2, 3, … along ``dim``."""
    shape = [1] * ordered.dim()
    shape[dim] = -1
    return torch.arange(1, ordered.shape[dim] + 1, dtype=ordered.dtype, device=ordered.device).view(shape)


# What compilers and exporters call in place of the loop, whose length depends on numbers that they do not have.
_LIBRARY = Library("regard", "FRAGMENT")
_LIBRARY.define("entmax_by_root(Tensor scores, Tensor alpha, int dim) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_LIBRARY.impl("entmax_by_root", entmax_by_root, "CompositeExplicitAutograd")


@torch.library.register_fake("regard::entmax_by_root", lib=_LIBRARY)
def _(scores: Tensor, alpha: Tensor, dim: int) -> Tensor:
    return torch.empty_like(scores)


root_operator = torch.ops.regard.entmax_by_root.default
