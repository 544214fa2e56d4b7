"""What a normalizer is: scores → weights, row by row."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from regard.normalizers.row_primitive import RowPrimitive
from regard.normalizers.rows import log_sum_exp
from regard.shapes import Grid, accurate


class Normalizer(nn.Module, ABC):
    """Turns scores into weights, row by row.

    A score of −inf is a pair that may not be seen: its weight is exactly 0 and gets no gradient. A row of nothing but
    −inf has weights 0 and gradient 0, never NaN (contract 2).

    Attributes:
        random: whether weights are drawn at random, so that weighing the same scores twice gives different weights.
        generator: what they are drawn from; None is PyTorch's global generator. A backend that weighs again in its
            backward pass must put its state back, or decline.
    """

    _WEIGHING = frozenset({"__call__", "forward", "weigh", "log_sum_exp"})
    """Methods that a lowering speaks for."""

    random: bool = False
    generator: torch.Generator | None = None

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        for base in cls.__mro__:
            if "lower" in vars(base):
                return
            if not Normalizer._WEIGHING.isdisjoint(vars(base)):
                cls.lower = Normalizer.lower
                return

    @abstractmethod
    def forward(self, scores: Tensor, dim: int = -1) -> Tensor:
        """Weights of the same shape and dtype as ``scores``, normalized along ``dim``."""

    def weigh(self, scores: Tensor, grid: Grid) -> Tensor:
        """Weights of one tile of attention scores.

        Args:
            scores: ``[batch, heads, queries, keys]`` of the tile, −inf where the mask forbids. The tile has every key
                that its queries may see.
            grid: which tile; normalizers that know positions or heads read it.
        """
        return self(scores, dim=-1)

    def log_sum_exp(self, scores: Tensor) -> Tensor:
        """``log Σ exp`` of each row, as tempered here, ``[batch, heads, queries]``; −inf for an empty row."""
        return log_sum_exp(accurate(scores)).to(scores.dtype)

    def lower(self) -> RowPrimitive | None:
        """What this does to a row, in primitives that backends implement; None if they do not express it.

        A subclass that defines how it weighs, but not how it lowers, lowers to None: it does not inherit the lowering
        of a class that weighs in another way.
        """
        return None
