"""A model of the page, and its reading of an input: an answer, the attention, and worked steps on request."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from regard.errors import ArgumentError
from regard.pictures.fonts import visible_token
from regard.records import Document, StepsRecord
from regard.training.task import InputKind

MOST_CHARACTERS = 10_000
"""The most characters of a text."""

LONGEST_LABEL = 200
"""The most characters of a label; of more, the end is left out."""

MOST_WEIGHTS = 40_000_000
"""The most weights of all heads and layers that are kept for one text."""

A_FILE: dict[str, str] = {"image": "an image", "sound": "a sound"}
"""The content of a file, in words."""


@dataclass(frozen=True)
class Answer:
    """A model's answer.

    Attributes:
        label: the kind of answer, such as ``"Translation"``.
        text: the answer; "" if there is none.
        ranked: the model's choices with their probabilities in [0, 1], the most likely first.
        notes: remarks for the reader, a line each.
        rest: the total probability of all choices that are not in ``ranked``.
        choice: the kind of the choices; "" if it is that of the answer.
    """

    label: str
    text: str = ""
    ranked: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()
    rest: float = 0.0
    choice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Returns the answer as plain values; spaces and other invisible characters are visible in the labels."""
        ranked = [{"label": visible_token(label, LONGEST_LABEL), "probability": share} for label, share in self.ranked]
        return vars(self) | {"ranked": ranked, "notes": list(self.notes)}


def rest_of(ranked: Sequence[tuple[str, float]]) -> float:
    """Returns the total probability of choices that are not ranked; 0 if none are ranked."""
    return max(0.0, 1.0 - sum(probability for _, probability in ranked)) if ranked else 0.0


@dataclass(frozen=True)
class Reading:
    """A model's reading of one input.

    Attributes:
        answer: the model's answer.
        document: the attention; its records are () for a model without attention and for a text without tokens.
        steps: the worked calculation of (record, head), both from 0; None if unknown.
        first: the index of the record that is shown first; None: that with the clearest pair of words.
        view: the view that is shown first; None: the one that suits the record.
        attends: whether the model has attention at all.
    """

    answer: Answer
    document: Document
    steps: Callable[[int, int], StepsRecord] | None = field(default=None, repr=False)
    first: int | None = None
    view: str | None = None
    attends: bool = True


@dataclass(frozen=True)
class Example:
    """An input to try.

    Attributes:
        text: the text, or the name of the file.
        shows: what its attention may show: ``"coreference"``, ``"repetition"`` or ``"agreement"``; "" for a sample of
            the model's own data.
        path: the file; None for a text.
    """

    text: str
    shows: str = ""
    path: Path | None = None


class ServedModel(ABC):
    """A model of the page.

    Attributes:
        name: its name on the page.
        path: its folder.
        kind: ``"run"`` of regard, or ``"pretrained"`` of Hugging Face.
        task: one or two words, such as ``"translate"``.
        facts: a description in a few words, such as ``"Luong attention"``.
        placeholder: a hint in the empty input.
        examples: inputs to try.
        accepts: its input: ``"text"``, or the content of a file: ``"image"`` or ``"sound"``.
        most_tokens: the most tokens of a text that the model reads; None if it states no limit.
        loaded: whether the model is in memory.
        offered: whether the model was found on this machine, and not named when the page was started.
    """

    name: str
    path: str
    task: str
    facts: str
    placeholder: str
    kind: Literal["run", "pretrained"] = "run"
    examples: tuple[Example, ...] = ()
    accepts: InputKind = "text"
    most_tokens: int | None = None
    loaded: bool = True
    offered: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Returns the description of the model for the page."""
        names = ("name", "path", "kind", "task", "facts", "placeholder", "accepts", "most_tokens", "loaded", "offered")
        examples = [{"text": one.text, "shows": one.shows} for one in self.examples]
        return {name: getattr(self, name) for name in names} | {"examples": examples}

    def load(self) -> "ServedModel":
        """Returns the model in memory; raises RunError if it cannot be loaded."""
        return self

    def read(self, text: str) -> Reading:
        """Returns the answer and the attention for a text; raises RegardError if the model cannot read it."""
        if self.accepts != "text":
            raise ArgumentError(f"{self.name} reads no text; choose a file with {A_FILE[self.accepts]}")
        if len(text) > MOST_CHARACTERS:
            raise ArgumentError(
                f"the text has {len(text):,} characters, more than the {MOST_CHARACTERS:,} that are read; shorten it"
            )
        return self._read(text)

    def read_file(self, content: bytes) -> Reading:
        """Returns the answer and the attention for the content of a file; raises RegardError if the model cannot read
        it."""
        if self.accepts == "text":
            raise ArgumentError(f"{self.name} reads texts, no files; type a text")
        return self._read_file(content)

    @abstractmethod
    def _read(self, text: str) -> Reading: ...

    def _read_file(self, content: bytes) -> Reading:
        raise NotImplementedError(f"{type(self).__name__} accepts {self.accepts!r} and has no _read_file")


def check_weights(tokens: int, weights: int) -> None:
    """Raises ArgumentError if a text of so many tokens has too many weights, in all heads and layers, to be kept."""
    if weights > MOST_WEIGHTS:
        raise ArgumentError(
            f"the text has {tokens:,} tokens, for which all layers and heads have {weights:,} weights, more than the "
            f"{MOST_WEIGHTS:,} that are kept; shorten it"
        )
