"""Masks given outright: as a function of the indices, or as a tensor in either of the two conventions."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.axes import Bool
from regard.errors import KindError
from regard.masks.mask import Mask, Not
from regard.masks.spans import RUNS_LIMIT, Spans
from regard.shapes import Grid, check_arguments, check_broadcast, check_dense, check_device, kind_of
from regard.transforms import has_data

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""``(batch, head, query_index, key_index) -> bool``, as FlexAttention's ``mask_mod``."""


class Where(Mask):
    """Pairs for which a function says so. See `where`."""

    def __init__(self, function: MaskFunction):
        if not callable(function):
            raise KindError(
                f"where needs a function (batch, head, query_index, key_index) -> bool; got {kind_of(function)}"
            )
        check_arguments("fn", function, 4)
        self.function = function

    def check(self, grid: Grid) -> None:
        # One pair shows what the function returns; the whole would be quadratic.
        self.allows(grid.tile(batch=grid.batch_span[:1], queries=grid.query_span[:1], keys=grid.key_span[:1]))

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        allowed = self.function(grid.batch_index, grid.head_index, grid.query_index, grid.key_index)
        if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool:
            got = f"a tensor of {allowed.dtype}" if isinstance(allowed, Tensor) else kind_of(allowed)
            raise KindError(f"the function of where must return a bool tensor; it returned {got}")
        check_broadcast("the result of where's function", allowed, grid.shape, "[batch, heads, queries, keys]")
        check_device("the result of where's function", allowed, grid)
        return allowed

    def __repr__(self) -> str:
        return f"where({getattr(self.function, '__name__', type(self.function).__name__)})"


def where(fn: MaskFunction) -> Where:
    """A mask by a function of the four indices.

        query i sees key j in head h of batch row b  ⇔  fn(b, h, i, j)

    The function has the signature of FlexAttention's ``mask_mod``, and most of those can be passed as they are. It is
    called with whole index tensors that broadcast against each other (batch ``[batch, 1, 1, 1]``, head
    ``[heads, 1, 1]``, queries ``[queries, 1]``, keys ``[keys]``, all int64, positions of the whole problem) and not
    with numbers, so it uses ``&``, ``|``, ``~`` and torch functions, and no ``if``. Indexing as in ``ids[b, i]`` works.

    Args:
        fn: ``(batch, head, query_index, key_index) ->`` bool tensor, broadcastable to ``[batch, heads, queries, keys]``
            of the indices given. True: may be seen. It must judge each pair by itself: tiles are asked one at a time.

    Raises:
        KindError: if ``fn`` cannot be called, or what it returns is no bool tensor on the problem's device.
        ShapeError: if what it returns does not broadcast.
    """
    return Where(fn)


class Keep(Mask):
    """Pairs that a bool tensor marks. See `keep`."""

    def __init__(self, tensor: Tensor, name: str = "keep"):
        self.name = f"the tensor of {name}"
        check_bool(self.name, tensor)
        self.tensor = tensor

    def check(self, grid: Grid) -> None:
        shape = (grid.batch, grid.heads, grid.queries, grid.keys)
        check_broadcast(self.name, self.tensor, shape, "[batch, heads, queries, keys]")
        check_device(self.name, self.tensor, grid)

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        return grid.cut(self.tensor)

    def spans(self, grid: Grid) -> Spans | None:
        marked = self._alike(grid)
        return None if marked is None else _runs(marked, grid)

    def hidden_spans(self, grid: Grid) -> Spans | None:
        # Not the complement of `spans`: one of both may have a run too many.
        marked = self._alike(grid)
        return None if marked is None else _runs(~marked, grid)

    def _alike(self, grid: Grid) -> Tensor | None:
        """The tile's part on the CPU, with four axes, of which queries or keys have length 1.

        None if both vary, or if the tensor has no data.
        """
        if not has_data(self.tensor):
            return None
        part = grid.cut(self.tensor)
        part = part[(None,) * (4 - part.dim())]
        # An axis without a stride repeats one element: a padding mask that was expanded over its queries.
        part = part[:, :, :1] if part.stride(2) == 0 else part
        part = part[..., :1] if part.stride(3) == 0 else part
        return part.cpu() if 1 in part.shape[2:] else None

    def __repr__(self) -> str:
        return f"keep(<{list(self.tensor.shape)}>)"


def _runs(marked: Tensor, grid: Grid) -> Spans | None:
    """The marked keys of each row if they are a few runs: ``[batch or 1, heads or 1, queries or 1, keys or 1]``."""
    if 0 in grid.shape:
        return Spans.within(grid, 0, 0)
    span = grid.key_span
    if marked.shape[-1] == 1:
        return Spans.within(grid, span.start, torch.where(marked[..., 0], span.stop, span.start))
    beyond = F.pad(marked, (1, 1))
    begins, ends = marked & ~beyond[..., :-2], marked & ~beyond[..., 2:]
    count = int(begins.sum(-1).amax())
    if count > RUNS_LIMIT:
        return None
    key, queries = torch.arange(span.start, span.stop, dtype=torch.int32), len(grid.query_span)
    # Beginnings and ends ascend, so the n-th of one belongs to the n-th of the other.
    first, last = (
        torch.where(marks, key, span.stop).topk(max(count, 1), largest=False).values.expand(-1, -1, queries, -1)
        for marks in (begins, ends)
    )
    return Spans.of_runs(first, (last + 1) * (first < span.stop))


def keep(tensor: Tensor) -> Keep:
    """A mask by a tensor: True means "may attend", as in ``scaled_dot_product_attention``.

    Args:
        tensor: bool, broadcastable to ``[batch, heads, queries, keys]``; it is not copied.
    """
    return Keep(tensor)


def ignore(tensor: Tensor) -> Mask:
    """A mask by a tensor in the other convention: True means "may *not* attend", as in ``torch.nn.MultiheadAttention``.

    Args:
        tensor: bool, broadcastable to ``[batch, heads, queries, keys]``; it is not copied. A key padding mask
            ``[batch, keys]`` needs its two axes: ``ignore(padding[:, None, None, :])``.
    """
    return Not(Keep(tensor, "ignore"))


def check_bool(name: str, tensor: object) -> None:
    """Raise KindError unless ``tensor`` is a dense bool tensor; a float one belongs in ``bias=``."""
    if not isinstance(tensor, Tensor):
        raise KindError(f"{name} must be a bool tensor; it is {kind_of(tensor)}")
    check_dense(name, tensor)
    if tensor.dtype != torch.bool:
        hint = " (numbers that are added to the scores belong in bias=)" if tensor.is_floating_point() else ""
        raise KindError(f"{name} must hold bools; it holds {tensor.dtype}{hint}")


def as_mask(value: object) -> Mask | None:
    """What a user gave as ``mask=``, as a Mask.

    Args:
        value: None, a `Mask`, or a bool tensor (True: may attend) that broadcasts to ``[batch, heads, queries, keys]``.

    Raises:
        KindError: if it is anything else; the message says what to write instead.
    """
    if value is None or isinstance(value, Mask):
        return value
    if not isinstance(value, Tensor):
        hint = " (wrap a function in masks.where)" if callable(value) else ""
        raise KindError(f"mask must be a Mask, a bool tensor or None; it is {kind_of(value)}{hint}")
    check_bool("mask", value)
    return Keep(value, "mask=")
