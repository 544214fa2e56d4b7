"""What a mask is: who may see whom, densely and tile by tile, with an algebra.

``True`` means "may attend" (contract 1).
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import ClassVar, NoReturn

import torch
from torch import Tensor

from regard.axes import Bool
from regard.errors import ArgumentError, KindError
from regard.masks.spans import Spans, intersection_of
from regard.shapes import Grid
from regard.transforms import has_data

DEPTH_LIMIT = 64
"""How deep ``&``, ``|`` and ``~`` may be nested; a chain of one operator, however long, is one level."""

PARTS_LIMIT = 2**16
"""How many masks one combination may have, counted as often as they stand in it."""


REPR_LIMIT = 16
"""Masks of a combination beyond which its text counts the others."""


class Visibility(enum.Enum):
    """What a tile of pairs is, for all batch rows and heads of the tile together."""

    EMPTY = "empty"
    PARTIAL = "partial"
    FULL = "full"


class Mask(ABC):
    """Who may see whom. Masks combine with ``&``, ``|`` and ``~``; they have no truth value.

    Two masks are equal if they are made of the same integers, or are one object.

    Attributes:
        depth: levels of ``&``, ``|`` and ``~``; 1 for a mask that is no combination.
        parts_in_all: masks that it is combined of, at all levels; 1 for a mask that is no combination.
    """

    depth: int = 1
    parts_in_all: int = 1

    def check(self, grid: Grid) -> None:  # noqa: B027 (most masks fit every grid)
        """Raise ArgumentError, ShapeError or KindError unless this mask fits the problem of ``grid``."""

    @abstractmethod
    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        """May this pair be seen? bool, on the grid's device, broadcastable to its ``[batch, heads, queries, keys]``."""

    def visibility(self, grid: Grid) -> Visibility:
        """Whether the tile is EMPTY, FULL or PARTIAL; must be exact or PARTIAL."""
        allowed = self.allows(grid)
        if not has_data(allowed):
            return Visibility.PARTIAL
        if bool(allowed.all()):
            return Visibility.FULL
        return Visibility.PARTIAL if bool(allowed.any()) else Visibility.EMPTY

    def hides_nothing(self, grid: Grid) -> bool:
        """Whether the mask is known to allow all pairs of the tile, at a price that no calculation notices.

        True only where that is certain; most masks say False without a look.
        """
        return False

    def spans(self, grid: Grid) -> Spans | None:
        """The keys of the tile that each row sees, if in every row they are a few runs; must be exact or None.

        Costs time and memory linear in queries + keys (sorted ids: times a logarithm) of each batch row and head, never
        their product; a mask that cannot tell at this price says None, as most masks do.
        """
        return None

    def hidden_spans(self, grid: Grid) -> Spans | None:
        """The same for the keys of the tile that each row does *not* see: what `spans` is for ``~mask``."""
        seen = self.spans(grid)
        return None if seen is None else seen.complement(grid)

    def dense(self, grid: Grid) -> Bool[Tensor, "batch heads queries keys"]:
        """`allows`, expanded to the tile's four axes."""
        return self.allows(grid).expand(grid.shape)

    def __and__(self, other: "Mask") -> "Mask":
        return _combined(And, self, other)

    def __or__(self, other: "Mask") -> "Mask":
        return _combined(Or, self, other)

    # ``tensor & mask`` comes here, and is refused with the same hint as ``mask & tensor``.
    __rand__ = __and__
    __ror__ = __or__

    def __invert__(self) -> "Mask":
        return Not(self)

    def __bool__(self) -> NoReturn:
        raise KindError(
            "a mask has no truth value: combine masks with &, | and ~ instead of 'and', 'or' and 'not', "
            "and test for a missing one with 'is None'"
        )

    def identity(self) -> Hashable:
        """What the mask is made of: masks of one class are equal if this is. The object itself, if not overridden."""
        return id(self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Mask) and type(self) is type(other) and self.identity() == other.identity()

    def __hash__(self) -> int:
        return hash((type(self), self.identity()))


def as_part(value: object) -> Mask:
    """The value, if it is a mask; else KindError."""
    if not isinstance(value, Mask):
        raise KindError(
            f"a mask combines with masks only; got {type(value).__name__} "
            "(wrap a tensor in masks.keep, a function in masks.where)"
        )
    return value


def check_size(depth: int, parts_in_all: int) -> None:
    """Raise ArgumentError if a combination is nested too deep, or has too many parts."""
    instead = "write it as one function with masks.where, or as a tensor with masks.keep"
    if depth > DEPTH_LIMIT:
        raise ArgumentError(
            f"masks may be nested {DEPTH_LIMIT} levels deep (a chain of one operator is one level); {instead}"
        )
    if parts_in_all > PARTS_LIMIT:
        raise ArgumentError(f"a mask may be combined of {PARTS_LIMIT} masks; there are {parts_in_all}; {instead}")


def _combined(kind: "type[And] | type[Or]", left: Mask, right: object) -> Mask:
    both = kind(left, as_part(right))
    first, *others = both.parts
    return both if others else first


class Combination(Mask):
    """Masks that are joined by one operator.

    Args:
        first, others: the masks. Those that are joined by the same operator are replaced by their parts, so that a
            chain of any length is one level, and equal ones are kept once.
    """

    sign: ClassVar[str]

    def __init__(self, first: Mask, *others: Mask):
        # Keys of a dict: in order and once. Those of a chain are copied with their hashes, so that growing it is cheap.
        # A compiler cannot ask a mask that is made in its graph for a hash: there, equal ones are kept.
        once: dict[Mask, None] = {}
        every: tuple[Mask, ...] = ()
        depth = given = given_in_all = 0
        for mask in (as_part(first), *map(as_part, others)):
            is_chain = isinstance(mask, type(self))
            parts = mask._parts if is_chain else (mask,)
            if torch.compiler.is_compiling():
                every = (*every, *parts)
            else:
                once |= dict.fromkeys(parts)
            depth = max(depth, mask.depth if is_chain else mask.depth + 1)
            given, given_in_all = given + len(parts), given_in_all + mask.parts_in_all
        self._parts: Collection[Mask] = every or once
        self.depth = depth
        all_differ = len(self._parts) == given
        self.parts_in_all = given_in_all if all_differ else sum(part.parts_in_all for part in self._parts)
        check_size(self.depth, self.parts_in_all)

    @property
    def parts(self) -> tuple[Mask, ...]:
        """The masks that are joined, none of them by the same operator."""
        return tuple(self._parts)

    def check(self, grid: Grid) -> None:
        for part in self._parts:
            part.check(grid)

    def __repr__(self) -> str:
        shown, budget = [], REPR_LIMIT
        for part in self._parts:
            if part.parts_in_all > budget:
                break
            shown.append(repr(part))
            budget -= part.parts_in_all
        if rest := self.parts_in_all - (REPR_LIMIT - budget):
            shown.append(f"<{rest} more masks>" if shown else f"<{rest} masks>")
        return f"({f' {self.sign} '.join(shown)})"


class And(Combination):
    """Pairs that all masks allow."""

    sign = "&"

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        first, *others = self._parts
        allowed = first.allows(grid)
        for other in others:
            allowed = allowed & other.allows(grid)
        return allowed

    def visibility(self, grid: Grid) -> Visibility:
        return _visibility(self._parts, grid, decisive=Visibility.EMPTY, neutral=Visibility.FULL)

    def hides_nothing(self, grid: Grid) -> bool:
        return all(part.hides_nothing(grid) for part in self._parts)

    def spans(self, grid: Grid) -> Spans | None:
        return _intersection([part.spans for part in self._parts], grid)

    def hidden_spans(self, grid: Grid) -> Spans | None:
        return _union([part.hidden_spans for part in self._parts], grid)


class Or(Combination):
    """Pairs that any of the masks allows."""

    sign = "|"

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        first, *others = self._parts
        allowed = first.allows(grid)
        for other in others:
            allowed = allowed | other.allows(grid)
        return allowed

    def visibility(self, grid: Grid) -> Visibility:
        return _visibility(self._parts, grid, decisive=Visibility.FULL, neutral=Visibility.EMPTY)

    def hides_nothing(self, grid: Grid) -> bool:
        return any(part.hides_nothing(grid) for part in self._parts)

    def spans(self, grid: Grid) -> Spans | None:
        return _union([part.spans for part in self._parts], grid)

    def hidden_spans(self, grid: Grid) -> Spans | None:
        return _intersection([part.hidden_spans for part in self._parts], grid)


class Not(Mask):
    """Pairs that the mask forbids."""

    def __init__(self, mask: Mask):
        self.mask = mask
        self.depth, self.parts_in_all = mask.depth + 1, mask.parts_in_all
        check_size(self.depth, self.parts_in_all)

    def check(self, grid: Grid) -> None:
        self.mask.check(grid)

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        return ~self.mask.allows(grid)

    def visibility(self, grid: Grid) -> Visibility:
        opposite = {Visibility.EMPTY: Visibility.FULL, Visibility.FULL: Visibility.EMPTY}
        inner = self.mask.visibility(grid)
        return opposite.get(inner, inner)

    def spans(self, grid: Grid) -> Spans | None:
        return self.mask.hidden_spans(grid)

    def hidden_spans(self, grid: Grid) -> Spans | None:
        return self.mask.spans(grid)

    def identity(self) -> Hashable:
        return self.mask

    def __invert__(self) -> Mask:
        return self.mask

    def __repr__(self) -> str:
        return f"~{self.mask!r}"


def _visibility(parts: Iterable[Mask], grid: Grid, decisive: Visibility, neutral: Visibility) -> Visibility:
    """What the parts are together: ``decisive`` if one is, ``neutral`` if all are, else PARTIAL."""
    together = neutral
    # A part may be costly (a function, a tensor on a GPU): it is asked only if those before it do not decide.
    for part in parts:
        visibility = part.visibility(grid)
        if visibility is decisive:
            return decisive
        if visibility is Visibility.PARTIAL:
            together = visibility
    return together


def _all_spans(ask: Iterable[Callable[[Grid], Spans | None]], grid: Grid) -> list[Spans] | None:
    """What each one answers; None as soon as one of them does not know: the next one may lie on a GPU."""
    found = []
    for spans_of in ask:
        spans = spans_of(grid)
        if spans is None:
            return None
        found.append(spans)
    return found


def _intersection(ask: Iterable[Callable[[Grid], Spans | None]], grid: Grid) -> Spans | None:
    found = _all_spans(ask, grid)
    return None if found is None else intersection_of(found)


def _union(ask: Iterable[Callable[[Grid], Spans | None]], grid: Grid) -> Spans | None:
    found = _all_spans(ask, grid)
    return None if found is None else found[0].union(*found[1:])
