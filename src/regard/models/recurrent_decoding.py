"""The decoding half of a model of texts whose decoder is recurrent, on the annotations of any encoder."""

from typing import Any

from torch import Tensor, nn

from regard.errors import ArgumentError
from regard.models.encoders import Encoded
from regard.models.hard_attention import ReinforceBaseline
from regard.models.recurrent_decoder import DecoderState, RecurrentDecoder, SearchStep
from regard.models.text_predictor import DecodedRow, TextPredictor, TranslatorOutput


class RecurrentPredictor(TextPredictor):
    """Predicts a text with a recurrent decoder; a subclass encodes its kind of source. ``baseline`` is that of hard
    attention by REINFORCE; None without it."""

    decoder: RecurrentDecoder
    baseline: ReinforceBaseline | None

    @property
    def attends(self) -> bool:
        return self.config.attention != "none"

    @property
    def target_embedding(self) -> nn.Embedding:
        return self.decoder.embedding

    @property
    def output(self) -> nn.Linear:
        return self.decoder.output

    def start(self, encoded: Encoded) -> DecoderState:
        return self.decoder.start(encoded)

    def step(self, tokens: Tensor, state: DecoderState) -> SearchStep:
        return self.decoder.step(tokens, state)

    def decode_row(self, tokens: Tensor, state: Any) -> DecodedRow:
        decoded = self.decoder(tokens[:, None], state)
        assert decoded.weights is not None
        return DecodedRow(decoded.readout[:, 0], decoded.state, decoded.weights[:, 0])

    def decode(
        self,
        encoded: Encoded,
        target: Tensor,
        target_lengths: Tensor | None = None,
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
        return TranslatorOutput(decoded.readout, decoded.weights, decoded.choices, self.decoder.output)

    def _extra_loss(self, predicted: TranslatorOutput, nll: Tensor, is_token: Tensor) -> Tensor | None:
        """Computes REINFORCE's part of the loss; the baseline is updated while the module is in training mode."""
        if predicted.choices is None or self.baseline is None:
            return None
        return self.baseline.loss(predicted.choices, nll, is_token, self.config.entropy_weight)
