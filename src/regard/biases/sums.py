"""Several biases as one."""

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from regard.biases.bias import Bias
from regard.shapes import Grid


class SummedBias(Bias):
    """The sum of two or more biases.

    Args:
        biases: the summands.
    """

    def __init__(self, biases: Sequence[Bias]):
        super().__init__()
        self.biases = nn.ModuleList(biases)

    def check(self, query: Tensor, grid: Grid) -> None:
        for bias in self.biases:
            cast(Bias, bias).check(query, grid)

    def needs_gradient(self, query: Tensor) -> bool:
        return any(cast(Bias, bias).needs_gradient(query) for bias in self.biases)

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        first, *others = self.biases
        total = first(query, grid)
        for bias in others:
            total = total + bias(query, grid)
        return total
