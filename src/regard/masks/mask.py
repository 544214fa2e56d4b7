"""What a mask is: who may see whom, densely and tile by tile, with an algebra.

``True`` means "may attend" (contract 1).
"""

import enum
from abc import ABC, abstractmethod

from torch import Tensor

from regard.errors import KindError
from regard.shapes import Grid


class Visibility(enum.Enum):
    """What a tile of pairs is, for all batch rows and heads of the tile together."""

    EMPTY = "empty"
    PARTIAL = "partial"
    FULL = "full"


class Mask(ABC):
    """Who may see whom. Masks combine with ``&``, ``|`` and ``~``."""

    def check(self, grid: Grid) -> None:
        """Raise ShapeError or KindError unless this mask fits the problem of ``grid``."""

    @abstractmethod
    def allows(self, grid: Grid) -> Tensor:
        """bool, on the grid's device, broadcastable to the tile's ``[batch, heads, queries, keys]``: may this pair be seen?"""

    def visibility(self, grid: Grid) -> Visibility:
        """Whether the tile is EMPTY, FULL or PARTIAL; must be exact or PARTIAL."""
        allowed = self.allows(grid)
        if bool(allowed.all()):
            return Visibility.FULL
        return Visibility.PARTIAL if bool(allowed.any()) else Visibility.EMPTY

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
        both = {self.left.visibility(grid), self.right.visibility(grid)}
        if Visibility.EMPTY in both:
            return Visibility.EMPTY
        return Visibility.FULL if both == {Visibility.FULL} else Visibility.PARTIAL

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
        both = {self.left.visibility(grid), self.right.visibility(grid)}
        if Visibility.FULL in both:
            return Visibility.FULL
        return Visibility.EMPTY if both == {Visibility.EMPTY} else Visibility.PARTIAL

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

    def __repr__(self) -> str:
        return f"~{self.mask!r}"
