"""Stacks of Transformer layers: encoder, decoder, and both."""

from collections.abc import Sequence
from typing import NamedTuple, cast

from torch import Tensor, nn

from regard import masks
from regard.errors import ArgumentError, KindError
from regard.masks import Mask
from regard.nn.fx_leaf import fx_leaf
from regard.nn.key_values import KeyValueCache, KeyValues
from regard.nn.layer_config import LayerConfig
from regard.nn.packing import Packing, packing_of, without_padding
from regard.nn.transformer_layers import TransformerDecoderLayer, TransformerEncoderLayer
from regard.shapes import flag, kind_of, whole_number

LAYERS_LIMIT = 10_000
"""Layers of a new stack."""


@fx_leaf
class TransformerEncoder(nn.Module):
    """A stack of encoder layers, with a layer normalization at the end (Vaswani et al. 2017, section 3.1).

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
        """A stack of new layers.

        Args:
            layers: their number.
            config: how they are made; None: with the defaults.
            bidirectional: as in `LayerConfig.encoder_layer`.
        """
        config = _checked(config)
        flag("bidirectional", bidirectional)
        return cls([config.encoder_layer(bidirectional) for _ in range(_count("layers", layers))])

    def forward(self, input: Tensor, lengths: Tensor | None = None, mask: Mask | None = None) -> Tensor:
        """Run the stack on a padded batch.

        Args:
            input: ``[batch, length, dim]``.
            lengths: integers ``[batch]``, tokens of each sequence; None: all. Padding is not computed: it gives 0.
            mask: who may see whom, besides ``lengths``.

        Returns:
            ``[batch, length, dim]``.
        """
        packing = packing_of(input, lengths)
        return packing.pad(self.run(packing.pack(input), packing, without_padding(mask, packing, lengths)))

    def run(self, rows: Tensor, packing: Packing, mask: Mask | None) -> Tensor:
        """Run the stack on packed rows ``[tokens, dim]``; the mask must hide padding."""
        for layer in self._layers:
            rows = layer.run(rows, packing, mask).rows
        return self._normalized(rows)

    def step(self, input: Tensor, caches: Sequence[KeyValueCache]) -> tuple[Tensor, list[KeyValueCache]]:
        """Run the stack on the next tokens of each sequence, which see themselves and all earlier tokens.

        Args:
            input: ``[batch, new, dim]``.
            caches: for each layer the keys and values of the earlier tokens.

        Returns:
            ``[batch, new, dim]``, and the caches with the new tokens.
        """
        packing, mask = packing_of(input, None), _causal(input)
        rows, longer = packing.pack(input), []
        for layer, cache in zip(self._layers, caches, strict=True):
            rows, after = layer.run(rows, packing, mask, cache)
            assert after is not None
            longer.append(after)
        return packing.pad(self._normalized(rows)), longer

    @property
    def _layers(self) -> list[TransformerEncoderLayer]:
        return cast(list[TransformerEncoderLayer], list(self.layers))

    def _normalized(self, rows: Tensor) -> Tensor:
        return rows if self.norm is None else self.norm(rows)


class DecoderOutput(NamedTuple):
    """The output of a decoder stack.

    Attributes:
        rows: packed, ``[tokens, dim]``.
        caches: for each layer the keys and values of all tokens; empty without caches.
        weights: ``[batch, heads, target, source]`` of the layer that was asked for, or None.
    """

    rows: Tensor
    caches: list[KeyValueCache]
    weights: Tensor | None


@fx_leaf
class TransformerDecoder(nn.Module):
    """A stack of decoder layers, with a layer normalization at the end (Vaswani et al. 2017, section 3.1).

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
        """A stack of new layers.

        Args:
            layers: their number.
            config: how they are made; None: with the defaults.
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
    ) -> Tensor:
        """Run the stack on a padded batch.

        Args:
            input: ``[batch, target, dim]``.
            memory: the encoder's output, ``[batch, source, dim]``.
            lengths: integers ``[batch]``, tokens of each target; None: all. Padding is not computed: it gives 0.
            memory_lengths: integers ``[batch]``, tokens of each source; None: all.
            mask: which target tokens each target token may see, besides ``lengths``; None: `regard.masks.causal`.

        Returns:
            ``[batch, target, dim]``.
        """
        packing = packing_of(input, lengths)
        visible = without_padding(masks.causal() if mask is None else mask, packing, lengths)
        remembered = self.remember(memory, memory_lengths)
        return packing.pad(self.run(packing.pack(input), packing, remembered, visible).rows)

    def remember(self, memory: Tensor, lengths: Tensor | None = None) -> list[KeyValues]:
        """For each layer the keys and values of an encoder's output.

        Args:
            memory: ``[batch, source, dim]``.
            lengths: integers ``[batch]``, tokens of each source; None: all.
        """
        packing = packing_of(memory, lengths)
        rows = packing.pack(memory)
        return [layer.remember(rows, packing, lengths) for layer in self._layers]

    def run(
        self,
        rows: Tensor,
        packing: Packing,
        memory: Sequence[KeyValues],
        mask: Mask | None,
        caches: Sequence[KeyValueCache] | None = None,
        weights_of: int | None = None,
    ) -> DecoderOutput:
        """Run the stack on packed rows.

        Args:
            rows: ``[tokens, dim]``.
            packing: where the tokens are.
            memory: what `remember` gave.
            mask: which target tokens each target token may see, padding included.
            caches: for each layer the keys and values of earlier target tokens; None: there are none.
            weights_of: the layer whose weights of the attention to the encoder's output are wanted; None: of no layer.
        """
        longer, weights = [], None
        for number, (layer, remembered) in enumerate(zip(self._layers, memory, strict=True)):
            cache = None if caches is None else caches[number]
            found = layer.run(rows, packing, remembered, mask, cache, number == weights_of)
            rows = found.rows
            weights = found.weights if found.weights is not None else weights
            if found.cache is not None:
                longer.append(found.cache)
        return DecoderOutput(rows if self.norm is None else self.norm(rows), longer, weights)

    def step(
        self,
        input: Tensor,
        memory: Sequence[KeyValues],
        caches: Sequence[KeyValueCache],
        weights_of: int | None = None,
    ) -> DecoderOutput:
        """Run the stack on the next tokens of each target, which see themselves and all earlier tokens.

        Args:
            input: ``[batch, new, dim]``.
            memory: what `remember` gave.
            caches: for each layer the keys and values of the earlier tokens.
            weights_of: as in `run`.
        """
        packing = packing_of(input, None)
        return self.run(packing.pack(input), packing, memory, _causal(input), caches, weights_of)

    @property
    def _layers(self) -> list[TransformerDecoderLayer]:
        return cast(list[TransformerDecoderLayer], list(self.layers))


@fx_leaf
class Transformer(nn.Module):
    """An encoder and a decoder (Vaswani et al. 2017, figure 1), without embeddings and output matrix.

    With the default `LayerConfig` the ``state_dict`` is that of `torch.nn.Transformer` with the same sizes: weights
    load from one into the other.

    Args:
        encoder: the encoder.
        decoder: the decoder.
    """

    def __init__(self, encoder: TransformerEncoder, decoder: TransformerDecoder):
        super().__init__()
        for name, stack, kind in (("encoder", encoder, TransformerEncoder), ("decoder", decoder, TransformerDecoder)):
            if not isinstance(stack, kind):
                raise KindError(
                    f"{name} must be a regard.nn.{kind.__name__}; it is {kind_of(stack)}. For sizes, as those of "
                    "torch.nn.Transformer, write Transformer.create(6, 6, LayerConfig(dim=512, heads=8))"
                )
        self.encoder = encoder
        self.decoder = decoder

    @classmethod
    def create(
        cls, encoder_layers: int = 6, decoder_layers: int = 6, config: LayerConfig | None = None
    ) -> "Transformer":
        """A Transformer of new layers; ``config`` says how they are made."""
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
        """Encode the source, and decode the target with attention to it.

        Args:
            source: ``[batch, source, dim]``.
            target: ``[batch, target, dim]``.
            source_lengths: integers ``[batch]``; None: all tokens.
            target_lengths: integers ``[batch]``; None: all tokens.
            source_mask: which source tokens each source token may see; None: all.
            target_mask: which target tokens each target token may see; None: `regard.masks.causal`.

        Returns:
            ``[batch, target, dim]``.
        """
        memory = self.encoder(source, source_lengths, source_mask)
        return self.decoder(target, memory, target_lengths, source_lengths, target_mask)


def _causal(input: Tensor) -> Mask | None:
    # One new token sees every earlier one: nothing is hidden from it.
    return masks.causal() if input.shape[1] > 1 else None


def _dim(layers: object, kind: type[TransformerEncoderLayer] | type[TransformerDecoderLayer]) -> int:
    """Features of the layers of a stack, if they are a sequence of such layers."""
    if not isinstance(layers, (Sequence, nn.ModuleList)) or isinstance(layers, str):
        raise KindError(
            f"layers must be a sequence of regard.nn.{kind.__name__}; it is {kind_of(layers)}. For a number of new "
            f"layers, write {kind.__name__.removesuffix('Layer')}.create(6, LayerConfig(dim=512, heads=8))"
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
