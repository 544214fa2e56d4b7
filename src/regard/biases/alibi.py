"""ALiBi: scores decrease linearly with distance, with one slope a head."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.biases.bias import register_weight
from regard.biases.distance import DistanceBias
from regard.errors import KindError, ShapeError
from regard.shapes.checks import finite_number, type_text, whole_number
from regard.tracing.portable import vector
from regard.tracing.transforms import sent


class Alibi(DistanceBias, fields=("heads", "slopes")):
    """Subtracts a multiple of the distance; see `alibi`.

    Attributes:
        heads: number of query heads.
        slopes: one slope a head, a tuple or a tensor; None: those of the paper.

    Example:
        >>> import regard
        >>> import torch
        >>> from regard import biases
        >>> x = torch.zeros(1, 2, 3, 1)
        >>> regard.attend_with_weights(x, x, x, bias=biases.Alibi(2)).weights[0, :, 2]
        tensor([[0.3127, 0.3329, 0.3544],
                [0.3320, 0.3333, 0.3346]])
    """

    slopes: tuple[float, ...] | Tensor | None

    def __init__(self, heads: int, slopes: Sequence[float] | Tensor | None = None):
        super().__init__()
        self.heads = whole_number("heads", heads, low=1)
        if isinstance(slopes, Tensor):
            register_weight(self, slopes, self.heads, name="slopes")
            return
        # They are numbers and not a buffer, so that `.half()` on a model does not round them.
        self.slopes = None if slopes is None else _numbers(slopes, self.heads)

    @property
    def may_hide(self) -> bool:
        return isinstance(self.slopes, Tensor)

    def values(self, relative: Tensor, dtype: torch.dtype) -> Tensor:
        slopes = _slopes(self.heads) if self.slopes is None else self.slopes
        slopes = slopes.to(dtype) if isinstance(slopes, Tensor) else sent(vector(slopes, dtype), relative.device)
        return -slopes[:, None] * relative.abs().to(dtype)


def alibi(heads: int, slopes: Sequence[float] | Tensor | None = None) -> Alibi:
    """Returns a bias with a fixed penalty for distance.

    .. math::

        bias_{hij} = −slope_h · |i + offset − j|
        offset = keys − queries (the ends are aligned)

    Press et al. 2022, §3: with n heads, a power of two, the slopes are ``2^(−8/n), 2^(−16/n), .., 2^(−8)``. For other
    numbers, as in the authors' released code, they are the slopes of the largest power of two below n, followed by the
    1st, 3rd, 5th, .. slope of the next power. The paper's attention is causal, so its distances are never negative;
    here keys after the query get the same penalty.

    Args:
        heads: number of query heads, >= 1.
        slopes: other slopes, one a head: finite numbers, or a tensor ``[heads]`` (an `nn.Parameter` is learned).

    Raises:
        ArgumentError, KindError, ShapeError: an argument is out of range or has the wrong type, or there are not as
            many slopes as heads.

    Example:
        >>> import regard
        >>> import torch
        >>> from regard import biases
        >>> x = torch.zeros(1, 2, 3, 1)
        >>> regard.attend_with_weights(x, x, x, bias=biases.alibi(2)).weights[0, :, 2]
        tensor([[0.3127, 0.3329, 0.3544],
                [0.3320, 0.3333, 0.3346]])
        >>> biases.alibi(2, slopes=[0.5, 0.25])
        Alibi(heads=2, slopes=(0.5, 0.25))
    """
    return Alibi(heads, slopes)


def _numbers(slopes: Sequence[float], heads: int) -> tuple[float, ...]:
    if isinstance(slopes, str) or not isinstance(slopes, Sequence):
        raise KindError(f"slopes must be numbers or a tensor, one a head; it is {type_text(slopes)}")
    if len(slopes) != heads:
        raise ShapeError(f"slopes must be as many as heads, {heads}; there are {len(slopes)}")
    return tuple(finite_number("slopes", slope) for slope in slopes)


def _slopes(heads: int) -> tuple[float, ...]:
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    between = [2.0 ** (-4 * (2 * extra + 1) / power) for extra in range(heads - power)]
    return (*slopes, *between)
