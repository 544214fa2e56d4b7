"""A recurrent encoder-decoder that translates: without attention, or with Bahdanau's, Luong's or hard attention."""

from torch import Tensor, nn

from regard.errors import ArgumentError
from regard.models.bahdanau_decoder import BahdanauDecoder
from regard.models.configs import MONOTONIC, RECURRENT, PointerConfig, TranslatorConfig
from regard.models.encoders import Encoded, RecurrentEncoder
from regard.models.hard_attention import HardChoice, ReinforceBaseline
from regard.models.luong_decoder import LuongDecoder
from regard.models.monotonic_decoder import MonotonicDecoder
from regard.models.recurrent_decoder import BottleneckDecoder, DecoderState, RecurrentDecoder, Step
from regard.models.text_predictor import TranslatorOutput
from regard.models.translator import Translator, output_matrix, token_embedding
from regard.nn import Attention, MonotonicAttention


class RecurrentTranslator(Translator):
    """Translates by a bidirectional recurrent encoder and a recurrent decoder.

    The encoder is a `RecurrentEncoder`. ``config.attention`` decides the decoder: ``"bahdanau"`` is a `BahdanauDecoder`
    (Bahdanau et al. 2015, §3), ``"hard"`` is the same with a `HardChoice` (Xu et al. 2015, §4.1), ``"luong"`` is a
    `LuongDecoder` (Luong et al. 2015, §3), ``"monotonic"`` (Raffel et al. 2017) and ``"chunkwise"`` (Chiu & Raffel
    2018) are a `MonotonicDecoder`, and ``"none"`` is a `BottleneckDecoder`.

    Args:
        config: the configuration, with the architecture ``"lstm"`` or ``"gru"``.

    Raises:
        ArgumentError: the architecture is neither ``"lstm"`` nor ``"gru"``, or a vocabulary is missing.

    Example:
        >>> import torch
        >>> from regard import models
        >>> _ = torch.manual_seed(0)
        >>> model = models.RecurrentTranslator(models.TranslatorConfig(20, 20, hidden=16, embedding=16, dropout=0.0))
        >>> batch = torch.tensor([[5, 6, 7]]), torch.tensor([3]), torch.tensor([[1, 8, 9, 2]]), torch.tensor([4])
        >>> optimizer = torch.optim.Adam(model.parameters(), 0.02)
        >>> for _ in range(30):
        ...     optimizer.zero_grad()
        ...     model.loss(*batch).total.backward()
        ...     optimizer.step()
        >>> model.translate(torch.tensor([[5, 6, 7]]), torch.tensor([3]))[0].tokens
        [8, 9]
    """

    def __init__(self, config: TranslatorConfig | PointerConfig):
        super().__init__()
        self.config = config = config.complete(*RECURRENT)
        target_embedding = token_embedding(config.target_vocabulary, config.embedding)
        shared = config.tied == "all"
        source_embedding = target_embedding if shared else token_embedding(config.source_vocabulary, config.embedding)
        output = output_matrix(target_embedding, config.tied != "none")
        self.encoder = RecurrentEncoder(
            source_embedding, config.hidden, config.encoder_layers, config.architecture, config.dropout
        )
        self.decoder = _decoder(config, target_embedding, output, self.encoder.summary_dim)
        reinforced = config.attention == "hard" and config.hard_estimator == "reinforce"
        self.baseline = ReinforceBaseline() if reinforced else None

    def encode(self, source: Tensor, lengths: Tensor) -> Encoded:
        return self.encoder(source, lengths)

    def start(self, encoded: Encoded) -> DecoderState:
        return self.decoder.start(encoded)

    def step(self, tokens: Tensor, state: DecoderState) -> Step:
        return self.decoder.step(tokens, state)

    @property
    def attends(self) -> bool:
        return self.config.attention != "none"

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
        if not 0 <= sampling_probability <= 1:
            raise ArgumentError(f"sampling_probability must be in [0, 1]; it is {sampling_probability}")
        state = self.start(self.encode(source, source_lengths))
        inputs = target[:, :-1]
        if sampling_probability:
            decoded = self.decoder.decode_sampling(inputs, state, sampling_probability)
        else:
            decoded = self.decoder(inputs, state)
        return TranslatorOutput(decoded.readout, decoded.weights, decoded.choices, self.decoder.output)

    def _extra_loss(self, predicted: TranslatorOutput, nll: Tensor, is_token: Tensor) -> Tensor | None:
        """REINFORCE's part of the loss; the moving baseline is updated when the module is in training mode."""
        if predicted.choices is None or self.baseline is None:
            return None
        return self.baseline.loss(predicted.choices, nll, is_token, self.config.entropy_weight)


def _decoder(
    config: TranslatorConfig | PointerConfig, embedding: nn.Embedding, output: nn.Linear, summary_dim: int
) -> RecurrentDecoder:
    hidden = config.hidden
    if config.attention == "none":
        return BottleneckDecoder(
            embedding,
            output,
            summary_dim,
            hidden,
            config.decoder_layers,
            config.architecture,
            config.readout,
            config.dropout,
        )
    sizes = hidden, summary_dim, hidden, config.decoder_layers, config.architecture, config.readout, config.dropout
    if config.attention in MONOTONIC:
        width = config.chunk_width if config.attention == "chunkwise" else 1
        monotonic = MonotonicAttention.create(config.score, hidden, hidden, width=width)
        return MonotonicDecoder(embedding, output, monotonic, *sizes)
    max_keys = config.max_source if config.score == "location" else None
    if config.covers:
        # With a kernel of one key the term of the coverage is w_c · c (See et al. 2017, eq. 11).
        attention = Attention.create("location_aware", hidden, hidden, channels=1, kernel_size=1)
    else:
        attention = Attention.create(config.score, hidden, hidden, max_keys=max_keys)
    if config.attention == "luong":
        local = config.input_feeding, config.scope, config.window
        return LuongDecoder(embedding, output, attention, *sizes, *local, config.covers)
    choice = HardChoice(config.hard_estimator) if config.attention == "hard" else None
    return BahdanauDecoder(embedding, output, attention, *sizes, choice, config.covers)
