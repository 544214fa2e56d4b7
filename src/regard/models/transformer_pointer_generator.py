"""The pointer-generator on the Transformer: the weights of the last layer's attention, mean of heads, copy."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.errors import ArgumentError
from regard.models.encoders import Encoded
from regard.models.pointer_generator import PointerGenerator
from regard.models.recurrent_pointer_generator import check_pointer
from regard.models.text_predictor import TranslatorOutput
from regard.models.transformer_translator import TransformerConfig, TransformerTranslator
from regard.models.translator import DecodedRow


@dataclass(frozen=True)
class TransformerPointerConfig(TransformerConfig):
    """The configuration of a `TransformerPointerGenerator`."""

    unk: int = 3
    """Token for words out of the vocabulary."""
    copy: bool = True
    """Words of the source can be copied."""
    coverage: bool = False
    """The loss has the coverage loss of the weights that copy."""
    coverage_weight: float = 1.0
    """Weight of the coverage loss, λ of See et al. 2017, eq. 13."""

    def __post_init__(self) -> None:
        TransformerConfig.__post_init__(self)  # the class of `super()` is another one in a dataclass with slots
        check_pointer(self)
        if self.normalizer != "softmax":
            raise ArgumentError(f"normalizer must be 'softmax' for copying; it is {self.normalizer!r}")


class TransformerPointerGenerator(PointerGenerator):
    """A Transformer translator that copies.

    The distribution over the source is the mean over the heads of the last decoder layer's attention. All steps of a
    training run at once, so its attention does not see the coverage.

    Args:
        config: the configuration.
    """

    translator: TransformerTranslator

    def __init__(self, config: TransformerPointerConfig):
        translator = TransformerTranslator(config)
        translator.aligned_layer = config.decoder_layers - 1
        super().__init__(translator, config.dim, config.dim)

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
