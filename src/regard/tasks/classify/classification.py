"""What a text classifier makes of a text: the label, the probabilities, and the weight of each word."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.data.text.tokenizers import Tokenizer
from regard.training.task import Prediction


@dataclass(frozen=True, slots=True, repr=False)
class Classification(Prediction):
    """A text, its label, and the weights of its words.

    Attributes:
        text: the text, unchanged.
        label: the name of the most probable label.
        probabilities: label → probability, the most probable first.
        words: the words as they are written; those after the longest length of the model are missing.
        spans: the characters of each word.
        weights: ``[heads, words]``: attention weights, those of sub-words added; None for a model without attention.
        cut: whether the text was longer than the model reads.
    """

    text: str
    label: str
    probabilities: dict[str, float]
    words: list[str]
    spans: list[range]
    weights: Tensor | None
    cut: bool = False

    @property
    def source(self) -> str:
        """The text that the model read, by the name that it has in every task on texts."""
        return self.text

    @property
    def answer(self) -> str:
        return self.label

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("text", self.text), ("label", self.label)

    def ranked(self) -> tuple[tuple[str, float], ...]:
        return tuple(self.probabilities.items())

    def to_dict(self) -> dict[str, Any]:
        """Text, label, probabilities, words and weights ``[head][word]``."""
        found: dict[str, Any] = {
            "text": self.text,
            "label": self.label,
            "probabilities": {label: round(value, 6) for label, value in self.probabilities.items()},
            "words": self.words,
        }
        if self.weights is not None:
            found["weights"] = [[round(weight, 4) for weight in row] for row in self.weights.tolist()]
        return found

    def report(self) -> Any:
        from regard.tasks.classify.word_report import WordReport

        return WordReport(self.probabilities, self.words, None if self.weights is None else self.weights.tolist())


def words_of(tokenizer: Tokenizer, text: str, tokens: int) -> tuple[list[range], list[range]]:
    """The tokens and the characters of each word of a text.

    Args:
        tokenizer: the tokenizer of the model.
        text: the text.
        tokens: how many of its first tokens the model reads.

    Returns:
        ranges of tokens that follow one another from 0 to ``tokens``, and ranges of characters.
    """
    groups = [
        range(group.start, min(group.stop, tokens)) for group in tokenizer.word_groups([], text) if group.start < tokens
    ]
    pieces = tokenizer.spans(text)
    return groups, [range(pieces[group.start].start, pieces[group[-1]].stop) for group in groups]
