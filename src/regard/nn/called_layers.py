"""Runs the layers of a stack: in parts, or as modules on padded tensors where their calls can be seen or changed."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from regard import masks
from regard.biases import Bias
from regard.errors import ArgumentError
from regard.masks import Mask
from regard.module_calls import is_observed, runs
from regard.nn.key_values import EncoderOutput, KeyValueCache, KeyValues, SequenceCache
from regard.nn.layer_inputs import Pairs, in_layout
from regard.nn.multihead import is_called_in_parts
from regard.nn.packing import Packing
from regard.nn.row_attention import DecoderRows, EncoderRows
from regard.nn.transformer_layers import (
    DECODER_LAYER,
    ENCODER_LAYER,
    WANTED_WEIGHTS,
    LayerCall,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    TransformerLayer,
)

EVERYTHING = Pairs(None, None)
"""Every query sees every key, and nothing is added to scores."""


class SelfArguments(NamedTuple):
    """Who sees whom in self-attention, for layers on packed rows and for layers that are called as modules.

    Attributes:
        packing: where the tokens are.
        visible: who may see whom, padding included.
        lengths: tokens of each sequence; None: all.
        mask: who may see whom, besides ``lengths``.
        bias: what is added to the scores; None: nothing.
        batch_first: the layout of layers that are called as modules.
    """

    packing: Packing
    visible: Mask | None
    lengths: Tensor | None
    mask: Mask | None
    bias: Bias | None = None
    batch_first: bool = True

    def options(self) -> dict[str, Any]:
        """The keyword arguments of a layer that is called as a module."""
        return {"lengths": self.lengths, "mask": self.mask} | ({} if self.bias is None else {"bias": self.bias})


class SourceArguments:
    """An encoder's output, and who may see which part of it.

    Args:
        memory: what `TransformerDecoder.remember` gave.
        padded: the output in the layout of the layers; None: that of ``memory``, which is padded when it is read.
        batch_first: the layout of layers that are called as modules.
        pairs: a mask besides the padding of the memory, and what is added to the scores.
    """

    def __init__(
        self,
        memory: Sequence[KeyValues | EncoderOutput],
        padded: Tensor | None = None,
        batch_first: bool = True,
        pairs: Pairs = EVERYTHING,
    ):
        first = memory[0]
        self._output = first if isinstance(first, EncoderOutput) else first.source
        self._padded, self._batch_first, self.pairs = padded, batch_first, pairs

    @property
    def padded(self) -> Tensor:
        """``[batch, source, dim]`` in the layout of the layers, the same object at each access."""
        if self._padded is None:
            self._padded = in_layout(self._known.padded, self._batch_first)
        return self._padded

    def options(self) -> dict[str, Any]:
        """The keyword arguments of a layer that is called as a module."""
        mask, bias = self.pairs
        own = {} if mask is None else {"memory_mask": mask}
        return {"memory_lengths": self.lengths} | own | ({} if bias is None else {"memory_bias": bias})

    @property
    def lengths(self) -> Tensor | None:
        """Tokens of each source; None: all."""
        return self._known.selected_lengths

    @property
    def _known(self) -> EncoderOutput:
        if self._output is None:
            raise ArgumentError("memory must be what `remember` gave, for a layer that is called as a module")
        return self._output


def new_caches(layers: Iterable[nn.Module]) -> list[SequenceCache]:
    """Returns the empty caches of layers before the first token; a module in place of a layer has one of its inputs."""
    return [
        layer.new_cache()
        if isinstance(layer, TransformerLayer) and (runs(layer, ENCODER_LAYER) or runs(layer, DECODER_LAYER))
        else KeyValueCache()
        for layer in layers
    ]


def run_encoder_layer(
    layer: TransformerEncoderLayer, rows: Tensor, arguments: SelfArguments, cache: SequenceCache | None
) -> EncoderRows:
    """Run the layer on packed rows.

    Args:
        layer: a layer, or the module that replaces it.
        rows: ``[tokens, dim]``.
        arguments: who sees whom.
        cache: of the layer; of another module it holds its inputs, since its keys and values are not known.
    """
    packing, batch_first = arguments.packing, arguments.batch_first
    if runs(layer, ENCODER_LAYER) and not is_observed(layer):
        return layer.run(rows, packing, arguments.visible, cache, bias=arguments.bias)
    padded = packing.pad(rows)
    if cache is not None and not runs(layer, ENCODER_LAYER):
        inputs, cache = _all_inputs(padded, cache)
        output = in_layout(layer(in_layout(inputs, batch_first), lengths=None, mask=masks.causal()), batch_first)
        return EncoderRows(packing.pack(output[:, -padded.shape[1] :]), cache)
    call: dict[str, Any] = {} if cache is None else {"call": LayerCall(cache)}
    output = layer(in_layout(padded, batch_first), **arguments.options(), **call)
    return EncoderRows(packing.pack(in_layout(output, batch_first)), call["call"].cache if call else None)


def run_decoder_layer(
    layer: TransformerDecoderLayer,
    rows: Tensor,
    arguments: SelfArguments,
    memory: KeyValues | EncoderOutput,
    source: SourceArguments,
    cache: SequenceCache | None,
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
    packing, batch_first = arguments.packing, arguments.batch_first
    if runs(layer, DECODER_LAYER) and not is_observed(layer):
        over_memory = source.pairs
        return layer.run(
            rows, packing, memory, arguments.visible, cache, need_weights,
            bias=arguments.bias, memory_mask=over_memory.mask, memory_bias=over_memory.bias,
        )  # fmt: skip
    padded, options = packing.pad(rows), arguments.options()
    if runs(layer, DECODER_LAYER):
        call = LayerCall(cache, memory, source.padded, need_weights)
        output = layer(in_layout(padded, batch_first), source.padded, **options, **source.options(), call=call)
        return DecoderRows(packing.pack(in_layout(output, batch_first)), call.cache, call.weights)
    inputs = padded
    if cache is not None:
        (inputs, cache), options = _all_inputs(padded, cache), {"lengths": None, "mask": masks.causal()}
    weights: list[Tensor] = []
    token = WANTED_WEIGHTS.set(weights if need_weights else None)
    try:
        output = layer(in_layout(inputs, batch_first), source.padded, **options, **source.options())
    finally:
        WANTED_WEIGHTS.reset(token)
    if need_weights and not weights:
        raise ArgumentError(
            f"need_weights asks for the weights of a {type(layer).__name__}, in which no TransformerDecoderLayer runs"
        )
    new = padded.shape[1]
    seen = weights[-1][:, :, -new:] if need_weights else None
    return DecoderRows(packing.pack(in_layout(output, batch_first)[:, -new:]), cache, seen)


def remembered_by(layer: TransformerDecoderLayer, output: EncoderOutput) -> KeyValues | EncoderOutput:
    """Returns the keys and values of an encoder's output, or the output for a layer that projects it itself."""
    if runs(layer, DECODER_LAYER) and not is_observed(layer) and is_called_in_parts(layer.multihead_attn):
        return layer.project(output)
    return output


def _all_inputs(padded: Tensor, cache: SequenceCache) -> tuple[Tensor, KeyValueCache]:
    """The inputs ``[batch, tokens, dim]`` of a module so far, and the cache that holds them."""
    assert isinstance(cache, KeyValueCache), "`new_cache` gives other caches only to layers that run as they are"
    cache = cache.appended(padded[:, None], padded[:, None, :, :0])
    return cache.key[:, 0], cache
