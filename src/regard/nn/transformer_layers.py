"""The layers of a Transformer: self-attention, attention to an encoder's output, and a feedforward network."""

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard import masks
from regard.attention.problem import check_dropout
from regard.errors import ArgumentError, KindError
from regard.masks import Mask
from regard.module_calls import runs
from regard.nn.fx_leaf import fx_leaf
from regard.nn.key_values import EncoderOutput, KeyValueCache, KeyValues, PackedProducts
from regard.nn.multihead import FORWARD as ATTENTION
from regard.nn.multihead import MultiheadAttention, is_called_in_parts
from regard.nn.packed_attention import attend_packed
from regard.nn.packing import Packing, packing_of, without_padding
from regard.nn.recomputation import in_chunks, recomputed
from regard.nn.replaced_attention import call_replaced, torch_masks
from regard.shapes import Grid, flag, kind_of, known_name, size, split_joined
from regard.transforms import is_alias

P = ParamSpec("P")
R = TypeVar("R")
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


WANTED_WEIGHTS: ContextVar[list[Tensor] | None] = ContextVar("WANTED_WEIGHTS", default=None)
"""A list that collects the weights of the attention to the encoder's output from a layer inside another module."""


class EncoderRows(NamedTuple):
    """The output of an encoder layer.

    Attributes:
        rows: ``[tokens, dim]``.
        cache: the cache including the keys and values of these tokens; None without a cache.
    """

    rows: Tensor
    cache: KeyValueCache | None


class DecoderRows(NamedTuple):
    """The output of a decoder layer.

    Attributes:
        rows: ``[tokens, dim]``.
        cache: the cache including the keys and values of these tokens; None without a cache.
        weights: weights of the attention to the encoder's output, ``[batch, heads, target, source]``, or None.
    """

    rows: Tensor
    cache: KeyValueCache | None
    weights: Tensor | None


@dataclass(eq=False)
class LayerCall:
    """Additional inputs and outputs of a layer that a stack calls as a module.

    Attributes:
        cache: keys and values of earlier tokens; after the call also those of the new tokens. None: no cache.
        memory: the encoder's output, projected or not.
        padded: the same memory as the argument of the layer, ``[batch, source, dim]``.
        need_weights: whether to return the weights of the attention to the encoder's output.
        weights: these weights, after the call.
    """

    cache: KeyValueCache | None = None
    memory: KeyValues | EncoderOutput | None = None
    padded: Tensor | None = None
    need_weights: bool = False
    weights: Tensor | None = None


def check_attention(name: str, attention: object) -> None:
    """Raises KindError unless a layer can use this as one of its attentions."""
    if not isinstance(attention, MultiheadAttention):
        raise KindError(
            f"{name} must be a regard.nn.MultiheadAttention; it is {kind_of(attention)}. To create a layer from sizes, "
            "write LayerConfig(dim=..., heads=..., feedforward=...).encoder_layer(), or decoder_layer()"
        )


class TransformerLayer(nn.Module):
    """The self-attention and the feedforward network, which encoder and decoder layers share.

    Each part has a residual connection, dropout and a layer normalization: after the sum (post-norm, Vaswani et al.
    2017, section 3.1) or before the part (pre-norm, Xiong et al. 2020).

    Args:
        attention, feedforward, dropout, activation, norm_first, feedforward_chunk, activation_checkpointing: as in
            `TransformerEncoderLayer`.
    """

    def __init__(
        self,
        attention: MultiheadAttention,
        feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        norm_first: bool = False,
        feedforward_chunk: int = 0,
        activation_checkpointing: bool = False,
    ):
        super().__init__()
        check_attention("attention", attention)
        if not attention.kdim == attention.vdim == attention.embed_dim:
            raise ArgumentError(
                f"attention must have keys and values of embed_dim features, {attention.embed_dim}; kdim is "
                f"{attention.kdim} and vdim is {attention.vdim}"
            )
        size("feedforward", feedforward)
        size("feedforward_chunk", feedforward_chunk, low=0)
        known_name("activation", activation, ACTIVATIONS)
        flag("norm_first", norm_first)
        flag("activation_checkpointing", activation_checkpointing)
        check_dropout(dropout)
        dim = attention.embed_dim
        self.norm_first = norm_first
        self.activation = activation
        self.feedforward_chunk = feedforward_chunk
        self.activation_checkpointing = activation_checkpointing
        self.heads, self.batch_first = attention.num_heads, attention.batch_first
        self.self_attn = attention
        self.linear1 = nn.Linear(dim, feedforward)
        self.linear2 = nn.Linear(feedforward, dim)
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        for linear in (self.linear1, self.linear2):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def _before(self, rows: Tensor, norm: nn.LayerNorm) -> Tensor:
        return norm(rows) if self.norm_first else rows

    def _after(self, rows: Tensor, output: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Adds the output of a part to its input, which gives the input of the next part."""
        total = rows + self.dropout(output)
        return total if self.norm_first else norm(total)

    def _attend_to_self(
        self, rows: Tensor, packing: Packing, mask: Mask | None, cache: KeyValueCache | None
    ) -> EncoderRows:
        """Computes the self-attention of the input of a layer."""
        attention, rows = self.self_attn, self._before(rows, self.norm1)
        if is_called_in_parts(attention):
            attended, cache, _ = _self_attention(attention, attention.products(rows, rows, rows), packing, mask, cache)
            return EncoderRows(attended, cache)
        padded = packing.pad(rows)
        if not runs(attention, ATTENTION):
            source = padded
            if cache is not None:
                # The module's keys and values are unknown, so the cache holds its inputs and it gets all of them again.
                cache = cache.append(padded[:, None], padded[:, None, :, :0])
                source = cache.key[:, 0]
            grid = _grid(padded, source, self.heads)
            output, _ = call_replaced(attention, padded, source, torch_masks(mask, grid, packing), self.batch_first)
            return EncoderRows(packing.pack(output), cache)
        call = _SelfAttention(packing, cache)
        input = padded if attention.batch_first else padded.transpose(0, 1)
        output, _ = attention(input, input, input, need_weights=False, mask=mask, packed=call)
        if cache is not None and call.cache is cache:
            raise ArgumentError("a hook on self_attn passed masks of PyTorch, which attention with a cache cannot use")
        return EncoderRows(packing.pack(output if attention.batch_first else output.transpose(0, 1)), call.cache)

    def _transform(self, rows: Tensor, attended: Tensor, before: nn.LayerNorm, after: nn.LayerNorm) -> Tensor:
        """Adds the output of the last attention to its input, and applies the feedforward network."""

        def transform(rows: Tensor, attended: Tensor) -> Tensor:
            rows = self._after(rows, attended, before)
            return self._after(rows, self._feedforward(self._before(rows, after)), after)

        return in_chunks(self._part(transform), self.feedforward_chunk, rows, attended)

    def _feedforward(self, rows: Tensor) -> Tensor:
        """``W_2 dropout(activation(W_1 x))`` (Vaswani et al. 2017, eq. 2)."""
        return self.linear2(self.dropout(ACTIVATIONS[self.activation](self.linear1(rows))))

    def _part(self, function: Callable[P, R]) -> Callable[P, R]:
        """Adds activation checkpointing to a part of the layer if it is switched on."""
        return recomputed(function) if self.activation_checkpointing else function


@fx_leaf
class TransformerEncoderLayer(TransformerLayer):
    """Self-attention and a feedforward network (Vaswani et al. 2017, section 3.1).

    With a causal mask it is the layer of a language model. Its parameters have the names and shapes of those of
    `torch.nn.TransformerEncoderLayer`, unless ``attention`` has grouped heads, positions or weights of a score.

    Args:
        attention: the self-attention, with its heads, score, normalizer and position.
        feedforward: units of the hidden layer of the feedforward network.
        dropout: rate after each part, and in the feedforward network; in [0, 1).
        activation: ``relu``, ``gelu`` or ``silu``.
        norm_first: layer normalization before each part (Xiong et al. 2020) instead of after the sum.
        feedforward_chunk: as in `LayerConfig`.
        activation_checkpointing: as in `LayerConfig`.
    """

    def forward(
        self,
        input: Tensor,
        lengths: Tensor | None = None,
        mask: Mask | None = None,
        *,
        call: LayerCall | None = None,
    ) -> Tensor:
        """Runs the layer on a padded batch.

        Args:
            input: ``[batch, length, dim]``.
            lengths: integers ``[batch]``, number of tokens of each sequence; None: no padding. Outputs of padding are 0
                and are not computed.
            mask: a mask in addition to ``lengths``.
            call: inputs and outputs of a stack that decodes with a cache.
        """
        packing, call = packing_of(input, lengths), LayerCall() if call is None else call
        visible = without_padding(mask, packing, lengths)
        rows, call.cache = self.run(packing.pack(input), packing, visible, call.cache)
        return packing.pad(rows)

    def run(self, rows: Tensor, packing: Packing, mask: Mask | None, cache: KeyValueCache | None = None) -> EncoderRows:
        """Runs the layer on packed rows.

        Args:
            rows: ``[tokens, dim]``.
            packing: the packing of the rows.
            mask: the mask, which also hides padding.
            cache: keys and values of earlier tokens, which are attended to as well.
        """
        attended = self._part(self._attend_to_self)(rows, packing, mask, cache)
        return EncoderRows(self._transform(rows, attended.rows, self.norm1, self.norm2), attended.cache)


@fx_leaf
class TransformerDecoderLayer(TransformerLayer):
    """Self-attention, attention to an encoder's output, and a feedforward network (Vaswani et al. 2017, section 3.1).

    Its parameters have the names and shapes of those of `torch.nn.TransformerDecoderLayer`, unless an attention has
    grouped heads, positions or weights of a score.

    Args:
        attention: the self-attention.
        cross_attention: the attention to the encoder's output.
        feedforward: units of the hidden layer of the feedforward network.
        dropout: rate after each part, and in the feedforward network; in [0, 1).
        activation: ``relu``, ``gelu`` or ``silu``.
        norm_first: layer normalization before each part (Xiong et al. 2020) instead of after the sum.
        feedforward_chunk: as in `LayerConfig`.
        activation_checkpointing: as in `LayerConfig`.
    """

    def __init__(
        self,
        attention: MultiheadAttention,
        cross_attention: MultiheadAttention,
        feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        norm_first: bool = False,
        feedforward_chunk: int = 0,
        activation_checkpointing: bool = False,
    ):
        super().__init__(
            attention, feedforward, dropout, activation, norm_first, feedforward_chunk, activation_checkpointing
        )
        check_attention("cross_attention", cross_attention)
        if cross_attention.embed_dim != attention.embed_dim or cross_attention.kdim != cross_attention.vdim:
            raise ArgumentError(
                f"cross_attention must have attention's embed_dim, {attention.embed_dim}, and one dim of keys and "
                f"values; its embed_dim is {cross_attention.embed_dim}, kdim {cross_attention.kdim}, vdim "
                f"{cross_attention.vdim}"
            )
        self.multihead_attn = cross_attention
        self.norm3 = nn.LayerNorm(attention.embed_dim)

    def forward(
        self,
        input: Tensor,
        memory: Tensor,
        lengths: Tensor | None = None,
        memory_lengths: Tensor | None = None,
        mask: Mask | None = None,
        *,
        call: LayerCall | None = None,
    ) -> Tensor:
        """Runs the layer on a padded batch.

        Args:
            input: ``[batch, target, dim]``.
            memory: the encoder's output, ``[batch, source, dim]``.
            lengths: integers ``[batch]``, number of tokens of each target; None: no padding. Outputs of padding are 0
                and are not computed.
            memory_lengths: integers ``[batch]``, number of tokens of each source; None: no padding.
            mask: a mask of the targets' self-attention in addition to ``lengths``; `regard.masks.causal` for a decoder
                that predicts the next token.
            call: inputs and outputs of a stack that decodes with a cache, has projected the memory, or needs weights.
        """
        packing, call = packing_of(input, lengths), LayerCall() if call is None else call
        collected = None if torch.compiler.is_compiling() else WANTED_WEIGHTS.get()
        remembered = call.memory
        if remembered is None or memory is not call.padded:
            # A stack passes the projected memory, but a hook may have replaced the tensor.
            source = packing_of(memory, memory_lengths)
            remembered = EncoderOutput(source.pack(memory), source, memory_lengths)
        visible = without_padding(mask, packing, lengths)
        rows, call.cache, call.weights = self.run(
            packing.pack(input), packing, remembered, visible, call.cache, call.need_weights or collected is not None
        )
        if collected is not None and call.weights is not None:
            collected.append(call.weights)
        return packing.pad(rows)

    def remember(self, rows: Tensor, packing: Packing, lengths: Tensor | None) -> KeyValues:
        """Returns the keys and values of an encoder's output, for `run`.

        Args:
            rows: the encoder's output, ``[source tokens, dim]``.
            packing: the packing of these rows.
            lengths: ``int64 [batch]``, number of tokens of each source; None: no padding.
        """
        products = self.multihead_attn.memory_products(rows, rows)
        return _key_values(self.multihead_attn, products, packing, lengths, EncoderOutput(rows, packing, lengths))

    def project(self, memory: KeyValues | EncoderOutput) -> KeyValues:
        """Returns the keys and values of an encoder's output, which may have been projected already."""
        if isinstance(memory, KeyValues):
            return memory
        projected = self.remember(memory.rows, memory.packing, memory.lengths)
        return projected if memory.index is None else projected.select(memory.index)

    def run(
        self,
        rows: Tensor,
        packing: Packing,
        memory: KeyValues | EncoderOutput,
        mask: Mask | None,
        cache: KeyValueCache | None = None,
        need_weights: bool = False,
    ) -> DecoderRows:
        """Runs the layer on packed rows.

        Args:
            rows: ``[tokens, dim]``.
            packing: the packing of the rows.
            memory: the result of `remember`, or the encoder's output itself.
            mask: the mask of the targets' self-attention, which also hides padding.
            cache: keys and values of earlier target tokens, which are attended to as well.
            need_weights: whether to return the weights of the attention to the encoder's output; the rows are the same,
                bit for bit.
        """
        attended = self._part(self._attend_to_self)(rows, packing, mask, cache)
        rows = self._part(self._after)(rows, attended.rows, self.norm1)
        if is_called_in_parts(self.multihead_attn):
            memory = self.project(memory)
        crossed, weights = self._part(self._attend_to_memory)(rows, packing, memory, need_weights)
        return DecoderRows(self._transform(rows, crossed, self.norm2, self.norm3), attended.cache, weights)

    def _attend_to_memory(
        self, rows: Tensor, packing: Packing, memory: KeyValues | EncoderOutput, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        attention, rows = self.multihead_attn, self._before(rows, self.norm2)
        if is_called_in_parts(attention):
            return _memory_attention(attention, rows, packing, self.project(memory), need_weights)
        source = memory if isinstance(memory, EncoderOutput) else memory.source
        if source is None:
            raise ArgumentError(
                "memory must come from `remember` for a layer whose multihead_attn is called as a module"
            )
        padded, remembered, lengths = packing.pad(rows), source.padded, source.selected_lengths
        keys = packing_of(remembered, lengths)
        visible = masks.lengths(lengths) if lengths is not None and keys.has_padding else None
        if not runs(attention, ATTENTION):
            arguments = torch_masks(visible, _grid(padded, remembered, self.heads), keys)
            output, weights = call_replaced(attention, padded, remembered, arguments, self.batch_first, need_weights)
            return packing.pack(output), weights
        query, key = (x if attention.batch_first else x.transpose(0, 1) for x in (padded, remembered))
        call = _MemoryAttention(self, packing, memory, key, keys)
        output, weights = attention(
            query, key, key, need_weights=need_weights, average_attn_weights=False, mask=visible, packed=call
        )
        return packing.pack(output if attention.batch_first else output.transpose(0, 1)), weights


class _SelfAttention:
    """Computes self-attention of packed rows inside a call of the module.

    Attributes:
        cache: the cache, after the call including the keys and values of the tokens.
    """

    def __init__(self, packing: Packing, cache: KeyValueCache | None):
        self._packing, self.cache = packing, cache

    def __call__(
        self,
        attention: MultiheadAttention,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | None,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        products = _products(attention, (query, key, value), (self._packing,) * 3)
        rows, self.cache, weights = _self_attention(attention, products, self._packing, mask, self.cache, need_weights)
        return _padded(attention, rows, self._packing), weights


class _MemoryAttention:
    """Computes attention of packed rows to an encoder's output inside a call of the module.

    Args:
        layer: the layer.
        queries: the packing of the queries.
        memory: the memory of the layer.
        padded: the same memory in the layout of the module: its key and value, unless a hook changes them.
        keys: the packing of ``padded``.
    """

    def __init__(
        self,
        layer: TransformerDecoderLayer,
        queries: Packing,
        memory: KeyValues | EncoderOutput,
        padded: Tensor,
        keys: Packing,
    ):
        self._layer, self._queries, self._memory, self._padded, self._keys = layer, queries, memory, padded, keys

    def __call__(
        self,
        attention: MultiheadAttention,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | None,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        if key is self._padded and value is self._padded:
            memory = self._layer.project(self._memory)
        else:
            products = _products(attention, (key, value), (self._keys,) * 2)
            memory = _key_values(attention, products, self._keys, self._keys.lengths, None)
        rows, weights = _memory_attention(
            attention, _packed(attention, query, self._queries), self._queries, memory, need_weights, mask
        )
        return _padded(attention, rows, self._queries), weights


def _self_attention(
    attention: MultiheadAttention,
    products: Sequence[Tensor],
    packing: Packing,
    mask: Mask | None,
    cache: KeyValueCache | None,
    need_weights: bool = False,
) -> DecoderRows:
    """Computes self-attention of rows from their projections ``products``."""
    if cache is None:
        packed = attend_packed(attention, products, packing, packing, mask, need_weights)
        if packed is not None:
            return DecoderRows(attention.out_proj(packed.rows), None, packed.weights)
    query, key, value = _padded_heads(attention, products, attention.widths, packing)
    first = 0 if cache is None else cache.length
    query, key = attention.rotate(query, first), attention.rotate(key, first)
    if cache is not None:
        cache = cache.append(key, value)
        key, value = cache.key, cache.value
    attended = attention.attend_heads(query, key, value, masks=[mask], need_weights=need_weights)
    rows = attention.out_proj(packing.pack(attention.join(attended.output)))
    return DecoderRows(rows, cache, attended.weights)


def _memory_attention(
    attention: MultiheadAttention,
    rows: Tensor,
    packing: Packing,
    memory: KeyValues,
    need_weights: bool,
    mask: Mask | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Computes attention of rows to projected keys and values; ``mask`` defaults to the memory's own."""
    mask = memory.mask if mask is None else mask
    projected = attention.project_query(rows)
    if memory.packed is not None:
        products = projected, *memory.packed.products
        packed = attend_packed(attention, products, packing, memory.packed.packing, mask, need_weights)
        if packed is not None:
            return attention.out_proj(packed.rows), packed.weights
    query = attention.rotate(attention.split(packing.pad(projected)))
    attended = attention.attend_heads(query, memory.key, memory.value, masks=[mask], need_weights=need_weights)
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


def _key_values(
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


def _grid(query: Tensor, key: Tensor, heads: int) -> Grid:
    """Returns the grid of the attention of ``[batch, queries, dim]`` to ``[batch, keys, dim]``."""
    return Grid.whole(query.shape[0], heads, query.shape[1], key.shape[1], query.device)


def _padded_heads(
    attention: MultiheadAttention, products: Sequence[Tensor], widths: Sequence[int], packing: Packing
) -> Iterator[Tensor]:
    """Pads projections of packed rows, and yields their parts, split into heads."""
    # The joined products are padded before they are split, since they are fewer than their parts.
    for part in split_joined([packing.pad(product) for product in products], widths):
        yield attention.split(part)


ENCODER_LAYER, DECODER_LAYER = TransformerEncoderLayer.forward, TransformerDecoderLayer.forward
"""The methods as defined here, even if they are replaced later."""
