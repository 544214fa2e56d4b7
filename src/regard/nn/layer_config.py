"""The configuration of Transformer layers: their sizes, and the kind of their attention."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from regard import scores
from regard.attention.execution import check_backend
from regard.attention.problem import check_dropout
from regard.biases import Bias, RelativeBias, RelativePosition, alibi
from regard.configuration import shows_fields
from regard.errors import ArgumentError
from regard.nn.multihead import MultiheadAttention
from regard.nn.transformer_layers import ACTIVATIONS, TransformerDecoderLayer, TransformerEncoderLayer
from regard.normalizers import NormalizerName, as_normalizer
from regard.positions import Rotary
from regard.shapes import flag, known_name, size

RelativePositionName = Literal["none", "rotary", "alibi", "t5", "shaw"]
RELATIVE_POSITIONS: tuple[RelativePositionName, ...] = get_args(RelativePositionName)
LAYER_SCORES = get_args(scores.ContentScoreName)
"""Scores of layers: all except those of location, which need a number of keys."""
SHAW_DISTANCE = 16
"""Distance at which ``shaw`` clips relative positions (Shaw et al. 2018, section 4.1)."""


@shows_fields
@dataclass(frozen=True)
class LayerConfig:
    """The configuration of the layers of a stack."""

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
    score: scores.ContentScoreName = "scaled_dot"
    """A name of `regard.scores.create`; each attention has its own weights of the score."""
    normalizer: NormalizerName = "softmax"
    """A name of a normalizer."""
    position: RelativePositionName = "none"
    """Positions in self-attention: ``none``, ``rotary`` (Su et al. 2021), ``alibi`` (Press et al. 2022), ``t5`` (a bias
    for each range of distances, Raffel et al. 2020) or ``shaw`` (Shaw et al. 2018)."""
    backend: str = "auto"
    """Backend of every attention."""
    feedforward_chunk: int = 0
    """Rows (tokens of a batch) that the feedforward network processes at a time (Kitaev et al. 2020, section 3); 0:
    all. With ``activation_checkpointing``, its hidden layer needs memory for only one chunk."""
    activation_checkpointing: bool = False
    """Activation checkpointing (Chen et al. 2016): each layer saves only the inputs of its parts, and recomputes the
    rest in the backward pass, with the same dropout. Gradients are the same, bit for bit; a step takes about one
    forward pass longer."""

    def __post_init__(self) -> None:
        for name in ("dim", "heads", "feedforward"):
            size(name, getattr(self, name))
        size("feedforward_chunk", self.feedforward_chunk, low=0)
        check_dropout(self.dropout)
        known_name("activation", self.activation, ACTIVATIONS)
        known_name("position", self.position, RELATIVE_POSITIONS)
        known_name("score", self.score, LAYER_SCORES)
        as_normalizer(self.normalizer)
        check_backend(self.backend)
        flag("norm_first", self.norm_first)
        flag("activation_checkpointing", self.activation_checkpointing)
        if self.kv_heads is not None and self.heads % size("kv_heads", self.kv_heads):
            raise ArgumentError(f"kv_heads must divide heads, {self.heads}; it is {self.kv_heads}")
        if self.dim % self.heads:
            raise ArgumentError(f"heads must divide dim; heads is {self.heads} and dim is {self.dim}")
        if self.position == "rotary" and self.dim // self.heads % 2:
            raise ArgumentError(
                f"position 'rotary' needs an even number of features a head; dim / heads is {self.dim // self.heads}"
            )

    def encoder_layer(self, bidirectional: bool = True) -> TransformerEncoderLayer:
        """Creates a layer of self-attention.

        Args:
            bidirectional: whether tokens may see later ones; if False, ``t5`` has buckets for earlier ones only.
        """
        return TransformerEncoderLayer(self._self_attention(bidirectional), **self._layer_options())

    def decoder_layer(self) -> TransformerDecoderLayer:
        """Creates a layer of self-attention and attention to an encoder's output; the latter has no positions."""
        return TransformerDecoderLayer(self._self_attention(False), self._attention(None), **self._layer_options())

    def _layer_options(self) -> dict[str, Any]:
        names = (
            "feedforward", "dropout", "activation", "norm_first", "feedforward_chunk", "activation_checkpointing",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def _self_attention(self, bidirectional: bool) -> MultiheadAttention:
        head_dim = self.dim // self.heads
        position: Rotary | Bias | None = None
        if self.position == "rotary":
            position = Rotary(head_dim)
        elif self.position == "alibi":
            position = alibi(self.heads)
        elif self.position == "t5":
            position = RelativeBias(self.heads, bidirectional=bidirectional)
        elif self.position == "shaw":
            position = RelativePosition(head_dim, SHAW_DISTANCE)
        return self._attention(position)

    def _attention(self, position: Rotary | Bias | None) -> MultiheadAttention:
        head_dim = self.dim // self.heads
        return MultiheadAttention(
            self.dim,
            self.heads,
            self.dropout,
            batch_first=True,
            score=scores.create(self.score, head_dim, head_dim),
            normalizer=self.normalizer,
            kv_heads=self.kv_heads,
            position=position,
            backend=self.backend,
        )
