"""The base class of masks and their algebra.

A mask says which keys each query may attend to, densely and tile by tile. ``True`` means "may attend" (contract 1).
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable
from copy import copy
from functools import wraps
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from regard.errors import ArgumentError, KindError
from regard.fields import FIELDS, Declared, declaring_class, shown_fields, with_parts
from regard.masks.batch_integers import BatchInteger
from regard.masks.spans import Spans, intersection_of
from regard.shapes.axes import Bool
from regard.shapes.checks import check_result, type_text
from regard.shapes.grid import Grid
from regard.tracing.transforms import has_data

DEPTH_LIMIT = 64
"""Largest nesting depth of ``&``, ``|`` and ``~``; a chain of one operator, however long, is one level."""

PARTS_LIMIT = 2**16
"""Largest number of masks in one combination, where a mask counts as often as it occurs."""

REPR_LIMIT = 16
"""Largest number of masks in the text of a combination; it only counts the others."""


class Visibility(enum.Enum):
    """Whether the mask allows none, some or all pairs of a tile, over all of its batch rows and heads.

    Example:
        >>> from regard import masks
        >>> from regard.shapes import Grid, check_result
        >>> masks.causal().visibility(Grid.whole(1, 1, 4, 4).tile(queries=range(0, 2), keys=range(2, 4)))
        <Visibility.EMPTY: 'empty'>
    """

    EMPTY = "empty"
    PARTIAL = "partial"
    FULL = "full"


class Mask(Declared, ABC):
    """Says which keys each query may attend to. Masks combine with ``&``, ``|`` and ``~``; they have no truth value.

    Two masks are equal if they are of one class and have equal fields: numbers count by value, a tensor or a
    function equals itself alone. So does a combination, and a mask of a class that declares no fields.

    Attributes:
        depth: levels of ``&``, ``|`` and ``~``; 1 for a mask that is not a combination.
        total_parts: number of masks in the combination, at all levels; 1 for a mask that is not a combination.
        is_function: whether a function of the user's decides, which kernels may compile.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x = torch.zeros(3, 1)
        >>> (regard.attend_with_weights(x, x, x, mask=masks.causal() & ~masks.prefix(1)).weights > 0).long()
        tensor([[0, 0, 0],
                [0, 1, 0],
                [0, 1, 1]])
    """

    depth: int = 1
    total_parts: int = 1
    is_function: bool = False

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        # Without it, a result [batch, queries, keys] would broadcast over heads. Those of regard are right.
        if "allows" in vars(cls) and not cls.__module__.startswith("regard."):
            own: Any = cls
            own.allows = _checked(own.allows)

    def __setattr__(self, name: str, value: object) -> None:
        # Results for one call hold for all calls with an equal mask.
        is_known = name in vars(self) or callable(getattr(type(self), name, None))
        if is_known and type(self) in FIELDS and not name.startswith("_"):
            raise ArgumentError(f"a mask does not change: make another {type(self).__name__} with its own {name}")
        super().__setattr__(name, value)

    def _with(self, **attributes: object) -> Any:
        """Returns a copy with other attributes."""
        mask = copy(self)
        vars(mask).update(attributes)
        return mask

    def check(self, grid: Grid) -> None:
        """Raises ArgumentError, ShapeError or KindError unless this mask fits the problem of ``grid``."""

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> "Mask":
        """Returns the mask with ``function`` of each of its tensors of pairs; the mask itself if it has none.

        Args:
            function: takes and returns a bool tensor that broadcasts to the pairs of a call, such as that of `keep`.
        """
        return with_parts(self, lambda part: part.map_tensors(function))

    @abstractmethod
    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        """Returns a bool tensor on the grid's device, broadcastable to the tile's ``[batch, heads, queries, keys]``."""

    def visibility(self, grid: Grid) -> Visibility:
        """Returns whether the tile is EMPTY, FULL or PARTIAL; must be exact or PARTIAL, as it is on a device."""
        if grid.device.type != "cpu":
            return Visibility.PARTIAL
        allowed = self.allows(grid)
        if not has_data(allowed):
            return Visibility.PARTIAL
        if not bool(allowed.any()):
            return Visibility.EMPTY
        return Visibility.FULL if bool(allowed.all()) else Visibility.PARTIAL

    def hides_nothing(self, grid: Grid) -> bool:
        """Whether the mask certainly allows all pairs of the tile, as far as that can be told at a negligible cost.

        Most masks return False without a check.
        """
        return False

    def shows_all_rows(self, grid: Grid) -> bool:
        """Whether every query of the whole grid certainly sees a key, as far as sizes alone tell."""
        return False

    def shows_all_keys(self, grid: Grid) -> bool:
        """Whether every key of the whole grid is certainly seen by a query of its batch row, as far as sizes tell."""
        return False

    def spans(self, grid: Grid) -> Spans | None:
        """Returns the visible keys of each row of the tile if every row has only a few runs; must be exact or None.

        It costs time and memory linear in queries + keys of each batch row and head (with a logarithmic factor for
        sorted ids), never in their product. A mask that cannot meet this bound returns None, as most masks do.
        """
        return None

    def hidden_spans(self, grid: Grid) -> Spans | None:
        """Returns the hidden keys of each row of the tile in the same form: the `spans` of ``~mask``."""
        visible = self.spans(grid)
        return None if visible is None else visible.complement(grid)

    def dense(self, grid: Grid) -> Bool[Tensor, "batch heads queries keys"]:
        """Returns `allows`, expanded to the tile's four axes."""
        return self.allows(grid).expand(grid.shape)

    def with_four_axes(self, grid: Grid) -> Bool[Tensor, "#batch #heads #queries #keys"]:
        """Returns `allows` with four axes, of which any may have the length 1: a number for all batch rows has none."""
        allowed = self.allows(grid)
        return allowed[(None,) * (4 - allowed.dim())]

    def __and__(self, other: "Mask") -> "Mask":
        return _combined(And, self, other)

    def __or__(self, other: "Mask") -> "Mask":
        return _combined(Or, self, other)

    # ``tensor & mask`` raises the same error as ``mask & tensor``.
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
        """Returns a value that is equal for equal masks of one class: their fields, or the object's id without any."""
        fields = FIELDS.get(type(self))
        return id(self) if fields is None else tuple(_identity(getattr(self, name)) for name in fields)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Mask) and type(self) is type(other) and self.identity() == other.identity()

    def __hash__(self) -> int:
        return hash((type(self), self.identity()))

    def __repr__(self) -> str:
        declaring = declaring_class(self)
        if declaring is None:
            return super().__repr__()
        shown = [_text(value) if needed else f"{name}={_text(value)}" for name, value, needed in shown_fields(self)]
        return f"{declaring.__name__.lower()}({', '.join(shown)})"


def _identity(field: Any) -> Hashable:
    if isinstance(field, BatchInteger):
        return field.identity
    return id(field) if isinstance(field, Tensor) or callable(field) else field


def _text(field: object) -> str:
    return f"<{list(field.shape)}>" if isinstance(field, Tensor) else repr(field)


def _checked(allows: Callable[[Mask, Grid], Tensor]) -> Callable[[Mask, Grid], Tensor]:
    """Returns the method of a user's mask with a check of its result."""

    @wraps(allows)
    def checked(self: Mask, grid: Grid) -> Tensor:
        allowed = allows(self, grid)
        check_result(f"the result of {type(self).__name__}.allows", allowed, grid)
        return allowed

    return checked


def as_part(value: object) -> Mask:
    """Returns the value if it is a mask; raises KindError otherwise."""
    if not isinstance(value, Mask):
        raise KindError(
            f"a mask combines with masks only; got {type_text(value)} "
            "(wrap a tensor in masks.keep, a function in masks.where)"
        )
    return value


def check_size(depth: int, total_parts: int) -> None:
    """Raises ArgumentError if a combination is nested too deeply, or has too many parts."""
    instead = "write it as one function with masks.where, or as a tensor with masks.keep"
    if depth > DEPTH_LIMIT:
        raise ArgumentError(
            f"masks may be nested {DEPTH_LIMIT} levels deep (a chain of one operator is one level); {instead}"
        )
    if total_parts > PARTS_LIMIT:
        raise ArgumentError(f"a mask may be combined of {PARTS_LIMIT} masks; there are {total_parts}; {instead}")


def _combined(kind: "type[And] | type[Or]", left: Mask, right: object) -> Mask:
    both = kind(left, as_part(right))
    first, *others = both.parts
    return both if others else first


class Combination(Mask):
    """Combines masks by one operator.

    Args:
        first, others: the masks. A combination by the same operator is replaced by its parts, so that a chain of any
            length is one level, and of equal masks only one is kept.
    """

    sign: ClassVar[str]

    def __init__(self, first: Mask, *others: Mask):
        # A dict keeps the order and removes duplicates; copying the dict of a chain reuses its hashes, so a chain grows
        # cheaply. A compiler cannot hash a mask that its graph creates, so there duplicates stay.
        unique: dict[Mask, None] = {}
        compiled: tuple[Mask, ...] = ()
        depth = count = total = 0
        for mask in (as_part(first), *map(as_part, others)):
            is_chain = isinstance(mask, type(self))
            parts = mask._parts if is_chain else (mask,)
            if torch.compiler.is_compiling():
                compiled = (*compiled, *parts)
            else:
                unique |= dict.fromkeys(parts)
            depth = max(depth, mask.depth if is_chain else mask.depth + 1)
            count, total = count + len(parts), total + mask.total_parts
        self._parts: Collection[Mask] = compiled or unique
        self.depth = depth
        all_differ = len(self._parts) == count
        self.total_parts = total if all_differ else sum(part.total_parts for part in self._parts)
        check_size(self.depth, self.total_parts)

    @classmethod
    def of_fields(cls, *fields: Iterable[Mask]) -> Mask:
        return cls(*fields[0])

    @property
    def parts(self) -> tuple[Mask, ...]:
        """The combined masks, none of which is a combination by the same operator."""
        return tuple(self._parts)

    def check(self, grid: Grid) -> None:
        for part in self._parts:
            part.check(grid)

    def identity(self) -> Hashable:
        # A comparison of all parts, each of which may be a combination, would take too long.
        return id(self)

    def __repr__(self) -> str:
        texts, budget = [], REPR_LIMIT
        for part in self._parts:
            if part.total_parts > budget:
                break
            texts.append(repr(part))
            budget -= part.total_parts
        if rest := self.total_parts - (REPR_LIMIT - budget):
            texts.append(f"<{rest} more masks>" if texts else f"<{rest} masks>")
        return f"({f' {self.sign} '.join(texts)})"


class And(Combination, fields=("parts",)):
    """Allows the pairs that all masks allow.

    .. math::

        query i sees key j  ⇔  mask1 and mask2 and … let it see key j

    Example:
        >>> from regard import masks
        >>> masks.And(masks.causal(), masks.prefix(2))
        (causal() & prefix(2))
    """

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


class Or(Combination, fields=("parts",)):
    """Allows the pairs that at least one of the masks allows.

    .. math::

        query i sees key j  ⇔  mask1 or mask2 or … lets it see key j

    Example:
        >>> from regard import masks
        >>> masks.Or(masks.causal(), masks.prefix(2))
        (causal() | prefix(2))
    """

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

    def shows_all_rows(self, grid: Grid) -> bool:
        return any(part.shows_all_rows(grid) for part in self._parts)

    def shows_all_keys(self, grid: Grid) -> bool:
        return any(part.shows_all_keys(grid) for part in self._parts)

    def spans(self, grid: Grid) -> Spans | None:
        return _union([part.spans for part in self._parts], grid)

    def hidden_spans(self, grid: Grid) -> Spans | None:
        return _intersection([part.hidden_spans for part in self._parts], grid)


class Not(Mask, fields=("mask",)):
    """Allows the pairs that the mask hides.

    .. math::

        query i sees key j  ⇔  the mask hides key j from it

    Example:
        >>> from regard import masks
        >>> masks.Not(masks.prefix(2))
        ~prefix(2)
    """

    def __init__(self, mask: Mask):
        self.mask = mask
        self.depth, self.total_parts = mask.depth + 1, mask.total_parts
        check_size(self.depth, self.total_parts)

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

    def __invert__(self) -> Mask:
        return self.mask

    def __repr__(self) -> str:
        return f"~{self.mask!r}"


def _visibility(parts: Iterable[Mask], grid: Grid, decisive: Visibility, neutral: Visibility) -> Visibility:
    """Returns ``decisive`` if a part is so, ``neutral`` if all parts are, and PARTIAL otherwise."""
    combined = neutral
    # A part may be costly (a function, a tensor on a GPU), so the loop ends as soon as the result is known.
    for part in parts:
        visibility = part.visibility(grid)
        if visibility is decisive:
            return decisive
        if visibility is Visibility.PARTIAL:
            combined = visibility
    return combined


def _all_spans(methods: Iterable[Callable[[Grid], Spans | None]], grid: Grid) -> list[Spans] | None:
    """Returns the spans of all masks, or None at the first mask without spans, since the next may be on a GPU."""
    spans = []
    for method in methods:
        part = method(grid)
        if part is None:
            return None
        spans.append(part)
    return spans


def _intersection(methods: Iterable[Callable[[Grid], Spans | None]], grid: Grid) -> Spans | None:
    spans = _all_spans(methods, grid)
    return None if spans is None else intersection_of(spans)


def _union(methods: Iterable[Callable[[Grid], Spans | None]], grid: Grid) -> Spans | None:
    spans = _all_spans(methods, grid)
    return None if spans is None else spans[0].union(*spans[1:])


def visible_keys(mask: Mask, grid: Grid, block: int) -> range:
    """Returns the smallest range of whole key blocks that contains all visible keys of a tile.

    It bisects the key blocks by `Mask.visibility`: about ``log2(keys / block)`` calls for each end if the mask knows
    its bounds, and at most four calls a block for any mask.

    Args:
        mask: the mask.
        grid: the tile: its query rows, and the keys to search.
        block: number of keys in a block, counted from the tile's first key.

    Returns:
        Positions in the whole problem, within ``grid.key_span``: the range starts at the first key of a block and ends
        after the last key of a block or of the tile. It is empty if no key is visible.

    Example:
        >>> from regard import masks
        >>> from regard.shapes import Grid, check_result
        >>> grid = Grid.whole(1, 1, 8, 8).tile(queries=range(0, 3))
        >>> masks.visible_keys(masks.causal(), grid, block=2)
        range(0, 4)
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
        index = outermost(*near, from_left)
        return outermost(*far, from_left) if index is None else index

    blocks = -(-len(span) // block)
    first = outermost(0, blocks, from_left=True)
    if first is None:
        return range(span.start, span.start)
    last = outermost(first, blocks, from_left=False)
    # A range may be PARTIAL although each of its blocks is EMPTY, but the block `first` is not EMPTY.
    return keys_of(first, (first if last is None else last) + 1)


def joined_masks(mask: Mask | None) -> tuple[Mask, ...]:
    """Returns the masks that ``&`` joins, each of which must allow a pair: a mask itself is one, None has none."""
    if mask is None:
        return ()
    # The parts of a subclass may not be all that it says.
    return mask.parts if type(mask) is And else (mask,)


def as_added(allowed: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Returns 0 where bools allow a pair and −∞ elsewhere, to add to scores of this dtype; the bools for None."""
    if dtype is None:
        return allowed
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(~allowed, -torch.inf)
