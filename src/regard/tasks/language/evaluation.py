"""Metrics of a trained language model on a text: bits a byte, perplexity, nats a token."""

import time
from dataclasses import asdict, dataclass
from typing import Any

from regard.data.text.running_text import encode_text, text_files
from regard.errors import ArgumentError
from regard.tasks.language.corpus import bundled_test
from regard.tasks.language.text_loss import TextLoss, text_loss
from regard.tasks.language.trained_language_model import TrainedLanguageModel
from regard.training import task


@dataclass(frozen=True, slots=True, repr=False)
class LanguageEvaluation(task.Evaluation):
    """How well a language model predicts a text."""

    data: str
    """Name of the text."""
    tokens: int
    """Predicted tokens; the ends of documents but the last one are among them."""
    bytes: int
    """Bytes of the predicted tokens in UTF-8; an unknown piece has none."""
    unknown: int
    """Predicted tokens that are unknown pieces, of which only that they are unknown is predicted."""
    loss: float
    """Mean −log p of a token, in nats."""
    perplexity: float
    """exp(loss). It depends on the tokenizer: compare it only between runs with the same tokenizer."""
    bits_per_byte: float
    """−log₂ p of the text, divided by its bytes; comparable between tokenizers that know every piece."""
    stride: int
    """Tokens between the starts of windows."""
    seconds: float
    """Duration of the prediction."""

    def lines(self) -> list[str]:
        lines = [
            f"{self.data}: {self.tokens:,} tokens, {self.bytes:,} bytes · bits/byte {self.bits_per_byte:.4f} · "
            f"perplexity {self.perplexity:.2f} · {self.loss:.4f} nats a token"
        ]
        if self.unknown:
            lines.append(
                f"{self.unknown:,} tokens are not in the model's vocabulary: what they are is not predicted, so "
                "bits/byte and perplexity do not compare with those of other tokenizers"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def evaluate(trained: TrainedLanguageModel, data: Any, *, stride: int = 0, limit: int = 0) -> LanguageEvaluation:
    """Predict every token of a text from those before it.

    Args:
        trained: the trained model.
        data: a source of `text_files`, or ``"bundled"``.
        stride: tokens between the starts of windows, up to the model's context; 0: the context.
        limit: number of tokens to predict, from the first; 0: all.

    Raises:
        DataError: the text cannot be used.
        ArgumentError: ``stride`` is larger than the context.
    """
    context = trained.model.config.context
    if stride > context:
        raise ArgumentError(f"stride must be at most {context}, the context of the model; it is {stride}")
    start = time.monotonic()
    if data == "bundled":
        with bundled_test() as path:
            found = _measured(trained, path, stride, limit)
        name = "bundled"
    else:
        found = _measured(trained, data, stride, limit)
        name = ",".join(map(str, data)) if isinstance(data, (list, tuple)) else str(data)
    return LanguageEvaluation(
        data=name,
        tokens=found.tokens,
        bytes=found.bytes,
        unknown=found.unknown,
        loss=found.loss,
        perplexity=found.perplexity,
        bits_per_byte=found.bits_per_byte,
        stride=stride or context,
        seconds=time.monotonic() - start,
    )


def _measured(trained: TrainedLanguageModel, data: Any, stride: int, limit: int) -> TextLoss:
    table = encode_text(text_files(data), trained.tokenizer)
    return text_loss(trained.model, table, trained.tokenizer, stride=stride, limit=limit)
