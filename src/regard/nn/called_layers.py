"""Runs the layers of a stack: in parts, or as modules on padded tensors where their calls can be seen or changed."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from regard import masks
from regard.errors import ArgumentError
from regard.masks import Mask
from regard.module_calls import is_observed, runs
from regard.nn.key_values import EncoderOutput, KeyValueCache, KeyValues
from regard.nn.multihead import is_called_in_parts
from regard.nn.packing import Packing
from regard.nn.transformer_layers import (
    DECODER_LAYER,
    ENCODER_LAYER,
    WANTED_WEIGHTS,
    DecoderRows,
    EncoderRows,
    LayerCall,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)


class SelfArguments(NamedTuple):
    """Who sees whom in self-attention, for layers on packed rows and for layers that are called as modules.

    Attributes:
        packing: where the tokens are.
        visible: who may see whom, padding included.
        lengths: tokens of each sequence; None: all.
        mask: who may see whom, besides ``lengths``.
    """

    packing: Packing
    visible: Mask | None
    lengths: Tensor | None
    mask: Mask | None


class SourceArguments:
    """An encoder's output, for layers that are called as modules.

    Args:
        memory: what `TransformerDecoder.remember` gave.
        padded: the output, ``[batch, source, dim]``; None: that of ``memory``, which is padded when it is read.
    """

    def __init__(self, memory: Sequence[KeyValues | EncoderOutput], padded: Tensor | None = None):
        first = memory[0]
        self._output = first if isinstance(first, EncoderOutput) else first.source
        self._padded = padded

    @property
    def padded(self) -> Tensor:
        """``[batch, source, dim]``, the same object at each access."""
        if self._padded is None:
            self._padded = self._known.padded
        return self._padded

    @property
    def lengths(self) -> Tensor | None:
        """Tokens of each source; None: all."""
        return self._known.selected_lengths

    @property
    def _known(self) -> EncoderOutput:
        if self._output is None:
            raise ArgumentError("memory must be what `remember` gave, for a layer that is called as a module")
        return self._output


def run_encoder_layer(
    layer: TransformerEncoderLayer, rows: Tensor, arguments: SelfArguments, cache: KeyValueCache | None
) -> EncoderRows:
    """Run the layer on packed rows.

    Args:
        layer: a layer, or the module that replaces it.
        rows: ``[tokens, dim]``.
        arguments: who sees whom.
        cache: of the layer; of another module it holds its inputs, since its keys and values are not known.
    """
    packing, visible, lengths, mask = arguments
    if runs(layer, ENCODER_LAYER) and not is_observed(layer):
        return layer.run(rows, packing, visible, cache)
    padded = packing.pad(rows)
    if cache is None:
        return EncoderRows(packing.pack(layer(padded, lengths=lengths, mask=mask)), None)
    if runs(layer, ENCODER_LAYER):
        call = LayerCall(cache)
        output = layer(padded, lengths=lengths, mask=mask, call=call)
        return EncoderRows(packing.pack(output), call.cache)
    inputs, cache = _all_inputs(padded, cache)
    output = layer(inputs, lengths=None, mask=masks.causal())[:, -padded.shape[1] :]
    return EncoderRows(packing.pack(output), cache)


def run_decoder_layer(
    layer: TransformerDecoderLayer,
    rows: Tensor,
    arguments: SelfArguments,
    memory: KeyValues | EncoderOutput,
    source: SourceArguments,
    cache: KeyValueCache | None,
    need_weights: bool,
) -> DecoderRows:
    """Run the layer on packed rows.

    Args:
        layer: a layer, or the module that replaces it.
        rows: ``[tokens, dim]``.
        arguments: who sees whom among the target tokens.
        memory: what `remembered_by` gave.
        source: the same as an argument.
        cache: as in `run_encoder_layer`.
        need_weights: whether the weights of the attention to the encoder's output are wanted.

    Raises:
        ArgumentError: weights were requested from a module in which no `TransformerDecoderLayer` runs.
    """
    packing, visible, lengths, mask = arguments
    if runs(layer, DECODER_LAYER) and not is_observed(layer):
        return layer.run(rows, packing, memory, visible, cache, need_weights)
    padded = packing.pad(rows)
    if runs(layer, DECODER_LAYER):
        call = LayerCall(cache, memory, source.padded, need_weights)
        output = layer(padded, source.padded, lengths=lengths, memory_lengths=source.lengths, mask=mask, call=call)
        return DecoderRows(packing.pack(output), call.cache, call.weights)
    inputs = padded
    if cache is not None:
        (inputs, cache), lengths, mask = _all_inputs(padded, cache), None, masks.causal()
    weights: list[Tensor] = []
    token = WANTED_WEIGHTS.set(weights if need_weights else None)
    try:
        output = layer(inputs, source.padded, lengths=lengths, memory_lengths=source.lengths, mask=mask)
    finally:
        WANTED_WEIGHTS.reset(token)
    if need_weights and not weights:
        raise ArgumentError(
            f"need_weights asks for the weights of a {type(layer).__name__}, in which no TransformerDecoderLayer runs"
        )
    new = padded.shape[1]
    seen = weights[-1][:, :, -new:] if need_weights else None
    return DecoderRows(packing.pack(output[:, -new:]), cache, seen)


def remembered_by(layer: TransformerDecoderLayer, output: EncoderOutput) -> KeyValues | EncoderOutput:
    """Returns the keys and values of an encoder's output, or the output for a layer that projects it itself."""
    if runs(layer, DECODER_LAYER) and not is_observed(layer) and is_called_in_parts(layer.multihead_attn):
        return layer.project(output)
    return output


def _all_inputs(padded: Tensor, cache: KeyValueCache) -> tuple[Tensor, KeyValueCache]:
    """The inputs ``[batch, tokens, dim]`` of a module so far, and the cache that holds them."""
    cache = cache.append(padded[:, None], padded[:, None, :, :0])
    return cache.key[:, 0], cache
