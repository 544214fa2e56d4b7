"""A stack of decoder layers."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError
from regard.masks import Mask
from regard.nn.fx_leaf import fx_leaf
from regard.nn.key_values import EncoderOutput, KeyValues, SequenceCache
from regard.nn.layer_config import LayerConfig
from regard.nn.layer_inputs import (
    Biasing,
    Masking,
    Pairs,
    TorchMask,
    batch_first_input,
    in_layout,
    output_like,
    read_pairs,
)
from regard.nn.layer_parts import is_own_layer, is_untouched, packings
from regard.nn.packing import Packing
from regard.nn.torch_inputs import check_parameters
from regard.nn.transformer_layers import (
    DecoderRows,
    TransformerDecoderLayer,
    WantedWeights,
    memory_output,
    wanted_weights,
    wanting,
)
from regard.nn.transformer_stack import (
    TransformerStack,
    causal_mask,
    check_memory,
    checked_config,
    layer_count,
    new_caches,
)
from regard.shapes.checks import flag
from regard.summaries import summarized

ALL_PAIRS = Pairs(None, None)
"""Every query sees every key, and nothing is added to scores."""


@summarized
class DecoderOutput(NamedTuple):
    """The packed output ``[tokens, dim]`` of a decoder stack, the keys and values of all tokens for each layer, if
    cached, and the weights of the requested layer, ``[batch, heads, target, source]``, or None."""

    rows: Tensor
    caches: list[SequenceCache]
    weights: Tensor | None


@fx_leaf
class TransformerDecoder(TransformerStack):
    """A stack of decoder layers: `torch.nn.TransformerDecoder` with any score and position (Vaswani et al. 2017,
    section 3.1).

    .. math:: output = norm(layer_N(… layer_1(target, memory) …, memory))

    Constructor, arguments of the call and ``state_dict`` are PyTorch's; as there, later tokens are visible unless a
    mask hides them: ``mask="causal"``. Packed rows and calls of parts are as in `TransformerEncoder`.

    Args:
        decoder_layer: the layer, of which each layer of the stack is a copy.
        num_layers: number of layers.
        norm: the normalization of the output, which pre-norm layers need; None: no normalization.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> layer = nn.TransformerDecoderLayer(32, 4, 64, batch_first=True)
        >>> decoder = nn.TransformerDecoder(layer, 2).eval()
        >>> target, memory = torch.randn(2, 5, 32), torch.randn(2, 7, 32)
        >>> output = decoder(target, memory, mask="causal")
        >>> output.shape
        torch.Size([2, 5, 32])
        >>> remembered, caches = decoder.remember(memory), None
        >>> for token in target.split(1, dim=1):  # the same, token by token
        ...     rows, caches, weights = decoder.step(token, remembered, caches)
        >>> torch.allclose(rows, output[:, -1], atol=1e-5)
        True
    """

    layer_class = TransformerDecoderLayer
    layer_argument = "decoder_layer"

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: nn.Module | None = None):
        super().__init__(decoder_layer, num_layers, norm)

    @classmethod
    def create(
        cls, num_layers: int = 6, config: LayerConfig | None = None, *, norm: bool = True
    ) -> "TransformerDecoder":
        """Creates a stack of new layers, each with initial weights of its own.

        Args:
            num_layers: number of layers.
            config: the configuration of the layers; None: the defaults.
            norm: whether to normalize the output; pre-norm layers need it.
        """
        config = checked_config(config)
        layers = [config.decoder_layer(depth) for depth in range(layer_count("num_layers", num_layers))]
        return cls.from_layers(layers, config.final_norm() if flag("norm", norm) else None)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Masking | None = None,
        memory_mask: Masking | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
        *,
        mask: Masking | None = None,
        bias: Biasing | None = None,
        memory_bias: Biasing | None = None,
        lengths: Tensor | None = None,
        memory_lengths: Tensor | None = None,
    ) -> Tensor:
        """Runs the stack on a padded batch.

        Args:
            tgt: ``[target, batch, d_model]``; ``[batch, target, d_model]`` with ``batch_first``; unbatched
                ``[target, d_model]``.
            memory: the encoder's output, in the layout of ``tgt``.
            tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal, memory_is_causal:
                PyTorch's masks (**True hides**), as in `TransformerDecoderLayer`.
            mask: regard's mask of self-attention: a `Mask`, ``"causal"``, or a bool tensor (**True: may attend**).
            bias, memory_bias, lengths, memory_lengths: as in `TransformerDecoderLayer`.

        Returns:
            A tensor in the layout of ``tgt``.

        Raises:
            ShapeError, KindError, UnknownNameError: an input or a mask is invalid; the message names it.
        """
        input = batch_first_input("tgt", tgt, self.d_model, self.batch_first)
        own = TorchMask("tgt_mask", tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        crossed = TorchMask("memory_mask", memory_mask, memory_key_padding_mask, memory_is_causal)
        output = memory_output(memory, tgt, input, self.batch_first, memory_key_padding_mask)
        packing, source = packings(self, (input, lengths), (output, memory_lengths))
        is_batched, wanted = tgt.dim() == 3, wanted_weights()
        pairs = read_pairs(own, mask, bias, self.nhead, input, input.shape[1], is_batched)
        over_memory = read_pairs(crossed, None, memory_bias, self.nhead, input, output.shape[1], is_batched)
        remembered = [EncoderOutput(source.pack(output), source)] * len(self.layers)
        weights_of = None if wanted is None else wanted.layer
        result = self._run(packing.pack(input), packing, remembered, pairs, over_memory, None, weights_of)
        if wanted is not None:
            wanted.weights = result.weights
        return output_like(tgt, packing.pad(result.rows), self.batch_first)

    def remember(self, memory: Tensor, lengths: Tensor | None = None) -> list[KeyValues | EncoderOutput]:
        """Returns for each layer the keys and values of an encoder's output, or the output if layers project it.

        Args:
            memory: ``[batch, source, d_model]``, also without ``batch_first``.
            lengths: integers ``[batch]``, number of tokens of each source; None: no padding.

        Raises:
            ShapeError, KindError: the memory has another shape, dtype or device; the message says which.
        """
        memory = batch_first_input("memory", memory, self.d_model, batch_first=True)
        check_parameters("memory", memory, next(self.parameters(), memory))
        (packing,) = packings(self, (memory, lengths))
        output = EncoderOutput(packing.pack(memory), packing)
        if not is_untouched(self):
            return [output for _ in self.layers]
        layers: list[Any] = list(self.layers)
        return [layer.remember(output.rows, packing) for layer in layers]

    def run(
        self,
        rows: Tensor,
        packing: Packing,
        memory: Sequence[KeyValues | EncoderOutput],
        mask: Mask | None,
        caches: Sequence[SequenceCache] | None = None,
        weights_of: int | None = None,
    ) -> DecoderOutput:
        """Runs the stack on packed rows.

        Args:
            rows: ``[tokens, dim]``.
            packing: the packing of the rows.
            memory: the result of `remember`.
            mask: which tokens each token may see in self-attention, besides padding.
            caches: for each layer the keys and values of earlier target tokens; None: there are none, and no caches are
                returned.
            weights_of: the layer whose weights of the attention to the encoder's output are returned; None: no layer.

        Returns:
            `DecoderOutput`, whose rows are ``[tokens, dim]``.

        Raises:
            KindError, ArgumentError: the memory is not what `remember` returned, or there is not one cache for each
                layer.
        """
        check_memory(memory, len(self.layers))
        return self._run(rows, packing, memory, Pairs(mask, None), ALL_PAIRS, caches, weights_of)

    def _run(
        self,
        rows: Tensor,
        packing: Packing,
        memory: Sequence[KeyValues | EncoderOutput],
        pairs: Pairs,
        over_memory: Pairs,
        caches: Sequence[SequenceCache] | None,
        weights_of: int | None,
    ) -> DecoderOutput:
        extended, weights = [], None
        layers = zip(self._with_caches(caches), memory, strict=True)
        for number, ((layer, cache), remembered) in enumerate(layers):
            need_weights = number == weights_of
            if is_own_layer(layer):
                output = layer.run(
                    rows, packing, remembered, pairs.mask, cache, need_weights,
                    bias=pairs.bias, memory_mask=over_memory.mask, memory_bias=over_memory.bias,
                )  # fmt: skip
            else:
                output = self._call(layer, rows, packing, remembered, pairs, over_memory, need_weights)
            rows, weights = output.rows, output.weights if need_weights else weights
            extended += [] if output.cache is None else [output.cache]
        return DecoderOutput(self._normalized(rows, packing), extended, weights)

    def _call(
        self,
        layer: nn.Module,
        rows: Tensor,
        packing: Packing,
        memory: KeyValues | EncoderOutput,
        pairs: Pairs,
        over_memory: Pairs,
        need_weights: bool,
    ) -> DecoderRows:
        """Calls a layer, or the module in its place, with padded sequences; raises ArgumentError if weights are needed
        from a module in which no `TransformerDecoderLayer` runs."""
        source = _output_of(memory)
        options = {"bias": pairs.bias, "memory_mask": over_memory.mask, "memory_bias": over_memory.bias}
        options = {name: value for name, value in options.items() if value is not None}
        input, padded = (in_layout(x, self.batch_first) for x in (packing.pad(rows), source.padded))
        lengths = {"lengths": packing.lengths, "memory_lengths": source.lengths}
        wanted = WantedWeights(0) if need_weights else None
        with wanting(wanted) if need_weights else nullcontext():
            output = layer(input, padded, mask=pairs.mask, **lengths, **options)
        weights = None if wanted is None else wanted.weights
        if need_weights and weights is None:
            raise ArgumentError(
                f"need_weights asks for the weights of a {type(layer).__name__}, in which no TransformerDecoderLayer "
                "runs"
            )
        return DecoderRows(packing.pack(in_layout(output, self.batch_first)), None, weights)

    def step(
        self,
        input: Tensor,
        memory: Sequence[KeyValues | EncoderOutput],
        caches: Sequence[SequenceCache] | None = None,
        weights_of: int | None = None,
    ) -> DecoderOutput:
        """Runs the stack on the next tokens of each target, which see themselves and all earlier tokens.

        Args:
            input: ``[batch, new, d_model]``, also without ``batch_first``.
            memory: the result of `remember`.
            caches: for each layer the keys and values of the earlier tokens; None: there are none.
            weights_of: as in `run`.

        Returns:
            `DecoderOutput`, whose rows are those of all new tokens, ``[batch * new, dim]``.

        Raises:
            KindError, ArgumentError: the memory is not what `remember` returned, or there is not one cache for each
                layer.
        """
        check_memory(memory, len(self.layers))
        new = input.shape[1]
        if self._decodes_anew(caches):
            inputs, held = self._inputs_so_far(input, caches)
            source, wanted = _output_of(memory[0]), None if weights_of is None else WantedWeights(weights_of)
            tokens, padded = (in_layout(x, self.batch_first) for x in (inputs, source.padded))
            with wanting(wanted):
                output = self(tokens, padded, memory_lengths=source.lengths, mask=causal_mask(inputs))
            rows = in_layout(output, self.batch_first)[:, -new:].flatten(0, 1)
            weights = None if wanted is None or wanted.weights is None else wanted.weights[:, :, -new:]
            return DecoderOutput(rows, held, weights)
        caches = new_caches(self) if caches is None else caches
        rows, caches, weights = self.run(
            input, Packing.padded(input, None), memory, causal_mask(input), caches, weights_of
        )
        # An exporter's rows keep their axes: the strides of two open axes in one would limit their sizes.
        return DecoderOutput(rows if torch.compiler.is_exporting() else rows.flatten(0, 1), caches, weights)


TransformerDecoder.own_forward = TransformerDecoder.forward


def _output_of(memory: KeyValues | EncoderOutput) -> EncoderOutput:
    """Returns the encoder's output that was remembered."""
    output = memory if isinstance(memory, EncoderOutput) else memory.source
    if output is None:
        raise ArgumentError("memory must be what `remember` gave, for a layer that is called as a module")
    return output
