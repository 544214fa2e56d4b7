"""The base class of normalizers, which turn scores into weights, and the primitives that they lower to."""

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.axes import Float
from regard.normalizers.rows import log_sum_exp
from regard.shapes import Grid, upcast


class RowPrimitive(NamedTuple):
    """The operation of a normalizer on a row of scores, in primitives that a backend can implement.

    With :math:`s` a row of scores and :math:`j` the position of a key,

    .. math:: w_j = primitive(s)_j \\; \\exp\\!\\big(-(j - center)^2 / (2 \\, sigma^2)\\big)

    ===========  =================================================================================================
    kind         primitive(s)
    ===========  =================================================================================================
    ``softmax``  exp(s_j / temperature) / (exp(sink) + Σ exp(s_k / temperature)); without a sink its term is 0
    ``entmax``   the weights of `Entmax` with this alpha
    ``sigmoid``  1 / (1 + exp(−(s_j + shift)))
    ``hard``     1 at the first maximum of the row, 0 elsewhere; no gradient to the scores
    ===========  =================================================================================================

    Attributes:
        kind: one of the four.
        temperature: the temperature of softmax; a number, ``[]`` or ``[heads]``.
        sink: the score of the softmax's sink, not divided by the temperature; a number, ``[]`` or ``[heads]``; None
            for no sink.
        alpha: the alpha of entmax; a number, ``[]`` or ``[heads]``.
        shift: the number that sigmoid adds to each score; a number, ``[]`` or ``[heads]``.
        center: the center of the Gaussian window over the weights, in key positions, broadcastable to
            ``[batch, heads, queries]``; None for no window.
        sigma: the window's standard deviation in key positions, a number or broadcastable like ``center``.
    """

    kind: Literal["softmax", "entmax", "sigmoid", "hard"]
    temperature: float | Tensor = 1.0
    sink: float | Tensor | None = None
    alpha: float | Tensor = 1.5
    shift: float | Tensor = 0.0
    center: Tensor | None = None
    sigma: float | Tensor | None = None


class Normalizer(nn.Module, ABC):
    """Turns scores into weights, row by row.

    Infinite and NaN scores have the same effect, however the weights are computed (contracts 2 and 10):

    =======  ========================================================================================================
    score    weight
    =======  ========================================================================================================
    −inf     exactly 0: the pair is hidden. It passes no gradient to its score or to a parameter, even if the incoming
             gradient is NaN. A row of only −inf has weights 0 and gradient 0.
    NaN      NaN for every visible key of the row if keys compete (softmax, sink, entmax); for the key itself in
             sigmoid; for one key of the row in hard. Other rows are unaffected.
    +inf     NaN for every visible key of the row if keys compete, since ∞ − ∞ is undefined; the limit, 1, in sigmoid
             and hard.
    =======  ========================================================================================================

    For every normalizer, the log-sum-exp of a row is NaN if a visible score is NaN, and otherwise +inf if one is +inf.

    Every derivative in PyTorch (reverse and forward mode, ``torch.func``, batched and higher derivatives) is exact. For
    the entmax family under ``torch.func`` and in forward mode, that holds up to the seventh derivative.

    Attributes:
        random: whether weights are drawn at random, so that the same scores give different weights each time.
        generator: the generator of the draws; None is PyTorch's global one. A backend that computes the weights again
            in its backward pass must restore the generator's state, or decline.
    """

    _WEIGHING_METHODS = frozenset({"__call__", "forward", "weigh", "log_sum_exp"})
    """The methods whose result `lower` describes."""

    random: bool = False
    generator: torch.Generator | None = None

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        for base in cls.__mro__:
            if "lower" in vars(base):
                return
            if not Normalizer._WEIGHING_METHODS.isdisjoint(vars(base)):
                cls.lower = Normalizer.lower
                return

    @abstractmethod
    def forward(self, scores: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "*shape"]:
        """Returns weights of the shape and dtype of ``scores``, normalized along ``dim``."""

    def weigh(
        self, scores: Float[Tensor, "batch heads queries keys"], grid: Grid
    ) -> Float[Tensor, "batch heads queries keys"]:
        """Returns the weights of one tile of attention scores.

        Args:
            scores: ``[batch, heads, queries, keys]`` of the tile, −inf where the mask hides the pair. The tile has
                every key that its queries may see.
            grid: the tile, for normalizers that depend on positions or heads.
        """
        return self(scores, dim=-1)

    def log_sum_exp(self, scores: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows"]:
        """Returns ``log Σ exp`` of each row, after the normalizer's temperature, ``[batch, heads, queries]``.

        It is −inf for an empty row, NaN for a row with NaN, and otherwise +inf for a row with +inf.
        """
        return log_sum_exp(upcast(scores)).to(scores.dtype)

    def lower(self) -> RowPrimitive | None:
        """Returns the operation on a row, in primitives that backends implement, or None if they cannot express it.

        A subclass that overrides how weights are computed, but not `lower`, lowers to None: it does not inherit a
        lowering that describes other weights.
        """
        return None
