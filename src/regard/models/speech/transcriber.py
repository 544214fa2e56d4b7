"""Models that write what they hear: an encoder of sounds, and a recurrent or a Transformer decoder."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor

from regard.errors import ArgumentError
from regard.models.configs import MONOTONIC, RECURRENT
from regard.models.encoders import Encoded
from regard.models.monotonic_decoder import MonotonicDecoder
from regard.models.recurrent_decoder import DecoderState, RecurrentDecoder, Step
from regard.models.search import SearchableDecoder
from regard.models.speech.configs import TranscriberConfig
from regard.models.speech.ctc import AlignmentHead
from regard.models.speech.encoders import SpeechEncoder
from regard.models.speech.joint_search import JointDecoder
from regard.models.speech.location_decoder import LocationDecoder, focus
from regard.models.token_input import TokenInput, ended, layer_config
from regard.models.transformer_decoding import TransformerDecoding
from regard.models.translator import Loss, Translator, TranslatorOutput, output_matrix, token_embedding
from regard.nn import Attention, MonotonicAttention, TransformerDecoder


class Transcriber(Translator, ABC):
    """A translator whose source are the features of sounds, ``float32 [batch, frames, width]``.

    Besides what its decoder predicts, the annotations can be trained to tell the tokens in their order by themselves
    (connectionist temporal classification), which helps the attention to become monotonic from little data
    (Kim, Hori and Watanabe 2017, eq. 13): ``L = (1 − λ) L_attention + λ L_CTC``.

    Attributes:
        encoder: makes annotations of features.
        alignment_head: tells tokens from annotations; None without the loss above.
    """

    config: TranscriberConfig
    encoder: SpeechEncoder
    alignment_head: AlignmentHead | None

    def encode(self, source: Tensor, lengths: Tensor) -> Encoded:
        return self.encoder(source, lengths)

    @abstractmethod
    def predict(
        self,
        encoded: Encoded,
        target: Tensor,
        target_lengths: Tensor | None,
        *,
        sampling_probability: float = 0.0,
        need_weights: bool = True,
    ) -> TranslatorOutput:
        """`forward` for a source that is encoded already."""

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
        return self.predict(
            self.encode(source, source_lengths),
            target,
            target_lengths,
            sampling_probability=sampling_probability,
            need_weights=need_weights,
        )

    def searched(self, ctc_weight: float) -> SearchableDecoder:
        """What a search asks for the next token.

        Args:
            ctc_weight: of the alignment head, λ of `JointDecoder`, in [0, 1]; 0: the decoder alone.

        Raises:
            ArgumentError: the model has no alignment head.
        """
        if not ctc_weight:
            return self
        if self.alignment_head is None:
            raise ArgumentError("ctc_weight must be 0: this model was trained without an alignment head")
        return JointDecoder(self, self.alignment_head, ctc_weight)

    def loss(
        self,
        source: Tensor,
        source_lengths: Tensor,
        target: Tensor,
        target_lengths: Tensor,
        *,
        label_smoothing: float = 0.1,
        sampling_probability: float = 0.0,
    ) -> Loss:
        """Adds the loss of the alignment head to that of a text predictor, while training."""
        encoded = self.encode(source, source_lengths)
        predicted = self.predict(
            encoded, target, target_lengths, sampling_probability=sampling_probability, need_weights=False
        )
        loss = self.loss_of(predicted, target, target_lengths, label_smoothing)
        if self.alignment_head is None or not self.training:
            return loss
        aligned = self.alignment_head.loss(encoded, target, target_lengths) / loss.tokens.clamp(min=1)
        weight = self.config.ctc_weight
        return loss._replace(total=(1 - weight) * loss.total + weight * aligned)


class RecurrentTranscriber(Transcriber):
    """A pyramidal recurrent encoder, and a recurrent decoder with location-aware or monotonic attention.

    The encoder is that of Chan et al. 2016, section 3.1, after convolutions; the decoder that of Chorowski et al. 2015,
    or with ``attention="monotonic"`` or ``"chunkwise"`` a `regard.models.MonotonicDecoder`.

    Args:
        config: the configuration.
    """

    def __init__(self, config: TranscriberConfig):
        super().__init__()
        self.decoder: RecurrentDecoder
        self.config = config = config.complete(*RECURRENT)
        self.encoder = SpeechEncoder(config)
        self.alignment_head = _alignment_head(config)
        embedding = token_embedding(config.target_vocabulary, config.embedding)
        output = output_matrix(embedding, tied=False)
        sizes = config.hidden, self.encoder.summary_dim, config.decoder_hidden, config.decoder_layers
        units = config.score_features if config.score in ("location_aware", "additive") else None
        if config.attention in MONOTONIC:
            width = config.chunk_width if config.attention == "chunkwise" else 1
            monotonic = MonotonicAttention.create(
                config.score, config.decoder_hidden, config.hidden, units, width=width
            )
            self.decoder = MonotonicDecoder(embedding, output, monotonic, *sizes, dropout=config.dropout)
            return
        located = config.score == "location_aware"
        attention = Attention.create(
            config.score,
            config.decoder_hidden,
            config.hidden,
            units,
            channels=config.location_channels if located else None,
            kernel_size=config.location_width if located else None,
            normalizer=focus(config.normalizer),
        )
        self.decoder = LocationDecoder(embedding, output, attention, *sizes, config.dropout)

    @property
    def attends(self) -> bool:
        return True

    def start(self, encoded: Encoded) -> DecoderState:
        return self.decoder.start(encoded)

    def step(self, tokens: Tensor, state: DecoderState) -> Step:
        return self.decoder.step(tokens, state)

    def predict(
        self,
        encoded: Encoded,
        target: Tensor,
        target_lengths: Tensor | None,
        *,
        sampling_probability: float = 0.0,
        need_weights: bool = True,
    ) -> TranslatorOutput:
        if not 0 <= sampling_probability <= 1:
            raise ArgumentError(f"sampling_probability must be in [0, 1]; it is {sampling_probability}")
        state, inputs = self.start(encoded), target[:, :-1]
        if sampling_probability:
            decoded = self.decoder.decode_sampling(inputs, state, sampling_probability)
        else:
            decoded = self.decoder(inputs, state)
        return TranslatorOutput(decoded.readout, decoded.weights, None, self.decoder.output)


class TransformerTranscriber(TransformerDecoding, Transcriber):
    """Convolutions, a Transformer encoder, and a Transformer decoder (Dong, Xu and Xu 2018, "Speech-Transformer").

    Args:
        config: the configuration.
    """

    def __init__(self, config: TranscriberConfig):
        super().__init__()
        self.config = config = config.complete("transformer")
        self.encoder = SpeechEncoder(config)
        self.alignment_head = _alignment_head(config)
        embedding = token_embedding(config.target_vocabulary, config.hidden)
        self.target_input = TokenInput(embedding, config.position, 1, config.dropout)
        self.decoder = ended(TransformerDecoder.create(config.decoder_layers, layer_config(config)), config)
        self.output = output_matrix(embedding, tied=False)
        self.aligned_layer = max(0, config.decoder_layers - 2)

    def encode(self, source: Tensor, lengths: Tensor) -> Encoded:
        return Transcriber.encode(self, source, lengths)

    def forward(self, *arguments: Any, **options: Any) -> TranslatorOutput:
        return Transcriber.forward(self, *arguments, **options)

    def predict(
        self,
        encoded: Encoded,
        target: Tensor,
        target_lengths: Tensor | None,
        *,
        sampling_probability: float = 0.0,
        need_weights: bool = True,
    ) -> TranslatorOutput:
        if sampling_probability:
            raise ArgumentError("sampling_probability must be 0: a Transformer decodes all tokens at once")
        return self.decode(encoded, target, target_lengths, need_weights=need_weights)


def _alignment_head(config: TranscriberConfig) -> AlignmentHead | None:
    return AlignmentHead(config.hidden, config.target_vocabulary, config.pad) if config.ctc_weight else None
