"""Solvers of the entmax problem: by sorting for alpha 2 and 1.5, and by root finding for any alpha.

They take scores in float32 or float64, with −inf at hidden pairs, where the weights are exactly 0.
"""

import math

import torch
from torch import Tensor
from torch.library import Library

from regard.normalizers.normalizer import row_maximum
from regard.shapes.checks import SIZE_LIMIT
from regard.tracing.portable import is_portable, register_operations
from regard.tracing.transforms import can_read

# Scores this far below the maximum (in units where weights are (z − τ)₊ ^ …, and τ ≥ −1) always have weight 0; raising
# them to this floor keeps −inf and huge values out of the sums.
_FLOOR = -2.0

_CORRECTIONS = 2
"""Newton steps after sorting, since sums of sorted scores lose digits in long rows. They correct the differences from
the threshold and not the threshold itself, whose last digit is not accurate enough."""

_NEWTON_STEPS = 32
"""Largest number of Newton steps; the usual number is three to ten, or twenty if many weights leave 0 together. After
them the bracket is halved until its ends are adjacent floating-point numbers."""

_ROUNDINGS = 8.0
"""A sum that differs from 1 by at most this many roundings counts as 1."""


def sparsemax_by_sort(scores: Tensor, dim: int) -> Tensor:
    """Computes ``(s − τ)₊`` with sum 1, with τ by sorting (Martins & Astudillo 2016, algorithm 1)."""
    maximum, empty = row_maximum(scores, dim)
    shifted = (scores - maximum).clamp_min_(_FLOOR)
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
    """Computes ``(s/2 − τ)₊²`` with sum 1, with τ by sorting (Peters, Niculae & Martins 2019, algorithm 2)."""
    maximum, empty = row_maximum(scores, dim)
    halved = (scores - maximum).div_(2.0).clamp_min_(_FLOOR)
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
    """Computes the weights for any alpha > 1, by finding the largest weight of each row.

    Let :math:`a = \\alpha - 1`, and :math:`q` the weight of the row's largest score :math:`s_1`. Then all weights are

    .. math:: p_j = q \\, \\big(1 + a (s_j - s_1) \\, q^{-a}\\big)_+^{1/a}

    and their sum increases with :math:`q` in :math:`[1/n, 1]`. Unlike the threshold itself, :math:`q` is as well
    conditioned near :math:`a = 0` (where the formula becomes :math:`q \\exp(s_j - s_1)`) as for a large alpha. The
    logarithm of the sum grows at least in proportion to that of :math:`q`, so a sum within a few roundings of 1 has an
    equally accurate :math:`q`. The relation of the two logarithms is nearly linear, with kinks where weights leave 0.
    Therefore a Newton step is taken if it stays in the bracket and the previous one has halved the distance; otherwise
    the bracket is halved. A converged row no longer changes, so its weights do not depend on other rows. On a device,
    where the host would wait to know whether all rows have converged, the bracket is bisected to adjacent numbers
    (`_bisected`).

    Args:
        alpha: broadcastable to scores with length 1 along ``dim``; above 1.
    """
    power = alpha - 1.0
    maximum, empty = row_maximum(scores, dim)
    shifted = scores - maximum
    if is_portable():
        return _bisected_without_bits(shifted, power, dim).masked_fill_(empty, 0.0)
    if not (scores.is_cpu or scores.is_meta):
        return _bisected(shifted, power, dim).masked_fill_(empty, 0.0)
    tolerance = _ROUNDINGS * torch.finfo(scores.dtype).eps
    # The bracket is wider than [1/n, 1]: the root is 1/n in a row of equal scores, and 1 in a row with a single weight.
    low = torch.full_like(maximum, (1.0 - tolerance) / shifted.shape[dim])
    high = torch.full_like(maximum, 1.0 + tolerance)
    best, distance = torch.ones_like(maximum), torch.full_like(maximum, torch.inf)
    active = ~empty
    readable = can_read(scores, alpha)
    halvings = 1 - math.floor(math.log2(torch.finfo(scores.dtype).eps / shifted.shape[dim]))
    for step in range(_NEWTON_STEPS + halvings):
        ratio, base = _ratios(shifted, power, best)
        total = ratio.sum(dim, keepdim=True)
        slope = ratio.div_(base).masked_fill_(base <= 0.0, 0.0).sum(dim, keepdim=True)
        mass = best * total
        above = mass > 1.0
        high, low = torch.where(active & above, best, high), torch.where(active & ~above, best, low)
        converged = active & ((mass - 1.0).abs() <= tolerance)
        # Both ends of a converged row's bracket become its q.
        high, low = torch.where(converged, best, high), torch.where(converged, best, low)
        middle = (low + high) / 2.0
        # A row with NaN ends here too, since its bracket cannot be halved.
        active = active & ~converged & (low < middle) & (middle < high)
        if readable and not bool(active.any()):
            break
        logarithm = mass.log()
        newton = best * (-logarithm * total / slope).exp()
        improves = (logarithm.abs() <= distance / 2.0) & (low < newton) & (newton < high)
        best = torch.where(active, torch.where(improves, newton, middle) if step < _NEWTON_STEPS else middle, best)
        distance = logarithm.abs()
    return _interpolated(shifted, power, low, high, dim).masked_fill_(empty, 0.0)


def _bisected(shifted: Tensor, power: Tensor, dim: int) -> Tensor:
    """Returns the weights of `entmax_by_root` by a bisection whose number of steps depends on the row's length alone.

    Positive floating-point numbers are ordered as the integers with the same bits. The mean of two such integers halves
    the number of floating-point numbers between them, so that about 27 steps suffice in float32 (16 operations each).
    """
    bits = torch.int32 if shifted.dtype == torch.float32 else torch.int64
    tolerance = _ROUNDINGS * torch.finfo(shifted.dtype).eps
    first, last = (1.0 - tolerance) / shifted.shape[dim], 1.0 + tolerance
    ends = torch.tensor([first, last], dtype=shifted.dtype, device="cpu").view(bits).tolist()
    shape = list(shifted.shape)
    shape[dim] = 1
    low, high = shifted.new_full(shape, first).view(bits), shifted.new_full(shape, last).view(bits)
    for _ in range((ends[1] - ends[0]).bit_length()):
        middle = (low + high) >> 1
        best = middle.view(shifted.dtype)
        above = best * _ratios(shifted, power, best)[0].sum(dim, keepdim=True) > 1.0
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return _interpolated(shifted, power, low.view(shifted.dtype), high.view(shifted.dtype), dim)


def _bisected_without_bits(shifted: Tensor, power: Tensor, dim: int) -> Tensor:
    """Returns the weights of `entmax_by_root` by a bisection whose number of steps depends on the dtype alone.

    Other formats have no bits of numbers, and rows of any length. The bracket is that of the longest row, and the
    geometric mean halves the logarithm of its ends' quotient.
    """
    tolerance = _ROUNDINGS * torch.finfo(shifted.dtype).eps
    first, last = (1.0 - tolerance) / SIZE_LIMIT, 1.0 + tolerance
    maximum = shifted.amax(dim, keepdim=True)
    low, high = torch.full_like(maximum, first), torch.full_like(maximum, last)
    for _ in range(math.ceil(math.log2(math.log(last / first) / torch.finfo(shifted.dtype).eps))):
        best = (low * high).sqrt()
        above = best * _ratios(shifted, power, best)[0].sum(dim, keepdim=True) > 1.0
        low, high = torch.where(above, low, best), torch.where(above, best, high)
    return _interpolated(shifted, power, low, high, dim)


def _interpolated(shifted: Tensor, power: Tensor, low: Tensor, high: Tensor, dim: int) -> Tensor:
    """Returns the weights for the largest weight between two adjacent numbers."""
    # Above a = 1, a rounding of q changes a weight near its kink by up to ε^{1/a}, so there may be no q with the sum 1.
    # An interpolation between the weights of two adjacent q has it, and solves the problem up to that rounding.
    lower = low * _ratios(shifted, power, low)[0]
    difference = high * _ratios(shifted, power, high)[0] - lower
    missing = 1.0 - lower.sum(dim, keepdim=True)
    fraction = missing / difference.sum(dim, keepdim=True).clamp_min(torch.finfo(shifted.dtype).tiny)
    weights = lower + fraction.clamp(0.0, 1.0) * difference
    return weights.div_(weights.sum(dim, keepdim=True))


def _ratios(shifted: Tensor, power: Tensor, best: Tensor) -> tuple[Tensor, Tensor]:
    """Returns ``p / q`` for each score, and the base of the power 1/a."""
    # It stays finite, so that its product with the maximum's 0 is 0.
    steepness = (power * best.pow(-power)).clamp(max=torch.finfo(best.dtype).max)
    step = (shifted * steepness).clamp_min_(-1.0)
    base = step + 1.0
    return step.log1p_().div_(power).exp_(), base


def _ranks(ordered: Tensor, dim: int) -> Tensor:
    """Returns 1, 2, 3, … along ``dim``."""
    shape = [1] * ordered.dim()
    shape[dim] = -1
    return torch.arange(1, ordered.shape[dim] + 1, dtype=ordered.dtype, device=ordered.device).view(shape)


# Compilers and exporters call this operator in place of the loop, whose length depends on elements they cannot read.
_LIBRARY = Library("regard", "FRAGMENT")
_LIBRARY.define("entmax_by_root(Tensor scores, Tensor alpha, int dim) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_LIBRARY.impl("entmax_by_root", entmax_by_root, "CompositeExplicitAutograd")


def _shape(scores: Tensor, alpha: Tensor, dim: int) -> Tensor:
    return torch.empty_like(scores)


root_operator = torch.ops.regard.entmax_by_root.default
torch.library.register_fake("regard::entmax_by_root", _shape, lib=_LIBRARY)
register_operations(root_operator, entmax_by_root, _shape)
