"""The layers of a Transformer: self-attention, attention to an encoder's output, and a feedforward network."""

import copy
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard import masks, scores
from regard.attention.execution import joined_calls
from regard.attention.problem import check_dropout
from regard.attention.verbs import BackendName, Normalizing
from regard.biases import Bias
from regard.errors import ArgumentError, KindError, ShapeError
from regard.foreign_names import written_in_layers
from regard.masks import Mask
from regard.module_calls import Module, runs
from regard.nn.attention_names import AttentionName
from regard.nn.fx_leaf import fx_leaf
from regard.nn.key_values import EncoderOutput, KeyValueCache, KeyValues, SequenceCache
from regard.nn.layer_inputs import Biasing, Masking, TorchMask, batch_first_input, output_like, read_pairs
from regard.nn.multihead import FORWARD as ATTENTION
from regard.nn.multihead import MultiheadAttention, is_called_in_parts
from regard.nn.named_positions import Position, position_for
from regard.nn.packing import Packing, lengths_beside, packing_of, without_padding
from regard.nn.recomputation import in_chunks, recomputed
from regard.nn.replaced_attention import call_replaced, torch_masks
from regard.nn.row_attention import (
    DecoderRows,
    EncoderRows,
    MemoryAttentionCall,
    SelfAttentionCall,
    attend_to_memory,
    attend_to_rows,
    key_values,
)
from regard.nn.sequence_attention import SequenceAttention, self_attention
from regard.nn.torch_inputs import without_padding as without_hidden
from regard.sequence_parts import refuse_parts
from regard.shapes import Grid, check_arguments, check_factory, flag, kind_of, known_name, positive_number, size

P = ParamSpec("P")
R = TypeVar("R")
LayerScoring = scores.Scoring | scores.ContentScoreName
"""A score, its name (that of location needs a number of keys), or a function of queries and keys."""
Activation = str | Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}
NormName = Literal["layer", "rms"]
NORMS: dict[NormName, type[nn.Module]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}
LAYER_SCORES = get_args(scores.ContentScoreName)
"""Scores of layers: all except those of location, which need a number of keys."""


class LayerOptions(TypedDict, total=False):
    """The options of layers that PyTorch's layers do not have; `TransformerEncoderLayer` describes them."""

    score: LayerScoring
    normalizer: Normalizing
    position: Position | None
    bidirectional: bool | None
    kv_heads: int | None
    attention: AttentionName | SequenceAttention
    depth: int
    norm: NormName
    backend: BackendName
    feedforward_chunk: int
    activation_checkpointing: bool


WANTED_WEIGHTS: ContextVar[list[Tensor] | None] = ContextVar("WANTED_WEIGHTS", default=None)
"""A list that collects the weights of the attention to the encoder's output from a layer inside another module."""


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

    cache: SequenceCache | None = None
    memory: KeyValues | EncoderOutput | None = None
    padded: Tensor | None = None
    need_weights: bool = False
    weights: Tensor | None = None


def new_norm(kind: NormName, features: int, eps: float, bias: bool, device: Any = None, dtype: Any = None) -> nn.Module:
    """Creates a normalization of rows: ``layer`` (Ba et al. 2016), or ``rms``, which has no bias (Zhang and Sennrich
    2019)."""
    known_name("norm", kind, NORMS)
    if kind == "rms":
        return nn.RMSNorm(features, eps=eps, device=device, dtype=dtype)
    return nn.LayerNorm(features, eps=eps, bias=bias, device=device, dtype=dtype)


def activation_for(activation: Activation) -> Callable[[Tensor], Tensor]:
    """Returns the function of this name, or a function or a module as it is.

    Raises:
        KindError, UnknownNameError: it cannot be called with a tensor, or the name is unknown.
    """
    if isinstance(activation, str):
        return ACTIVATIONS[known_name("activation", activation, ACTIVATIONS)]
    if not callable(activation):
        names = ", ".join(ACTIVATIONS)
        raise KindError(f"activation must be a name ({names}) or a function; it is {kind_of(activation)}")
    check_arguments("activation", activation, 1)
    return activation


def _other_normalizer(normalizer: Normalizing) -> Normalizing:
    """Returns the normalizer of a layer's second attention, with parameters of its own; generators stay shared."""
    if not isinstance(normalizer, nn.Module) or next(normalizer.parameters(), None) is None:
        return normalizer
    values = (value for module in normalizer.modules() for value in vars(module).values())
    return copy.deepcopy(normalizer, {id(value): value for value in values if isinstance(value, torch.Generator)})


class TransformerLayer(Module):
    """The parts that encoder and decoder layers share, and their constructor.

    Each part has a residual connection, dropout and a normalization: after the sum (post-norm, Vaswani et al. 2017,
    section 3.1) or before the part (pre-norm, Xiong et al. 2020).

    Args: as for `TransformerEncoderLayer`.
    """

    _reads_memory = False

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        score: LayerScoring = "scaled_dot",
        normalizer: Normalizing = "softmax",
        position: Position | None = None,
        bidirectional: bool | None = None,
        kv_heads: int | None = None,
        attention: AttentionName | SequenceAttention = "multihead",
        depth: int = 0,
        norm: NormName = "layer",
        backend: BackendName = "auto",
        feedforward_chunk: int = 0,
        activation_checkpointing: bool = False,
    ):
        super().__init__()
        for name, value in (("d_model", d_model), ("nhead", nhead), ("dim_feedforward", dim_feedforward)):
            size(name, value)
        if d_model % nhead:
            raise ArgumentError(f"nhead must divide d_model; nhead is {nhead} and d_model is {d_model}")
        size("feedforward_chunk", feedforward_chunk, low=0)
        size("depth", depth, low=0)
        for name, value in (
            ("batch_first", batch_first), ("norm_first", norm_first), ("bias", bias),
            ("activation_checkpointing", activation_checkpointing),
        ):  # fmt: skip
            flag(name, value)
        if bidirectional is not None:
            flag("bidirectional", bidirectional)
        rate, eps = check_dropout(dropout), positive_number("layer_norm_eps", layer_norm_eps)
        check_factory(device, dtype)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        head_dim = d_model // nhead

        def multihead(
            position: Position | None, score: LayerScoring, normalizer: Normalizing = normalizer
        ) -> MultiheadAttention:
            if not callable(score):
                known_name("score", score, LAYER_SCORES, written_in_layers(score))
                score = scores.create(score, head_dim, head_dim).to(**factory)
            return MultiheadAttention(
                d_model, nhead, rate, bias, batch_first=batch_first, **factory, score=score, normalizer=normalizer,
                kv_heads=kv_heads, position=position, backend=backend,
            )  # fmt: skip

        # The order of the parts is PyTorch's, for states of optimizers and for the initial values of a seed.
        is_bidirectional = not self._reads_memory if bidirectional is None else bidirectional
        self.self_attn: MultiheadAttention | SequenceAttention
        if attention == "multihead":
            self.self_attn = multihead(position_for(position, nhead, head_dim, is_bidirectional, **factory), score)
        else:
            self.self_attn = self_attention(
                attention, d_model, nhead, ("score", "normalizer", "kv_heads", "backend") if self._reads_memory else (),
                dropout=rate, bias=bias, score=score, normalizer=normalizer, kv_heads=kv_heads, position=position,
                bidirectional=is_bidirectional, backend=backend, depth=depth, **factory,
            )  # fmt: skip
        if self._reads_memory:
            self.multihead_attn = multihead(
                None, copy.deepcopy(score) if callable(score) else score, _other_normalizer(normalizer)
            )
            if self.multihead_attn.normalizer.couples == "queries":
                raise ArgumentError(
                    f"with the normalizer {type(self.multihead_attn.normalizer).__name__} each weight of a token "
                    "depends on later tokens, which a decoder's layer must not see"
                )
        self.linear1 = nn.Linear(d_model, dim_feedforward, bias=bias, **factory)
        self.dropout = nn.Dropout(rate)
        self.linear2 = nn.Linear(dim_feedforward, d_model, bias=bias, **factory)
        self.norm_first = norm_first
        self.norm1 = new_norm(norm, d_model, eps, bias, **factory)
        self.norm2 = new_norm(norm, d_model, eps, bias, **factory)
        if self._reads_memory:
            self.norm3 = new_norm(norm, d_model, eps, bias, **factory)
        self.dropout1 = nn.Dropout(rate)
        self.dropout2 = nn.Dropout(rate)
        if self._reads_memory:
            self.dropout3 = nn.Dropout(rate)
        self.activation = activation_for(activation)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        self.feedforward_chunk = feedforward_chunk
        self.activation_checkpointing = activation_checkpointing

    def new_cache(self) -> SequenceCache:
        """Returns the cache of the self-attention before the first token."""
        attention = self.self_attn
        return attention.new_cache() if isinstance(attention, SequenceAttention) else KeyValueCache()

    def extra_repr(self) -> str:
        # A module in place of the first layer of the feedforward network may not tell its units.
        width = getattr(self.linear1, "out_features", None)
        units = "" if width is None else f"dim_feedforward={width}, "
        return (
            f"d_model={self.d_model}, nhead={self.nhead}, {units}"
            f"batch_first={self.batch_first}, norm_first={self.norm_first}"
        )

    def _before(self, rows: Tensor, norm: nn.Module) -> Tensor:
        return norm(rows) if self.norm_first else rows

    def _after(self, rows: Tensor, output: Tensor, dropout: nn.Module, norm: nn.Module) -> Tensor:
        """Adds the output of a part to its input, which gives the input of the next part."""
        total = rows + dropout(output)
        return total if self.norm_first else norm(total)

    def _attend_to_self(
        self, rows: Tensor, packing: Packing, mask: Mask | None, bias: Bias | None, cache: SequenceCache | None
    ) -> EncoderRows:
        """Computes the self-attention of the input of a layer."""
        if cache is not None:
            refuse_parts("a cache of the tokens so far")
        attention, rows = self.self_attn, self._before(rows, self.norm1)
        if isinstance(attention, SequenceAttention):
            with joined_calls():
                attended = attention(packing.pad(rows), mask=mask, bias=bias, cache=cache)
            return EncoderRows(packing.pack(attended.output), attended.cache)
        cache = cast(KeyValueCache | None, cache)
        if is_called_in_parts(attention):
            products = attention.products(rows, rows, rows)
            attended, cache, _ = attend_to_rows(attention, products, packing, mask, bias, cache)
            return EncoderRows(attended, cache)
        padded = packing.pad(rows)
        if not runs(attention, ATTENTION):
            source = padded
            if cache is not None:
                # The module's keys and values are unknown, so the cache holds its inputs and it gets all of them again.
                cache = cache.appended(padded[:, None], padded[:, None, :, :0])
                source = cache.key[:, 0]
            arguments = torch_masks(mask, _grid(padded, source, self.nhead), packing, bias, padded)
            output, _ = call_replaced(attention, padded, source, arguments, self.batch_first)
            return EncoderRows(packing.pack(output), cache)
        call = SelfAttentionCall(packing, cache)
        input = padded if attention.batch_first else padded.transpose(0, 1)
        output, _ = attention(input, input, input, need_weights=False, mask=mask, bias=bias, packed=call)
        if cache is not None and call.cache is cache:
            raise ArgumentError("a hook on self_attn passed masks of PyTorch, which attention with a cache cannot use")
        return EncoderRows(packing.pack(output if attention.batch_first else output.transpose(0, 1)), call.cache)

    def _transform(self, rows: Tensor, attended: Tensor, last: tuple[nn.Module, nn.Module], norm: nn.Module) -> Tensor:
        """Adds the output of the last attention to its input, and applies the feedforward network.

        Args:
            rows: the input of the last attention.
            attended: its output.
            last: the dropout and the normalization of the last attention.
            norm: the normalization of the feedforward network.
        """
        dropout = self.dropout3 if self._reads_memory else self.dropout2

        def transform(rows: Tensor, attended: Tensor) -> Tensor:
            rows = self._after(rows, attended, *last)
            return self._after(rows, self._feedforward(self._before(rows, norm)), dropout, norm)

        return in_chunks(self._part(transform), self.feedforward_chunk, rows, attended)

    def _feedforward(self, rows: Tensor) -> Tensor:
        """``W_2 dropout(activation(W_1 x))`` (Vaswani et al. 2017, eq. 2)."""
        return self.linear2(self.dropout(self.activation(self.linear1(rows))))

    def _part(self, function: Callable[P, R]) -> Callable[P, R]:
        """Adds activation checkpointing to a part of the layer if it is switched on."""
        return recomputed(function) if self.activation_checkpointing else function


@fx_leaf
class TransformerEncoderLayer(TransformerLayer):
    """Self-attention and a feedforward network: `torch.nn.TransformerEncoderLayer` with any score and position.

    .. math::

        x ← norm1(x + self_attn(x))
        x ← norm2(x + linear2(activation(linear1(x))))

    Vaswani et al. 2017, section 3.1 and eq. 2; ``norm_first`` normalizes the input of each part instead. With a causal
    mask it is the layer of a language model. Constructor, arguments of the call, parameters, their order, and their
    initial values for a seed are PyTorch's, so that states of modules and of optimizers can be loaded from one into the
    other, unless there are grouped heads, or weights of a score or of a position. The differences:

    - A query that may see no key gets no values instead of NaN.
    - ``is_causal=True`` needs no mask. With a mask it is only a hint, as in PyTorch.
    - ``lengths`` are the faster form of padding: projections and the feedforward network skip it, and its outputs are
      0. With ``src_key_padding_mask`` its outputs are computed, as PyTorch does in training.

    Two conventions of masks, which `regard.nn.layer_inputs` lists::

        layer(x, src_mask=torch.ones(5, 5).triu(1).bool())   # PyTorch's names: True hides
        layer(x, mask=torch.ones(5, 5).tril().bool())        # regard's: True may attend
        layer(x, mask="causal")                              # a Mask or a name has no convention

    Args:
        d_model: features of a token.
        nhead: query heads, a divisor of ``d_model``.
        dim_feedforward: units of the hidden layer of the feedforward network.
        dropout: rate after each part, in the feedforward network, and of attention weights; in [0, 1).
        activation: ``relu``, ``gelu``, ``silu``, or a function or module that maps a tensor to one of its shape.
        layer_norm_eps: ε of the normalizations.
        batch_first: ``[batch, length, d_model]`` instead of ``[length, batch, d_model]``.
        norm_first: normalization before each part (Xiong et al. 2020) instead of after the sum.
        bias: whether projections and normalizations have biases.
        device, dtype: device and dtype of the parameters.
        score: a name of `regard.scores.create`, of which each attention has its own weights, a `Score` or a function.
        normalizer: a name, a `Normalizer` or a function.
        position: positions in self-attention: ``rotary``, ``alibi``, ``t5``, ``shaw``, a `Rotary` or a `Bias`.
        bidirectional: whether tokens may see later ones; if False, ``t5`` has buckets for earlier ones only. Default:
            True in an encoder layer, False in a decoder layer.
        kv_heads: key and value heads, a divisor of ``nhead``; None: as many as ``nhead``.
        attention: the self-attention: ``multihead``, another name of `regard.nn.attention_names`, which takes of the
            options those that it has, or a `SequenceAttention`, which has its own.
        depth: number of the layer in its stack, from 0, for an attention whose first values depend on it.
        norm: ``layer``, or ``rms``, which has no bias.
        backend: backend of every attention.
        feedforward_chunk: as in `LayerConfig`.
        activation_checkpointing: as in `LayerConfig`.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> theirs = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
        >>> layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
        >>> layer.load_state_dict(theirs.state_dict())
        <All keys matched successfully>
        >>> tokens, hidden = torch.randn(2, 5, 32), torch.ones(5, 5).triu(1).bool()
        >>> torch.allclose(layer(tokens, mask="causal"), theirs(tokens, src_mask=hidden), atol=1e-5)
        True
        >>> sparse = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, normalizer="entmax15", position="rotary")
        >>> sparse(tokens, lengths=torch.tensor([5, 3])).shape
        torch.Size([2, 5, 32])
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Masking | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        mask: Masking | None = None,
        bias: Biasing | None = None,
        lengths: Tensor | None = None,
        call: LayerCall | None = None,
    ) -> Tensor:
        """Runs the layer on a padded batch.

        Args:
            src: ``[length, batch, d_model]``; ``[batch, length, d_model]`` with ``batch_first``; unbatched
                ``[length, d_model]``.
            src_mask: PyTorch's mask, ``[length, length]`` or ``[batch * nhead, length, length]``: bool (**True hides**)
                or float (added to the scores); or a `Mask`.
            src_key_padding_mask: ``[batch, length]``, or ``[length]`` if unbatched: bool (**True hides**) or float.
            is_causal: without ``src_mask``: later tokens are hidden.
            mask: regard's mask: a `Mask`, ``"causal"``, or a bool tensor (**True: may attend**) that broadcasts to
                ``[batch, nhead, length, length]``. All masks apply together.
            bias: added to the scores: a tensor, a `Bias`, or ``"alibi"``.
            lengths: integers ``[batch]``, number of tokens of each sequence; None: no padding. Outputs of padding are 0
                and are not computed.
            call: inputs and outputs of a stack that decodes with a cache.

        Returns:
            A tensor in the layout of ``src``.

        Raises:
            ShapeError, KindError, UnknownNameError: an input or a mask is invalid; the message names it.
        """
        input = batch_first_input("src", src, self.d_model, self.batch_first)
        packing, call = packing_of(input, lengths), LayerCall() if call is None else call
        lengths = lengths_beside(input, lengths)
        hidden = TorchMask("src_mask", src_mask, src_key_padding_mask, is_causal)
        visible, added = read_pairs(hidden, mask, bias, self.nhead, input, input.shape[1], src.dim() == 3)
        visible = without_padding(visible, packing, lengths)
        rows, call.cache = self.run(packing.pack(input), packing, visible, call.cache, bias=added)
        return output_like(src, packing.pad(rows), self.batch_first)

    def run(
        self,
        rows: Tensor,
        packing: Packing,
        mask: Mask | None,
        cache: SequenceCache | None = None,
        *,
        bias: Bias | None = None,
    ) -> EncoderRows:
        """Runs the layer on packed rows.

        Args:
            rows: ``[tokens, d_model]``.
            packing: the packing of the rows.
            mask: the mask, which also hides padding.
            cache: keys and values of earlier tokens, which are attended to as well.
            bias: added to the scores.

        Returns:
            The rows, ``[tokens, d_model]``, and the cache with the new tokens; None if there was none.
        """
        attended = self._part(self._attend_to_self)(rows, packing, mask, bias, cache)
        last = self.dropout1, self.norm1
        return EncoderRows(self._transform(rows, attended.rows, last, self.norm2), attended.cache)


@fx_leaf
class TransformerDecoderLayer(TransformerLayer):
    """Self-attention, attention to an encoder's output, and a feedforward network: `torch.nn.TransformerDecoderLayer`
    with any score and position.

    .. math::

        x ← norm1(x + self_attn(x))
        x ← norm2(x + multihead_attn(x, memory))
        x ← norm3(x + linear2(activation(linear1(x))))

    Vaswani et al. 2017, section 3.1 and eq. 2; ``norm_first`` normalizes the input of each part instead. What
    `TransformerEncoderLayer` says of PyTorch, of masks and of padding holds here too. ``memory_mask`` has PyTorch's
    convention; a `Mask` says itself who sees whom::

        layer(x, memory, memory_mask=hidden)                        # a bool tensor: True hides
        layer(x, memory, memory_mask=masks.keep(visible))           # True may attend
        layer(x, memory, mask="causal", memory_lengths=lengths)     # mask: of self-attention, in regard's convention

    Args: as for `TransformerEncoderLayer`. The position belongs to self-attention alone.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> layer = nn.TransformerDecoderLayer(32, 4, 64, batch_first=True, position="alibi").eval()
        >>> target, memory = torch.randn(2, 5, 32), torch.randn(2, 7, 32)
        >>> output = layer(target, memory, mask="causal", memory_lengths=torch.tensor([7, 3]))
        >>> output.shape
        torch.Size([2, 5, 32])
        >>> alone = layer(target[1:], memory[1:, :3], mask="causal")
        >>> torch.allclose(output[1], alone[0], atol=1e-5)  # the second source has 3 tokens
        True
    """

    _reads_memory = True

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Masking | None = None,
        memory_mask: Masking | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
        *,
        mask: Masking | None = None,
        bias: Biasing | None = None,
        memory_bias: Biasing | None = None,
        lengths: Tensor | None = None,
        memory_lengths: Tensor | None = None,
        call: LayerCall | None = None,
    ) -> Tensor:
        """Runs the layer on a padded batch.

        Args:
            tgt: ``[target, batch, d_model]``; ``[batch, target, d_model]`` with ``batch_first``; unbatched
                ``[target, d_model]``.
            memory: the encoder's output, in the layout of ``tgt``.
            tgt_mask: PyTorch's mask of self-attention, ``[target, target]`` or ``[batch * nhead, target, target]``:
                bool (**True hides**) or float (added to the scores); or a `Mask`.
            memory_mask: the same for the attention to the memory, over ``[target, source]``.
            tgt_key_padding_mask: ``[batch, target]``, or ``[target]`` if unbatched: bool (**True hides**) or float.
            memory_key_padding_mask: ``[batch, source]``, or ``[source]`` if unbatched.
            tgt_is_causal: without ``tgt_mask``: later tokens are hidden.
            memory_is_causal: without ``memory_mask``: the last token sees the whole memory, each earlier one a key
                less.
            mask: regard's mask of self-attention: a `Mask`, ``"causal"``, or a bool tensor (**True: may attend**) that
                broadcasts to ``[batch, nhead, target, target]``. All masks apply together.
            bias: added to the scores of self-attention: a tensor, a `Bias`, or ``"alibi"``.
            memory_bias: added to the scores of the attention to the memory.
            lengths: integers ``[batch]``, number of tokens of each target; None: no padding. Outputs of padding are 0
                and are not computed.
            memory_lengths: integers ``[batch]``, number of tokens of each source; None: no padding.
            call: inputs and outputs of a stack that decodes with a cache, has projected the memory, or needs weights.

        Returns:
            A tensor in the layout of ``tgt``.

        Raises:
            ShapeError, KindError, UnknownNameError: an input or a mask is invalid; the message names it.
        """
        input = batch_first_input("tgt", tgt, self.d_model, self.batch_first)
        source_input = memory_like(memory, tgt, input, self.batch_first)
        packing, call = packing_of(input, lengths), LayerCall() if call is None else call
        lengths = lengths_beside(input, lengths)
        collected = None if torch.compiler.is_compiling() else WANTED_WEIGHTS.get()
        own = TorchMask("tgt_mask", tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        crossed = TorchMask("memory_mask", memory_mask, memory_key_padding_mask, memory_is_causal)
        is_batched, keys = tgt.dim() == 3, source_input.shape[1]
        visible, added = read_pairs(own, mask, bias, self.nhead, input, input.shape[1], is_batched)
        over_memory = read_pairs(crossed, None, memory_bias, self.nhead, input, keys, is_batched)
        remembered = call.memory
        if remembered is None or memory is not call.padded:
            # A stack passes the projected memory, but a hook may have replaced the tensor.
            source_input, _ = without_hidden(input, source_input, source_input, memory_key_padding_mask, True)
            source = packing_of(source_input, memory_lengths)
            memory_lengths = lengths_beside(source_input, memory_lengths)
            remembered = EncoderOutput(source.pack(source_input), source, memory_lengths)
        rows, call.cache, call.weights = self.run(
            packing.pack(input),
            packing,
            remembered,
            without_padding(visible, packing, lengths),
            call.cache,
            call.need_weights or collected is not None,
            bias=added,
            memory_mask=over_memory.mask,
            memory_bias=over_memory.bias,
        )
        if collected is not None and call.weights is not None:
            collected.append(call.weights)
        return output_like(tgt, packing.pad(rows), self.batch_first)

    def remember(self, rows: Tensor, packing: Packing, lengths: Tensor | None) -> KeyValues:
        """Returns the keys and values of an encoder's output, for `run`.

        Args:
            rows: the encoder's output, ``[source tokens, d_model]``.
            packing: the packing of these rows.
            lengths: ``int64 [batch]``, number of tokens of each source; None: no padding.
        """
        products = self.multihead_attn.memory_products(rows, rows)
        return key_values(self.multihead_attn, products, packing, lengths, EncoderOutput(rows, packing, lengths))

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
        cache: SequenceCache | None = None,
        need_weights: bool = False,
        *,
        bias: Bias | None = None,
        memory_mask: Mask | None = None,
        memory_bias: Bias | None = None,
    ) -> DecoderRows:
        """Runs the layer on packed rows.

        Args:
            rows: ``[tokens, d_model]``.
            packing: the packing of the rows.
            memory: the result of `remember`, or the encoder's output itself.
            mask: the mask of the targets' self-attention, which also hides padding.
            cache: keys and values of earlier target tokens, which are attended to as well.
            need_weights: whether to return the weights of the attention to the encoder's output; the rows are the same,
                bit for bit.
            bias: added to the scores of self-attention.
            memory_mask: a mask of the attention to the encoder's output, besides its padding.
            memory_bias: added to the scores of the attention to the encoder's output.

        Returns:
            The rows, ``[tokens, d_model]``, the cache with the new tokens, and the weights, each None if there is none.
        """
        attended = self._part(self._attend_to_self)(rows, packing, mask, bias, cache)
        rows = self._part(self._after)(rows, attended.rows, self.dropout1, self.norm1)
        if is_called_in_parts(self.multihead_attn):
            memory = self.project(memory)
        crossed, weights = self._part(self._attend_to_memory)(
            rows, packing, memory, need_weights, memory_mask, memory_bias
        )
        last = self.dropout2, self.norm2
        return DecoderRows(self._transform(rows, crossed, last, self.norm3), attended.cache, weights)

    def _attend_to_memory(
        self,
        rows: Tensor,
        packing: Packing,
        memory: KeyValues | EncoderOutput,
        need_weights: bool,
        mask: Mask | None,
        bias: Bias | None,
    ) -> tuple[Tensor, Tensor | None]:
        attention, rows = self.multihead_attn, self._before(rows, self.norm2)
        if is_called_in_parts(attention):
            projected = self.project(memory)
            visible = _both(projected.mask, mask)
            return attend_to_memory(attention, rows, packing, projected, visible, bias, need_weights)
        source = memory if isinstance(memory, EncoderOutput) else memory.source
        if source is None:
            raise ArgumentError(
                "memory must come from `remember` for a layer whose multihead_attn is called as a module"
            )
        padded, remembered, lengths = packing.pad(rows), source.padded, source.selected_lengths
        keys = packing_of(remembered, lengths)
        visible = _both(masks.lengths(lengths) if lengths is not None and keys.has_padding else None, mask)
        if not runs(attention, ATTENTION):
            arguments = torch_masks(visible, _grid(padded, remembered, self.nhead), keys, bias, padded)
            output, weights = call_replaced(attention, padded, remembered, arguments, self.batch_first, need_weights)
            return packing.pack(output), weights
        query, key = (x if attention.batch_first else x.transpose(0, 1) for x in (padded, remembered))
        call = MemoryAttentionCall(self.project, packing, memory, key, keys)
        output, weights = attention(
            query, key, key, need_weights=need_weights, average_attn_weights=False, mask=visible, bias=bias, packed=call
        )
        return packing.pack(output if attention.batch_first else output.transpose(0, 1)), weights


def memory_like(memory: Tensor, tgt: Tensor, input: Tensor, batch_first: bool) -> Tensor:
    """Returns the memory of a decoder as ``[batch, source, features]``; raises unless it fits the target.

    Args:
        memory: in the layout of ``tgt``.
        tgt: the input of the decoder.
        input: the same as ``[batch, target, features]``.
        batch_first: the layout of the decoder.
    """
    source = batch_first_input("memory", memory, None, batch_first)
    if memory.dim() != tgt.dim():
        raise ShapeError(f"memory must have as many axes as tgt, {tgt.dim()}; it has shape {list(memory.shape)}")
    if source.shape[0] != input.shape[0]:
        raise ShapeError(f"memory must have tgt's batch, {input.shape[0]}; it has shape {list(memory.shape)}")
    return source


def _both(first: Mask | None, second: Mask | None) -> Mask | None:
    return first if second is None else second if first is None else first & second


def _grid(query: Tensor, key: Tensor, heads: int) -> Grid:
    """Returns the grid of the attention of ``[batch, queries, dim]`` to ``[batch, keys, dim]``."""
    return Grid.whole(query.shape[0], heads, query.shape[1], key.shape[1], query.device)


ENCODER_LAYER, DECODER_LAYER = TransformerEncoderLayer.forward, TransformerDecoderLayer.forward
"""The methods as defined here, even if they are replaced later."""
