"""A Transformer that translates (Vaswani et al. 2017)."""

from torch import Tensor

from regard.models.configs import PointerConfig, TranslatorConfig
from regard.models.encoders import Encoded
from regard.models.token_input import TokenInput, ended, layer_config
from regard.models.transformer_decoding import TransformerPredictor
from regard.models.translator import Translator, output_matrix, token_embedding
from regard.nn import TransformerDecoder, TransformerEncoder


class TransformerTranslator(TransformerPredictor, Translator):
    """A Transformer that translates (Vaswani et al. 2017, figure 1).

    The returned weights over the source are the mean over the heads of the second-last decoder layer, or of the only
    one; they agree with word alignments more than those of other layers (Garg et al. 2019, section 4.1).

    Args:
        config: the configuration, with the architecture ``"transformer"``.

    Raises:
        ArgumentError: the architecture is not ``"transformer"``, or a vocabulary is missing.

    Example:
        >>> import torch
        >>> from regard import models
        >>> sizes = {"hidden": 16, "encoder_layers": 1, "decoder_layers": 2}
        >>> model = models.TransformerTranslator(models.TranslatorConfig(20, 30, architecture="transformer", **sizes))
        >>> source, target = torch.tensor([[4, 5, 6]]), torch.tensor([[1, 7, 8, 9, 2]])  # from bos to eos
        >>> output = model(source, torch.tensor([3]), target)
        >>> output.logits.shape, output.weights.shape
        (torch.Size([1, 4, 30]), torch.Size([1, 4, 3]))
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
