"""A recurrent encoder-decoder that translates: without attention, or with Bahdanau's, Luong's or hard attention."""

from torch import Tensor, nn

from regard.models.bahdanau_decoder import BahdanauDecoder
from regard.models.configs import RECURRENT_CELLS, PointerConfig, TranslatorConfig
from regard.models.encoders import Encoded, RecurrentEncoder
from regard.models.hard_attention import HardChoice, ReinforceBaseline
from regard.models.luong_decoder import LuongDecoder
from regard.models.recurrent_decoder import BottleneckDecoder, RecurrentDecoder
from regard.models.recurrent_decoding import RecurrentPredictor
from regard.models.step_attention import step_attention
from regard.models.translator import Translator, output_matrix, token_embedding


class RecurrentTranslator(RecurrentPredictor, Translator):
    """Translates by a bidirectional recurrent encoder and a recurrent decoder.

    The encoder is a `RecurrentEncoder`. ``config.attention`` decides the decoder: ``"bahdanau"`` is a `BahdanauDecoder`
    (Bahdanau et al. 2015, §3), ``"hard"`` is the same with a `HardChoice` (Xu et al. 2015, §4.1), ``"luong"`` is a
    `LuongDecoder` (Luong et al. 2015, §3), and ``"none"`` is a `BottleneckDecoder`. ``"monotonic"`` (Raffel et al.
    2017), ``"chunkwise"`` (Chiu & Raffel 2018), ``"stepwise"`` (He et al. 2019) and ``"forward"`` (Zhang et al. 2018)
    are a `BahdanauDecoder` whose attention goes forwards.

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
        self.config = config = config.complete(*RECURRENT_CELLS)
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


def _decoder(
    config: TranslatorConfig | PointerConfig, embedding: nn.Embedding, output: nn.Linear, summary_dim: int
) -> RecurrentDecoder:
    """Creates the decoder that ``config.attention`` names."""
    hidden = config.hidden
    sizes = summary_dim, hidden, config.decoder_layers, config.architecture, config.readout, config.dropout
    if config.attention == "none":
        return BottleneckDecoder(embedding, output, *sizes)
    max_keys = config.max_source if config.score == "location" else None
    score = "coverage" if getattr(config, "coverage", False) else config.score
    attention = step_attention(config.attention, score, hidden, hidden, width=config.chunk_width, max_keys=max_keys)
    if config.attention == "luong":
        local = config.input_feeding, config.scope, config.window
        return LuongDecoder(embedding, output, attention, hidden, *sizes, *local)
    choice = HardChoice(config.hard_estimator) if config.attention == "hard" else None
    return BahdanauDecoder(embedding, output, attention, hidden, *sizes, choice)
