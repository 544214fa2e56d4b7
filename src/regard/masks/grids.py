"""Masks by position in a grid, such as the patches of an image: neighborhoods and shifted windows.

Along each axis of the grid a query sees a run of positions, with a stride between them. A key is visible if its
position is, along every axis. Tokens are the positions of the grid in order, the last axis first.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from math import prod

import torch
from torch import Tensor

from regard.errors import ArgumentError, ShapeError
from regard.masks.mask import Mask, Visibility
from regard.masks.spans import Spans
from regard.shapes.axes import Bool
from regard.shapes.checks import size, whole_number
from regard.shapes.grid import Grid
from regard.tracing.transforms import has_data

Sizes = int | Sequence[int]
"""One integer for each axis of a grid, or one for all axes."""

RUNS_CONSIDERED = 64
"""Largest number of runs in a row that are joined: the runs of neighboring rows of a grid may be one."""

CACHED_GRIDS = 16
"""Masks of different grids whose runs are cached."""


class GridMask(Mask):
    """The base of masks by position in a grid.

    Queries are the last positions of the grid, as in `causal`: all of them, or the new ones of a decoder.

    Attributes:
        shape: lengths of the grid's axes; None: one axis, of as many positions as there are keys.
        steps: the stride between visible positions, along each axis.

    Example:
        >>> from regard import masks
        >>> mask = masks.neighborhood(3, (4, 5))
        >>> isinstance(mask, masks.GridMask), mask.shape, mask.steps
        (True, (4, 5), (1, 1))
    """

    shape: tuple[int, ...] | None
    steps: tuple[int, ...]

    @abstractmethod
    def reach(self, axis: int, length: int, position: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the first visible position along an axis for each position, and one more than the last."""

    @abstractmethod
    def widest(self, axis: int) -> int:
        """Returns the largest number of visible positions along an axis."""

    @abstractmethod
    def check_axis(self, axis: int, length: int) -> None:
        """Raises ArgumentError unless the mask fits an axis of this length."""

    def lengths_on(self, grid: Grid) -> tuple[int, ...]:
        """Returns the lengths of the axes for a problem."""
        return (grid.keys,) if self.shape is None else self.shape

    def check(self, grid: Grid) -> None:
        name = type(self).__name__
        if self.shape is not None and prod(self.shape) != grid.keys:
            raise ShapeError(
                f"{name}: a grid {list(self.shape)} has {prod(self.shape)} positions, each a key; "
                f"there are {grid.keys} keys"
            )
        if grid.queries > grid.keys:
            raise ShapeError(
                f"{name}: queries are the last positions of the grid, and there must not be more of them than keys; "
                f"there are {grid.queries} queries and {grid.keys} keys"
            )
        if self.shape is None:
            self.check_axis(0, grid.keys)

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        query, key = grid.query_index + grid.offset, grid.key_index
        allowed = None
        lengths = self.lengths_on(grid)
        for axis in reversed(range(len(lengths))):
            own, other = query, key
            if axis:
                own, other = query % lengths[axis], key % lengths[axis]
                query, key = query // lengths[axis], key // lengths[axis]
            first, stop = self.reach(axis, lengths[axis], own)
            part = (other >= first) & (other < stop)
            if self.steps[axis] > 1:
                part = part & ((other - first) % self.steps[axis] == 0)
            allowed = part if allowed is None else part & allowed
        assert allowed is not None
        return allowed

    def visibility(self, grid: Grid) -> Visibility:
        if 0 in grid.shape:
            return Visibility.EMPTY
        length, *others = self.lengths_on(grid)
        row = prod(others)
        low, high = (grid.query_span[index] + grid.offset for index in (0, -1))
        first, stop = self.reach(0, length, torch.arange(low // row, high // row + 1, device="cpu"))
        if not has_data(first):
            return Visibility.PARTIAL
        if grid.key_span[-1] < int(first.amin()) * row or grid.key_span[0] >= int(stop.amax()) * row:
            return Visibility.EMPTY
        covers = grid.key_span[0] >= int(first.amax()) and grid.key_span[-1] < int(stop.amin())
        return Visibility.FULL if covers and not others and self.steps == (1,) else Visibility.PARTIAL

    def spans(self, grid: Grid) -> Spans | None:
        if 0 in grid.shape:
            return Spans.within(grid, 0, 0)
        axes = range(len(self.lengths_on(grid)))
        if prod(self.widest(axis) for axis in axes if axis != axes[-1] or self.steps[axis] > 1) > RUNS_CONSIDERED:
            return None
        return _spans(self, grid)


@lru_cache(CACHED_GRIDS)
def _spans(mask: GridMask, grid: Grid) -> Spans | None:
    """Returns the runs of visible keys: one for each visible row of the grid, and in it one, or one for each key.

    They are kept for trainings as well, so they are made in no inference mode.
    """
    with torch.inference_mode(False):
        return _compute_spans(mask, grid)


def _compute_spans(mask: GridMask, grid: Grid) -> Spans | None:
    lengths = mask.lengths_on(grid)
    query = torch.arange(grid.query_span.start, grid.query_span.stop, device="cpu") + grid.offset
    start = torch.zeros(len(query), 1, dtype=torch.int64, device="cpu")  # Q runs
    stop = start + 1
    for axis, length in enumerate(lengths):
        position = query // prod(lengths[axis + 1 :]) % length
        first, end = (each[:, None] for each in mask.reach(axis, length, position))  # Q 1
        if axis == len(lengths) - 1 and mask.steps[axis] == 1:
            start, stop = start * length + first, start * length + torch.where(stop > start, end, first)
        else:
            seen = first + mask.steps[axis] * torch.arange(mask.widest(axis), device="cpu")  # Q steps
            visible = (stop > start)[..., None] & (seen < end)[:, None]
            start = start[..., None] * length + seen[:, None]  # Q runs steps
            start, stop = start.flatten(1), (start + visible).flatten(1)
    low, high = grid.key_span.start, grid.key_span.stop
    start, stop = (end.clamp(low, high).to(torch.int32)[None, None] for end in (start, stop))
    return Spans.of_runs(start, stop)


class Neighborhood(GridMask, fields=("sizes", "shape", "steps")):
    """Allows the nearest keys of a grid; see `neighborhood`.

    Example:
        >>> from regard import masks
        >>> masks.Neighborhood(7, (56, 56))
        neighborhood(7, shape=(56, 56))
    """

    def __init__(self, size: Sizes, shape: Sequence[int] | None = None, dilation: Sizes = 1):
        self.shape = _shape(shape)
        axes = 1 if self.shape is None else len(self.shape)
        self.sizes, self.steps = _by_axis("size", size, axes), _by_axis("dilation", dilation, axes)
        for axis, length in enumerate(self.shape or ()):
            self.check_axis(axis, length)

    def check_axis(self, axis: int, length: int) -> None:
        if self.sizes[axis] * self.steps[axis] > length:
            raise ArgumentError(
                f"size · dilation must be at most the length of its axis, {length}; "
                f"it is {self.sizes[axis]} · {self.steps[axis]}"
            )

    def widest(self, axis: int) -> int:
        return self.sizes[axis]

    def reach(self, axis: int, length: int, position: Tensor) -> tuple[Tensor, Tensor]:
        size, step = self.sizes[axis], self.steps[axis]
        # Positions at multiples of the step from each other are a grid of their own, from `lowest` to before `end`.
        lowest = position % step
        end = (lowest - length) % step + length
        first = torch.minimum(torch.maximum(position - size // 2 * step, lowest), end - size * step)
        return first, first + ((size - 1) * step + 1)

    def __repr__(self) -> str:
        shape = "" if self.shape is None else f", shape={self.shape}"
        dilation = "" if set(self.steps) == {1} else f", dilation={_text(self.steps)}"
        return f"neighborhood({_text(self.sizes)}{shape}{dilation})"


def neighborhood(size: Sizes, shape: Sequence[int] | None = None, dilation: Sizes = 1) -> Neighborhood:
    """Lets each query see the nearest keys in a grid; at the border the window moves inwards, so that all see as many.

    .. math::

        query i sees key j  ⇔  start_i <= j < start_i + size along each axis,
        start_i = clamp(i − ⌊size / 2⌋, 0, length − size)

    Hassani et al. 2023, "Neighborhood Attention Transformer", §3.1 (eq. 1 to 3). With ``dilation`` d the same holds
    among the positions at multiples of d from the query (Hassani and Shi 2022, "Dilated Neighborhood Attention
    Transformer", §3.1). A window of size × size keys is size runs of keys, one in each row of the grid.

    Args:
        size: number of visible positions along an axis: one for all axes, or one for each.
        shape: lengths of the grid's axes, as ``(height, width)``; their product is the number of keys. None: one axis.
        dilation: distance between visible positions, along all axes or each; size · dilation <= length.

    Raises:
        ArgumentError: a window is longer than its axis.
        ShapeError: the keys are not the positions of the grid.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x = torch.zeros(5, 1)
        >>> (regard.attend_with_weights(x, x, x, mask=masks.neighborhood(3)).weights > 0).long()
        tensor([[1, 1, 1, 0, 0],
                [1, 1, 1, 0, 0],
                [0, 1, 1, 1, 0],
                [0, 0, 1, 1, 1],
                [0, 0, 1, 1, 1]])
    """
    return Neighborhood(size, shape, dilation)


class ShiftedWindows(GridMask, fields=("windows", "shifts", "shape")):
    """Allows the keys in the query's own window of a grid; see `shifted_windows`.

    Example:
        >>> from regard import masks
        >>> masks.ShiftedWindows(7, 3, (56, 56))
        shifted_windows(7, 3, shape=(56, 56))
    """

    def __init__(self, window: Sizes, shift: Sizes = 0, shape: Sequence[int] | None = None):
        self.shape = _shape(shape)
        axes = 1 if self.shape is None else len(self.shape)
        self.windows, self.shifts = _by_axis("window", window, axes), _by_axis("shift", shift, axes, low=0)
        self.steps = (1,) * axes
        for each, limit in zip(self.shifts, self.windows, strict=True):
            whole_number("shift (window − 1 or less)", each, high=limit - 1)

    def check_axis(self, axis: int, length: int) -> None:
        """Windows fit every length: those at the borders are cut."""

    def widest(self, axis: int) -> int:
        return self.windows[axis]

    def reach(self, axis: int, length: int, position: Tensor) -> tuple[Tensor, Tensor]:
        window, shift = self.windows[axis], self.shifts[axis]
        first = position - (position + (window - shift)) % window
        return first.clamp(min=0), (first + window).clamp(max=length)

    def __repr__(self) -> str:
        shape = "" if self.shape is None else f", shape={self.shape}"
        return f"shifted_windows({_text(self.windows)}, {_text(self.shifts)}{shape})"


def shifted_windows(window: Sizes, shift: Sizes = 0, shape: Sequence[int] | None = None) -> ShiftedWindows:
    """Divides a grid into windows, and lets each query see its own one.

    .. math::

        query i sees key j  ⇔  ⌊(i + window − shift) / window⌋ = ⌊(j + window − shift) / window⌋ along each axis

    Liu et al. 2021, "Swin Transformer", §3.2: one layer has ``shift=0``, the next one ``shift=window // 2``. Their
    cyclic shift moves the cut windows of opposite borders into one and masks them apart; here nothing moves, and the
    pairs are the same. Windows at the borders may be smaller; an axis that is not longer than its window needs no
    shift. The mask equals `documents` whose ids are the numbers of the windows.

    Args:
        window: positions of a window along an axis: one for all axes, or one for each.
        shift: the windows' first border, 0 to window − 1: for all axes, or each.
        shape: lengths of the grid's axes, as ``(height, width)``; their product is the number of keys. None: one axis.

    Raises:
        ArgumentError: a shift is not less than its window.
        ShapeError: the keys are not the positions of the grid.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x = torch.zeros(5, 1)
        >>> (regard.attend_with_weights(x, x, x, mask=masks.shifted_windows(2, 1)).weights > 0).long()
        tensor([[1, 0, 0, 0, 0],
                [0, 1, 1, 0, 0],
                [0, 1, 1, 0, 0],
                [0, 0, 0, 1, 1],
                [0, 0, 0, 1, 1]])
    """
    return ShiftedWindows(window, shift, shape)


def _shape(shape: Sequence[int] | None) -> tuple[int, ...] | None:
    if shape is None:
        return None
    lengths = _by_axis("shape", shape, None if isinstance(shape, Sequence) else 1)
    if not lengths:
        raise ArgumentError("shape must have at least one axis, as (height, width); it is empty")
    return lengths


def _by_axis(name: str, value: Sizes, axes: int | None, low: int = 1) -> tuple[int, ...]:
    """Returns an integer for each axis."""
    if not isinstance(value, Sequence):
        return (size(name, value, low),) * (1 if axes is None else axes)
    if axes is not None and len(value) != axes:
        raise ArgumentError(f"{name} must be one integer, or one for each axis of shape, {axes}; it has {len(value)}")
    return tuple(size(f"{name}[{index}]", each, low) for index, each in enumerate(value))


def _text(sizes: tuple[int, ...]) -> str:
    return str(sizes[0]) if len(set(sizes)) == 1 else str(sizes)
