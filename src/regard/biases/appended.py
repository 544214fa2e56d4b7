"""A bias for keys that a layer appends to the user's; they have no position, so it adds 0 to their scores."""

from torch import Tensor
from torch.nn import functional as F

from regard.biases.bias import Bias
from regard.shapes import Grid, span_length, without_appended


class AppendedBias(Bias):
    """Adds a bias to the scores of the user's keys, and 0 to those of the appended keys.

    Args:
        bias: the bias for the user's keys.
        appended: number of appended keys, which come last.
    """

    def __init__(self, bias: Bias, appended: int):
        super().__init__()
        self.bias, self.appended = bias, appended

    def check(self, query: Tensor, grid: Grid) -> None:
        self.bias.check(query, without_appended(grid, self.appended))

    def needs_gradient(self, query: Tensor) -> bool:
        return self.bias.needs_gradient(query)

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        inner = without_appended(grid, self.appended)
        keys = span_length(inner.key_span)
        bias = self.bias(query, inner)
        bias = bias.expand(*bias.shape[:-1], keys)
        return F.pad(bias, (0, span_length(grid.key_span) - keys))
