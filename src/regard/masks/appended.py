"""A mask for keys that a layer appends to the user's: every query sees them, and they have no position."""

from torch import Tensor

from regard.errors import ShapeError
from regard.masks.mask import Mask, Visibility, as_part, check_size
from regard.masks.spans import Spans
from regard.shapes.axes import Bool
from regard.shapes.checks import whole_number
from regard.shapes.grid import Grid, span_length, without_appended


class AppendedMask(Mask, fields=("mask", "appended")):
    """Applies a mask to the user's keys, and always allows the appended ones.

    .. math::

        query i sees key j  ⇔  j >= keys − appended  or  mask lets it see key j

    Args:
        mask: the mask of the user's keys.
        appended: number of appended keys, which come last, >= 0.

    Example:
        >>> from regard import masks
        >>> masks.AppendedMask(masks.causal(), 1)
        (causal() and 1 appended)
    """

    def __init__(self, mask: Mask, appended: int):
        self.mask, self.appended = as_part(mask), whole_number("appended", appended, low=0)
        self.depth, self.total_parts = mask.depth + 1, mask.total_parts
        check_size(self.depth, self.total_parts)

    def check(self, grid: Grid) -> None:
        if grid.keys < self.appended:
            raise ShapeError(f"{self.appended} keys are appended, but there are {grid.keys} in all")
        self.mask.check(without_appended(grid, self.appended))

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        return grid.with_appended(self.appended, self.mask.allows, True)

    def visibility(self, grid: Grid) -> Visibility:
        inner = without_appended(grid, self.appended)
        if not inner.key_span:
            return Visibility.EMPTY if 0 in grid.shape else Visibility.FULL
        visibility = self.mask.visibility(inner)
        if span_length(inner.key_span) < span_length(grid.key_span) and visibility is Visibility.EMPTY:
            return Visibility.PARTIAL
        return visibility

    def shows_all_rows(self, grid: Grid) -> bool:
        return self.appended > 0 or self.mask.shows_all_rows(grid)

    def shows_all_keys(self, grid: Grid) -> bool:
        inner = without_appended(grid, self.appended)
        return grid.queries > 0 and (inner.keys == 0 or self.mask.shows_all_keys(inner))

    def spans(self, grid: Grid) -> Spans | None:
        inner = without_appended(grid, self.appended)
        appended = Spans.within(grid, inner.keys, grid.keys)
        if not inner.key_span:
            return appended
        visible = self.mask.spans(inner)
        return None if visible is None else visible.union(appended)

    def hidden_spans(self, grid: Grid) -> Spans | None:
        inner = without_appended(grid, self.appended)
        return self.mask.hidden_spans(inner) if inner.key_span else Spans.within(grid, 0, 0)

    def __repr__(self) -> str:
        return f"({self.mask!r} and {self.appended} appended)"
