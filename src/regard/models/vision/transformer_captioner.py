"""A Transformer decoder on the grid of an image."""

from dataclasses import dataclass

from torch import Tensor, nn

from regard.errors import ArgumentError, UnknownNameError
from regard.models.encoders import Encoded
from regard.models.token_input import POSITIONS, TokenInput, layer_config
from regard.models.transformer_decoding import TransformerPredictor
from regard.models.translator import output_matrix, token_embedding
from regard.models.vision.captioner import Captioner, CaptionerConfig
from regard.models.vision.grid_encoder import GridEncoder
from regard.nn import LayerConfig, TransformerDecoder


@dataclass(frozen=True)
class TransformerCaptionerConfig(CaptionerConfig):
    """The configuration of a `TransformerCaptioner`."""

    dim: int = 256
    """Features of a token."""
    heads: int = 8
    """Number of heads, a divisor of ``dim``."""
    kv_heads: int | None = None
    """Key and value heads, a divisor of ``heads``; None: as many as ``heads``."""
    feedforward: int = 1024
    """Units of the hidden layer of the feedforward networks."""
    layers: int = 2
    """Layers of the decoder."""
    feedforward_chunk: int = 0
    """Rows that the feedforward networks process at a time; 0: all."""
    activation_checkpointing: bool = False
    """Whether activations of the decoder are recomputed in the backward pass instead of saved."""
    norm_first: bool = True
    """Layer normalization before each part (pre-norm) instead of after the sum (post-norm)."""
    activation: str = "relu"
    """``relu``, ``gelu`` or ``silu``."""
    position: str = "sinusoidal"
    """Positions of the tokens: one of `regard.models.token_input.POSITIONS`."""
    max_length: int = 64
    """Position ``learned``: the longest caption, in tokens."""
    score: str = "scaled_dot"
    """Score of every attention: a name of `regard.scores.create`."""
    normalizer: str = "softmax"
    """Normalizer of every attention."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.position not in POSITIONS:
            raise UnknownNameError("position", self.position, POSITIONS)
        for name in ("dim", "heads", "feedforward", "layers", "max_length"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be at least 1; it is {getattr(self, name)}")
        self.layer  # noqa: B018 (checks the sizes of the layers)

    @property
    def layer(self) -> LayerConfig:
        """The configuration of the layers."""
        return layer_config(self)


class TransformerCaptioner(TransformerPredictor, Captioner):
    """Captions images by a Transformer decoder that attends to a convolutional grid (Vaswani et al. 2017, section 3.1).

    Annotations are projected to the features of a token and normalized. The returned weights over the grid are the mean
    over the heads of the second-last layer.

    Args:
        config: the configuration.
    """

    config: TransformerCaptionerConfig

    def __init__(self, config: TransformerCaptionerConfig):
        super().__init__()
        self.config = config
        self.encoder = GridEncoder(config, config.dropout)
        self.memory = nn.Sequential(nn.Linear(self.encoder.dim, config.dim), nn.LayerNorm(config.dim))
        embedding = token_embedding(config.target_vocabulary, config.dim)
        self.target_input = TokenInput(embedding, config.position, config.max_length, config.dropout)
        self.decoder = TransformerDecoder.create(config.layers, config.layer)
        self.output = output_matrix(embedding, config.tied_embeddings)
        self.max_length = config.max_length if config.position == "learned" else None
        self.aligned_layer = max(0, config.layers - 2)

    def encode(self, images: Tensor) -> Encoded:
        encoded = self.encoder(images)
        return Encoded(self.memory(encoded.annotations), encoded.lengths)
