"""Determines which axes of a call's tensors count heads, if there are others than batch, heads, length and features.

Attention within windows has an axis of windows besides the batch and the heads, before the heads in some models and
after them in others (NesT and Hiera: ``[batch, heads, windows, tokens, dim]``). Windows are rows of the batch here.
The axis of heads is determined by the number of heads of the module that makes the call; then by the memory layout,
since a projection's features are those of the first head followed by those of the second; then by PyTorch's
documentation, where heads are the last axis before the length.
"""

from collections.abc import Collection, Sequence
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import ArgumentError


def axes_of_heads(sizes: Sequence[int], count: int | None, adjacent: Collection[int]) -> tuple[int, ...]:
    """Returns the axes, of at least three, that count heads: one, several (groups and their heads), or none.

    Args:
        sizes: those of the axes before length and features. The first one is the batch.
        count: the number of heads, if the module declares it.
        adjacent: the axes along which one head's features follow those of another in memory (`adjacent_axes`).
    """
    last = len(sizes) - 1
    if count == 1:
        return next(((axis,) for axis in range(last, 0, -1) if sizes[axis] == 1), ())
    fitting = [axis for axis in range(1, last + 1) if count is None or sizes[axis] == count]
    by_memory = [axis for axis in (fitting or range(1, last + 1)) if axis in adjacent]
    if not fitting:
        runs = [tuple(range(first, end)) for first in range(1, last) for end in range(first + 2, last + 2)]
        runs = [run for run in runs if prod(sizes[axis] for axis in run) == count]
        groups = [run for run in runs if not by_memory or run[-1] in by_memory]
        if groups:
            return min(groups, key=len)
    if len(by_memory) == 1 or len(fitting) == 1:
        return ((by_memory if len(by_memory) == 1 else fitting)[0],)
    if count is None:
        return (last,)
    raise ArgumentError(
        f"which of the axes {list(sizes)} before the length counts its {count} heads cannot be told: "
        f"{'several have' if fitting else 'none has'} this size, and the memory does not show it; pass "
        "[batch · windows, heads, length, dim]"
    )


def adjacent_axes(tensor: Tensor) -> set[int]:
    """Returns the axes before length and features along which elements lie one width of features apart in memory.

    There are none if the elements of the next position lie there.

    None, if those of the next position lie there.
    """
    *leading, length, features = tensor.stride()
    apart = tensor.shape[-1] * features
    if length == apart:
        return set()
    return {axis for axis, stride in enumerate(leading) if stride == apart and tensor.shape[axis] > 1}


class HeadAxes(NamedTuple):
    """How the axes of a call's tensors become ``[batch, heads, length, dim]``.

    Attributes:
        rank: the number of axes; tensors of fewer are completed by axes of size 1 in front.
        heads: the axes of heads; none: heads follow one another in the axes of the batch.
        merged: the number of heads that do so; 1: there is one head.
        sizes: the sizes of several axes of heads, to which tensors are repeated.
    """

    rank: int = 4
    heads: tuple[int, ...] = (1,)
    merged: int = 1
    sizes: tuple[int, ...] = ()

    @classmethod
    def of_call(cls, tensors: Sequence[Tensor], grouped: bool, count: int | None) -> "HeadAxes":
        """Returns the axes of heads of queries, keys and values; raises ArgumentError if they cannot be determined.

        If query heads share keys (``grouped``, by ``enable_gqa``), heads are the third last axis. The number of heads
        ``count`` is that of `axes_of_heads`.
        """
        rank = max(tensor.dim() for tensor in tensors)
        if grouped and rank > 2:
            return cls(rank, (rank - 3,))
        if rank == 4:
            # For example, a module of one head that passes several windows.
            has_windows = count == 1 and any(tensor.dim() == 4 and tensor.shape[1] > 1 for tensor in tensors)
            return cls(4, ()) if has_windows else FOUR_AXES
        whole = [tensor[(None,) * (rank - tensor.dim())] for tensor in tensors]
        sizes = torch.broadcast_shapes(*(tensor.shape[:-2] for tensor in whole))
        if rank > 4:
            adjacent = {axis for tensor in whole for axis in adjacent_axes(tensor)}
            heads = axes_of_heads(sizes, count, adjacent)
            return cls(rank, heads, sizes=tuple(sizes[axis] for axis in heads) if len(heads) > 1 else ())
        # Batch rows and heads may be one axis, as in `torch.bmm`.
        is_merged = rank == 3 and count is not None and count > 1 and sizes[0] % count == 0
        return cls(rank, (), count if is_merged and count is not None else 1)

    def leading(self, tensors: Sequence[Tensor]) -> tuple[int, ...]:
        """Returns the sizes of the axes before length and features without those of heads, broadcast."""
        shapes = {self._heads_last(tensor).shape[: self._batch_axes] for tensor in tensors}
        # PyTorch's function takes longer than a small call of attention.
        return tuple(shapes.pop() if len(shapes) == 1 else torch.broadcast_shapes(*shapes))

    def fold(self, tensor: Tensor, leading: Sequence[int]) -> Tensor:
        """Returns ``[batch, heads, length, dim]`` of a tensor with any number of axes, broadcast to `leading` sizes."""
        tensor = self._heads_last(tensor)
        if not self.heads:
            tensor = tensor.expand(*leading, *tensor.shape[-2:])
            return tensor.reshape(prod(leading) // self.merged, self.merged, *tensor.shape[-2:])
        heads = self.sizes or tensor.shape[self._batch_axes : -2]
        tensor = tensor.expand(*leading, *heads, *tensor.shape[-2:])
        return tensor.reshape(prod(leading), prod(heads), *tensor.shape[-2:])

    def fold_mask(self, mask: Tensor, leading: Sequence[int], keys: int) -> Tensor:
        """Returns ``[batch or 1, heads or 1, queries or 1, keys]`` of a mask with any number of axes."""
        if self == FOUR_AXES:
            mask = mask[(None,) * (4 - mask.dim())]
        else:
            moved = self._heads_last(mask)
            heads = 1 if len(self.heads) != 1 else moved.shape[-3]
            is_shared = moved.shape[:-2].numel() == heads
            mask = moved.reshape(1, heads, *moved.shape[-2:]) if is_shared else self.fold(mask, leading)
        return mask.expand(*mask.shape[:3], keys)

    def unfold(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """Inverts `fold`: returns a tensor of this shape of ``[batch, heads, length, dim]``."""
        if not self.heads:
            return tensor.reshape(*shape)
        leading = [size for axis, size in enumerate(shape[:-2]) if axis not in self.heads]
        heads = [shape[axis] for axis in self.heads]
        return tensor.reshape(*leading, *heads, *shape[-2:]).movedim(self._last, self.heads)

    @property
    def _batch_axes(self) -> int:
        """How many axes are neither heads, nor length, nor features."""
        return self.rank - 2 - len(self.heads)

    @property
    def _last(self) -> tuple[int, ...]:
        """The last axes before length and features, as many as there are axes of heads."""
        return tuple(range(self._batch_axes, self.rank - 2))

    def _heads_last(self, tensor: Tensor) -> Tensor:
        tensor = tensor[(None,) * (self.rank - tensor.dim())]
        return tensor.movedim(self.heads, self._last) if self.heads != self._last else tensor


FOUR_AXES = HeadAxes()
"""The axes of ``[batch, heads, length, dim]``."""
