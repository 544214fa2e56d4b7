"""Masks by a function of the indices, or by a tensor in either of the two conventions."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.errors import KindError
from regard.masks.mask import Mask, Not
from regard.masks.spans import RUNS_LIMIT, Spans
from regard.shapes.axes import Bool
from regard.shapes.checks import check_arguments, check_dense, check_device, check_pairs, check_result, type_text
from regard.shapes.grid import Grid
from regard.tracing.transforms import has_host_data

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""``(batch, head, query_index, key_index) -> bool``, as FlexAttention's ``mask_mod``."""


class Where(Mask, fields=("function",)):
    """Allows the pairs for which a function returns True; see `where`.

    Example:
        >>> from regard import masks
        >>> from regard.shapes import Grid
        >>> mask = masks.Where(lambda batch, head, query_index, key_index: key_index == query_index)
        >>> mask.dense(Grid.whole(1, 1, 2, 2))[0, 0]
        tensor([[ True, False],
                [False,  True]])
    """

    is_function = True

    def __init__(self, function: MaskFunction):
        if not callable(function):
            raise KindError(
                f"where needs a function (batch, head, query_index, key_index) -> bool; got {type_text(function)}"
            )
        check_arguments("fn", function, 4)
        self.function = function

    def check(self, grid: Grid) -> None:
        # One pair shows the type of the result; all pairs would be quadratic.
        self.allows(grid.tile(batch=grid.batch_span[:1], queries=grid.query_span[:1], keys=grid.key_span[:1]))

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        allowed = self.function(grid.batch_index, grid.head_index, grid.query_index, grid.key_index)
        if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool:
            kind = f"a tensor of {allowed.dtype}" if isinstance(allowed, Tensor) else type_text(allowed)
            raise KindError(f"the function of where must return a bool tensor; it returned {kind}")
        check_result("the result of where's function", allowed, grid)
        check_device("the result of where's function", allowed, grid)
        return allowed

    def __repr__(self) -> str:
        return f"where({getattr(self.function, '__name__', type(self.function).__name__)})"


def where(fn: MaskFunction) -> Where:
    """Makes a mask of a function of the four indices.

    .. math::

        query i sees key j in head h of batch row b  ⇔  fn(b, h, i, j)

    The function has the signature of FlexAttention's ``mask_mod``, and most of those can be passed unchanged. It is
    called not with scalars but with index tensors that broadcast against each other (batch ``[batch, 1, 1, 1]``, head
    ``[heads, 1, 1]``, queries ``[queries, 1]``, keys ``[keys]``, all int64 positions in the whole problem), so it must
    use ``&``, ``|``, ``~`` and torch functions instead of ``if``. Indexing as in ``ids[b, i]`` works.

    Args:
        fn: ``(batch, head, query_index, key_index) ->`` bool tensor, broadcastable to ``[batch, heads, queries, keys]``
            of the indices. True means visible. It must treat each pair independently, since it is called tile by tile.

    Raises:
        KindError: ``fn`` is not callable, or does not return a bool tensor on the problem's device.
        ShapeError: the returned tensor does not broadcast.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x = torch.zeros(3, 1)
        >>> later = masks.where(lambda batch, head, query_index, key_index: key_index >= query_index)
        >>> (regard.attend_with_weights(x, x, x, mask=later).weights > 0).long()
        tensor([[1, 1, 1],
                [0, 1, 1],
                [0, 0, 1]])
    """
    return Where(fn)


class Keep(Mask, fields=("tensor",)):
    """Allows the pairs that are True in a bool tensor; see `keep`.

    Example:
        >>> import torch
        >>> from regard import masks
        >>> masks.Keep(torch.tensor([True, True, False]))
        keep(<[3]>)
    """

    def __init__(self, tensor: Tensor, name: str = "keep"):
        self.name = f"the tensor of {name}"
        check_bool(self.name, tensor)
        self.tensor = tensor

    def check(self, grid: Grid) -> None:
        check_pairs(self.name, self.tensor, grid)
        check_device(self.name, self.tensor, grid)

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> "Keep":
        return self._with(tensor=function(self.tensor))

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        return grid.cut(self.tensor)

    def spans(self, grid: Grid) -> Spans | None:
        allowed = self._one_axis(grid)
        return None if allowed is None else runs_of_keys(allowed, grid)

    def hidden_spans(self, grid: Grid) -> Spans | None:
        # This is not the complement of `spans`, since one of the two may exceed the limit of runs.
        allowed = self._one_axis(grid)
        return None if allowed is None else runs_of_keys(~allowed, grid)

    def _one_axis(self, grid: Grid) -> Tensor | None:
        """Returns the tile's part with four axes, if it varies along queries or along keys but not both.

        The other axis has length 1. Returns None if both vary, or if the tensor cannot be read, as on a device.
        """
        if not has_host_data(self.tensor):
            return None
        part = grid.cut(self.tensor)
        part = part[(None,) * (4 - part.dim())]
        # An axis with stride 0 repeats one element, as in a padding mask that was expanded over its queries.
        part = part[:, :, :1] if part.stride(2) == 0 else part
        part = part[..., :1] if part.stride(3) == 0 else part
        return part if 1 in part.shape[2:] else None


def runs_of_keys(allowed: Tensor, grid: Grid) -> Spans | None:
    """Returns the True keys of each row as runs, if they are few.

    Args:
        allowed: bool ``[batch or 1, heads or 1, queries or 1, keys or 1]`` of the tile, on the CPU.
    """
    if 0 in grid.shape:
        return Spans.within(grid, 0, 0)
    span = grid.key_span
    if allowed.shape[-1] == 1:
        return Spans.within(grid, span.start, torch.where(allowed[..., 0], span.stop, span.start))
    padded = F.pad(allowed, (1, 1))
    begins, ends = allowed & ~padded[..., :-2], allowed & ~padded[..., 2:]
    count = int(begins.sum(-1).amax())
    if count > RUNS_LIMIT:
        return None
    key = torch.arange(span.start, span.stop, dtype=torch.int32, device="cpu")
    queries = len(grid.query_span)
    # Starts and ends ascend, so the n-th start belongs to the n-th end.
    first, last = (
        torch.where(marks, key, span.stop).topk(max(count, 1), largest=False).values.expand(-1, -1, queries, -1)
        for marks in (begins, ends)
    )
    return Spans.of_runs(first, (last + 1) * (first < span.stop))


def keep(tensor: Tensor) -> Keep:
    """Makes a mask of a tensor in which True means "may attend", as in ``scaled_dot_product_attention``.

    .. math::

        query i sees key j in head h of batch row b  ⇔  tensor[b, h, i, j]

    Args:
        tensor: bool, broadcastable to ``[batch, heads, queries, keys]``, or, where the query has 3 axes, to
            ``[batch, queries, keys]``; it is not copied: later changes of the tensor change the mask.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x = torch.zeros(3, 1)
        >>> (regard.attend_with_weights(x, x, x, mask=masks.keep(torch.tensor([True, True, False]))).weights > 0).long()
        tensor([[1, 1, 0],
                [1, 1, 0],
                [1, 1, 0]])
    """
    return Keep(tensor)


def ignore(tensor: Tensor) -> Mask:
    """Makes a mask of a tensor in which True means "may *not* attend", as in ``torch.nn.MultiheadAttention``.

    .. math::

        query i sees key j in head h of batch row b  ⇔  not tensor[b, h, i, j]

    Args:
        tensor: bool, broadcastable to ``[batch, heads, queries, keys]``, or, where the query has 3 axes, to
            ``[batch, queries, keys]``; it is not copied: later changes of the tensor change the mask. A key padding
            mask ``[batch, keys]`` needs its other axes:
            ``ignore(padding[:, None, None, :])``, or ``ignore(padding[:, None, :])`` for 3 axes.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x = torch.zeros(3, 1)
        >>> padding = torch.tensor([True, True, False])
        >>> (regard.attend_with_weights(x, x, x, mask=masks.ignore(padding)).weights > 0).long()
        tensor([[0, 0, 1],
                [0, 0, 1],
                [0, 0, 1]])
    """
    return Not(Keep(tensor, "ignore"))


def check_bool(name: str, tensor: object) -> None:
    """Raises KindError unless ``tensor`` is a dense bool tensor; a float tensor belongs in ``bias=``."""
    if not isinstance(tensor, Tensor):
        raise KindError(f"{name} must be a bool tensor; it is {type_text(tensor)}")
    check_dense(name, tensor)
    if tensor.dtype != torch.bool:
        hint = (
            " (numbers that are added to the scores belong in bias=)"
            if tensor.is_floating_point()
            else " (write tensor.bool() if 1 means 'may attend', tensor == 0 if 1 means 'may not')"
        )
        raise KindError(f"{name} must hold bools; it holds {tensor.dtype}{hint}")
