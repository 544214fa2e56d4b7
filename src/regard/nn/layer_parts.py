"""The parts and options that all layers of a Transformer share, and the decision how a batch runs.

A batch runs on packed rows, or padded by plain calls of plain modules where a part is seen or replaced, or where
rows cannot be chosen (`packings`). Everything else is written once for both forms.
"""

import copy
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, ParamSpec, TypedDict, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard import scores
from regard.attention.execution import joined_calls
from regard.attention.problem import check_dropout
from regard.attention.verbs import BackendName, Normalizing
from regard.biases import Bias
from regard.distributed.sequence_parts import are_parts, refuse_parts
from regard.errors import ArgumentError, KindError
from regard.masks import Mask
from regard.names.foreign_names import written_in_layers
from regard.nn.attention_names import AttentionName
from regard.nn.key_values import KeyValueCache, SequenceCache, checked_cache
from regard.nn.layer_inputs import as_torch_masks, in_layout
from regard.nn.multihead import FORWARD, MultiheadAttention
from regard.nn.multihead import is_plain as is_plain_attention
from regard.nn.named_positions import Position, position_for
from regard.nn.packing import Packing, check_lengths, may_read
from regard.nn.recomputation import in_chunks, recomputed
from regard.nn.sequence_attention import SequenceAttention, self_attention
from regard.shapes.checks import check_arguments, check_factory, flag, known_name, positive_number, size, type_text
from regard.tracing.module_calls import Module, has_foreign_global_hooks, is_observed, is_plain_part, runs

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


def new_norm(kind: NormName, features: int, eps: float, bias: bool, device: Any = None, dtype: Any = None) -> nn.Module:
    """Creates a normalization of rows: ``layer`` (Ba et al. 2016), or ``rms``, which has no bias (Zhang and Sennrich
    2019)."""
    known_name("norm", kind, NORMS)
    if kind == "rms":
        return nn.RMSNorm(features, eps=eps, device=device, dtype=dtype)
    return nn.LayerNorm(features, eps=eps, bias=bias, device=device, dtype=dtype)


def activation_for(activation: Activation) -> Callable[[Tensor], Tensor]:
    """Returns the function of this name, or a function or a module as it is. Raises KindError if it cannot be called
    with a tensor, and UnknownNameError for an unknown name."""
    if isinstance(activation, str):
        return ACTIVATIONS[known_name("activation", activation, ACTIVATIONS)]
    if not callable(activation):
        names = ", ".join(ACTIVATIONS)
        raise KindError(f"activation must be a name ({names}) or a function; it is {type_text(activation)}")
    check_arguments("activation", activation, 1)
    return activation


def _other_normalizer(normalizer: Normalizing) -> Normalizing:
    """Returns the normalizer of a layer's second attention, with parameters of its own; generators stay shared."""
    if not isinstance(normalizer, nn.Module) or next(normalizer.parameters(), None) is None:
        return normalizer
    values = (value for module in normalizer.modules() for value in vars(module).values())
    return copy.deepcopy(normalizer, {id(value): value for value in values if isinstance(value, torch.Generator)})


def packings(stack: nn.Module, *batches: tuple[Tensor, Tensor | None]) -> list[Packing]:
    """Decides how a layer or a stack runs, and returns the packing of each of its batches, pairs of padded sequences
    ``[batch, length, dim]`` and their tokens (None: no padding).

    A padded batch runs on packed rows if no part of the stack is seen or replaced (`is_untouched`). Else, and without
    padding, on a device, under a compiler and under transforms, rows keep their axes, and parts are called as modules.
    """
    for padded, lengths in batches:
        check_lengths(padded, lengths)
    is_packed = any(lengths is not None for _, lengths in batches) and all(
        may_read(padded) and (lengths is None or may_read(lengths)) for padded, lengths in batches
    )
    if not is_packed or are_parts() or not is_untouched(stack):
        return [Packing.padded(padded, lengths) for padded, lengths in batches]
    return [
        Packing.full(*padded.shape[:2]) if lengths is None else Packing(lengths, padded.shape[1])
        for padded, lengths in batches
    ]


def is_untouched(stack: nn.Module) -> bool:
    """Whether no part of a layer or a stack is seen or replaced, by a hook, a wrapper, an override, a parametrization,
    an adapter, sharding, or compilation (contract 14)."""
    return not has_foreign_global_hooks() and all(map(_is_untouched, stack._modules.values()))


def _is_untouched(part: nn.Module | None) -> bool:
    if part is None or is_plain_part(part) or is_plain_attention(part):
        return True
    if type(part) is nn.ModuleList:
        return all(map(_is_untouched, part._modules.values()))
    if isinstance(part, SequenceAttention):
        return True  # it is called with padded sequences in both forms
    return is_own_layer(part) and all(map(_is_untouched, part._modules.values()))


def is_own_layer(layer: nn.Module) -> bool:
    """Whether a stack may run a layer by its method ``run``: its call does no more, and is neither seen nor changed."""
    return isinstance(layer, TransformerLayer) and runs(layer, type(layer).own_forward) and not is_observed(layer)


class AttendedRows(NamedTuple):
    """The output of self-attention or of an encoder's layer, ``[tokens, dim]``, and the cache with these tokens, if
    any."""

    rows: Tensor
    cache: SequenceCache | None


class TransformerLayer(Module):
    """The parts and the constructor that encoder and decoder layers share; arguments as `TransformerEncoderLayer`.

    Each part has a residual connection, dropout and a normalization: after the sum (post-norm, Vaswani et al. 2017,
    section 3.1) or before the part (pre-norm, Xiong et al. 2020).
    """

    _reads_memory = False
    own_forward: Callable[..., Tensor]
    """``forward`` as the class of regard defines it, even if it is replaced later."""

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
    ) -> AttendedRows:
        """Computes the self-attention of the input of a layer; arguments as for ``run``."""
        if cache is not None:
            refuse_parts("a cache of the tokens so far")
        attention, rows = self.self_attn, self._before(rows, self.norm1)
        if isinstance(attention, SequenceAttention):
            with joined_calls():
                attended = attention(packing.pad(rows), mask=packing.visible(mask), bias=bias, cache=cache)
            return AttendedRows(packing.pack(attended.output), attended.cache)
        if packing.is_joined or cache is not None:
            past = checked_cache(attention, cache, KeyValueCache)
            return AttendedRows(*attention.attend_to_rows(rows, packing, mask, bias, past))
        return AttendedRows(self._call(attention, rows, rows, packing, mask, bias)[0], None)

    def _call(
        self,
        attention: nn.Module,
        query: Tensor,
        key: Tensor,
        keys: Packing,
        mask: Mask | None,
        bias: Bias | None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Calls an attention as a module: this library's, or another one as layers of ``torch.nn`` call it.

        ``query`` and ``key``, also the value, are ``[batch, length, dim]``, one object for self-attention; ``mask`` and
        ``bias`` apply besides the padding in ``keys``. Weights are those of each head,
        ``[batch, heads, queries, keys]``.
        """
        arguments: dict[str, Any] = {"average_attn_weights": False} if need_weights else {}
        if runs(attention, FORWARD):
            arguments |= {"mask": keys.visible(mask), "bias": bias}
        else:
            refuse_parts(f"a {type(attention).__name__} in the place of a layer's attention")
            tensors = as_torch_masks(mask, bias, self.nhead, query, keys)
            arguments |= tensors._asdict() | {"is_causal": False}
        batch_first = getattr(attention, "batch_first", self.batch_first)
        same, query = key is query, in_layout(query, batch_first)
        key = query if same else in_layout(key, batch_first)
        result = attention(query, key, key, need_weights=need_weights, **arguments)
        output, weights = result if isinstance(result, tuple) else (result, None)
        if need_weights and weights is None:
            raise ArgumentError(
                f"the weights of the attention to the encoder's output are needed, but {type(attention).__name__}, "
                "which replaces multihead_attn, returned none with need_weights=True"
            )
        return in_layout(output, batch_first), weights if need_weights else None

    def _transform(self, rows: Tensor, attended: Tensor, last: tuple[nn.Module, nn.Module], norm: nn.Module) -> Tensor:
        """Adds the output of the last attention to its input, by its dropout and normalization ``last``, and applies
        the feedforward network, whose normalization is ``norm``."""
        dropout = self.dropout3 if self._reads_memory else self.dropout2

        def transform(rows: Tensor, attended: Tensor) -> Tensor:
            rows = self._after(rows, attended, *last)
            return self._after(rows, self._feedforward(self._before(rows, norm)), dropout, norm)

        return in_chunks(self._part(transform), self.feedforward_chunk, rows, attended)

    def _feedforward(self, rows: Tensor) -> Tensor:
        """Computes ``W_2 dropout(activation(W_1 x))`` (Vaswani et al. 2017, eq. 2)."""
        return self.linear2(self.dropout(self.activation(self.linear1(rows))))

    def _part(self, function: Callable[P, R]) -> Callable[P, R]:
        """Adds activation checkpointing to a part of the layer if it is switched on."""
        return recomputed(function) if self.activation_checkpointing else function
