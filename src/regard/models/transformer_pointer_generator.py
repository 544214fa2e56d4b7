"""The pointer-generator on the Transformer: the weights of the last layer's attention, mean of heads, copy."""

from typing import Any

from torch import Tensor, nn

from regard.models.configs import PointerConfig
from regard.models.encoders import Encoded
from regard.models.pointer_generator import PointerGenerator
from regard.models.text_predictor import TranslatorOutput
from regard.models.transformer_translator import TransformerTranslator
from regard.models.translator import DecodedRow


class TransformerPointerGenerator(PointerGenerator):
    """A Transformer translator that copies, by the gate of See et al. 2017 (eq. 8 and 9).

    The distribution over the source is the mean over the heads of the last decoder layer's attention. All steps of a
    training run at once, so its attention does not see the coverage.

    Args:
        config: the configuration.

    Raises:
        ArgumentError: the architecture is not ``"transformer"``, or a vocabulary is missing.

    Example:
        >>> import torch
        >>> from regard import models
        >>> sizes = {"hidden": 16, "encoder_layers": 1, "decoder_layers": 1}
        >>> config = models.PointerConfig(20, 20, architecture="transformer", **sizes)
        >>> model = models.TransformerPointerGenerator(config)
        >>> source, target = torch.tensor([[5, 20, 6]]), torch.tensor([[1, 20, 2]])  # 20 is out of the vocabulary
        >>> copied = model.copied(source, torch.tensor([3]), target, torch.tensor([3]))
        >>> copied.share[0, 0].item(), copied.weights.shape
        (1.0, torch.Size([1, 2, 3]))
    """

    translator: TransformerTranslator

    def __init__(self, config: PointerConfig):
        translator = TransformerTranslator(config)
        translator.aligned_layer = config.decoder_layers - 1
        super().__init__(translator, config.hidden, config.hidden)

    @property
    def target_embedding(self) -> nn.Embedding:
        return self.translator.target_input.embedding

    @property
    def output(self) -> nn.Linear:
        return self.translator.output

    def decode(self, encoded: Encoded, target: Tensor, target_lengths: Tensor | None) -> TranslatorOutput:
        return self.translator.decode(encoded, target, target_lengths)

    def decode_row(self, tokens: Tensor, state: Any) -> DecodedRow:
        return self.translator.decode_row(tokens, state)
