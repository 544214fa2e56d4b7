"""A mask for keys that a layer appends to those it was given: every query sees them, and they have no position."""

from collections.abc import Hashable

from torch import Tensor
from torch.nn import functional as F

from regard.axes import Bool
from regard.errors import ShapeError
from regard.masks.mask import Mask, Visibility, as_part, check_size
from regard.masks.spans import Spans
from regard.shapes import Grid, span_length, whole_number, without_appended


class AppendedMask(Mask):
    """A mask of the given keys; the appended ones are always seen.

    Args:
        mask: who may see whom among the given keys.
        appended: how many keys stand after them, >= 0.
    """

    def __init__(self, mask: Mask, appended: int):
        self.mask, self.appended = as_part(mask), whole_number("appended", appended, low=0)
        self.depth, self.parts_in_all = mask.depth + 1, mask.parts_in_all
        check_size(self.depth, self.parts_in_all)

    def check(self, grid: Grid) -> None:
        if grid.keys < self.appended:
            raise ShapeError(f"{self.appended} keys are appended, but there are {grid.keys} in all")
        self.mask.check(without_appended(grid, self.appended))

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        given = without_appended(grid, self.appended)
        keys = span_length(given.key_span)
        allowed = self.mask.allows(given)
        allowed = allowed.expand(*allowed.shape[:-1], keys)
        return F.pad(allowed, (0, span_length(grid.key_span) - keys), value=True)

    def visibility(self, grid: Grid) -> Visibility:
        given = without_appended(grid, self.appended)
        if not given.key_span:
            return Visibility.EMPTY if 0 in grid.shape else Visibility.FULL
        visibility = self.mask.visibility(given)
        if span_length(given.key_span) < span_length(grid.key_span) and visibility is Visibility.EMPTY:
            return Visibility.PARTIAL
        return visibility

    def spans(self, grid: Grid) -> Spans | None:
        given = without_appended(grid, self.appended)
        appended = Spans.within(grid, given.keys, grid.keys)
        if not given.key_span:
            return appended
        seen = self.mask.spans(given)
        return None if seen is None else seen.union(appended)

    def hidden_spans(self, grid: Grid) -> Spans | None:
        given = without_appended(grid, self.appended)
        return self.mask.hidden_spans(given) if given.key_span else Spans.within(grid, 0, 0)

    def identity(self) -> Hashable:
        return self.mask, self.appended

    def __repr__(self) -> str:
        return f"({self.mask!r} and {self.appended} appended)"
