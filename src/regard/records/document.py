"""What one view or page shows: the records of a model's run on one input."""

from __future__ import annotations

from dataclasses import dataclass

from regard.errors import ArgumentError, KindError
from regard.records.attention_record import AttentionRecord
from regard.records.steps_record import StepsRecord


@dataclass(frozen=True, eq=False)
class Document:
    """Records that are shown together.

    Attributes:
        title: one line.
        records: the attention calls.
        steps: worked calculations.
        texts: (name, text), such as ``("input", ...)`` and ``("output", ...)``.

    Raises:
        KindError: an entry of another type.
        ArgumentError: there is nothing to show.
    """

    title: str
    records: tuple[AttentionRecord, ...]
    steps: tuple[StepsRecord, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name, expected in (("records", AttentionRecord), ("steps", StepsRecord)):
            entries = tuple(getattr(self, name))
            for position, entry in enumerate(entries):
                if not isinstance(entry, expected):
                    raise KindError(
                        f"{name} must hold {expected.__name__}; {name}[{position}] is of type {type(entry).__name__}"
                    )
            object.__setattr__(self, name, entries)
        texts = tuple((str(name), str(text)) for name, text in self.texts)
        object.__setattr__(self, "texts", texts)
        if not self.records and not self.steps and not texts:
            raise ArgumentError("records must not be empty where there are no steps and no texts")
