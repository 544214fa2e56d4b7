"""Transcribers of sounds: an encoder of sounds, and a recurrent or a Transformer decoder."""

from torch import Tensor

from regard.errors import ArgumentError
from regard.models.bahdanau_decoder import BahdanauDecoder
from regard.models.configs import RECURRENT_CELLS
from regard.models.encoders import Encoded
from regard.models.recurrent_decoding import RecurrentPredictor
from regard.models.search import SearchableDecoder
from regard.models.speech.configs import FILTERED, TranscriberConfig
from regard.models.speech.ctc import AlignmentHead
from regard.models.speech.encoders import SpeechEncoder
from regard.models.speech.focus import focus
from regard.models.speech.joint_search import JointDecoder
from regard.models.step_attention import step_attention
from regard.models.token_input import TokenInput, ended, layer_config
from regard.models.transformer_decoding import TransformerPredictor
from regard.models.translator import Loss, Translator, output_matrix, token_embedding
from regard.nn import TransformerDecoder


class Transcriber(Translator):
    """A translator whose source are the features of sounds, ``float32 [batch, frames, width]``.

    The annotations can also be trained to predict the tokens in their order without the decoder (connectionist temporal
    classification), which helps the attention to become monotonic from little data (Kim, Hori and Watanabe 2017,
    eq. 13): ``L = (1 − λ) L_attention + λ L_CTC``.

    Attributes:
        encoder: makes annotations of features.
        alignment_head: predicts tokens from annotations; None without the loss above.
    """

    config: TranscriberConfig
    encoder: SpeechEncoder
    alignment_head: AlignmentHead | None

    def encode(self, source: Tensor, lengths: Tensor) -> Encoded:
        return self.encoder(source, lengths)

    def searched(self, ctc_weight: float) -> SearchableDecoder:
        """Returns the decoder that a search runs on.

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
        options = {"sampling_probability": sampling_probability, "need_weights": False}
        predicted = self.decode(encoded, target, target_lengths, **options)
        loss = self.loss_of(predicted, target, target_lengths, label_smoothing)
        if self.alignment_head is None or not self.training:
            return loss
        aligned = self.alignment_head.loss(encoded, target, target_lengths) / loss.tokens.clamp(min=1)
        weight = self.config.ctc_weight
        return loss._replace(total=(1 - weight) * loss.total + weight * aligned)


class RecurrentTranscriber(RecurrentPredictor, Transcriber):
    """A pyramidal recurrent encoder, and a recurrent decoder with location-aware or monotonic attention.

    The encoder is that of Chan et al. 2016, section 3.1, after convolutions; the decoder a `BahdanauDecoder`, with the
    score of Chorowski et al. 2015 unless it is monotonic.

    Args:
        config: the configuration.
    """

    def __init__(self, config: TranscriberConfig):
        super().__init__()
        self.config = config = config.complete(*RECURRENT_CELLS)
        self.encoder = SpeechEncoder(config)
        self.alignment_head = _alignment_head(config)
        embedding = token_embedding(config.target_vocabulary, config.embedding)
        output = output_matrix(embedding, tied=False)
        units = None if config.score in ("dot", "scaled_dot", "general") else config.score_features
        filtered = config.score in FILTERED
        attention = step_attention(
            config.attention,
            config.score,
            config.decoder_hidden,
            config.hidden,
            units,
            normalizer=focus(config.normalizer),
            width=config.chunk_width,
            channels=config.location_channels if filtered else None,
            kernel_size=config.location_width if filtered else None,
        )
        sizes = config.hidden, self.encoder.summary_dim, config.decoder_hidden, config.decoder_layers
        self.decoder = BahdanauDecoder(embedding, output, attention, *sizes, dropout=config.dropout)


class TransformerTranscriber(TransformerPredictor, Transcriber):
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


def _alignment_head(config: TranscriberConfig) -> AlignmentHead | None:
    return AlignmentHead(config.hidden, config.target_vocabulary, config.pad) if config.ctc_weight else None
