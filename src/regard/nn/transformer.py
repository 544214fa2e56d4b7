"""Stacks of Transformer layers: the encoder, the decoder, and both together."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, cast

from torch import Tensor, nn

from regard import masks
from regard.errors import ArgumentError, KindError
from regard.masks import Mask
from regard.module_calls import is_observed, runs
from regard.nn.called_layers import SelfArguments, SourceArguments, remembered_by, run_decoder_layer, run_encoder_layer
from regard.nn.fx_leaf import fx_leaf
from regard.nn.key_values import EncoderOutput, KeyValueCache, KeyValues
from regard.nn.layer_config import LayerConfig
from regard.nn.packing import Packing, packing_of, without_padding
from regard.nn.transformer_layers import TransformerDecoderLayer, TransformerEncoderLayer
from regard.shapes import flag, kind_of, whole_number

LAYERS_LIMIT = 10_000
"""Largest number of layers of a new stack."""

LayerT = TypeVar("LayerT")
NORM = nn.LayerNorm.forward


@dataclass(eq=False)
class StackCall:
    """Additional inputs and outputs of a decoding step, for a stack that is called as a module.

    Attributes:
        caches: for each layer the keys and values of earlier tokens; after the call also those of the new tokens. None:
            no caches.
        memory: the result of `TransformerDecoder.remember`.
        padded: the same memory as the argument of the stack, ``[batch, source, dim]``.
        weights_of: as in `TransformerDecoder.run`.
        weights: the weights of that layer, after the call.
    """

    caches: Sequence[KeyValueCache] | None = None
    memory: Sequence[KeyValues | EncoderOutput] | None = None
    padded: Tensor | None = None
    weights_of: int | None = None
    weights: Tensor | None = None


@fx_leaf
class TransformerEncoder(nn.Module):
    """A stack of encoder layers, with a layer normalization at the end (Vaswani et al. 2017, section 3.1).

    Layers and their attentions are called as modules wherever that can be observed: hooks get padded tensors in the
    module's layout, and change no bit unless they return something (but for the weights' gradients of the final
    normalization, which is then computed on padded tensors); a wrapper, an overridden ``forward`` or another
    attention (with the arguments of `torch.nn.MultiheadAttention`) is used. Linear layers, normalizations and dropout
    inside a layer get packed rows ``[tokens, dim]``.

    Args:
        layers: the layers, at least one.
        norm: whether to normalize the output; pre-norm layers need it.
    """

    def __init__(self, layers: Sequence[TransformerEncoderLayer], norm: bool = True):
        super().__init__()
        dim = _dim(layers, TransformerEncoderLayer)
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(dim) if flag("norm", norm) else None

    @classmethod
    def create(
        cls, layers: int = 6, config: LayerConfig | None = None, *, bidirectional: bool = True
    ) -> "TransformerEncoder":
        """Creates a stack of new layers.

        Args:
            layers: number of layers.
            config: the configuration of the layers; None: the defaults.
            bidirectional: as in `LayerConfig.encoder_layer`.
        """
        config = _checked(config)
        flag("bidirectional", bidirectional)
        return cls([config.encoder_layer(bidirectional) for _ in range(_count("layers", layers))])

    def forward(
        self,
        input: Tensor,
        lengths: Tensor | None = None,
        mask: Mask | None = None,
        *,
        call: StackCall | None = None,
    ) -> Tensor:
        """Runs the stack on a padded batch.

        Args:
            input: ``[batch, length, dim]``.
            lengths: integers ``[batch]``, number of tokens of each sequence; None: no padding. Outputs of padding are 0
                and are not computed.
            mask: a mask in addition to ``lengths``.
            call: inputs and outputs of `step`.

        Returns:
            ``[batch, length, dim]``.
        """
        packing, call = packing_of(input, lengths), StackCall() if call is None else call
        arguments = SelfArguments(packing, without_padding(mask, packing, lengths), lengths, mask)
        rows, call.caches = self._run(packing.pack(input), arguments, call.caches)
        return packing.pad(rows)

    def run(self, rows: Tensor, packing: Packing, mask: Mask | None) -> Tensor:
        """Runs the stack on packed rows ``[tokens, dim]``; the mask must hide padding."""
        return self._run(rows, SelfArguments(packing, mask, packing.lengths, mask), None)[0]

    def _run(
        self, rows: Tensor, arguments: SelfArguments, caches: Sequence[KeyValueCache] | None
    ) -> tuple[Tensor, list[KeyValueCache] | None]:
        extended: list[KeyValueCache] | None = None if caches is None else []
        for layer, cache in _with_caches(self._layers, caches):
            rows, new_cache = run_encoder_layer(layer, rows, arguments, cache)
            if extended is not None and new_cache is not None:
                extended.append(new_cache)
        return _normalize(self.norm, rows, arguments.packing), extended

    def step(self, input: Tensor, caches: Sequence[KeyValueCache]) -> tuple[Tensor, list[KeyValueCache]]:
        """Runs the stack on the next tokens of each sequence, which see themselves and all earlier tokens.

        Args:
            input: ``[batch, new, dim]``.
            caches: for each layer the keys and values of the earlier tokens.

        Returns:
            ``[batch, new, dim]``, and the caches including the new tokens.
        """
        _check_forward(self, ENCODER)
        call = StackCall(caches)
        stack = self if is_observed(self) else self.forward
        output = stack(input, mask=_causal(input), call=call)
        assert call.caches is not None
        return output, list(call.caches)

    @property
    def _layers(self) -> list[TransformerEncoderLayer]:
        return cast(list[TransformerEncoderLayer], list(self.layers))


class DecoderOutput(NamedTuple):
    """The output of a decoder stack.

    Attributes:
        rows: packed, ``[tokens, dim]``.
        caches: for each layer the keys and values of all tokens; empty without caches.
        weights: the weights of the requested layer, ``[batch, heads, target, source]``, or None.
    """

    rows: Tensor
    caches: list[KeyValueCache]
    weights: Tensor | None


@fx_leaf
class TransformerDecoder(nn.Module):
    """A stack of decoder layers, with a layer normalization at the end (Vaswani et al. 2017, section 3.1).

    Layers and attentions are called as modules wherever that can be observed, as in `TransformerEncoder`.

    Args:
        layers: the layers, at least one.
        norm: whether to normalize the output; pre-norm layers need it.
    """

    def __init__(self, layers: Sequence[TransformerDecoderLayer], norm: bool = True):
        super().__init__()
        dim = _dim(layers, TransformerDecoderLayer)
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(dim) if flag("norm", norm) else None

    @classmethod
    def create(cls, layers: int = 6, config: LayerConfig | None = None) -> "TransformerDecoder":
        """Creates a stack of new layers.

        Args:
            layers: number of layers.
            config: the configuration of the layers; None: the defaults.
        """
        config = _checked(config)
        return cls([config.decoder_layer() for _ in range(_count("layers", layers))])

    def forward(
        self,
        input: Tensor,
        memory: Tensor,
        lengths: Tensor | None = None,
        memory_lengths: Tensor | None = None,
        mask: Mask | None = None,
        *,
        call: StackCall | None = None,
    ) -> Tensor:
        """Runs the stack on a padded batch.

        Args:
            input: ``[batch, target, dim]``.
            memory: the encoder's output, ``[batch, source, dim]``.
            lengths: integers ``[batch]``, number of tokens of each target; None: no padding. Outputs of padding are 0
                and are not computed.
            memory_lengths: integers ``[batch]``, number of tokens of each source; None: no padding.
            mask: a mask of the targets' self-attention in addition to ``lengths``; None: `regard.masks.causal`.
            call: inputs and outputs of `step`.

        Returns:
            ``[batch, target, dim]``.
        """
        packing, call = packing_of(input, lengths), StackCall() if call is None else call
        if mask is None and (call.caches is None or input.shape[1] > 1):
            # A single new token sees every earlier token and needs no mask.
            mask = masks.causal()
        arguments = SelfArguments(packing, without_padding(mask, packing, lengths), lengths, mask)
        # A step passes the projected memory, but a hook may have replaced the tensor.
        remembered = call.memory if memory is call.padded else None
        if remembered is None:
            remembered = self.remember(memory, memory_lengths)
        source = SourceArguments(remembered, memory)
        rows, caches, call.weights = self._run(
            packing.pack(input), arguments, remembered, source, call.caches, call.weights_of
        )
        call.caches = None if call.caches is None else caches
        return packing.pad(rows)

    def remember(self, memory: Tensor, lengths: Tensor | None = None) -> list[KeyValues | EncoderOutput]:
        """Returns for each layer the keys and values of an encoder's output, or the output if the layer projects it.

        Args:
            memory: ``[batch, source, dim]``.
            lengths: integers ``[batch]``, number of tokens of each source; None: no padding.
        """
        packing = packing_of(memory, lengths)
        rows = packing.pack(memory)
        return [remembered_by(layer, EncoderOutput(rows, packing, lengths)) for layer in self._layers]

    def run(
        self,
        rows: Tensor,
        packing: Packing,
        memory: Sequence[KeyValues | EncoderOutput],
        mask: Mask | None,
        caches: Sequence[KeyValueCache] | None = None,
        weights_of: int | None = None,
    ) -> DecoderOutput:
        """Runs the stack on packed rows.

        Args:
            rows: ``[tokens, dim]``.
            packing: the packing of the rows.
            memory: the result of `remember`.
            mask: the mask of the targets' self-attention, which also hides padding.
            caches: for each layer the keys and values of earlier target tokens; None: there are none.
            weights_of: the layer whose weights of the attention to the encoder's output are returned; None: no layer.
        """
        arguments = SelfArguments(packing, mask, packing.lengths, mask)
        return self._run(rows, arguments, memory, SourceArguments(memory), caches, weights_of)

    def _run(
        self,
        rows: Tensor,
        arguments: SelfArguments,
        memory: Sequence[KeyValues | EncoderOutput],
        source: SourceArguments,
        caches: Sequence[KeyValueCache] | None,
        weights_of: int | None,
    ) -> DecoderOutput:
        extended, weights = [], None
        layers = zip(_with_caches(self._layers, caches), memory, strict=True)
        for number, ((layer, cache), remembered) in enumerate(layers):
            output = run_decoder_layer(layer, rows, arguments, remembered, source, cache, number == weights_of)
            rows = output.rows
            weights = output.weights if output.weights is not None else weights
            if output.cache is not None:
                extended.append(output.cache)
        return DecoderOutput(_normalize(self.norm, rows, arguments.packing), extended, weights)

    def step(
        self,
        input: Tensor,
        memory: Sequence[KeyValues | EncoderOutput],
        caches: Sequence[KeyValueCache],
        weights_of: int | None = None,
    ) -> DecoderOutput:
        """Runs the stack on the next tokens of each target, which see themselves and all earlier tokens.

        Args:
            input: ``[batch, new, dim]``.
            memory: the result of `remember`.
            caches: for each layer the keys and values of the earlier tokens.
            weights_of: as in `run`.
        """
        _check_forward(self, DECODER)
        packing = packing_of(input, None)
        if not is_observed(self):
            return self.run(packing.pack(input), packing, memory, _causal(input), caches, weights_of)
        source = SourceArguments(memory)
        call = StackCall(caches, memory, source.padded, weights_of)
        output = self(input, source.padded, memory_lengths=source.lengths, call=call)
        return DecoderOutput(packing.pack(output), list(call.caches or ()), call.weights)

    @property
    def _layers(self) -> list[TransformerDecoderLayer]:
        return cast(list[TransformerDecoderLayer], list(self.layers))


@fx_leaf
class Transformer(nn.Module):
    """An encoder and a decoder (Vaswani et al. 2017, figure 1), without embeddings and output projection.

    With the default `LayerConfig` the ``state_dict`` is that of a `torch.nn.Transformer` of the same sizes, so weights
    can be loaded from one into the other.

    Args:
        encoder: the encoder.
        decoder: the decoder.
    """

    def __init__(self, encoder: TransformerEncoder, decoder: TransformerDecoder):
        super().__init__()
        for name, stack, kind in (("encoder", encoder, TransformerEncoder), ("decoder", decoder, TransformerDecoder)):
            if not isinstance(stack, kind):
                raise KindError(
                    f"{name} must be a regard.nn.{kind.__name__}; it is {kind_of(stack)}. To create one from sizes, "
                    "write Transformer.create(6, 6, LayerConfig(dim=512, heads=8))"
                )
        self.encoder = encoder
        self.decoder = decoder

    @classmethod
    def create(
        cls, encoder_layers: int = 6, decoder_layers: int = 6, config: LayerConfig | None = None
    ) -> "Transformer":
        """Creates a Transformer of new layers with this configuration."""
        _count("encoder_layers", encoder_layers)
        _count("decoder_layers", decoder_layers)
        return cls(TransformerEncoder.create(encoder_layers, config), TransformerDecoder.create(decoder_layers, config))

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_lengths: Tensor | None = None,
        target_lengths: Tensor | None = None,
        *,
        source_mask: Mask | None = None,
        target_mask: Mask | None = None,
    ) -> Tensor:
        """Encodes the source, and decodes the target with attention to it.

        Args:
            source: ``[batch, source, dim]``.
            target: ``[batch, target, dim]``.
            source_lengths: integers ``[batch]``; None: no padding.
            target_lengths: integers ``[batch]``; None: no padding.
            source_mask: the mask of the source's self-attention; None: no mask.
            target_mask: the mask of the target's self-attention; None: `regard.masks.causal`.

        Returns:
            ``[batch, target, dim]``.
        """
        memory = self.encoder(source, lengths=source_lengths, mask=source_mask)
        return self.decoder(target, memory, lengths=target_lengths, memory_lengths=source_lengths, mask=target_mask)


ENCODER, DECODER = TransformerEncoder.forward, TransformerDecoder.forward
"""The methods as defined here, even if they are replaced later."""


def _check_forward(stack: nn.Module, forward: Callable[..., Tensor]) -> None:
    """Raises ArgumentError if a stack has another ``forward``, which does not support caches."""
    if not runs(stack, forward):
        raise ArgumentError(
            f"step continues {forward.__qualname__} with caches, and {type(stack).__name__} has another forward: "
            "define step as well, or decode without caches"
        )


def _with_caches(
    layers: Sequence[LayerT], caches: Sequence[KeyValueCache] | None
) -> Iterable[tuple[LayerT, KeyValueCache | None]]:
    return zip(layers, [None] * len(layers) if caches is None else caches, strict=True)


def _normalize(norm: nn.Module | None, rows: Tensor, packing: Packing) -> Tensor:
    """Normalizes the rows at the end of a stack; the module gets padded rows if its call can be observed."""
    if norm is None:
        return rows
    if runs(norm, NORM) and not is_observed(norm):
        return norm(rows)
    return packing.pack(norm(packing.pad(rows)))


def _causal(input: Tensor) -> Mask | None:
    # A single new token sees every earlier token and needs no mask.
    return masks.causal() if input.shape[1] > 1 else None


def _dim(layers: object, kind: type[TransformerEncoderLayer] | type[TransformerDecoderLayer]) -> int:
    """Returns the features of the layers of a stack; raises unless they are a sequence of such layers of one dim."""
    if not isinstance(layers, (Sequence, nn.ModuleList)) or isinstance(layers, str):
        raise KindError(
            f"layers must be a sequence of regard.nn.{kind.__name__}; it is {kind_of(layers)}. To create new layers, "
            f"write {kind.__name__.removesuffix('Layer')}.create(6, LayerConfig(dim=512, heads=8))"
        )
    if not len(layers):
        raise ArgumentError("layers must hold at least one layer; it is empty")
    dims = set()
    for number, layer in enumerate(layers):
        if not isinstance(layer, kind):
            raise KindError(f"layers[{number}] must be a regard.nn.{kind.__name__}; it is {kind_of(layer)}")
        dims.add(layer.self_attn.embed_dim)
    if len(dims) > 1:
        raise ArgumentError(f"layers must all have one dim; they have {sorted(dims)}")
    return dims.pop()


def _count(name: str, layers: int) -> int:
    return whole_number(name, layers, 1, LAYERS_LIMIT)


def _checked(config: LayerConfig | None) -> LayerConfig:
    if config is not None and not isinstance(config, LayerConfig):
        raise KindError(f"config must be a LayerConfig or None; it is {kind_of(config)}")
    return config or LayerConfig()
