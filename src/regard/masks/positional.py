"""Masks by position: causal, window, prefix, dilated.

The visibility of a tile follows from its corners, without a tensor.
"""

from collections.abc import Hashable
from typing import Literal, get_args

import torch
from torch import Tensor

from regard.errors import UnknownNameError
from regard.masks.batch_integers import BatchInteger, Integers
from regard.masks.mask import Mask, Visibility
from regard.masks.spans import Spans
from regard.shapes.axes import Bool
from regard.shapes.checks import whole_number
from regard.shapes.grid import POSITION_LIMIT, Grid

Align = Literal["end", "start"]
"""Which ends of the sequences align: the last query with the last key, or the first query with the first key."""


class AlignedMask(Mask):
    """The base of masks by the distance from a query's own position to a key: `Band`, and `Chunks`.

    Distances count chunks of ``size`` keys; of a band they count keys.

    Args:
        before: the largest distance to an earlier key; None for any.
        after: the largest distance to a later key; None for any.
        align: decides the offset if ``offset`` is None.
        offset: the key position of query 0, one for all batch rows or one a row; None to follow ``align``.

    Example:
        >>> from regard import masks
        >>> from regard.shapes import Grid
        >>> masks.chunks(4, align="start").offset_on(Grid.whole(1, 1, 5, 7))
        0
    """

    size: int = 1

    def __init__(self, before: int | None, after: int | None, align: Align = "end", offset: Integers | None = None):
        self.before = None if before is None else whole_number("before", before, low=0, high=POSITION_LIMIT)
        self.after = None if after is None else whole_number("after", after, low=0, high=POSITION_LIMIT)
        if align not in get_args(Align):
            raise UnknownNameError("align", align, get_args(Align))
        self.align: Align = align if offset is None else "end"
        self.offset = None if offset is None else BatchInteger("offset", offset)

    def check(self, grid: Grid) -> None:
        if self.offset is not None:
            self.offset.check(grid)

    def offset_on(self, grid: Grid) -> int | Tensor:
        """Returns the key position of query 0: an int, or ``int64 [batch, 1, 1, 1]`` for the tile's batch rows."""
        return self._aligned(grid) if self.offset is None else self.offset.on(grid)

    def _aligned(self, grid: Grid) -> int:
        return grid.offset if self.align == "end" else 0

    def visibility(self, grid: Grid) -> Visibility:
        if 0 in grid.shape:
            return Visibility.EMPTY
        if self.offset is not None and not self.offset.is_known:
            return Visibility.PARTIAL
        if self.offset is None:
            low = high = self._aligned(grid)
        else:
            low, high = self.offset.bounds(grid)
        # The range of distances from a query's own position to a key; in each batch row the distances have no gap.
        nearest = grid.key_span[0] // self.size - (grid.query_span[-1] + high) // self.size
        farthest = grid.key_span[-1] // self.size - (grid.query_span[0] + low) // self.size
        too_early = self.before is not None and farthest < -self.before
        too_late = self.after is not None and nearest > self.after
        if too_early or too_late:
            return Visibility.EMPTY
        full = (self.before is None or nearest >= -self.before) and (self.after is None or farthest <= self.after)
        return Visibility.FULL if full else Visibility.PARTIAL

    def hides_nothing(self, grid: Grid) -> bool:
        return self.offset is None and self.visibility(grid) is Visibility.FULL

    def shows_all_rows(self, grid: Grid) -> bool:
        # Each query sees its own key, if there is one.
        first = self._aligned(grid)
        return self.offset is None and 0 <= first <= grid.keys - grid.queries and grid.keys > 0

    def shows_all_keys(self, grid: Grid) -> bool:
        # The first query sees the first key or one before it, and the last query the last one or one after it.
        first, last = (
            position // self.size for position in (self._aligned(grid), self._aligned(grid) + grid.queries - 1)
        )
        begins = self.before is None or first <= self.before
        ends = self.after is None or last + self.after >= (grid.keys - 1) // self.size
        return self.offset is None and begins and ends and grid.queries > 0

    def spans(self, grid: Grid) -> Spans | None:
        if self.offset is not None and not self.offset.is_known:
            return None
        span = grid.query_span
        offset = self._aligned(grid) if self.offset is None else self.offset.on_host(grid)
        if isinstance(offset, int):
            own = torch.arange(span.start + offset, span.stop + offset, device="cpu")[None, None]
        else:
            own = torch.arange(span.start, span.stop, device="cpu") + offset
        start = 0 if self.before is None else self._first_key(own, -self.before, grid)
        return Spans.within(
            grid, start, grid.keys if self.after is None else self._first_key(own, self.after + 1, grid)
        )

    def _first_key(self, own: Tensor, distance: int, grid: Grid) -> Tensor:
        """Returns the first key at a distance from positions; beyond the last key if there is none."""
        if self.size == 1:
            return own + distance
        return (own // self.size + distance).clamp(0, -(-grid.keys // self.size)) * self.size

    def _position_text(self) -> list[str]:
        if self.offset is not None:
            return [f"offset={self.offset!r}"]
        return [] if self.align == "end" else [f"align={self.align!r}"]


class Band(AlignedMask, fields=("before", "after", "align", "offset")):
    """Allows keys near the query's own: ``i + offset − before <= j <= i + offset + after``; see `causal` and `window`.

    Args:
        before: number of visible keys before the query's own; None for all.
        after: number of visible keys after it; None for all.
        align: decides the offset if ``offset`` is None.
        offset: the key position of query 0, one for all batch rows or one a row; None to follow ``align``.

    Example:
        >>> from regard import masks
        >>> masks.Band(2, 0)
        window(before=2, after=0)
    """

    def __init__(self, before: int | None, after: int | None, align: Align = "end", offset: Integers | None = None):
        super().__init__(before, after, align, offset)
        self.shows_all_to_the_last = self.is_causal and self.align == "end" and offset is None
        """Whether the last query sees all keys, however many there are."""
        position = self.align if self.offset is None else self.offset.kind
        self.kind: Hashable = (Band, self.before, self.after, position)
        """A value that is equal for bands of the same numbers; an offset for each batch row counts by their number."""

    @property
    def is_causal(self) -> bool:
        """Whether each query sees all keys up to its own, wherever that is, and no later one."""
        return self.before is None and self.after == 0

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        query, key, offset = grid.shared_query_index, grid.shared_key_index, self.offset_on(grid)

        def at_distance(distance: int) -> Tensor:  # Q 1, or B 1 Q 1
            if not isinstance(offset, int):
                return query + offset + distance if distance else query + offset
            return query + (offset + distance) if offset + distance else query

        bounds = []
        if self.after is not None:
            bounds.append(key <= at_distance(self.after))
        if self.before is not None:
            bounds.append(key >= at_distance(-self.before))
        if not bounds:
            return torch.ones(1, dtype=torch.bool, device=grid.device)
        return bounds[0] if len(bounds) == 1 else bounds[0] & bounds[1]

    def __repr__(self) -> str:
        reach = [] if self.is_causal else [f"before={self.before}", f"after={self.after}"]
        return f"{'window' if reach else 'causal'}({', '.join([*reach, *self._position_text()])})"


def causal(align: Align = "end", offset: Integers | None = None) -> Band:
    """Lets each query see its own key and the keys before it.

    .. math::

        query i sees key j  ⇔  j <= i + offset

    Vaswani et al. 2017, §3.2.3 (the decoder's self-attention), with as many queries as keys and offset = 0.

    Args:
        align: how the two sequences align if their lengths differ. ``"end"``: the last query aligns with the last key
            and sees all keys, offset = keys − queries (a decoder with a cache). ``"start"``: the first query aligns
            with the first key, offset = 0.
        offset: the key position of query 0, which overrides ``align``: an integer, or one a batch row (caches of
            different lengths). If it is negative, the first queries see nothing. A tensor is copied when the mask is
            made, so that later changes of it do not change the mask.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x = torch.zeros(3, 1)
        >>> (regard.attend_with_weights(x, x, x, mask=masks.causal()).weights > 0).long()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [1, 1, 1]])
    """
    return _CAUSAL if align == "end" and offset is None else Band(None, 0, align, offset)


_CAUSAL = Band(None, 0)


def window(
    before: int | None = None, after: int | None = None, align: Align = "end", offset: Integers | None = None
) -> Band:
    """Lets each query see the keys around its own; for a decoder write ``window(16, 0)``.

    .. math::

        query i sees key j  ⇔  i + offset − before <= j <= i + offset + after

    This is the sliding window of Beltagy et al. 2020 (Longformer), §3.1; their window of w keys is
    ``window(w // 2, w // 2)``.

    Args:
        before: number of visible keys before the query's own, which does not count: ``window(2, 0)`` sees three keys.
            None for all.
        after: number of visible keys after the query's own; None for all, so that ``window(None, 0)`` is ``causal()``,
            and ``window(16)`` sees every later key: a decoder, whose queries see no later key, needs ``window(16, 0)``.
        align, offset: decide which key is the query's own, as in `causal`; an offset's tensor is copied likewise.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x = torch.zeros(4, 1)
        >>> (regard.attend_with_weights(x, x, x, mask=masks.window(1, 0)).weights > 0).long()
        tensor([[1, 0, 0, 0],
                [1, 1, 0, 0],
                [0, 1, 1, 0],
                [0, 0, 1, 1]])
    """
    return Band(before, after, align, offset)


class Prefix(Mask, fields=("n",)):
    """Allows keys ``j < n`` for every query; see `prefix`.

    Example:
        >>> from regard import masks
        >>> masks.Prefix(4)
        prefix(4)
    """

    def __init__(self, n: Integers):
        self.n = BatchInteger("n", n)

    def check(self, grid: Grid) -> None:
        self.n.check(grid, low=0)

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        return grid.shared_key_index < self.n.on(grid)

    def visibility(self, grid: Grid) -> Visibility:
        if 0 in grid.shape:
            return Visibility.EMPTY
        if not self.n.is_known:
            return Visibility.PARTIAL
        shortest, longest = self.n.bounds(grid)
        if grid.key_span[0] >= longest:
            return Visibility.EMPTY
        return Visibility.FULL if grid.key_span[-1] < shortest else Visibility.PARTIAL

    def spans(self, grid: Grid) -> Spans | None:
        return Spans.within(grid, 0, self.n.on_host(grid)) if self.n.is_known else None


def prefix(n: Integers) -> Prefix:
    """Lets every query see the first keys.

    .. math::

        query i sees key j  ⇔  j < n

    ``causal() | prefix(n)`` is the prefix language model of Raffel et al. 2020, §3.2.1, whose first n tokens see each
    other; ``window(w, 0) | prefix(n) & causal()`` keeps the first n tokens of a decoder as sinks (Xiao et al. 2024,
    §3.2). Without ``& causal()`` its first queries would see later keys.

    Args:
        n: number of keys, >= 0: an integer, or one a batch row. If it exceeds the number of keys, all are visible.

    The integers are copied when the mask is made, so that later changes of the tensor do not change the mask.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x = torch.zeros(3, 1)
        >>> (regard.attend_with_weights(x, x, x, mask=masks.prefix(1)).weights > 0).long()
        tensor([[1, 0, 0],
                [1, 0, 0],
                [1, 0, 0]])
    """
    return Prefix(n)


class Dilated(Mask, fields=("step",)):
    """Allows every ``step``-th key, counted from the query's own; see `dilated`.

    Example:
        >>> from regard import masks
        >>> masks.Dilated(2) & masks.Band(4, 0)
        (dilated(2) & window(before=4, after=0))
    """

    def __init__(self, step: int):
        self.step = whole_number("step", step, low=1, high=POSITION_LIMIT)

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        return (grid.query_index + grid.offset) % self.step == grid.key_index % self.step

    def visibility(self, grid: Grid) -> Visibility:
        if 0 in grid.shape:
            return Visibility.EMPTY
        nearest = grid.key_span[0] - grid.query_span[-1] - grid.offset
        farthest = grid.key_span[-1] - grid.query_span[0] - grid.offset
        if farthest // self.step * self.step < nearest:  # the last multiple of step up to `farthest`
            return Visibility.EMPTY
        return Visibility.FULL if self.step == 1 or nearest == farthest else Visibility.PARTIAL

    def shows_all_rows(self, grid: Grid) -> bool:
        return grid.keys >= self.step

    def shows_all_keys(self, grid: Grid) -> bool:
        return grid.queries >= self.step

    def spans(self, grid: Grid) -> Spans | None:
        return Spans.within(grid, 0, grid.keys) if self.step == 1 else None


def dilated(step: int) -> Dilated:
    """Lets each query see its own key and every ``step``-th key before and after it.

    .. math::

        query i sees key j  ⇔  (i + offset − j) mod step = 0
        offset = keys − queries (the ends are aligned)

    This is the strided pattern of Child et al. 2019 (Sparse Transformers), §4.2. With a window,
    ``dilated(d) & window(w · d, w · d)``, it is the dilated sliding window of Beltagy et al. 2020, §3.1.

    Args:
        step: distance between visible keys, >= 1; with 1 all keys are visible.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x = torch.zeros(4, 1)
        >>> (regard.attend_with_weights(x, x, x, mask=masks.dilated(2)).weights > 0).long()
        tensor([[1, 0, 1, 0],
                [0, 1, 0, 1],
                [1, 0, 1, 0],
                [0, 1, 0, 1]])
    """
    return Dilated(step)
