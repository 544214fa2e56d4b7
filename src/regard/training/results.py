"""The results of a trained run: predictions and evaluations, as text, as plain values and as tables of a notebook.

The names mean the same in every task: ``source`` is the input as it was passed, and ``answer`` the output of the model
in the task's own type, which is also the ``text`` or the ``label`` of a prediction.
"""

import dataclasses
import html
import itertools
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from regard.errors import ArgumentError
from regard.files.atomic import write_atomically

if TYPE_CHECKING:
    from regard.records import AttentionRecord, Document
    from regard.training.run_folder import RunFolder

_LONGEST_REPR = 80  # characters of a text or a table in a `repr`
_LONGEST_CELL = 400  # characters of a text in a table of a notebook
_MOST_ROWS = 100  # rows of a table of a notebook
_MOST_LISTED = 10  # predictions in the `repr` of a list


class _ShortRepr:
    """A record whose `repr` is one line: arrays are shown by their shapes, lists by their lengths."""

    def __repr__(self) -> str:
        if not dataclasses.is_dataclass(self):
            return super().__repr__()
        parts = (
            f"{field.name}={_short(getattr(self, field.name))}" for field in dataclasses.fields(self) if field.repr
        )
        return f"{type(self).__name__}({', '.join(parts)})"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (bytes, bytearray)):
        return f"<{len(value):,} bytes>"
    if hasattr(value, "shape"):
        return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, (list, tuple)):
        return f"<{len(value)} × {type(value[0]).__name__}>" if value else repr(value)
    if isinstance(value, dict):
        pairs = ", ".join(f"{key!r}: {_short(item)}" for key, item in itertools.islice(value.items(), _LONGEST_REPR))
        return f"{{{_cut(pairs)}}}"
    name = getattr(value, "name", None)  # of an image, a sound
    return _cut(repr(name if isinstance(name, str) else value))


def _cut(text: str, longest: int = _LONGEST_REPR) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def rounded(values: Any) -> Any:
    """Returns a number, or the numbers of a tensor or an array as nested lists, with six decimals for JSON."""
    import numpy as np

    return np.asarray(values, dtype=float).round(6).tolist()


class AttendedParts(NamedTuple):
    """The parts of an input to which a model attended on the way to an answer, such as words, with their shares, the
    largest first; and the place from which the attention comes, if it is only one: ``"pixel 12,8"``."""

    parts: tuple[tuple[str, float], ...] = ()
    origin: str = ""


class Prediction(_ShortRepr, ABC):
    """The output of a trained model for one input.

    A subclass is a dataclass; with ``repr=False`` its `repr` is one line.

    Attributes:
        source: the input as it was passed: a text; a path, the bytes of a file, or an array.
        next_best: further answers to the same input, the best first, if several were requested.
    """

    source: Any
    next_best: "tuple[Prediction, ...]" = ()

    @property
    @abstractmethod
    def answer(self) -> Any:
        """The output of the model in the task's own type: a text, a label, or a map of classes."""

    @property
    def answer_text(self) -> str:
        """The answer as text."""
        return str(self.answer)

    @property
    def shown(self) -> str:
        """The answer as it is printed."""
        return self.answer_text

    @property
    def is_empty(self) -> bool:
        """Whether the answer is empty text."""
        return not self.answer_text.strip()

    @property
    def n_best(self) -> "tuple[Prediction, ...]":
        """This answer and `next_best`, the best first."""
        return (self, *self.next_best)

    def lines(self) -> list[str]:
        """Returns the lines that ``regard predict`` prints for a line of a file."""
        return [self.shown]

    @property
    def input_text(self) -> str:
        """The input, or the name of its file."""
        if isinstance(self.source, (str, os.PathLike)):
            return os.fspath(self.source)
        return str(getattr(self.source, "name", type(self.source).__name__))

    @property
    def certainty(self) -> dict[str, float]:
        """The model's ``probability`` from 0 to 1, or its ``score``, a log-probability in nats; {} if unknown."""
        return {}

    def row(self) -> dict[str, Any]:
        """Returns the fields that every task has: ``input``, ``output``, and ``probability`` or ``score``."""
        certainty = {name: rounded(value) for name, value in self.certainty.items()}
        return {"input": self.input_text, "output": self.answer_text, **certainty}

    def details(self) -> dict[str, Any]:
        """Returns the task's own fields besides those of `row`, as plain values."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Returns the prediction as plain values for JSON: the fields of `row`, then those of `details`."""
        return {**self.row(), **self.details()}

    def texts(self) -> tuple[tuple[str, str], ...]:
        """Returns the input and the answer as pairs of a name and a text."""
        return ("input", self.input_text), ("output", self.answer_text)

    def record(self) -> "AttentionRecord | None":
        """Returns the attention weights of the prediction for a viewer; None if it has none."""
        return None

    def document(self) -> "Document":
        """Returns the prediction's own weights for `regard.viewer.View`; `Trained.document` has those of all layers.
        Raises ArgumentError if there are none."""
        from regard.records import Document

        record = self.record()
        if record is None:
            raise ArgumentError(
                "the prediction has no attention weights of its own; write View(trained.document(prediction)), where "
                "trained is the run that made it"
            )
        title = " ".join(self.answer_text.split())[:80] or "prediction"
        return Document(title, (record,), texts=self.texts())

    def ranked(self) -> tuple[tuple[str, float], ...]:
        """Returns the choices of the model with their probabilities, the most likely first; () for a text alone."""
        return ()

    def attended(self) -> AttendedParts:
        """Returns where the model attended, as far as the prediction knows."""
        return AttendedParts()

    def report(self) -> Any:
        """Returns an object of Rich that ``regard predict`` prints after a typed input and its answer, or None."""
        return None

    def _repr_html_(self) -> str:
        return _table(answer_rows([self], len(self.n_best) > 1))


@dataclass(frozen=True, repr=False)
class RankedPrediction(Prediction):
    """A prediction that further answers may follow."""

    next_best: tuple[Prediction, ...] = field(default=(), repr=False, compare=False, kw_only=True)

    def followed_by(self, others: Sequence[Prediction]) -> Self:
        """Returns this prediction followed by others, the best first; of equal texts only the best remains."""
        if not others:
            return self
        different: dict[str, Prediction] = {}
        for one in (self, *others):
            different.setdefault(one.answer_text, one)
        return dataclasses.replace(self, next_best=tuple(different.values())[1:])

    def each(self, change: "Callable[[Any], Any]") -> Self:
        """Returns this prediction, in which a function has changed this answer and those after it."""
        return change(self).followed_by([change(one) for one in self.next_best])


class TextAnswer(RankedPrediction):
    """A prediction whose answer is ``text``; a subclass is a dataclass."""

    text: str

    @property
    def answer(self) -> str:
        return self.text


def answer_rows(
    predictions: "Sequence[Prediction]", ranked: bool, numbers: Sequence[int] = (), details: bool = False
) -> list[dict[str, Any]]:
    """Returns the answers as plain values, one record each; with ``ranked`` each has its ``rank``, from 1; with
    ``numbers``, those of the inputs, its ``row``; with ``details``, its `Prediction.details`."""
    rows = []
    for prediction, number in itertools.zip_longest(predictions, numbers):
        for rank, one in enumerate(prediction.n_best if ranked else (prediction,), start=1):
            row = {"row": number} if numbers else {}
            row |= one.row() | ({"rank": rank} if ranked else {})
            rows.append(row | (one.details() if details else {}))
    return rows


class Predictions(list[Any]):
    """The predictions of several inputs, in their order: a list that a notebook shows as a table."""

    def __repr__(self) -> str:
        shown = [repr(one) for one in self[:_MOST_LISTED]]
        rest = [f"… {len(self) - _MOST_LISTED:,} more"] if len(self) > _MOST_LISTED else []
        return f"[{', '.join(shown + rest)}]"

    def __getitem__(self, index: Any) -> Any:
        selected = super().__getitem__(index)
        return Predictions(selected) if isinstance(index, slice) else selected

    def _repr_html_(self) -> str:
        ranked = any(len(one.n_best) > 1 for one in self)
        return _table(answer_rows(self[:_MOST_ROWS], ranked), len(self) - _MOST_ROWS)


def _table(rows: Sequence[Mapping[str, Any]], left_out: int = 0) -> str:
    """Returns an HTML table whose columns are the keys of the rows; every text is escaped."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = ["".join(f"<td>{_cell(row.get(column))}</td>" for column in columns) for row in rows]
    head = "".join(f"<th>{_cell(column)}</th>" for column in columns)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    rest = f"<p>… {left_out:,} more</p>" if left_out > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return html.escape(_cut(text, _LONGEST_CELL))


class Evaluation(_ShortRepr, ABC):
    """The quality of a trained model on a data set; ``print`` shows the first of its `lines`.

    A subclass is a dataclass; with ``repr=False`` its `repr` is one line.
    """

    def __str__(self) -> str:
        return next(iter(self.lines()), repr(self))

    @abstractmethod
    def lines(self) -> list[str]:
        """Returns the results as lines of text, the most important first."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Returns the results as plain values for JSON."""

    def write(self, folder: "RunFolder", name: str) -> list[Path]:
        """Writes ``evaluation-<name>.json`` and any other files of the task into the run folder; returns the files."""
        path = folder.file(f"evaluation-{name}.json")
        write_atomically(path, (json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n").encode())
        return [path]

    def _repr_html_(self) -> str:
        """Returns a table of the numbers, and one for each list of records, such as the scores of each label."""
        content = self.to_dict()
        numbers = [
            {"measure": name, "value": value}
            for name, value in content.items()
            if isinstance(value, (str, int, float)) and not isinstance(value, bool)
        ]
        lists = [
            value
            for value in content.values()
            if isinstance(value, list) and value and all(isinstance(one, dict) for one in value)
        ]
        tables = (_table(rows[:_MOST_ROWS], len(rows) - _MOST_ROWS) for rows in (numbers, *lists))
        return "".join(tables)
