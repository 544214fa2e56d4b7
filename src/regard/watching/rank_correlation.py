"""Rank correlations of two lists of numbers: Kendall's τ and Spearman's ρ, both with ties."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

ONE_SIDED = 1.6448536269514722
"""The 95 % quantile of the normal distribution."""


class Kendall(NamedTuple):
    """Kendall's τ-b, NaN if all numbers of a list are equal; and whether 95 % of random orders have a smaller one."""

    tau: float
    is_above_random: bool


def kendall(first: Numbers, second: Numbers) -> Kendall:
    """Computes Kendall's τ-b, the share of concordant pairs less that of discordant ones among pairs without ties.

    Kendall 1945, "The Treatment of Ties in Ranking Problems". The comparison with random orders takes τ as normal, with
    the variance under independence, corrected for ties. Time is quadratic in the length, memory linear.
    """
    length, excess = len(first), 0.0
    for index in range(length - 1):
        excess += float(np.sign(first[index] - first[index + 1 :]) @ np.sign(second[index] - second[index + 1 :]))
    pairs = length * (length - 1) / 2
    tied = [np.unique(numbers, return_counts=True)[1].astype(np.float64) for numbers in (first, second)]
    untied = [pairs - (counts * (counts - 1)).sum() / 2 for counts in tied]
    if min(untied, default=0) <= 0:
        return Kendall(math.nan, False)
    ones, twos, threes = (
        [float((counts * (counts - 1) * factor(counts)).sum()) for counts in tied]
        for factor in (lambda counts: 1.0, lambda counts: 2 * counts + 5, lambda counts: counts - 2)
    )
    variance = (2 * pairs * (2 * length + 5) - sum(twos)) / 18 + ones[0] * ones[1] / (4 * pairs)
    if length > 2:
        variance += threes[0] * threes[1] / (18 * pairs * (length - 2))
    return Kendall(excess / math.sqrt(untied[0] * untied[1]), excess > ONE_SIDED * math.sqrt(variance))


def spearman(first: Numbers, second: Numbers) -> float:
    """Computes Spearman's ρ, the correlation of ranks; equal numbers share their mean rank. NaN if all are equal."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(numbers: Numbers) -> Numbers:
    _, inverse, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]
