"""A Transformer that translates (Vaswani et al. 2017)."""

from torch import Tensor

from regard.models.configs import PointerConfig, TranslatorConfig
from regard.models.encoders import Encoded
from regard.models.token_input import TokenInput, ended, layer_config
from regard.models.transformer_decoding import TransformerDecoding
from regard.models.translator import output_matrix, token_embedding
from regard.nn import TransformerDecoder, TransformerEncoder


class TransformerTranslator(TransformerDecoding):
    """A Transformer that translates (Vaswani et al. 2017, figure 1).

    Args:
        config: the configuration.
    """

    def __init__(self, config: TranslatorConfig | PointerConfig):
        super().__init__()
        self.config = config = config.complete("transformer")
        layer = layer_config(config, score=config.score, normalizer=config.normalizer)
        target = token_embedding(config.target_vocabulary, config.hidden)
        shared = config.tied == "all"
        source = target if shared else token_embedding(config.source_vocabulary, config.hidden)
        self.source_input = TokenInput(source, config.position, config.max_length, config.dropout)
        self.target_input = TokenInput(target, config.position, config.max_length, config.dropout)
        self.encoder = ended(TransformerEncoder.create(config.encoder_layers, layer), config)
        self.decoder = ended(TransformerDecoder.create(config.decoder_layers, layer), config)
        self.output = output_matrix(target, config.tied != "none")
        self.max_length = config.max_length if config.position == "learned" else None
        self.aligned_layer = max(0, config.decoder_layers - 2)

    def encode(self, source: Tensor, lengths: Tensor) -> Encoded:
        return Encoded(self.encoder(self.source_input(source), lengths=lengths), lengths)
