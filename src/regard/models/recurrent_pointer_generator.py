"""The pointer-generator on the recurrent translator, with coverage as a feature of its additive score."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.errors import ArgumentError
from regard.models.encoders import Encoded
from regard.models.pointer_generator import PointerGenerator
from regard.models.recurrent_translator import RecurrentTranslator, TranslatorConfig
from regard.models.text_predictor import TranslatorOutput
from regard.models.translator import DecodedRow


@dataclass(frozen=True)
class RecurrentPointerConfig(TranslatorConfig):
    """The configuration of a `RecurrentPointerGenerator`."""

    unk: int = 3
    """Token for words out of the vocabulary."""
    copy: bool = True
    """Words of the source can be copied."""
    coverage: bool = False
    """The score sees the sum of all earlier weights, and the loss has the coverage loss."""
    coverage_weight: float = 1.0
    """Weight of the coverage loss, λ of See et al. 2017, eq. 13."""

    def __post_init__(self) -> None:
        TranslatorConfig.__post_init__(self)  # the class of `super()` is another one in a dataclass with slots
        check_pointer(self)
        if self.attention not in ("bahdanau", "luong"):
            raise ArgumentError(f"attention must be bahdanau or luong for copying; it is {self.attention!r}")
        if self.scope != "global":
            raise ArgumentError(f"scope must be 'global' for copying; it is {self.scope!r}")
        if self.coverage and self.score_name not in ("additive", "concat"):
            raise ArgumentError(
                f"coverage is a feature of the additive score; give the score 'additive' (it is {self.score_name!r})"
            )
        if self.coverage and self.attention == "luong" and not self.input_feeding:
            raise ArgumentError("coverage with luong needs input_feeding")

    @property
    def covers(self) -> bool:
        return self.coverage


class RecurrentPointerGenerator(PointerGenerator):
    """A recurrent translator that copies (See et al. 2017).

    With coverage the additive score is ``v · tanh(W_h h_i + W_s s_t + w_c c_i^t + b)`` (eq. 11).

    Args:
        config: the configuration.
    """

    translator: RecurrentTranslator

    def __init__(self, config: RecurrentPointerConfig):
        super().__init__(RecurrentTranslator(config), config.hidden_dim, config.embedding_dim)

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


def check_pointer(config: Any) -> None:
    """Raise ArgumentError if a pointer-generator cannot have this configuration."""
    if not config.coverage_weight >= 0:
        raise ArgumentError(f"coverage_weight must be 0 or more; it is {config.coverage_weight}")
    if not 0 <= config.unk < config.target_vocabulary:
        raise ArgumentError(f"unk must be a target token; it is {config.unk}")
    if config.source_vocabulary != config.target_vocabulary:
        raise ArgumentError(
            "copying needs one vocabulary for both sides; source_vocabulary is "
            f"{config.source_vocabulary}, target_vocabulary is {config.target_vocabulary}"
        )
