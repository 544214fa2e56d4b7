"""Padding at the end of texts, which no query sees and no view shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from regard.records import AttentionRecord, Axis, Document, StepsRecord, TokenAxis
from regard.records.document import PAIR_STEPS


def without_padding(document: Document) -> Document:
    """Returns the document without the positions of padding at the end of its texts; itself where there are none."""
    lengths: dict[Axis, int] = {}
    for record in document.records:
        lengths[record.keys] = max(lengths.get(record.keys, 0), _length(record))
    records = []
    for record in document.records:
        queries = lengths.get(record.queries, len(record.queries))
        keys = lengths[record.keys]
        is_whole = queries == len(record.queries) and keys == len(record.keys)
        records.append(record if is_whole else _shortened(record, queries, keys))
    if tuple(records) == document.records:
        return document
    steps = []
    for one in document.steps:
        number = number_of_record(one, document.records)
        steps.append(one if number is None else shortened_steps(one, records[number]))
    return replace(document, records=tuple(records), steps=tuple(steps))


def number_of_record(steps: StepsRecord, records: Sequence[AttentionRecord]) -> int | None:
    """Returns the index of the record that has the head of a calculation, of several texts that of its tokens."""
    of_head = [number for number, one in enumerate(records) if (one.name, one.layer) == (steps.attention, steps.layer)]
    return min(of_head, key=lambda number: records[number].keys.labels != steps.key_labels, default=None)


def shortened_steps(steps: StepsRecord, record: AttentionRecord) -> StepsRecord:
    """Returns the calculation of the queries and keys of a record, without padding after them."""
    queries, keys = slice(len(record.queries)), slice(len(record.keys))
    if (queries.stop, keys.stop) == (len(steps.query_labels), len(steps.key_labels)):
        return steps
    rows: dict[str, slice] = dict.fromkeys(("key", "value", "key_input", "value_input"), keys)
    rows |= dict.fromkeys(("query", "query_input", "output", *PAIR_STEPS), queries)
    matrices = {name: matrix[rows.get(name, slice(None))] for name, matrix in steps.matrices.items()}
    matrices |= {name: matrices[name][:, keys] for name in PAIR_STEPS if name in matrices}
    parts = steps.parts
    if parts is not None:
        parts = replace(parts, of_query=parts.of_query[:, queries, keys], of_key=parts.of_key[:, queries, keys])
    return replace(
        steps,
        matrices=matrices,
        query_labels=steps.query_labels[queries],
        key_labels=steps.key_labels[keys],
        parts=parts,
    )


def _length(record: AttentionRecord) -> int:
    """Returns how many keys a record has before those of padding."""
    keys, weights = record.keys, record.weights
    if not isinstance(keys, TokenAxis) or weights is None:
        return len(keys)
    special = keys.known_special
    if record.visible is not None:
        seen = record.visible.reshape(-1, len(keys)).any(0)
    else:  # zeros alone make no padding
        is_named = np.array([re.search("pad", token, re.IGNORECASE) is not None for token in keys.tokens], dtype=bool)
        seen = (weights != 0).any((0, 1)) | ~is_named
    shown = np.flatnonzero(seen | ~np.array(special, dtype=bool)) if special else range(len(keys))
    return int(shown[-1]) + 1 if len(shown) else len(keys)


def _shortened(record: AttentionRecord, queries: int, keys: int) -> AttentionRecord:
    """Returns the record of its first queries and keys."""
    axes = [
        axis.first(length) if isinstance(axis, TokenAxis) else axis
        for axis, length in ((record.queries, queries), (record.keys, keys))
    ]
    assert record.weights is not None, "padding is looked for in stored weights"
    measures = {
        name: factors[..., :keys] if factors.ndim == 2 else factors[:, :queries, :keys]
        for name, factors in record.measures.items()
    }
    return replace(
        record,
        queries=axes[0],
        keys=axes[0] if record.queries is record.keys else axes[1],
        weights=record.weights[:, :queries, :keys],
        visible=None if record.visible is None else record.visible[..., :queries, :keys],
        measures=measures,
        source=None,
        padding=max(len(record.queries) - queries, len(record.keys) - keys),
    )
