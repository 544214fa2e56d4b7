"""A stack of decoder layers."""

import copy
from collections.abc import Sequence
from typing import NamedTuple, cast

from torch import Tensor, nn

from regard.masks import Mask
from regard.module_calls import Module, is_observed
from regard.nn.called_layers import SelfArguments, SourceArguments, new_caches, remembered_by, run_decoder_layer
from regard.nn.fx_leaf import fx_leaf
from regard.nn.key_values import EncoderOutput, KeyValues, SequenceCache
from regard.nn.layer_config import LayerConfig
from regard.nn.layer_inputs import (
    Biasing,
    Masking,
    TorchMask,
    batch_first_input,
    in_layout,
    output_like,
    read_pairs,
)
from regard.nn.packing import Packing, lengths_beside, packing_of, without_padding
from regard.nn.torch_inputs import without_padding as without_hidden
from regard.nn.transformer_layers import (
    TransformerDecoderLayer,
    memory_like,
)
from regard.nn.transformer_stack import (
    StackCall,
    causal_mask,
    check_forward,
    check_layer,
    check_layers,
    check_memory,
    checked_config,
    checked_norm,
    layer_count,
    layout_of,
    normalize,
    with_caches,
)
from regard.shapes import flag


class DecoderOutput(NamedTuple):
    """The output of a decoder stack.

    Attributes:
        rows: packed, ``[tokens, dim]``.
        caches: for each layer the keys and values of all tokens; empty without caches.
        weights: the weights of the requested layer, ``[batch, heads, target, source]``, or None.
    """

    rows: Tensor
    caches: list[SequenceCache]
    weights: Tensor | None


@fx_leaf
class TransformerDecoder(Module):
    """A stack of decoder layers: `torch.nn.TransformerDecoder` with any score and position (Vaswani et al. 2017,
    section 3.1).

    Constructor, arguments of the call and ``state_dict`` are PyTorch's; as there, later tokens are visible unless a
    mask hides them: ``mask="causal"``. Layers and attentions are called as modules wherever that can be observed, as in
    `TransformerEncoder`.

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

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: nn.Module | None = None):
        super().__init__()
        check_layer("decoder_layer", decoder_layer, TransformerDecoderLayer)
        self.num_layers = layer_count("num_layers", num_layers)
        self.layers = nn.ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.norm = checked_norm(norm)
        self.d_model, self.nhead, self.batch_first = layout_of(decoder_layer)

    @classmethod
    def from_layers(
        cls, layers: Sequence[TransformerDecoderLayer] | nn.ModuleList, norm: nn.Module | None = None
    ) -> "TransformerDecoder":
        """Creates a stack of these layers; arguments as in `TransformerEncoder.from_layers`."""
        check_layers(layers, TransformerDecoderLayer)
        stack = cls(cast(TransformerDecoderLayer, layers[0]), 1, norm)
        stack.layers, stack.num_layers = nn.ModuleList(layers), len(layers)
        return stack

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
        call: StackCall | None = None,
    ) -> Tensor:
        """Runs the stack on a padded batch.

        Args:
            tgt: ``[target, batch, d_model]``; ``[batch, target, d_model]`` with ``batch_first``; unbatched
                ``[target, d_model]``.
            memory: the encoder's output, in the layout of ``tgt``.
            tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal, memory_is_causal:
                PyTorch's masks (**True hides**), as in `TransformerDecoderLayer`.
            mask: regard's mask of self-attention: a `Mask`, ``"causal"``, or a bool tensor (**True: may attend**).
            bias: added to the scores of self-attention: a tensor, a `Bias`, or ``"alibi"``.
            memory_bias: added to the scores of the attention to the memory.
            lengths: integers ``[batch]``, number of tokens of each target; None: no padding. Outputs of padding are 0
                and are not computed.
            memory_lengths: integers ``[batch]``, number of tokens of each source; None: no padding.
            call: inputs and outputs of `step`.

        Returns:
            A tensor in the layout of ``tgt``.

        Raises:
            ShapeError, KindError, UnknownNameError: an input or a mask is invalid; the message names it.
        """
        input = batch_first_input("tgt", tgt, self.d_model, self.batch_first)
        source_input = memory_like(memory, tgt, input, self.batch_first)
        packing, call = packing_of(input, lengths), StackCall() if call is None else call
        lengths = lengths_beside(input, lengths)
        own = TorchMask("tgt_mask", tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        crossed = TorchMask("memory_mask", memory_mask, memory_key_padding_mask, memory_is_causal)
        is_batched, keys = tgt.dim() == 3, source_input.shape[1]
        seen, added = read_pairs(own, mask, bias, self.nhead, input, input.shape[1], is_batched)
        over_memory = read_pairs(crossed, None, memory_bias, self.nhead, input, keys, is_batched)
        visible = without_padding(seen, packing, lengths)
        arguments = SelfArguments(packing, visible, lengths, seen, added, self.batch_first)
        # A step passes the projected memory, but a hook may have replaced the tensor.
        remembered = call.memory if memory is call.padded else None
        if remembered is None:
            cleaned, _ = without_hidden(input, source_input, source_input, memory_key_padding_mask, True)
            memory = memory if cleaned is source_input and is_batched else in_layout(cleaned, self.batch_first)
            remembered = self.remember(cleaned, memory_lengths)
        source = SourceArguments(remembered, memory, self.batch_first, over_memory)
        rows, caches, call.weights = self._run(
            packing.pack(input), arguments, remembered, source, call.caches, call.weights_of
        )
        call.caches = None if call.caches is None else caches
        return output_like(tgt, packing.pad(rows), self.batch_first)

    def remember(self, memory: Tensor, lengths: Tensor | None = None) -> list[KeyValues | EncoderOutput]:
        """Returns for each layer the keys and values of an encoder's output, or the output if the layer projects it.

        Args:
            memory: ``[batch, source, d_model]``, also without ``batch_first``.
            lengths: integers ``[batch]``, number of tokens of each source; None: no padding.
        """
        packing, lengths = packing_of(memory, lengths), lengths_beside(memory, lengths)
        rows = packing.pack(memory)
        return [remembered_by(layer, EncoderOutput(rows, packing, lengths)) for layer in self._layers]

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
            mask: the mask of the targets' self-attention, which also hides padding.
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
        arguments = SelfArguments(packing, mask, packing.lengths, mask, batch_first=self.batch_first)
        source = SourceArguments(memory, batch_first=self.batch_first)
        return self._run(rows, arguments, memory, source, caches, weights_of)

    def _run(
        self,
        rows: Tensor,
        arguments: SelfArguments,
        memory: Sequence[KeyValues | EncoderOutput],
        source: SourceArguments,
        caches: Sequence[SequenceCache] | None,
        weights_of: int | None,
    ) -> DecoderOutput:
        extended, weights = [], None
        layers = zip(with_caches(self._layers, caches), memory, strict=True)
        for number, ((layer, cache), remembered) in enumerate(layers):
            output = run_decoder_layer(layer, rows, arguments, remembered, source, cache, number == weights_of)
            rows = output.rows
            weights = output.weights if output.weights is not None else weights
            if output.cache is not None:
                extended.append(output.cache)
        return DecoderOutput(normalize(self.norm, rows, arguments), extended, weights)

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
        check_forward(self, DECODER)
        check_memory(memory, len(self.layers))
        caches = new_caches(self.layers) if caches is None else caches
        packing = packing_of(input, None)
        if not is_observed(self):
            return self.run(packing.pack(input), packing, memory, causal_mask(input), caches, weights_of)
        source = SourceArguments(memory, batch_first=self.batch_first)
        call = StackCall(caches, memory, source.padded, weights_of)
        input, mask = in_layout(input, self.batch_first), causal_mask(input)
        output = self(input, source.padded, memory_lengths=source.lengths, mask=mask, call=call)
        return DecoderOutput(packing.pack(in_layout(output, self.batch_first)), list(call.caches or ()), call.weights)

    def extra_repr(self) -> str:
        return f"num_layers={len(self.layers)}, batch_first={self.batch_first}"

    @property
    def _layers(self) -> list[TransformerDecoderLayer]:
        return cast(list[TransformerDecoderLayer], list(self.layers))


DECODER = TransformerDecoder.forward
"""The method as defined here, even if it is replaced later."""
