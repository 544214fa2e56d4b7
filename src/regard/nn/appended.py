"""Keys that a layer appends to those it was given: everybody sees them, and they have no position."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.masks.mask import Mask, Visibility
from regard.positions.bias import Bias
from regard.shapes import Grid


class AppendedMask(Mask):
    """A mask of the given keys; the appended ones are always seen.

    Args:
        mask: who may see whom among the given keys.
        appended: how many keys stand after them.
    """

    def __init__(self, mask: Mask, appended: int):
        self.mask, self.appended = mask, appended

    def check(self, grid: Grid) -> None:
        self.mask.check(_given(grid, self.appended))

    def allows(self, grid: Grid) -> Tensor:
        given = _given(grid, self.appended)
        return _pad(self.mask.allows(given), grid, given, True)

    def visibility(self, grid: Grid) -> Visibility:
        given = _given(grid, self.appended)
        if not given.key_span:
            return Visibility.EMPTY if 0 in grid.shape else Visibility.FULL
        visibility = self.mask.visibility(given)
        if len(given.key_span) < len(grid.key_span) and visibility is Visibility.EMPTY:
            return Visibility.PARTIAL
        return visibility

    def __repr__(self) -> str:
        return f"({self.mask!r} and {self.appended} appended)"


class AppendedBias(Bias):
    """A bias of the given keys; the appended ones get 0.

    Args:
        bias: what is added to the scores of the given keys.
        appended: how many keys stand after them.
    """

    def __init__(self, bias: Bias, appended: int):
        super().__init__()
        self.bias, self.appended = bias, appended

    def check(self, query: Tensor, grid: Grid) -> None:
        self.bias.check(query, _given(grid, self.appended))

    def needs_gradient(self, query: Tensor) -> bool:
        return self.bias.needs_gradient(query)

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        given = _given(grid, self.appended)
        return _pad(self.bias(query, given), grid, given, 0.0)


def _given(grid: Grid, appended: int) -> Grid:
    """The part of the grid that has the given keys, of a problem that has no others."""
    keys, span = grid.keys - appended, grid.key_span
    return replace(grid, keys=keys, key_span=range(min(span.start, keys), min(span.stop, keys)))


def _pad(tensor: Tensor, grid: Grid, given: Grid, value: float) -> Tensor:
    """What was said of the given keys, with ``value`` for the appended ones of the tile."""
    keys = len(given.key_span)
    tensor = tensor.expand(torch.broadcast_shapes(tensor.shape, (keys,)))
    return F.pad(tensor, (0, len(grid.key_span) - keys), value=value)
