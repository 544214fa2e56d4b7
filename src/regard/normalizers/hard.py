"""Hard attention: all weight on one key, which is chosen or drawn at random."""

from typing import Literal, get_args

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from regard.errors import KindError, UnknownNameError
from regard.normalizers.normalizer import Normalizer, RowPrimitive, check_rows, row_maximum, safe_softmax, tempered
from regard.normalizers.parameter import set_parameter
from regard.shapes.axes import Float
from regard.shapes.checks import type_text
from regard.shapes.grid import upcast
from regard.tracing.transforms import can_branch_on

HardMode = Literal["argmax", "straight_through", "sample", "gumbel"]


class Hard(Normalizer, fields=("mode", "temperature", "generator")):
    """Puts weight 1 on one key of each row, and 0 on all others.

    .. math:: w_j = 1    for one key j of the row,    w_k = 0    for all others

    ====================  ==========================  ===============================================================
    mode                  the key                     gradient to the scores
    ====================  ==========================  ===============================================================
    ``argmax``            has the maximum score       none
    ``straight_through``  has the maximum score       that of softmax(s / T)
    ``sample``            drawn from softmax(s / T)   none
    ``gumbel``            drawn from softmax(s)       that of softmax((s + G) / T), G the noise of the draw
    ====================  ==========================  ===============================================================

    ``sample`` is the hard attention of Xu et al. 2015, "Show, attend and tell" (section 4.1), which learns by
    REINFORCE. ``straight_through`` is the estimator of Bengio et al. 2013. ``gumbel`` is the straight-through
    Gumbel-softmax of Jang et al. 2017 (section 2.2). Both random modes draw by the Gumbel-max trick: they take the
    maximum of scores plus Gumbel noise.

    Args:
        mode: one of the four; default ``argmax``.
        temperature: :math:`T > 0`: a number, or a tensor ``[]`` or ``[heads]`` that may be learned; default 1.
        generator: the generator of the random modes; default PyTorch's global one.

    Raises:
        UnknownNameError: the mode is unknown.
        ArgumentError: the temperature is not finite or not above 0.
        KindError: the generator is not a ``torch.Generator``.

    Among equal scores the first key wins. A row without visible keys has weights 0. A row with NaN has NaN on one key,
    so that the NaN is not lost. Half precision is computed in float32.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> scores = torch.tensor([1.0, 0.0, -1.0])
        >>> normalizers.Hard("argmax")(scores)
        tensor([1., 0., 0.])
    """

    temperature: float | Tensor

    def __init__(
        self, mode: HardMode = "argmax", temperature: float | Tensor = 1.0, generator: torch.Generator | None = None
    ):
        super().__init__()
        if mode not in get_args(HardMode):
            raise UnknownNameError("mode of hard attention", mode, get_args(HardMode))
        if generator is not None and not isinstance(generator, torch.Generator):
            raise KindError(f"generator must be a torch.Generator or None; it is {type_text(generator)}")
        set_parameter(self, "temperature", temperature, above=0.0)
        self.mode = mode
        self.random = mode in ("sample", "gumbel")
        self.generator = generator

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        row = upcast(scores)
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
        """Draws standard Gumbel noise: minus the logarithm of an exponential variable, kept above 0."""
        exponential = torch.empty_like(scores, requires_grad=False).exponential_(generator=self.generator)
        return exponential.clamp_min_(torch.finfo(scores.dtype).tiny).log_().neg_()


def hard(
    mode: HardMode = "argmax", temperature: float | Tensor = 1.0, generator: torch.Generator | None = None
) -> Hard:
    """Returns hard attention in one of four modes: see `Hard`.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> scores = torch.tensor([1.0, 0.0, -1.0])
        >>> normalizers.hard("argmax")(scores)
        tensor([1., 0., 0.])
    """
    return Hard(mode, temperature, generator)


def _one_hot(scores: Tensor, dim: int) -> Tensor:
    """Returns 1 at the first maximum of each row, but 0 in an empty row and NaN in a row with NaN."""
    if scores.shape[dim] == 0:
        return torch.zeros_like(scores)
    maximum, empty = row_maximum(scores, dim)
    one = torch.where(maximum.isnan(), maximum, (~empty).to(scores.dtype))
    weights, index = torch.zeros_like(scores), scores.argmax(dim, keepdim=True)
    # Writing in place saves a copy, but torch.func cannot write a batched tensor into an unbatched one.
    return weights.scatter_(dim, index, one) if can_branch_on(scores) else weights.scatter(dim, index, one)


def _straight_through(soft: Tensor, hard: Tensor) -> Tensor:
    """Returns the hard weights with the derivatives of the soft ones: ``hard + (soft − soft)``, so exactly 0 and 1."""
    difference = soft - soft.detach()
    # The soft weights of a row with NaN or +inf are NaN; the hard ones are NaN on one key at most.
    return hard + difference.masked_fill(difference.isnan() & ~hard.isnan(), 0.0)
