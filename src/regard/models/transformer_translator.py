"""A Transformer that translates (Vaswani et al. 2017)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard import masks
from regard.errors import ArgumentError, UnknownNameError
from regard.models.encoders import Encoded
from regard.models.recurrent_decoder import Step
from regard.models.token_input import POSITIONS, TokenInput, layer_config
from regard.models.text_predictor import TranslatorOutput
from regard.models.translator import (
    TIES,
    DecodedRow,
    Translator,
    check_vocabularies,
    output_matrix,
    token_embedding,
)
from regard.nn import KeyValueCache, KeyValues, LayerConfig, Packing, TransformerDecoder, TransformerEncoder


@dataclass(frozen=True, slots=True)
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

    @property
    def min_numbers(self) -> int:
        """A lower bound of the number of parameters, of the right order of magnitude."""
        vocabularies = self.target_vocabulary + (0 if self.tied_embeddings == "all" else self.source_vocabulary)
        layers = self.encoder_layers + self.decoder_layers
        return vocabularies * self.dim + layers * 2 * self.dim * (self.dim + self.feedforward)


@dataclass(frozen=True)
class TransformerState:
    """The state of the decoder for a batch of rows.

    Attributes:
        memory: for each layer the keys and values of the source.
        caches: for each layer the keys and values of the target tokens so far.
    """

    memory: Sequence[KeyValues]
    caches: Sequence[KeyValueCache]

    def select(self, index: Tensor) -> "TransformerState":
        """The rows ``index [rows]`` of this state, in that order; a row may occur several times."""
        return replace(self.reorder(index), memory=[memory.select(index) for memory in self.memory])

    def reorder(self, index: Tensor) -> "TransformerState":
        """As `select`, if each new row has the same source as the row that it replaces: the memory is not copied."""
        return replace(self, caches=[cache.select(index) for cache in self.caches])


class TransformerTranslator(Translator):
    """A Transformer that translates (Vaswani et al. 2017, figure 1).

    The weights over the source that it gives are the mean over the heads of the second last decoder layer, which agree
    with word alignments more than those of other layers (Garg et al. 2019, section 4.1). Scheduled sampling needs one
    step after the other, so the Transformer has none.

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

    @property
    def attends(self) -> bool:
        return True

    def encode(self, source: Tensor, lengths: Tensor) -> Encoded:
        return Encoded(self.encoder(self.source_input(source), lengths), lengths)

    def start(self, encoded: Encoded) -> TransformerState:
        memory = self.decoder.remember(encoded.annotations, encoded.lengths)
        return TransformerState(memory, [KeyValueCache() for _ in memory])

    def step(self, tokens: Tensor, state: TransformerState) -> Step:
        row = self.decode_row(tokens, state)
        logits = self.output(row.readout).float()
        return Step(torch.log_softmax(logits, dim=-1), row.state, row.weights.float())

    def decode_row(self, tokens: Tensor, state: TransformerState) -> DecodedRow:
        """`step` before the output matrix."""
        embedded = self.target_input(tokens[:, None], state.caches[0].length)
        rows, caches, weights = self.decoder.step(embedded, state.memory, state.caches, self.aligned_layer)
        assert weights is not None
        return DecodedRow(rows, replace(state, caches=caches), weights.mean(1)[:, 0])

    def forward(
        self,
        source: Tensor,
        source_lengths: Tensor,
        target: Tensor,
        target_lengths: Tensor | None = None,
        *,
        sampling_probability: float = 0.0,
        need_weights: bool = True,
    ) -> TranslatorOutput:
        if sampling_probability:
            raise ArgumentError("sampling_probability must be 0: a Transformer decodes all tokens at once")
        return self.decode(self.encode(source, source_lengths), target, target_lengths, need_weights=need_weights)

    def decode(
        self, encoded: Encoded, target: Tensor, target_lengths: Tensor | None = None, *, need_weights: bool = True
    ) -> TranslatorOutput:
        """`forward` for a source that is encoded already."""
        embedded = self.target_input(target[:, :-1])
        batch, length = embedded.shape[:2]
        packing, visible = Packing.full(batch, length), masks.causal()
        if target_lengths is not None:
            # The last token of a target predicts nothing.
            packing = Packing((target_lengths - 1).clamp(min=0), length)
        memory = self.decoder.remember(encoded.annotations, encoded.lengths)
        rows, _, weights = self.decoder.run(
            packing.pack(embedded), packing, memory, visible, None, self.aligned_layer if need_weights else None
        )
        weights = None if weights is None else weights.mean(dim=1)
        return TranslatorOutput(packing.pad(rows), weights, None, self.output)
