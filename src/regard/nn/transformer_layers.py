"""The layers of a Transformer: self-attention, attention to an encoder's output, and a feedforward network."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, ParamSpec, TypeVar

from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.validation import check_dropout
from regard.errors import ArgumentError, KindError
from regard.masks import Mask
from regard.nn.dropout import Dropout
from regard.nn.fx_leaf import fx_leaf
from regard.nn.key_values import KeyValueCache, KeyValues, PackedProducts
from regard.nn.multihead import MultiheadAttention
from regard.nn.packed_attention import attend_packed
from regard.nn.packing import Packing, packing_of, without_padding
from regard.nn.recomputation import in_chunks, recomputed
from regard.shapes import flag, kind_of, known_name, side_by_side, size

P = ParamSpec("P")
R = TypeVar("R")
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class EncoderRows(NamedTuple):
    """The output of an encoder layer.

    Attributes:
        rows: ``[tokens, dim]``.
        cache: the cache with the keys and values of these tokens; None without a cache.
    """

    rows: Tensor
    cache: KeyValueCache | None


class DecoderRows(NamedTuple):
    """The output of a decoder layer.

    Attributes:
        rows: ``[tokens, dim]``.
        cache: the cache with the keys and values of these tokens; None without a cache.
        weights: weights of the attention to the encoder's output, ``[batch, heads, target, source]``; None where they
            were not asked for.
    """

    rows: Tensor
    cache: KeyValueCache | None
    weights: Tensor | None


def check_attention(name: str, attention: object) -> None:
    """Raise KindError unless a layer can use this as one of its attentions."""
    if not isinstance(attention, MultiheadAttention):
        raise KindError(
            f"{name} must be a regard.nn.MultiheadAttention; it is {kind_of(attention)}. For sizes, as those of "
            "torch.nn, write LayerConfig(dim=..., heads=..., feedforward=...).encoder_layer(), or decoder_layer()"
        )


class TransformerLayer(nn.Module):
    """What encoder and decoder layers share: self-attention and the feedforward network.

    Each part has a residual connection, dropout and a layer normalization: after the sum (post-norm, Vaswani et al.
    2017, section 3.1) or before the part (pre-norm, Xiong et al. 2020).

    Args:
        attention: the self-attention.
        feedforward: units of the hidden layer of the feedforward network.
        dropout: rate after each part, and in the feedforward network; in [0, 1).
        activation: ``relu``, ``gelu`` or ``silu``.
        norm_first: pre-norm instead of post-norm.
        feedforward_chunk: rows that the feedforward network treats at a time; 0: all.
        activation_checkpointing: whether activations are computed again in the backward pass instead of kept.
    """

    def __init__(
        self,
        attention: MultiheadAttention,
        feedforward: int,
        dropout: float,
        activation: str,
        norm_first: bool,
        feedforward_chunk: int,
        activation_checkpointing: bool,
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
        self.self_attn = attention
        self.linear1 = nn.Linear(dim, feedforward)
        self.linear2 = nn.Linear(feedforward, dim)
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.dropout = Dropout(dropout)
        for linear in (self.linear1, self.linear2):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def _before(self, rows: Tensor, norm: nn.LayerNorm) -> Tensor:
        return norm(rows) if self.norm_first else rows

    def _after(self, rows: Tensor, output: Tensor, norm: nn.LayerNorm) -> Tensor:
        """The sum of the input and the output of a part: the input of the next part."""
        # A user may have put another module in the place of ours.
        ours = isinstance(self.dropout, Dropout)
        total = self.dropout(output, residual=rows) if ours else rows + self.dropout(output)
        return total if self.norm_first else norm(total)

    def _attend_to_self(
        self, rows: Tensor, packing: Packing, mask: Mask | None, cache: KeyValueCache | None
    ) -> EncoderRows:
        """Self-attention of the input of a layer."""
        attention, rows = self.self_attn, self._before(rows, self.norm1)
        products = attention.products(rows, rows, rows)
        if cache is None:
            found = attend_packed(attention, products, packing, packing, mask)
            if found is not None:
                return EncoderRows(attention.out_proj(found.rows), None)
        query, key, value = _padded_heads(attention, products, attention.widths, packing)
        first = 0 if cache is None else cache.length
        query, key = attention.rotate(query, first), attention.rotate(key, first)
        if cache is not None:
            cache = cache.append(key, value)
            key, value = cache.key, cache.value
        attended = attention.attend_heads(query, key, value, masks=[mask])
        return EncoderRows(attention.out_proj(packing.pack(attention.join(attended.output))), cache)

    def _transform(self, rows: Tensor, attended: Tensor, before: nn.LayerNorm, after: nn.LayerNorm) -> Tensor:
        """The sum of the last attention's input and output, through the feedforward network: a layer's last part."""

        def transformed(rows: Tensor, attended: Tensor) -> Tensor:
            rows = self._after(rows, attended, before)
            return self._after(rows, self._feedforward(self._before(rows, after)), after)

        return in_chunks(self._part(transformed), self.feedforward_chunk, rows, attended)

    def _feedforward(self, rows: Tensor) -> Tensor:
        """``W_2 dropout(activation(W_1 x))`` (Vaswani et al. 2017, eq. 2)."""
        hidden = self.linear1(rows)
        if self.activation == "relu" and isinstance(self.dropout, Dropout):
            return self.linear2(self.dropout(hidden, relu=True))
        return self.linear2(self.dropout(ACTIVATIONS[self.activation](hidden)))

    def _part(self, function: Callable[P, R]) -> Callable[P, R]:
        """A part of the layer whose activations are kept, or computed again in the backward pass."""
        return recomputed(function) if self.activation_checkpointing else function


@fx_leaf
class TransformerEncoderLayer(TransformerLayer):
    """Self-attention and a feedforward network (Vaswani et al. 2017, section 3.1).

    With a causal mask it is the layer of a language model. Its parameters have the names and shapes of those of
    `torch.nn.TransformerEncoderLayer`, if ``attention`` has no grouped heads, positions or weights of a score.

    Args:
        attention: the self-attention, with its heads, score, normalizer and position.
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

    def forward(self, input: Tensor, lengths: Tensor | None = None, mask: Mask | None = None) -> Tensor:
        """Run the layer on a padded batch.

        Args:
            input: ``[batch, length, dim]``.
            lengths: integers ``[batch]``, tokens of each sequence; None: all. Padding is not computed: it gives 0.
            mask: who may see whom, besides ``lengths``.
        """
        packing = packing_of(input, lengths)
        visible = without_padding(mask, packing, lengths)
        return packing.pad(self.run(packing.pack(input), packing, visible).rows)

    def run(self, rows: Tensor, packing: Packing, mask: Mask | None, cache: KeyValueCache | None = None) -> EncoderRows:
        """Run the layer on packed rows.

        Args:
            rows: ``[tokens, dim]``.
            packing: where the tokens are.
            mask: who may see whom, padding included.
            cache: keys and values of earlier tokens, which are attended to as well.
        """
        attended = self._part(self._attend_to_self)(rows, packing, mask, cache)
        return EncoderRows(self._transform(rows, attended.rows, self.norm1, self.norm2), attended.cache)


@fx_leaf
class TransformerDecoderLayer(TransformerLayer):
    """Self-attention, attention to an encoder's output, and a feedforward network (Vaswani et al. 2017, section 3.1).

    Its parameters have the names and shapes of those of `torch.nn.TransformerDecoderLayer`, if the attentions have no
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
    ) -> Tensor:
        """Run the layer on a padded batch.

        Args:
            input: ``[batch, target, dim]``.
            memory: the encoder's output, ``[batch, source, dim]``.
            lengths: integers ``[batch]``, tokens of each target; None: all. Padding is not computed: it gives 0.
            memory_lengths: integers ``[batch]``, tokens of each source; None: all.
            mask: which target tokens each target token may see, besides ``lengths``; `regard.masks.causal` for a
                decoder that predicts the next token.
        """
        packing = packing_of(input, lengths)
        source = packing_of(memory, memory_lengths)
        remembered = self.remember(source.pack(memory), source, memory_lengths)
        visible = without_padding(mask, packing, lengths)
        return packing.pad(self.run(packing.pack(input), packing, remembered, visible).rows)

    def remember(self, rows: Tensor, packing: Packing, lengths: Tensor | None) -> KeyValues:
        """The keys and values of an encoder's output, for `run`.

        Args:
            rows: the encoder's output, ``[source tokens, dim]``.
            packing: where the source tokens are.
            lengths: ``int64 [batch]``, tokens of each source; None: all.
        """
        attention = self.multihead_attn
        products = attention.memory_products(rows, rows)
        key, value = _padded_heads(attention, products, attention.widths[1:], packing)
        seen = lengths if packing.has_padding else None
        return KeyValues(attention.rotate(key), value, seen, PackedProducts(products, packing))

    def run(
        self,
        rows: Tensor,
        packing: Packing,
        memory: KeyValues,
        mask: Mask | None,
        cache: KeyValueCache | None = None,
        need_weights: bool = False,
    ) -> DecoderRows:
        """Run the layer on packed rows.

        Args:
            rows: ``[tokens, dim]``.
            packing: where the tokens are.
            memory: what `remember` gave.
            mask: which target tokens each target token may see, padding included.
            cache: keys and values of earlier target tokens, which are attended to as well.
            need_weights: whether to give the weights of the attention to the encoder's output; the rows are the same,
                bit for bit.
        """
        attended = self._part(self._attend_to_self)(rows, packing, mask, cache)
        rows = self._part(self._after)(rows, attended.rows, self.norm1)
        crossed, weights = self._part(self._attend_to_memory)(rows, packing, memory, need_weights)
        return DecoderRows(self._transform(rows, crossed, self.norm2, self.norm3), attended.cache, weights)

    def _attend_to_memory(
        self, rows: Tensor, packing: Packing, memory: KeyValues, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        attention, rows = self.multihead_attn, self._before(rows, self.norm2)
        projected = attention.project_query(rows)
        if memory.packed is not None:
            products = projected, *memory.packed.products
            found = attend_packed(attention, products, packing, memory.packed.packing, memory.mask, need_weights)
            if found is not None:
                return attention.out_proj(found.rows), found.weights
        query = attention.rotate(attention.split(packing.pad(projected)))
        attended = attention.attend_heads(
            query, memory.key, memory.value, masks=[memory.mask], need_weights=need_weights
        )
        return attention.out_proj(packing.pack(attention.join(attended.output))), attended.weights


def _padded_heads(
    attention: MultiheadAttention, products: Sequence[Tensor], widths: Sequence[int], packing: Packing
) -> Iterator[Tensor]:
    """The heads of the parts that projections of packed rows have side by side."""
    # Whole products are padded: these are fewer than their parts.
    for part in side_by_side([packing.pad(product) for product in products], widths):
        yield attention.split(part)
