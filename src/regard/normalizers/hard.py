"""Hard attention: all the weight on one key, chosen or drawn."""

from typing import Literal, get_args

import torch
from torch import Tensor

from regard.axes import Float
from regard.errors import KindError, UnknownNameError
from regard.normalizers.normalizer import Normalizer
from regard.normalizers.parameter import set_parameter
from regard.normalizers.row_primitive import RowPrimitive
from regard.normalizers.rows import check_rows, largest
from regard.normalizers.softmax import safe_softmax, tempered
from regard.shapes import accurate
from regard.summaries import parameter_summary
from regard.transforms import can_branch_on

HardMode = Literal["argmax", "straight_through", "sample", "gumbel"]


class Hard(Normalizer):
    """Weight 1 on one key of each row, 0 on all others.

    ====================  ==========================  ===============================================================
    mode                  the key                     gradient to the scores
    ====================  ==========================  ===============================================================
    ``argmax``            has the largest score       none
    ``straight_through``  has the largest score       that of softmax(s / T)
    ``sample``            drawn from softmax(s / T)   none
    ``gumbel``            drawn from softmax(s)       that of softmax((s + G) / T), G the noise of the draw
    ====================  ==========================  ===============================================================

    ``sample`` is the hard attention of Xu et al. 2015, "Show, attend and tell" (section 4.1), which learns by
    REINFORCE. ``straight_through`` is the estimator of Bengio et al. 2013. ``gumbel`` is the straight-through
    Gumbel-softmax of Jang et al. 2017 (section 2.2). Both random modes draw by the Gumbel-max trick: the largest of
    scores plus Gumbel noise.

    Args:
        mode: one of the four; ``argmax`` unless told.
        temperature: :math:`T > 0`: a number, or a tensor ``[]`` or ``[heads]`` that may be learned; 1 unless told.
        generator: what the random modes draw from; PyTorch's global generator unless given.

    Raises:
        UnknownNameError: no mode of this name.
        ArgumentError: a temperature that is not finite or not above 0.
        KindError: a generator that is not one.

    Of equal scores the first key wins. A row that sees nothing has weights 0. A row with NaN has NaN on one key, so
    that it is not lost. Half precision is computed in float32.
    """

    temperature: float | Tensor

    def __init__(
        self,
        mode: HardMode = "argmax",
        temperature: float | Tensor = 1.0,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        if mode not in get_args(HardMode):
            raise UnknownNameError("mode of hard attention", mode, get_args(HardMode))
        if generator is not None and not isinstance(generator, torch.Generator):
            raise KindError(f"generator must be a torch.Generator or None; it is a {type(generator).__name__}")
        set_parameter(self, "temperature", temperature, above=0.0)
        self.mode = mode
        self.random = mode in ("sample", "gumbel")
        self.generator = generator

    def forward(self, scores: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "*shape"]:
        check_rows(scores, dim)
        row = accurate(scores)
        if self.mode == "argmax":
            weights = _one_hot(row.detach(), dim)
        elif self.mode == "straight_through":
            weights = _straight_through(self._soft(row, dim), _one_hot(row.detach(), dim))
        elif self.mode == "sample":
            logits = tempered(row, self.temperature, dim).detach()
            weights = _one_hot(logits + self._noise(logits), dim)
        else:
            noisy = row + self._noise(row)
            weights = _straight_through(self._soft(noisy, dim), _one_hot(noisy.detach(), dim))
        return weights.to(scores.dtype)

    def lower(self) -> RowPrimitive | None:
        return RowPrimitive("hard") if self.mode == "argmax" else None

    def _soft(self, scores: Tensor, dim: int) -> Tensor:
        return safe_softmax(tempered(scores, self.temperature, dim), dim)

    def _noise(self, scores: Tensor) -> Tensor:
        """Standard Gumbel noise: minus the logarithm of an exponential variable, kept above 0."""
        exponential = torch.empty_like(scores, requires_grad=False).exponential_(generator=self.generator)
        return exponential.clamp_min_(torch.finfo(scores.dtype).tiny).log_().neg_()

    def extra_repr(self) -> str:
        plain = not isinstance(self.temperature, Tensor) and self.temperature == 1.0
        return f"mode={self.mode!r}" + ("" if plain else f", temperature={parameter_summary(self.temperature)}")


def hard(
    mode: HardMode = "argmax", temperature: float | Tensor = 1.0, generator: torch.Generator | None = None
) -> Hard:
    """Hard attention in one of four modes: see `Hard`."""
    return Hard(mode, temperature, generator)


def _one_hot(scores: Tensor, dim: int) -> Tensor:
    """1 at the first largest score of each row; 0 for a row of −inf only, and NaN for one with NaN."""
    if scores.shape[dim] == 0:
        return torch.zeros_like(scores)
    top, empty = largest(scores, dim)
    one = torch.where(top.isnan(), top, (~empty).to(scores.dtype))
    weights, place = torch.zeros_like(scores), scores.argmax(dim, keepdim=True)
    # In place saves a copy; a transform of functions cannot write a batch into what is none.
    return weights.scatter_(dim, place, one) if can_branch_on(scores) else weights.scatter(dim, place, one)


def _straight_through(soft: Tensor, hard: Tensor) -> Tensor:
    """The hard weights with the derivatives of the soft ones: ``hard + (soft − soft)``, so exactly 0 and 1."""
    difference = soft - soft.detach()
    # The soft weights of a row with NaN or +inf are NaN; the hard ones are NaN on one key only, or nowhere.
    return hard + difference.masked_fill(difference.isnan() & ~hard.isnan(), 0.0)
