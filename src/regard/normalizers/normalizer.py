"""What a normalizer is: scores → weights, row by row."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from regard.axes import Float
from regard.normalizers.row_primitive import RowPrimitive
from regard.normalizers.rows import log_sum_exp
from regard.shapes import Grid, accurate


class Normalizer(nn.Module, ABC):
    """Turns scores into weights, row by row.

    Scores that are not finite have one meaning, whichever way the weights are computed (contracts 2 and 10):

    =======  ========================================================================================================
    score    weight
    =======  ========================================================================================================
    −inf     a hidden pair: exactly 0. It passes no gradient on, to its score or to a parameter, also where the
             gradient that comes in is NaN. A row of nothing but −inf has weights 0 and gradient 0.
    NaN      NaN for every visible key of the row where keys compete (softmax, sink, entmax); for the key itself in
             sigmoid; on one key of the row in hard. Other rows are not touched.
    +inf     NaN for every visible key of the row where keys compete, since ∞ − ∞ has no value; its limit, 1, in
             sigmoid and hard.
    =======  ========================================================================================================

    The log-sum-exp of a row is NaN if a visible score is NaN, else +inf if one is +inf, whatever the normalizer.

    Every derivative that PyTorch can be asked for (reverse and forward mode, ``torch.func``, batched and higher
    derivatives) is the true one. For the entmax family under ``torch.func`` and in forward mode that holds up to the
    seventh derivative.

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
    def forward(self, scores: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "*shape"]:
        """Weights of the same shape and dtype as ``scores``, normalized along ``dim``."""

    def weigh(
        self, scores: Float[Tensor, "batch heads queries keys"], grid: Grid
    ) -> Float[Tensor, "batch heads queries keys"]:
        """Weights of one tile of attention scores.

        Args:
            scores: ``[batch, heads, queries, keys]`` of the tile, −inf where the mask forbids. The tile has every key
                that its queries may see.
            grid: which tile; normalizers that know positions or heads read it.
        """
        return self(scores, dim=-1)

    def log_sum_exp(self, scores: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows"]:
        """``log Σ exp`` of each row, as tempered here, ``[batch, heads, queries]``; −inf for an empty row, NaN for one
        with NaN, else +inf for one with +inf."""
        return log_sum_exp(accurate(scores)).to(scores.dtype)

    def lower(self) -> RowPrimitive | None:
        """What this does to a row, in primitives that backends implement; None if they do not express it.

        A subclass that defines how it weighs, but not how it lowers, lowers to None: it does not inherit the lowering
        of a class that weighs in another way.
        """
        return None
