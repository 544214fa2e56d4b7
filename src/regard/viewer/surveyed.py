"""Statistics of heads over a corpus, joined to the records of the same heads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from regard.errors import ArgumentError, KindError
from regard.records import AttentionRecord, Document
from regard.watching import HeadStatistics, Survey


def with_survey(document: Document, survey: Survey | Iterable[HeadStatistics]) -> Document:
    """Returns the document with the statistics of its records' heads (`AttentionRecord.statistics`).

    A record is of the surveyed module if it has its name; where no record has a surveyed name, if it has its layer and
    both attend within one sequence.

    Raises:
        KindError: not a survey.
        ArgumentError: no record is of a surveyed module, or one has other heads.

    Example:
        >>> from regard import View, watching
        >>> heads = [watching.HeadStatistics("a", 0, "self", head, {"offset -1": 0.8}) for head in (0, 1)]
        >>> view = View([[[0.5, 0.5], [1, 0]], [[0, 1], [1, 0]]], ["the", "cat"], survey=heads)
        >>> view.document.records[0].statistics
        ({'offset -1': 0.8}, {'offset -1': 0.8})
    """
    must = "survey must be the result of regard.survey(model, texts, tokenizer), or a sequence of HeadStatistics"
    if not isinstance(survey, (Survey, Iterable)):
        raise KindError(f"{must}; it is of type {type(survey).__name__}")
    heads = list(survey.heads if isinstance(survey, Survey) else survey)
    for head in heads:
        if not isinstance(head, HeadStatistics):
            raise KindError(f"{must}; it has an entry of type {type(head).__name__}")
    modules: dict[str, list[HeadStatistics]] = {}
    for head in heads:
        modules.setdefault(head.name, []).append(head)
    named = any(record.name in modules for record in document.records)
    records = tuple(_joined(record, _of_record(record, modules, named)) for record in document.records)
    if all(record.statistics is None for record in records):
        layers = sorted({record.layer for record in records if record.kind != "cross"})
        surveyed = sorted({head.layer for head in heads})
        raise ArgumentError(
            "survey has no head of this document: it must be of the same model. The document has the layers "
            f"{layers[:9]} that attend within one sequence, the survey has {surveyed[:9]}"
        )
    return replace(document, records=records)


def _of_record(
    record: AttentionRecord, modules: dict[str, list[HeadStatistics]], named: bool
) -> list[HeadStatistics] | None:
    if named:
        return modules.get(record.name)
    if record.kind == "cross":
        return None
    return next((heads for heads in modules.values() if heads[0].layer == record.layer), None)


def _joined(record: AttentionRecord, heads: list[HeadStatistics] | None) -> AttentionRecord:
    if heads is None:
        return record
    by_number = {head.head: head.values for head in heads}
    if set(by_number) != set(range(record.heads)):
        raise ArgumentError(
            f"survey must have the {record.heads} heads of {record.name!r}; it has the heads {sorted(by_number)[:16]}"
        )
    return replace(record, statistics=tuple(by_number[number] for number in range(record.heads)))
