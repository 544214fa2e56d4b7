"""What a mask is: who may see whom, densely and tile by tile, with an algebra.

``True`` means "may attend" (contract 1).
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor

from regard.errors import KindError
from regard.masks.spans import Spans
from regard.shapes import Grid


class Visibility(enum.Enum):
    """What a tile of pairs is, for all batch rows and heads of the tile together."""

    EMPTY = "empty"
    PARTIAL = "partial"
    FULL = "full"


class Mask(ABC):
    """Who may see whom. Masks combine with ``&``, ``|`` and ``~``."""

    def check(self, grid: Grid) -> None:  # noqa: B027 (most masks fit every grid)
        """Raise ArgumentError, ShapeError or KindError unless this mask fits the problem of ``grid``."""

    @abstractmethod
    def allows(self, grid: Grid) -> Tensor:
        """May this pair be seen? bool, on the grid's device, broadcastable to its ``[batch, heads, queries, keys]``."""

    def visibility(self, grid: Grid) -> Visibility:
        """Whether the tile is EMPTY, FULL or PARTIAL; must be exact or PARTIAL."""
        allowed = self.allows(grid)
        if bool(allowed.all()):
            return Visibility.FULL
        return Visibility.PARTIAL if bool(allowed.any()) else Visibility.EMPTY

    def spans(self, grid: Grid) -> Spans | None:
        """The keys of the tile that each row sees, if in every row they are one run; must be exact or None.

        Costs time and memory linear in queries + keys (sorted ids: times a logarithm) of each batch row and head, never
        their product; a mask that cannot tell at this price says None, as most masks do.
        """
        return None

    def hidden_spans(self, grid: Grid) -> Spans | None:
        """The same for the keys of the tile that each row does *not* see: what `spans` is for ``~mask``."""
        seen = self.spans(grid)
        return None if seen is None else seen.complement(grid)

    def dense(self, grid: Grid) -> Tensor:
        """`allows`, expanded to the tile's four axes."""
        return self.allows(grid).expand(grid.shape)

    def __and__(self, other: "Mask") -> "Mask":
        return And(self, _mask(other))

    def __or__(self, other: "Mask") -> "Mask":
        return Or(self, _mask(other))

    def __invert__(self) -> "Mask":
        return Not(self)


def _mask(value: object) -> Mask:
    if not isinstance(value, Mask):
        raise KindError(f"a mask combines with masks only; got {type(value).__name__} (wrap a tensor in masks.keep)")
    return value


class And(Mask):
    """Pairs that both masks allow."""

    def __init__(self, left: Mask, right: Mask):
        self.left, self.right = left, right

    def check(self, grid: Grid) -> None:
        self.left.check(grid)
        self.right.check(grid)

    def allows(self, grid: Grid) -> Tensor:
        return self.left.allows(grid) & self.right.allows(grid)

    def visibility(self, grid: Grid) -> Visibility:
        left = self.left.visibility(grid)
        # The right mask may be costly (a function, a tensor on a GPU): asked only if the left one does not decide.
        if left is Visibility.EMPTY:
            return left
        right = self.right.visibility(grid)
        return right if left is Visibility.FULL or right is Visibility.EMPTY else left

    def spans(self, grid: Grid) -> Spans | None:
        return _intersection(self.left.spans(grid), lambda: self.right.spans(grid))

    def hidden_spans(self, grid: Grid) -> Spans | None:
        return _union(self.left.hidden_spans(grid), lambda: self.right.hidden_spans(grid))

    def __repr__(self) -> str:
        return f"({self.left!r} & {self.right!r})"


class Or(Mask):
    """Pairs that either mask allows."""

    def __init__(self, left: Mask, right: Mask):
        self.left, self.right = left, right

    def check(self, grid: Grid) -> None:
        self.left.check(grid)
        self.right.check(grid)

    def allows(self, grid: Grid) -> Tensor:
        return self.left.allows(grid) | self.right.allows(grid)

    def visibility(self, grid: Grid) -> Visibility:
        left = self.left.visibility(grid)
        if left is Visibility.FULL:
            return left
        right = self.right.visibility(grid)
        return right if left is Visibility.EMPTY or right is Visibility.FULL else left

    def spans(self, grid: Grid) -> Spans | None:
        return _union(self.left.spans(grid), lambda: self.right.spans(grid))

    def hidden_spans(self, grid: Grid) -> Spans | None:
        return _intersection(self.left.hidden_spans(grid), lambda: self.right.hidden_spans(grid))

    def __repr__(self) -> str:
        return f"({self.left!r} | {self.right!r})"


class Not(Mask):
    """Pairs that the mask forbids."""

    def __init__(self, mask: Mask):
        self.mask = mask

    def check(self, grid: Grid) -> None:
        self.mask.check(grid)

    def allows(self, grid: Grid) -> Tensor:
        return ~self.mask.allows(grid)

    def visibility(self, grid: Grid) -> Visibility:
        opposite = {Visibility.EMPTY: Visibility.FULL, Visibility.FULL: Visibility.EMPTY}
        inner = self.mask.visibility(grid)
        return opposite.get(inner, inner)

    def spans(self, grid: Grid) -> Spans | None:
        return self.mask.hidden_spans(grid)

    def hidden_spans(self, grid: Grid) -> Spans | None:
        return self.mask.spans(grid)

    def __repr__(self) -> str:
        return f"~{self.mask!r}"


def _intersection(left: Spans | None, right: Callable[[], Spans | None]) -> Spans | None:
    # The right mask is asked only if the left one is made of runs: it may lie on a GPU.
    if left is None or (other := right()) is None:
        return None
    return left.intersection(other)


def _union(left: Spans | None, right: Callable[[], Spans | None]) -> Spans | None:
    if left is None or (other := right()) is None:
        return None
    return left.union(other)


def visible_keys(mask: Mask, grid: Grid, block: int) -> range:
    """The smallest range of whole key blocks outside which a tile sees nothing.

    Key blocks are probed by `Mask.visibility`, by halves: a mask that knows its bounds is asked about
    ``log2(keys / block)`` times for each end, and no mask more often than four times for each block.

    Args:
        mask: who may see whom.
        grid: the tile: its query rows, and the keys to look among.
        block: keys of one block, counted from the first key of the tile.

    Returns:
        Positions of the whole problem, within ``grid.key_span``: it starts at a block's first key and ends with a
        block's last key or the tile's. Empty if nothing is visible.
    """
    span = grid.key_span
    if 0 in grid.shape:
        return range(span.start, span.start)

    def keys_of(first: int, stop: int) -> range:
        return range(span.start + first * block, min(span.start + stop * block, span.stop))

    def outermost(first: int, stop: int, from_left: bool) -> int | None:
        if mask.visibility(grid.tile(keys=keys_of(first, stop))) is Visibility.EMPTY:
            return None
        if stop - first == 1:
            return first
        middle = (first + stop) // 2
        halves = ((first, middle), (middle, stop))
        near, far = halves if from_left else halves[::-1]
        found = outermost(*near, from_left)
        return outermost(*far, from_left) if found is None else found

    blocks = -(-len(span) // block)
    first = outermost(0, blocks, from_left=True)
    if first is None:
        return range(span.start, span.start)
    last = outermost(first, blocks, from_left=False)
    # A mask may answer PARTIAL for a range and EMPTY for each of its blocks, but `first` was a block that it saw.
    return keys_of(first, (first if last is None else last) + 1)
