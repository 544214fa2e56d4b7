"""Projected keys and values: those of an encoder's output, and a growing cache of those of the tokens so far."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

import torch
from torch import Tensor, nn

from regard import masks
from regard.errors import ArgumentError, KindError, ShapeError
from regard.masks import Mask
from regard.names.answered import answered
from regard.names.missing_names import hinted
from regard.nn.packing import Packing
from regard.shapes.checks import type_text
from regard.summaries import record_summary, summarized


@summarized
@dataclass(frozen=True)
class EncoderOutput:
    """The output of an encoder, ``[source tokens, dim]``, before a layer projects it; its packing; and the selected
    batch rows, in order (None: all)."""

    rows: Tensor
    packing: Packing
    index: Tensor | None = None

    @property
    def padded(self) -> Tensor:
        """The selected rows as ``[batch, source, dim]``, with 0 after the end of each source."""
        padded = self.packing.pad(self.rows)
        return padded if self.index is None else padded[self.index]

    @property
    def lengths(self) -> Tensor | None:
        """The lengths of the selected rows; None: there is no padding."""
        lengths = self.packing.lengths
        return lengths if lengths is None or self.index is None else lengths[self.index]

    def select(self, index: Tensor) -> "EncoderOutput":
        """Selects batch rows as `KeyValues.select` does; copies are deferred until the rows are read."""
        return replace(self, index=index if self.index is None else self.index[index])


@summarized
@dataclass(frozen=True)
class KeyValues:
    """The keys and values of one attention layer, projected and split into heads.

    Attributes:
        key: ``[batch, kv_heads, keys, head_dim]``.
        value: ``[batch, kv_heads, keys, head_dim]``.
        lengths: ``int64 [batch]``, number of keys of each sequence that may be attended to; None: all.
        source: the encoder's output that was projected, or None if it is unknown.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> memory = nn.KeyValues(torch.randn(2, 4, 7, 16), torch.randn(2, 4, 7, 16), lengths=torch.tensor([7, 3]))
        >>> memory.mask
        lengths([7, 3])
        >>> beams = memory.select(torch.tensor([1, 1, 0]))  # for a beam search
        >>> beams.key.shape, beams.lengths
        (torch.Size([3, 4, 7, 16]), tensor([3, 3, 7]))
    """

    key: Tensor
    value: Tensor
    lengths: Tensor | None = None
    source: EncoderOutput | None = field(default=None, repr=False)

    @property
    def mask(self) -> Mask | None:
        """The mask of the padding that ``lengths`` describes."""
        return None if self.lengths is None else masks.lengths(self.lengths)

    def select(self, index: Tensor) -> "KeyValues":
        """Returns the batch rows ``index [rows]``, in that order; a row may occur several times."""
        lengths = None if self.lengths is None else self.lengths[index]
        source = None if self.source is None else self.source.select(index)
        return KeyValues(self.key[index], self.value[index], lengths, source)


class _Buffer:
    """Allocated memory for keys and values, of which the first positions are written."""

    def __init__(self, key: Tensor, value: Tensor, capacity: int):
        self.key, self.value = (
            tensor.new_empty(*tensor.shape[:2], capacity, tensor.shape[3]) for tensor in (key, value)
        )
        self.capacity = capacity
        self.written = 0

    @torch.no_grad()
    def write(self, start: int, key: Tensor, value: Tensor) -> None:
        stop = start + key.shape[2]
        self.key[:, :, start:stop] = key
        self.value[:, :, start:stop] = value
        self.written = stop


class _Whole(_Buffer):
    """Keys and values of which a gradient is needed, so that nothing is written into their memory."""

    def __init__(self, key: Tensor, value: Tensor):
        self.key, self.value = key, value
        self.capacity = self.written = -1


def _need_gradient(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


class SequenceCache(ABC):
    """The state of a layer's self-attention after the tokens so far, for decoding token by token.

    It is immutable, so that a search can continue from any earlier state.

    Attributes:
        length: the number of tokens so far, of each sequence.

    Example:
        >>> from regard import nn
        >>> nn.TransformerEncoderLayer(16, 2, attention="differential").new_cache().length
        0
    """

    length: int

    @property
    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the tokens so far by their names, whose first axis is the batch; none before the first one."""

    def select(self, index: Tensor) -> Self:
        """Returns the batch rows ``index [rows]``, in that order; a row may occur several times."""
        return self.rows(index)

    @abstractmethod
    def rows(self, index: Tensor) -> Self:
        """Computes `select`, which `regard.watch` follows."""

    def __repr__(self) -> str:
        return record_summary(type(self).__name__, {"length": self.length, **self.tensors}.items())


CacheT = TypeVar("CacheT", bound=SequenceCache)


def checked_cache(owner: nn.Module, cache: SequenceCache | None, kind: type[CacheT]) -> CacheT | None:
    """Returns the cache of an attention if it is None or of its kind; raises KindError otherwise."""
    if cache is not None and not isinstance(cache, kind):
        raise KindError(
            f"cache must be what new_cache or the last call of this {type(owner).__name__} returned, "
            f"a {kind.__name__}; it is {type_text(cache)}"
        )
    return cache


def check_continued(cached: Tensor, new: Tensor, axis: int) -> None:
    """Raises an error unless a cached tensor and that of new tokens are alike but for the length of an axis.

    Raises:
        ShapeError: another number of batch rows, of heads or of features.
        KindError: another dtype or device.
    """
    own, other = cached.shape, new.shape
    if own[0] != other[0]:
        raise ShapeError(
            f"cache must be of as many batch rows as the new tokens, {other[0]}; it has {own[0]} "
            "(cache.select(index) chooses rows)"
        )
    if own[1:axis] != other[1:axis] or own[axis + 1 :] != other[axis + 1 :]:
        shapes = (["length" if number == axis else size for number, size in enumerate(shape)] for shape in (own, other))
        raise ShapeError("cache must be one of this layer: it holds {}, and the new tokens are {}".format(*shapes))
    if cached.dtype != new.dtype or cached.device != new.device:
        raise KindError(
            f"cache must be of the dtype and on the device of the new tokens, {new.dtype} on {new.device}; it is "
            f"{cached.dtype} on {cached.device}: begin with a new cache"
        )


class HeldInputs(SequenceCache):
    """The inputs ``[batch, tokens, dim]`` of a stack so far, which are read again with the next tokens."""

    def __init__(self, inputs: Tensor | None = None):
        self.inputs = inputs
        self.length = 0 if inputs is None else inputs.shape[1]

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {} if self.inputs is None else {"inputs": self.inputs}

    def rows(self, index: Tensor) -> Self:
        return self if self.inputs is None else type(self)(self.inputs[index])


@answered
@hinted
class KeyValueCache(SequenceCache):
    """The keys and values of the tokens so far, for decoding token by token.

    .. math::

        key ← [key; new key],    value ← [value; new value]

    Shazeer 2019, "Fast Transformer Decoding", section 2.4 (incremental multi-head attention).

    A cache is immutable: `appended` returns another cache, so that a search can continue from any earlier state. Both
    share memory if possible: new tokens are written after the others, into a buffer that is doubled when it is full.
    The buffer is copied only if other tokens were appended to the same cache before. Where a gradient is needed, tokens
    are concatenated instead, and it reaches all of them.

    Args:
        key: ``[batch, kv_heads, keys, head_dim]``; None: the cache is empty.
        value: ``[batch, kv_heads, keys, head_dim]``; None together with ``key``.

    Raises:
        ArgumentError: only one of ``key`` and ``value`` is given.
        KindError: one of them is no tensor, such as a length: a cache needs none.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> cache = nn.KeyValueCache()
        >>> for token in range(3):
        ...     new = torch.full((2, 4, 1, 16), float(token))  # [batch, kv_heads, new tokens, head_dim]
        ...     cache = cache.appended(new, new)
        >>> cache.length, cache.key.shape
        (3, torch.Size([2, 4, 3, 16]))
        >>> cache.key[0, 0, :, 0]
        tensor([0., 1., 2.])
        >>> longer = cache.appended(new, new)
        >>> cache.length, longer.length  # the earlier state can still be continued
        (3, 4)
        >>> longer.select(torch.tensor([1, 1, 0])).value.shape
        torch.Size([3, 4, 4, 16])
    """

    def __init__(self, key: Tensor | None = None, value: Tensor | None = None):
        self.length = 0
        self._buffer: _Buffer | None = None
        for name, part in (("key", key), ("value", value)):
            if part is not None and not isinstance(part, Tensor):
                raise KindError(
                    f"{name} must be a tensor [batch, kv_heads, keys, head_dim]; it is {type_text(part)}; an empty "
                    "cache takes no length, since it grows: KeyValueCache()"
                )
        if (key is None) != (value is None):
            missing, other = ("key", "value") if key is None else ("value", "key")
            raise ArgumentError(f"{missing} must be given where {other} is: write KeyValueCache(key, value)")
        if key is not None and value is not None:
            if _need_gradient(key, value):
                self._buffer = _Whole(key, value)
            else:
                self._buffer = _Buffer(key, value, max(16, 2 * key.shape[2]))
                self._buffer.write(0, key, value)
            self.length = key.shape[2]

    @property
    def key(self) -> Tensor:
        """``[batch, kv_heads, length, head_dim]``; the cache must not be empty."""
        assert self._buffer is not None
        return self._buffer.key[:, :, : self.length]

    @property
    def value(self) -> Tensor:
        """``[batch, kv_heads, length, head_dim]``; the cache must not be empty."""
        assert self._buffer is not None
        return self._buffer.value[:, :, : self.length]

    def appended(self, key: Tensor, value: Tensor) -> "KeyValueCache":
        """Returns a cache with more tokens.

        Args:
            key: ``[batch, kv_heads, new, head_dim]``.
            value: ``[batch, kv_heads, new, head_dim]``.

        Raises:
            ShapeError, KindError: they have another batch, other heads or features, or another dtype or device.
        """
        buffer = self._buffer
        if buffer is None:
            return KeyValueCache(key, value)
        check_continued(buffer.key, key, 2)
        check_continued(buffer.value, value, 2)
        if _need_gradient(key, value, buffer.key, buffer.value):
            return KeyValueCache(torch.cat([self.key, key], dim=2), torch.cat([self.value, value], dim=2))
        total = self.length + key.shape[2]
        if buffer.written != self.length or total > buffer.capacity:
            buffer = _Buffer(key, value, max(2 * self.length, total, 16))
            buffer.write(0, self.key, self.value)
        buffer.write(self.length, key, value)
        extended = KeyValueCache()
        extended._buffer, extended.length = buffer, total
        return extended

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {"key": self.key, "value": self.value} if self.length else {}

    def rows(self, index: Tensor) -> Self:
        return self if self._buffer is None else type(self)(self.key[index], self.value[index])
