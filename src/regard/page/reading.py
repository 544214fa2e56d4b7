"""What a model makes of a text on the page: an answer, the attention behind it, and worked steps on request."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.errors import ArgumentError
from regard.pictures.fonts import visible_token
from regard.records import Document, StepsRecord
from regard.training.task import InputKind

MOST_CHARACTERS = 10_000
"""Characters of the longest text that is read."""

LONGEST_LABEL = 200
"""Characters of a label beyond which its end is left out."""

MOST_WEIGHTS = 40_000_000
"""Weights of all heads and layers that are kept for one text."""


A_FILE: dict[str, str] = {"image": "an image", "sound": "a sound"}
"""What a file holds, in words."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer.

    Attributes:
        label: what the text is, such as ``"Translation"``.
        text: the answer; "" where the model gives none.
        ranked: what the model chooses from, with probabilities in [0, 1], the most likely first.
        notes: what a reader should know about it, a line each.
        rest: the probability of all choices together that are not in ``ranked``.
    """

    label: str
    text: str = ""
    ranked: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()
    rest: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values; spaces and what else has no shape are visible in the labels."""
        ranked = [
            {"label": visible_token(label, LONGEST_LABEL), "probability": probability}
            for label, probability in self.ranked
        ]
        return {
            "label": self.label, "text": self.text, "ranked": ranked, "notes": list(self.notes), "rest": self.rest,
        }  # fmt: skip


def rest_of(ranked: Sequence[tuple[str, float]]) -> float:
    """The probability that is left for choices that are not ranked; 0 where there is none."""
    return max(0.0, 1.0 - sum(probability for _, probability in ranked)) if ranked else 0.0


@dataclass(frozen=True)
class Reading:
    """A text that a model has read.

    Attributes:
        answer: the model's answer.
        document: the attention; its records are () for a model without attention and for a text without tokens.
        steps: the worked calculation of (record, head), both from 0; None where the calculation is not known.
        first: place of the record that is shown first.
        view: the view that is shown first; None: the one that fits the record.
        attends: whether the model has attention, if not for this text.
    """

    answer: Answer
    document: Document
    steps: Callable[[int, int], StepsRecord] | None = field(default=None, repr=False)
    first: int = 0
    view: str | None = None
    attends: bool = True


class ServedModel(ABC):
    """A model that reads texts.

    Attributes:
        name: what the page calls it.
        path: where it lies.
        task: one or two words, such as ``"translate"``.
        facts: what it is, in a few words, such as ``"Luong attention"``.
        placeholder: what to type.
        example: a text to try; "" where none is known.
        accepts: what it reads: ``"text"``, or the content of a file: ``"image"`` or ``"sound"``.
        has_example_file: whether there is a file to try.
    """

    name: str
    path: str
    task: str
    facts: str
    placeholder: str
    example: str = ""
    accepts: InputKind = "text"
    has_example_file: bool = False

    def to_dict(self) -> dict[str, Any]:
        """What the page shows of the model."""
        names = ("name", "task", "facts", "placeholder", "example", "accepts", "has_example_file")
        return {name: getattr(self, name) for name in names}

    def read(self, text: str) -> Reading:
        """The answer and the attention for a text.

        Raises:
            RegardError: the model cannot read it; the message says why.
        """
        if self.accepts != "text":
            raise ArgumentError(f"{self.name} reads no text; choose a file with {A_FILE[self.accepts]}")
        if len(text) > MOST_CHARACTERS:
            raise ArgumentError(
                f"the text has {len(text):,} characters, more than the {MOST_CHARACTERS:,} that are read; shorten it"
            )
        return self._read(text)

    def read_file(self, content: bytes | None) -> Reading:
        """The answer and the attention for a file.

        Args:
            content: of the file; None: the file to try.

        Raises:
            RegardError: the model cannot read it; the message says why.
        """
        if self.accepts == "text":
            raise ArgumentError(f"{self.name} reads texts, no files; type a text")
        if content is None and not self.has_example_file:
            raise ArgumentError(f"there is no file to try; choose a file with {A_FILE[self.accepts]}")
        return self._read_file(content)

    @abstractmethod
    def _read(self, text: str) -> Reading: ...

    def _read_file(self, content: bytes | None) -> Reading:
        raise NotImplementedError(f"{type(self).__name__} accepts {self.accepts!r} and has no _read_file")


def check_weights(tokens: int, weights: int) -> None:
    """Raise ArgumentError if the weights for a text are too many to keep.

    Args:
        tokens: of the text.
        weights: of all heads and layers.
    """
    if weights > MOST_WEIGHTS:
        raise ArgumentError(
            f"the text has {tokens:,} tokens, for which all layers and heads have {weights:,} weights, more than the "
            f"{MOST_WEIGHTS:,} that are kept; shorten it"
        )
