"""ALiBi: scores fall linearly with distance, with a slope for each head."""

import torch
from torch import Tensor

from regard.biases.diagonal_bias import DiagonalBias
from regard.biases.diagonals import relative_positions
from regard.errors import ShapeError
from regard.shapes import Grid, whole_number


class Alibi(DiagonalBias):
    """See `alibi`.

    Attributes:
        heads: query heads.
        slopes: one for each head.
    """

    def __init__(self, heads: int):
        super().__init__()
        self.heads = whole_number("heads", heads, low=1)
        # Numbers and not a buffer: `.half()` on a model must not round them.
        self.slopes = _slopes(self.heads)

    def check(self, query: Tensor, grid: Grid) -> None:
        if grid.heads != self.heads:
            raise ShapeError(f"bias must fit query: alibi was made for {self.heads} heads; query has {grid.heads}")

    def diagonals(self, grid: Grid, dtype: torch.dtype) -> Tensor:
        slopes = torch.tensor(self.slopes, dtype=torch.float64).to(grid.device, dtype)
        return -slopes[:, None] * relative_positions(grid).abs().to(dtype)

    def extra_repr(self) -> str:
        return str(self.heads)


def alibi(heads: int) -> Alibi:
    """A fixed penalty for distance.

        bias[h, i, j] = −slope_h · |i + offset − j|,    offset = keys − queries (the ends are aligned)

    Press et al. 2022, §3: with n heads, a power of two, the slopes are ``2^(−8/n), 2^(−16/n), .., 2^(−8)``. For other
    numbers, as the authors' released code has it: the slopes of the greatest power of two below n, and then the 1st,
    3rd, 5th, .. of those of the next one. The paper's attention is causal, where the distance is never negative; here
    keys after the query are penalized alike.

    Args:
        heads: query heads, >= 1.
    """
    return Alibi(heads)


def _slopes(heads: int) -> tuple[float, ...]:
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    between = [2.0 ** (-4 * (2 * extra + 1) / power) for extra in range(heads - power)]
    return (*slopes, *between)
