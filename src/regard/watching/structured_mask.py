"""A mask of regard in the form of a tensor, so that it can pass through models that expect one."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from regard.masks import Mask
from regard.shapes import Grid

_SAME = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})


class StructuredMask(Tensor):
    """A bool tensor ``[batch, 1, queries, keys]`` without storage, that knows the `Mask` which it stands for.

    Models pass masks on, and some cut them. A slice is again a structured mask; any other operation is computed on the
    dense tensor (`dense`), so every model that works with a bool tensor works with this one.

    Args:
        mask: who may see whom; None: every query sees every key.
        grid: the tile of the problem that the tensor stands for, with one head.
    """

    mask: Mask | None
    grid: Grid

    @staticmethod
    def __new__(cls, mask: Mask | None, grid: Grid) -> "StructuredMask":
        made = torch.Tensor._make_wrapper_subclass(cls, grid.shape, dtype=torch.bool, device=grid.device)  # type: ignore[attr-defined]
        made.mask, made.grid = mask, grid
        return made

    def __init__(self, mask: Mask | None, grid: Grid):
        super().__init__()

    @property
    def is_whole(self) -> bool:
        """Whether this is the mask of the whole problem, and not a slice of it."""
        grid = self.grid
        return grid.shape == (grid.batch, grid.heads, grid.queries, grid.keys)

    def dense(self) -> Tensor:
        """The plain tensor, ``bool [batch, 1, queries, keys]``; quadratic memory."""
        if self.mask is None:
            return torch.ones(self.grid.shape, dtype=torch.bool, device=self.grid.device)
        return self.mask.dense(self.grid).contiguous()

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"StructuredMask({self.mask!r}, {list(self.shape)})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _SAME:
            return args[0]
        if func is torch.ops.aten.slice.Tensor and (part := _slice(*args)) is not None:
            return part
        args, kwargs = tree_map_only(StructuredMask, StructuredMask.dense, (args, kwargs or {}))
        return func(*args, **kwargs)


def _slice(
    whole: StructuredMask, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> StructuredMask | None:
    """The part of a mask; None for slices that are no tile."""
    grid, axis = whole.grid, axis % 4
    spans = {0: grid.batch_span, 2: grid.query_span, 3: grid.key_span}
    if step != 1:
        return None
    if axis == 1:
        return whole if range(1)[start:end] == range(1) else None
    name = {0: "batch", 2: "queries", 3: "keys"}[axis]
    return StructuredMask(whole.mask, grid.tile(**{name: spans[axis][start:end]}))
