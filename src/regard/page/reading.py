"""What a model makes of a text or a file on the page: an answer, the attention behind it, worked steps."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from regard.errors import ArgumentError
from regard.records import Document, StepsRecord

MOST_CHARACTERS = 10_000
"""Characters of the longest text that is read."""

MOST_FILE_BYTES = 8 * 1024 * 1024
"""Bytes of the largest file that is read."""

MOST_NAME = 200
"""Characters of the name of a file."""

MOST_WEIGHTS = 40_000_000
"""Weights of all heads and layers that are kept for one text."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer.

    Attributes:
        label: what the text is, such as ``"Translation"``.
        text: the answer; "" where the model gives none.
        ranked: what the model chooses from, with probabilities in [0, 1], the most likely first.
        notes: what a reader should know about it, a line each.
    """

    label: str
    text: str = ""
    ranked: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values."""
        ranked = [{"label": label, "probability": probability} for label, probability in self.ranked]
        return {"label": self.label, "text": self.text, "ranked": ranked, "notes": list(self.notes)}


@dataclass(frozen=True)
class Reading:
    """A text, or a file, that a model has read.

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
    """A model that reads texts, images or sounds.

    Attributes:
        name: what the page calls it.
        path: where it lies.
        task: one or two words, such as ``"translate"``.
        facts: what it is, in a few words, such as ``"Luong attention"``.
        takes: ``"text"``, ``"image"`` or ``"sound"``; the last two are files.
        placeholder: what to type, or what to choose.
        example: a text to try; "" where none is known.
    """

    name: str
    path: str
    task: str
    facts: str
    takes: str = "text"
    placeholder: str
    example: str = ""

    def to_dict(self) -> dict[str, str]:
        """What the page shows of the model."""
        names = ("name", "task", "facts", "takes", "placeholder", "example")
        return {name: getattr(self, name) for name in names}

    def read(self, text: str) -> Reading:
        """The answer and the attention for a text.

        Raises:
            RegardError: the model cannot read it; the message says why.
        """
        if self.takes != "text":
            raise ArgumentError(f"{self.name} reads files of the kind {self.takes}, and no text; choose one")
        if len(text) > MOST_CHARACTERS:
            raise ArgumentError(
                f"the text has {len(text):,} characters, more than the {MOST_CHARACTERS:,} that are read; shorten it"
            )
        return self._read(text)

    def read_file(self, name: str, content: bytes) -> Reading:
        """The answer and the attention for an image or a sound.

        Args:
            name: of the file; its folder is not shown.
            content: its bytes.

        Raises:
            RegardError: the model cannot read it; the message says why.
        """
        if self.takes == "text":
            raise ArgumentError(f"{self.name} reads texts, and no files; type one")
        if len(content) > MOST_FILE_BYTES:
            raise ArgumentError(
                f"the file has {len(content):,} bytes, more than the {MOST_FILE_BYTES:,} that are read; choose another"
            )
        return self._read_file(PurePath(name.replace("\\", "/")).name[:MOST_NAME] or "file", content)

    @abstractmethod
    def _read(self, text: str) -> Reading: ...

    def _read_file(self, name: str, content: bytes) -> Reading:
        raise NotImplementedError


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
