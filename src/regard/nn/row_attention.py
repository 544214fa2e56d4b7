"""Attention of the packed rows of a Transformer layer: in parts, or inside a call of the attention module."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.biases import Bias
from regard.errors import ArgumentError
from regard.masks import Mask
from regard.nn.key_values import EncoderOutput, KeyValueCache, KeyValues, PackedProducts, SequenceCache
from regard.nn.multihead import MultiheadAttention
from regard.nn.packed_attention import attend_packed
from regard.nn.packing import Packing
from regard.nn.padding import present_queries
from regard.sequence_parts import whole_length
from regard.shapes import Grid, split_joined
from regard.transforms import is_alias


class EncoderRows(NamedTuple):
    """The output of an encoder layer.

    Attributes:
        rows: ``[tokens, dim]``.
        cache: the cache including the keys and values of these tokens; None without a cache.
    """

    rows: Tensor
    cache: SequenceCache | None


class DecoderRows(NamedTuple):
    """The output of a decoder layer.

    Attributes:
        rows: ``[tokens, dim]``.
        cache: the cache including the keys and values of these tokens; None without a cache.
        weights: weights of the attention to the encoder's output, ``[batch, heads, target, source]``, or None.
    """

    rows: Tensor
    cache: SequenceCache | None
    weights: Tensor | None


class SelfAttentionCall:
    """Computes self-attention of packed rows inside a call of the module.

    Attributes:
        cache: the cache, after the call including the keys and values of the tokens.
    """

    def __init__(self, packing: Packing, cache: KeyValueCache | None):
        self._packing, self._past = packing, cache
        self.cache: SequenceCache | None = cache

    def __call__(
        self,
        attention: MultiheadAttention,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        products = _products(attention, (query, key, value), (self._packing,) * 3)
        rows, self.cache, weights = attend_to_rows(
            attention, products, self._packing, mask, bias, self._past, need_weights
        )
        return _padded(attention, rows, self._packing), weights


class MemoryAttentionCall:
    """Computes attention of packed rows to an encoder's output inside a call of the module.

    Args:
        project: returns the keys and values of the memory, which may have been projected already.
        queries: the packing of the queries.
        memory: the memory of the layer.
        padded: the same memory in the layout of the module: its key and value, unless a hook changes them.
        keys: the packing of ``padded``.
    """

    def __init__(
        self,
        project: Callable[[KeyValues | EncoderOutput], KeyValues],
        queries: Packing,
        memory: KeyValues | EncoderOutput,
        padded: Tensor,
        keys: Packing,
    ):
        self._project, self._queries, self._memory, self._padded, self._keys = project, queries, memory, padded, keys

    def __call__(
        self,
        attention: MultiheadAttention,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        if key is self._padded and value is self._padded:
            memory = self._project(self._memory)
        else:
            products = _products(attention, (key, value), (self._keys,) * 2)
            memory = key_values(attention, products, self._keys, self._keys.lengths, None)
        rows, weights = attend_to_memory(
            attention, _packed(attention, query, self._queries), self._queries, memory, mask, bias, need_weights
        )
        return _padded(attention, rows, self._queries), weights


def attend_to_rows(
    attention: MultiheadAttention,
    products: Sequence[Tensor],
    packing: Packing,
    mask: Mask | None,
    bias: Bias | None,
    cache: KeyValueCache | None,
    need_weights: bool = False,
) -> DecoderRows:
    """Computes self-attention of rows from their projections ``products``."""
    if cache is None and bias is None:
        packed = attend_packed(attention, products, packing, packing, mask, need_weights)
        if packed is not None:
            return DecoderRows(attention.out_proj(packed.rows), None, packed.weights)
    if attention.normalizer.couples == "queries":
        if cache is not None:
            raise ArgumentError(
                f"with the normalizer {type(attention.normalizer).__name__} each weight of a token "
                "depends on later tokens, so that it cannot be decoded step by step"
            )
        # Queries of padding must not take part in the weights of others.
        batch, length = packing.shape
        length = whole_length(length, "query")
        mask = present_queries(mask, Grid.whole(batch, attention.num_heads, length, length, products[0].device))
    query, key, value = _padded_heads(attention, products, attention.widths, packing)
    first = 0 if cache is None else cache.length
    query, key = attention.rotate(query, first), attention.rotate(key, first)
    if cache is not None:
        cache = cache.appended(key, value)
        key, value = cache.key, cache.value
    attended = attention.attend_heads(query, key, value, masks=[mask], biases=[bias], need_weights=need_weights)
    rows = attention.out_proj(packing.pack(attention.join(attended.output)))
    return DecoderRows(rows, cache, attended.weights)


def attend_to_memory(
    attention: MultiheadAttention,
    rows: Tensor,
    packing: Packing,
    memory: KeyValues,
    mask: Mask | None,
    bias: Bias | None,
    need_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """Computes attention of rows to projected keys and values; ``mask`` also hides the padding of the memory."""
    projected = attention.project_query(rows)
    if memory.packed is not None and bias is None:
        products = projected, *memory.packed.products
        packed = attend_packed(attention, products, packing, memory.packed.packing, mask, need_weights)
        if packed is not None:
            return attention.out_proj(packed.rows), packed.weights
    query = attention.rotate(attention.split(packing.pad(projected)))
    attended = attention.attend_heads(
        query, memory.key, memory.value, masks=[mask], biases=[bias], need_weights=need_weights
    )
    return attention.out_proj(packing.pack(attention.join(attended.output))), attended.weights


def _products(
    attention: MultiheadAttention, inputs: Sequence[Tensor], packings: Sequence[Packing]
) -> tuple[Tensor, ...]:
    """Returns the projections of the packed rows of padded inputs: query, key and value, or key and value."""
    project = attention.products if len(inputs) == 3 else attention.memory_products
    first, *others = inputs
    rows = _packed(attention, first, packings[0])
    if all(other is first for other in others):
        return project(*[rows] * len(inputs))
    packed = [rows, *(_packed(attention, other, packings[0]) for other in others)]
    separate = project(*packed)
    if any(not is_alias(first, other) for other in others):
        return separate
    with torch.no_grad():
        joint = project(*[rows] * len(inputs))
    if len(joint) == len(separate):
        return separate
    # A backward hook gave each argument its own autograd node, so that each gets its own gradient; but the values must
    # be those of one joint product.
    values = torch.cat(separate, dim=-1)
    with torch.no_grad():
        values.copy_(joint[0])
    return (values,)


def _packed(attention: MultiheadAttention, input: Tensor, packing: Packing) -> Tensor:
    """Returns the rows of a padded tensor in the module's layout."""
    return packing.pack(input if attention.batch_first else input.transpose(0, 1))


def _padded(attention: MultiheadAttention, rows: Tensor, packing: Packing) -> Tensor:
    """Pads rows and returns them in the module's layout: the inverse of `_packed`."""
    padded = packing.pad(rows)
    return padded if attention.batch_first else padded.transpose(0, 1)


def key_values(
    attention: MultiheadAttention,
    products: tuple[Tensor, ...],
    packing: Packing,
    lengths: Tensor | None,
    source: EncoderOutput | None,
) -> KeyValues:
    """Returns keys and values from their projections ``products``."""
    key, value = _padded_heads(attention, products, attention.widths[1:], packing)
    key_lengths = lengths if packing.has_padding else None
    return KeyValues(attention.rotate(key), value, key_lengths, PackedProducts(products, packing), source)


def _padded_heads(
    attention: MultiheadAttention, products: Sequence[Tensor], widths: Sequence[int], packing: Packing
) -> Iterator[Tensor]:
    """Pads projections of packed rows, and yields their parts, split into heads."""
    # The joined products are padded before they are split, since they are fewer than their parts.
    for part in split_joined([packing.pad(product) for product in products], widths):
        yield attention.split(part)
