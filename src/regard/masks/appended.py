"""A mask for keys that a layer appends to those it was given: every query sees them, and they have no position."""

from torch import Tensor
from torch.nn import functional as F

from regard.masks.mask import Mask, Visibility
from regard.shapes import Grid, without_appended


class AppendedMask(Mask):
    """A mask of the given keys; the appended ones are always seen.

    Args:
        mask: who may see whom among the given keys.
        appended: how many keys stand after them.
    """

    def __init__(self, mask: Mask, appended: int):
        self.mask, self.appended = mask, appended

    def check(self, grid: Grid) -> None:
        self.mask.check(without_appended(grid, self.appended))

    def allows(self, grid: Grid) -> Tensor:
        given = without_appended(grid, self.appended)
        keys = len(given.key_span)
        allowed = self.mask.allows(given)
        allowed = allowed.expand(*allowed.shape[:-1], keys)
        return F.pad(allowed, (0, len(grid.key_span) - keys), value=True)

    def visibility(self, grid: Grid) -> Visibility:
        given = without_appended(grid, self.appended)
        if not given.key_span:
            return Visibility.EMPTY if 0 in grid.shape else Visibility.FULL
        visibility = self.mask.visibility(given)
        if len(given.key_span) < len(grid.key_span) and visibility is Visibility.EMPTY:
            return Visibility.PARTIAL
        return visibility

    def __repr__(self) -> str:
        return f"({self.mask!r} and {self.appended} appended)"
