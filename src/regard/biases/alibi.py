"""ALiBi: scores decrease linearly with distance, with one slope a head."""

import torch
from torch import Tensor

from regard.biases.bias import DiagonalBias, relative_positions
from regard.errors import ShapeError
from regard.shapes.checks import whole_number
from regard.shapes.grid import Grid
from regard.tracing.portable import vector
from regard.tracing.transforms import sent


class Alibi(DiagonalBias, fields=("heads",)):
    """Subtracts a multiple of the distance; see `alibi`.

    Attributes:
        heads: number of query heads.
        slopes: one slope a head.

    Example:
        >>> import regard
        >>> import torch
        >>> from regard import biases
        >>> x = torch.zeros(1, 2, 3, 1)
        >>> regard.attend_with_weights(x, x, x, bias=biases.Alibi(2)).weights[0, :, 2]
        tensor([[0.3127, 0.3329, 0.3544],
                [0.3320, 0.3333, 0.3346]])
    """

    def __init__(self, heads: int):
        super().__init__()
        self.heads = whole_number("heads", heads, low=1)
        # They are numbers and not a buffer, so that `.half()` on a model does not round them.
        self.slopes = _slopes(self.heads)

    def check(self, query: Tensor, grid: Grid) -> None:
        if grid.heads != self.heads:
            raise ShapeError(f"bias must fit query: alibi was made for {self.heads} heads; query has {grid.heads}")

    @property
    def may_hide(self) -> bool:
        return False

    def diagonals(self, grid: Grid, dtype: torch.dtype) -> Tensor:
        slopes = sent(vector(self.slopes, dtype), grid.device)
        return -slopes[:, None] * relative_positions(grid).abs().to(dtype)


def alibi(heads: int) -> Alibi:
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

    Example:
        >>> import regard
        >>> import torch
        >>> from regard import biases
        >>> x = torch.zeros(1, 2, 3, 1)
        >>> regard.attend_with_weights(x, x, x, bias=biases.alibi(2)).weights[0, :, 2]
        tensor([[0.3127, 0.3329, 0.3544],
                [0.3320, 0.3333, 0.3346]])
    """
    return Alibi(heads)


def _slopes(heads: int) -> tuple[float, ...]:
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    between = [2.0 ** (-4 * (2 * extra + 1) / power) for extra in range(heads - power)]
    return (*slopes, *between)
