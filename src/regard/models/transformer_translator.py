"""A Transformer that translates (Vaswani et al. 2017)."""

from dataclasses import dataclass

from torch import Tensor

from regard.errors import ArgumentError, UnknownNameError
from regard.models.encoders import Encoded
from regard.models.token_input import POSITIONS, TokenInput, layer_config
from regard.models.transformer_decoding import TransformerDecoding
from regard.models.translator import TIES, check_vocabularies, output_matrix, token_embedding
from regard.nn import LayerConfig, TransformerDecoder, TransformerEncoder


@dataclass(frozen=True)
class TransformerConfig:
    """The configuration of a `TransformerTranslator`."""

    source_vocabulary: int
    """Source tokens."""
    target_vocabulary: int
    """Target tokens."""
    dim: int = 512
    """Features of a token."""
    heads: int = 8
    """Query heads; a divisor of ``dim``."""
    kv_heads: int | None = None
    """Key and value heads, a divisor of ``heads``; None: as many as ``heads``."""
    feedforward: int = 2048
    """Units of the hidden layer of the feedforward networks."""
    encoder_layers: int = 6
    decoder_layers: int = 6
    norm_first: bool = True
    """Layer normalization before each part (pre-norm) instead of after the sum (post-norm)."""
    activation: str = "relu"
    """``relu``, ``gelu`` or ``silu``."""
    position: str = "sinusoidal"
    """``sinusoidal``, ``learned``, ``rotary``, ``alibi``, ``t5``, ``shaw`` or ``none``."""
    max_length: int = 512
    """Position ``learned``: the longest source or target, in tokens."""
    score: str = "scaled_dot"
    """Score of every attention: a name of `regard.scores.create`."""
    normalizer: str = "softmax"
    """Normalizer of every attention."""
    dropout: float = 0.1
    """Rate on embeddings, after each part, in feedforward networks and on attention weights; in [0, 1)."""
    tied_embeddings: str = "target"
    """``none``; ``target``: output matrix and target embedding are one matrix; ``all``: the source embedding too."""
    feedforward_chunk: int = 0
    """Rows that the feedforward networks treat at a time; 0: all."""
    activation_checkpointing: bool = False
    """Activation checkpointing; see `regard.nn.LayerConfig`."""
    pad: int = 0
    """Token that pads the rows of a batch."""
    bos: int = 1
    """Token that begins each target."""
    eos: int = 2
    """Token that ends each target."""

    def __post_init__(self) -> None:
        for name, known in (("position", POSITIONS), ("tied_embeddings", TIES)):
            if getattr(self, name) not in known:
                raise UnknownNameError(name, getattr(self, name), known)
        for name in ("source_vocabulary", "target_vocabulary", "dim", "heads", "feedforward", "encoder_layers",
                     "decoder_layers", "max_length"):  # fmt: skip
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be at least 1; it is {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ArgumentError(f"dropout must be in [0, 1); it is {self.dropout}")
        check_vocabularies(self)
        self.layer  # noqa: B018 (checks the sizes of the layers)

    @property
    def layer(self) -> LayerConfig:
        """How the layers are made."""
        return layer_config(self)


class TransformerTranslator(TransformerDecoding):
    """A Transformer that translates (Vaswani et al. 2017, figure 1).

    Args:
        config: the configuration.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        target = token_embedding(config.target_vocabulary, config.dim)
        shared = config.tied_embeddings == "all"
        source = target if shared else token_embedding(config.source_vocabulary, config.dim)
        self.source_input = TokenInput(source, config.position, config.max_length, config.dropout)
        self.target_input = TokenInput(target, config.position, config.max_length, config.dropout)
        self.encoder = TransformerEncoder.create(config.encoder_layers, config.layer)
        self.decoder = TransformerDecoder.create(config.decoder_layers, config.layer)
        self.output = output_matrix(target, config.tied_embeddings != "none")
        self.max_length = config.max_length if config.position == "learned" else None
        self.aligned_layer = max(0, config.decoder_layers - 2)

    def encode(self, source: Tensor, lengths: Tensor) -> Encoded:
        return Encoded(self.encoder(self.source_input(source), lengths=lengths), lengths)
