"""A bias of a problem with appended keys, which have no position: their scores get 0."""

from torch import Tensor
from torch.nn import functional as F

from regard.biases.bias import Bias
from regard.shapes import Grid, span_length, without_appended


class AppendedBias(Bias):
    """A bias of the given keys; the appended ones get 0.

    Args:
        bias: what is added to the scores of the given keys.
        appended: how many keys follow the given ones.
    """

    def __init__(self, bias: Bias, appended: int):
        super().__init__()
        self.bias, self.appended = bias, appended

    def check(self, query: Tensor, grid: Grid) -> None:
        self.bias.check(query, without_appended(grid, self.appended))

    def needs_gradient(self, query: Tensor) -> bool:
        return self.bias.needs_gradient(query)

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        given = without_appended(grid, self.appended)
        keys = span_length(given.key_span)
        bias = self.bias(query, given)
        bias = bias.expand(*bias.shape[:-1], keys)
        return F.pad(bias, (0, span_length(grid.key_span) - keys))
