"""The pointer-generator on the recurrent translator, with coverage as a feature of its additive score."""

from typing import Any

from torch import Tensor, nn

from regard.models.configs import PointerConfig
from regard.models.encoders import Encoded
from regard.models.pointer_generator import PointerGenerator
from regard.models.recurrent_translator import RecurrentTranslator
from regard.models.text_predictor import TranslatorOutput
from regard.models.translator import DecodedRow


class RecurrentPointerGenerator(PointerGenerator):
    """A recurrent translator that copies (See et al. 2017).

    With coverage the additive score is ``v · tanh(W_h h_i + W_s s_t + w_c c_i^t + b)`` (eq. 11).

    Args:
        config: the configuration.

    Raises:
        ArgumentError: the architecture is neither ``"lstm"`` nor ``"gru"``, or a vocabulary is missing.

    Example:
        >>> import torch
        >>> from regard import models
        >>> _ = torch.manual_seed(0)
        >>> config = models.PointerConfig(20, 20, hidden=16, embedding=16, dropout=0.0, coverage=True)
        >>> model = models.RecurrentPointerGenerator(config)
        >>> source, target = torch.tensor([[5, 20, 6]]), torch.tensor([[1, 20, 2]])  # 20 is out of the vocabulary
        >>> copied = model.copied(source, torch.tensor([3]), target, torch.tensor([3]))
        >>> copied.share[0, 0].item(), copied.position[0, 0].item()  # it can only be copied, from position 1
        (1.0, 1)
    """

    translator: RecurrentTranslator

    def __init__(self, config: PointerConfig):
        super().__init__(RecurrentTranslator(config), config.hidden, config.embedding)

    @property
    def target_embedding(self) -> nn.Embedding:
        return self.translator.decoder.embedding

    @property
    def output(self) -> nn.Linear:
        return self.translator.decoder.output

    def decode(self, encoded: Encoded, target: Tensor, target_lengths: Tensor | None) -> TranslatorOutput:
        decoded = self.translator.decoder(target[:, :-1], self.translator.start(encoded))
        return TranslatorOutput(decoded.readout, decoded.weights, None, self.output)

    def decode_row(self, tokens: Tensor, state: Any) -> DecodedRow:
        decoded = self.translator.decoder(tokens[:, None], state)
        assert decoded.weights is not None
        return DecodedRow(decoded.readout[:, 0], decoded.state, decoded.weights[:, 0])
