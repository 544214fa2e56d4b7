"""The configuration of Transformer layers: their sizes, and the kind of their attention."""

from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from torch import nn

from regard.attention.execution import check_backend
from regard.attention.problem import check_dropout
from regard.errors import ArgumentError
from regard.names.field_texts import shows_fields
from regard.names.foreign_names import written_here, written_in_layers
from regard.nn.attention_names import AttentionName
from regard.nn.layer_parts import ACTIVATIONS, LAYER_SCORES, NORMS, NormName, new_norm
from regard.nn.named_positions import Position, check_position
from regard.nn.transformer_layers import TransformerDecoderLayer, TransformerEncoderLayer
from regard.normalizers import NormalizerName, as_normalizer
from regard.scores import ContentScoreName
from regard.shapes.checks import flag, known_name, positive_number, size

LayerT = TypeVar("LayerT", TransformerEncoderLayer, TransformerDecoderLayer)


@shows_fields
@dataclass(frozen=True)
class LayerConfig:
    """The configuration of the layers of a stack: their options under regard's names, checked at once.

    The feedforward networks of its layers begin with the uniform weights of Glorot and Bengio 2010 and biases of 0;
    those of layers that are constructed directly begin as PyTorch's do.

    Raises:
        ArgumentError, KindError, UnknownNameError: a field is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> config = nn.LayerConfig(dim=32, heads=4, kv_heads=2, feedforward=64, position="rotary", norm="rms")
        >>> layer = config.encoder_layer()
        >>> layer(torch.randn(2, 5, 32), mask="causal").shape
        torch.Size([2, 5, 32])
        >>> layer.self_attn.k_proj_weight.shape  # 2 heads of 8 features
        torch.Size([16, 32])
        >>> nn.LayerConfig(dim=30, heads=4)
        Traceback (most recent call last):
            ...
        regard.errors.ArgumentError: heads must divide dim; heads is 4 and dim is 30
    """

    dim: int = 512
    """Features of a token."""
    heads: int = 8
    """Query heads; a divisor of ``dim``."""
    feedforward: int = 2048
    """Units of the hidden layer of the feedforward network."""
    dropout: float = 0.1
    """Dropout rate after each part, in the feedforward network, and of attention weights; in [0, 1)."""
    activation: Literal["relu", "gelu", "silu"] = "relu"
    """``relu``, ``gelu`` or ``silu``."""
    norm_first: bool = False
    """Layer normalization before each part (pre-norm) instead of after the sum (post-norm)."""
    kv_heads: int | None = None
    """Key and value heads, a divisor of ``heads``; None: as many as ``heads``."""
    attention: AttentionName = "multihead"
    """The self-attention: ``multihead``, or another name of `regard.nn.attention_names`, which takes of the options
    those that it has."""
    score: ContentScoreName = "scaled_dot"
    """A name of `regard.scores.create`; each attention has its own weights of the score."""
    normalizer: NormalizerName = "softmax"
    """A name of a normalizer."""
    position: Position | tuple[Position, ...] = "none"
    """Positions in self-attention: ``none``, ``rotary`` (Su et al. 2021), ``alibi`` (Press et al. 2022), ``t5`` (a bias
    for each range of distances, Raffel et al. 2020), ``shaw`` (Shaw et al. 2018), a `Rotary` or a `Bias`. A tuple has
    those of the first layers, and repeats: after three layers with positions the fourth has none (Llama 4, SmolLM3) in
    ``("rotary", "rotary", "rotary", "none")``, and Gemma 3 has another base in every sixth."""
    backend: str = "auto"
    """Backend of every attention."""
    feedforward_chunk: int = 0
    """Rows (tokens of a batch) that the feedforward network processes at a time (Kitaev et al. 2020, section 3); 0:
    all. With ``activation_checkpointing``, its hidden layer needs memory for only one chunk."""
    activation_checkpointing: bool = False
    """Activation checkpointing (Chen et al. 2016): each layer saves only the inputs of its parts, and recomputes the
    rest in the backward pass, with the same dropout. Gradients are the same, bit for bit; a step takes about one
    forward pass longer."""
    norm: NormName = "layer"
    """Normalization: ``layer``, or ``rms``, which has no bias."""
    layer_norm_eps: float = 1e-5
    """ε of the normalizations."""
    bias: bool = True
    """Whether projections and normalizations have biases."""
    batch_first: bool = True
    """Inputs and outputs are ``[batch, length, dim]``; if False, ``[length, batch, dim]``."""

    def __post_init__(self) -> None:
        for name in ("dim", "heads", "feedforward"):
            size(name, getattr(self, name))
        size("feedforward_chunk", self.feedforward_chunk, low=0)
        check_dropout(self.dropout)
        known_name("activation", self.activation, ACTIVATIONS)
        known_name("norm", self.norm, NORMS)
        known_name("attention", self.attention, get_args(AttentionName), written_here("attention", self.attention))
        known_name("score", self.score, LAYER_SCORES, written_in_layers(self.score, objects=False))
        as_normalizer(self.normalizer)
        check_backend(self.backend)
        for name in ("norm_first", "activation_checkpointing", "bias", "batch_first"):
            flag(name, getattr(self, name))
        positive_number("layer_norm_eps", self.layer_norm_eps)
        if self.kv_heads is not None and self.heads % size("kv_heads", self.kv_heads):
            raise ArgumentError(f"kv_heads must divide heads, {self.heads}; it is {self.kv_heads}")
        if self.dim % self.heads:
            raise ArgumentError(f"heads must divide dim; heads is {self.heads} and dim is {self.dim}")
        for position in self._positions:
            check_position(position, self.dim // self.heads)

    @property
    def _positions(self) -> tuple[Position, ...]:
        """The positions of the first layers, which those of the others repeat."""
        if self.position == ():
            raise ArgumentError("position must have at least one layer's; it is ()")
        return self.position if isinstance(self.position, tuple) else (self.position,)

    def encoder_layer(self, bidirectional: bool = True, depth: int = 0) -> TransformerEncoderLayer:
        """Creates a layer of self-attention.

        Args:
            bidirectional: whether tokens may see later ones; if False, ``t5`` has buckets for earlier ones only.
            depth: number of the layer in its stack, from 0.
        """
        return self._create(TransformerEncoderLayer, depth, bidirectional=bidirectional)

    def decoder_layer(self, depth: int = 0) -> TransformerDecoderLayer:
        """Creates a layer of self-attention and attention to an encoder's output; the latter has no positions.

        Args:
            depth: number of the layer in its stack, from 0.
        """
        return self._create(TransformerDecoderLayer, depth)

    def final_norm(self) -> nn.Module:
        """Creates the normalization at the end of a stack."""
        return new_norm(self.norm, self.dim, self.layer_norm_eps, self.bias)

    def _create(self, kind: type[LayerT], depth: int, **options: Any) -> LayerT:
        """Creates a layer whose feedforward network has uniform weights (Glorot and Bengio 2010) and biases of 0."""
        names = (
            "dropout", "activation", "layer_norm_eps", "batch_first", "norm_first", "bias", "score", "normalizer",
            "kv_heads", "attention", "norm", "backend", "feedforward_chunk", "activation_checkpointing",
        )  # fmt: skip
        options |= {name: getattr(self, name) for name in names}
        position = self._positions[depth % len(self._positions)]
        layer = kind(self.dim, self.heads, self.feedforward, position=position, depth=depth, **options)
        for linear in (layer.linear1, layer.linear2):
            nn.init.xavier_uniform_(linear.weight)
            if self.bias:
                nn.init.zeros_(linear.bias)
        return layer
