"""The axes of attention, and the grid of its pairs.

==========  ==================================================
axis        what it counts
==========  ==================================================
batch       independent problems
heads       query heads; ``kv_heads`` divides them
queries     rows of the scores
keys        columns of the scores; as many values
dim         features of a query and of a key
value_dim   features of a value and of the output
==========  ==================================================
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import overload

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.shapes.axes import Float
from regard.tracing.portable import vector
from regard.tracing.transforms import sent, shared_positions

POSITION_LIMIT = 2**61
"""The largest magnitude of an offset or a distance: a position plus both of them is still an int64."""


@dataclass(frozen=True)
class Grid:
    """The (batch, head, query, key) pairs of a problem, or one tile of them.

    The sizes are those of the whole problem; the spans say which part of it this grid covers. Masks, biases and score
    functions always see positions in the whole problem, whichever tile they are evaluated on. The rank is the number of
    axes of the user's tensors, for messages (`regard.shapes.layout`).
    """

    batch: int
    heads: int
    queries: int
    keys: int
    device: torch.device
    batch_span: range
    query_span: range
    key_span: range
    rank: int = 4

    @classmethod
    def whole(cls, batch: int, heads: int, queries: int, keys: int, device: torch.device | str = "cpu") -> "Grid":
        """Returns the grid of a whole problem."""
        spans = _first(batch), _first(queries), _first(keys)
        return cls(batch, heads, queries, keys, torch.device(device), *spans)

    @classmethod
    def of(cls, query: Tensor, key: Tensor, rank: int = 4) -> "Grid":
        """Returns the grid of the problem that has these queries and keys, ``[batch, heads, length, dim]``."""
        batch, heads, queries, _ = query.shape
        spans = _first(batch), _first(queries), _first(key.shape[2])
        return cls(batch, heads, queries, key.shape[2], query.device, *spans, rank)

    def tile(self, *, batch: range | None = None, queries: range | None = None, keys: range | None = None) -> "Grid":
        """Returns the tile with these spans, in positions of the whole problem; a span of None stays as it is."""
        return replace(
            self,
            batch_span=self.batch_span if batch is None else batch,
            query_span=self.query_span if queries is None else queries,
            key_span=self.key_span if keys is None else keys,
        )

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Lengths of the spans: ``(batch, heads, queries, keys)`` of this tile."""
        batch, queries, keys = map(span_length, (self.batch_span, self.query_span, self.key_span))
        return batch, self.heads, queries, keys

    @property
    def offset(self) -> int:
        """The number to add to a query's index so that the last query aligns with the last key (contract 3)."""
        return self.keys - self.queries

    @property
    def batch_index(self) -> Tensor:
        """``int64 [batch, 1, 1, 1]``."""
        return _positions(self.batch_span, self.device)[:, None, None, None]

    @property
    def head_index(self) -> Tensor:
        """``int64 [heads, 1, 1]``."""
        return torch.arange(self.heads, device=self.device)[:, None, None]

    @property
    def query_index(self) -> Tensor:
        """``int64 [queries, 1]``."""
        return _positions(self.query_span, self.device)[:, None]

    @property
    def key_index(self) -> Tensor:
        """``int64 [keys]``."""
        return _positions(self.key_span, self.device)

    @property
    def shared_query_index(self) -> Tensor:
        """`query_index` in memory that calls on a device share, which nothing may change."""
        return shared_positions(self.query_span, self.device)[:, None]

    @property
    def shared_key_index(self) -> Tensor:
        """`key_index` in memory that calls on a device share, which nothing may change."""
        return shared_positions(self.key_span, self.device)

    def cut(self, tensor: Tensor) -> Tensor:
        """Returns the part of a tensor that belongs to this tile.

        Args:
            tensor: broadcastable to ``[batch, heads, queries, keys]`` of the whole problem; axes of length 1 stay.
        """
        for axis, span in ((-4, self.batch_span), (-2, self.query_span), (-1, self.key_span)):
            if tensor.dim() >= -axis and tensor.shape[axis] != 1:
                tensor = tensor.narrow(axis, span.start, span_length(span))
        return tensor

    def number(self, value: int) -> "int | Tensor":
        """Returns an integer that differs between calls, such as an offset, in the form that rules calculate with."""
        return value

    def numbers(self, values: tuple[int, ...]) -> Tensor:
        """Returns such integers as an int64 tensor on the grid's device."""
        # A copy that blocks would wait for the device.
        return sent(vector(values, torch.int64), self.device)

    def of_batch(self, values: Tensor) -> Tensor:
        """Returns the tile's part of values ``[batch]``, as ``[batch, 1, 1, 1]``."""
        return values[self.batch_span.start : self.batch_span.stop][:, None, None, None]

    def of_queries(self, values: Tensor) -> Tensor:
        """Returns the tile's part of ``[queries]`` or ``[batch, queries]``, as ``[batch or 1, 1, queries, 1]``."""
        return self._of_rows(values, self.query_span)[:, None, :, None]

    def of_keys(self, values: Tensor) -> Tensor:
        """Returns the tile's part of ``[keys]`` or ``[batch, keys]``, as ``[batch or 1, 1, 1, keys]``."""
        return self._of_rows(values, self.key_span)[:, None, None, :]

    def _of_rows(self, values: Tensor, span: range) -> Tensor:
        values = values[None] if values.dim() == 1 else values[self.batch_span.start : self.batch_span.stop]
        return values[:, span.start : span.stop]

    def with_appended(self, appended: int, values: "Callable[[Grid], Tensor]", fill: bool | float) -> Tensor:
        """Returns values of the user's keys, and one value for all keys that a layer appended to them.

        Args:
            appended: number of appended keys, which come last.
            values: the values of the tile without them, broadcastable to its ``[batch, heads, queries, keys]``.
            fill: the value of an appended key.
        """
        inner = without_appended(self, appended)
        keys = span_length(inner.key_span)
        result = values(inner)
        result = result.expand(*result.shape[:-1], keys)
        return F.pad(result, (0, span_length(self.key_span) - keys), value=fill)


def _positions(span: range, device: torch.device) -> Tensor:
    return torch.arange(span.start, span.stop, device=device)


@dataclass(frozen=True)
class _OpenSpan:
    """The `range` of an axis whose length an exporter leaves symbolic; Python's own would specialize it."""

    start: int
    stop: int

    def __bool__(self) -> bool:
        length = self.stop - self.start
        return not isinstance(length, int) or length > 0

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> "_OpenSpan": ...
    def __getitem__(self, index: int | slice) -> "int | _OpenSpan":
        if isinstance(index, int):
            return index + (self.stop if index < 0 else self.start)
        return _OpenSpan(self.start, torch.sym_min(self.start + index.stop, self.stop))  # type: ignore[arg-type]


def _first(length: int) -> range:
    """Returns the positions of an axis of this length."""
    return _OpenSpan(0, length) if is_open(length) else range(length)  # type: ignore[return-value]


def is_open(length: int) -> bool:
    """Whether a compiler or an exporter may leave a length symbolic, so that control flow must not depend on it."""
    return isinstance(length, torch.SymInt) or torch.compiler.is_compiling()


def span_length(span: range) -> int:
    """Returns the number of positions in a span."""
    return span.stop - span.start


def without_appended(grid: Grid, appended: int) -> Grid:
    """Returns the part of a tile that lies in the problem without the appended keys, which come last."""
    keys, span = grid.keys - appended, grid.key_span
    if is_open(keys):  # then the tile is the whole problem
        return replace(grid, keys=keys, key_span=_first(keys))
    return replace(grid, keys=keys, key_span=range(min(span.start, keys), min(span.stop, keys)))


def upcast(tensor: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Converts half precision to float32, in which scores are computed; other tensors stay as they are (contract 6)."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def spread_heads(
    tensor: Float[Tensor, "batch kv_heads keys dim"], heads: int
) -> Float[Tensor, "batch {heads} keys dim"]:
    """Repeats each key or value head for its group of query heads.

    Args:
        tensor: ``[batch, kv_heads, keys, dim]``.
        heads: query heads, a multiple of ``kv_heads``.

    Returns:
        ``[batch, heads, keys, dim]``; query head ``h`` reads head ``h // (heads / kv_heads)``.
    """
    kv_heads = tensor.shape[1]
    return tensor if kv_heads == heads else tensor.repeat_interleave(heads // kv_heads, dim=1)


def with_one_grouping(key: Tensor, value: Tensor, batch: int, heads: int) -> tuple[Tensor, Tensor]:
    """Returns keys and values of a whole batch with equally many heads; a single head is repeated without a copy."""
    key = key.expand(batch, -1, -1, -1)
    if key.shape[1] == value.shape[1]:
        return key, value
    if key.shape[1] == 1:
        return key.expand(-1, value.shape[1], -1, -1), value
    if value.shape[1] == 1:
        return key, value.expand(-1, key.shape[1], -1, -1)
    return spread_heads(key, heads), spread_heads(value, heads)


def split_joined(products: Sequence[Tensor], widths: Sequence[int]) -> Iterator[Tensor]:
    """Splits tensors whose last axes hold parts of these widths; every part lies in one tensor.

    Args:
        products: tensors, each of one part or several joined ones.
        widths: widths of the parts, in order; above 0.
    """
    ends = list(accumulate(widths, initial=0))
    first = 0
    for product in products:
        last = first + product.shape[-1]
        inside = [end - start for start, end in pairwise(ends) if first <= start and end <= last]
        yield from (product,) if len(inside) == 1 else product.split(inside, dim=-1)
        first = last
