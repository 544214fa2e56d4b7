"""A watched model → the document that a view shows: of each text that it read, and worked calculations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from regard.attention.readings import WATCHING_LINE
from regard.errors import ArgumentError
from regard.explanations.model_attention import worked_steps
from regard.names.model_name import model_name
from regard.records import AttentionRecord, Document, StepsRecord
from regard.viewer.token_labels import TokenLabels, labelled_axis
from regard.watching import AttentionCall, Watch
from regard.watching.call_records import ProblemTiles, numbered_records, shared_by
from regard.watching.token_ids import is_tokenizer
from regard.watching.weight_sources import score_parts

STEPS_USAGE = "with regard.watch(model, keep=True) as watched: model(**inputs); then View(watched, steps=[(0, 0)])"

MOST_OF_TEXTS = 2**23
"""The most weights of several texts that are shown together, so that a view of them is a file of a few megabytes."""


def document_of_watch(watched: Watch, labels: TokenLabels, steps: Sequence[tuple[int, int]]) -> Document:
    """Returns the records of a watched model, and the calculations of some heads."""
    calls = watched.stitched() if watched.calls else []
    _check_weights(watched, calls)
    title, note = model_name(watched.model), ()
    if is_tokenizer(labels.tokens) or labels.count is not None:
        texts = _texts(watched, labels)
        chosen = range(len(texts))
        if labels.example is not None:
            chosen = [labels.row(len(texts), "View(watched, tokens, example=0)")]
    else:
        row = labels.row(calls[0].batch * shared_by(calls)[0], "View(watched, tokens, example=0)")
        texts, chosen = [(-1, row, labels)], [0]
        if watched.sequences > 1:
            rest = f"the last of {watched.sequences}; View(watched.document(tokens, sequence=0)) shows the first"
            note = (("texts", rest),)
    records: list[AttentionRecord] = []
    shown: list[tuple[AttentionCall, int]] = []
    for number in chosen:
        sequence, row, of_text = texts[number]
        more = _of_text(watched, of_text, sequence, row)
        if len(more) > 1 and len({(one.name, one.layer, one.kind) for one in more}) == 1:
            # Records of one name are taken for several texts.
            more = [replace(one, name=f"{one.name}, call {call}") for call, one in enumerate(more, 1)]
        size = sum(record.heads * len(record.queries) * len(record.keys) for record in (*records, *more))
        if records and size > MOST_OF_TEXTS:
            rest = f"the first {number} of {len(texts)}; View(watched, tokens, example={number}) shows the next"
            note = (("texts", rest),)
            break
        records += more
        stitched = watched.stitched(sequence)
        shown += [
            (call, row // sharing)
            for call, sharing in zip(stitched, shared_by(stitched), strict=True)
            if call.weights is not None or call.tiles is not None
        ]
    worked = tuple(_worked(*pair, records, shown) for pair in steps)
    walkable = tuple(_walkable(number, records, shown) for number in range(len(records)))
    return Document(title, walkable, worked, note)


def _texts(watched: Watch, labels: TokenLabels) -> list[tuple[int, int, TokenLabels]]:
    """Returns the sequence, the batch row and the tokens of each text that a model read."""
    if is_tokenizer(labels.tokens):
        if labels.rows is not None or labels.columns is not None:
            raise ArgumentError("name a tokenizer, or rows and columns: View(watched, rows=..., columns=...)")
        return [
            (text.sequence, text.batch_row, TokenLabels(None, text.queries, text.keys))
            for text in watched.texts(labels.tokens)
        ]
    rows = [
        (sequence, row)
        for sequence in range(watched.sequences)
        for calls in [watched.stitched(sequence)]
        for row in range(calls[0].batch * shared_by(calls)[0])
    ]
    labels.check_count(len(rows))
    return [(*row, labels.of_text(number)) for number, row in enumerate(rows)]


def _walkable(
    number: int, records: Sequence[AttentionRecord], shown: Sequence[tuple[AttentionCall, int]]
) -> AttentionRecord:
    """Returns a record with the calculations of its heads, if its call stores their tensors."""
    record, (call, row) = records[number], shown[number]
    if call.tiles is None or not isinstance(call.tiles[row], ProblemTiles):
        return record
    heads = record.numbers_of_heads
    return replace(record, worked=lambda head: _worked(number, heads[head], records, shown))


def _worked(
    number: int, head: int, records: Sequence[AttentionRecord], shown: Sequence[tuple[AttentionCall, int]]
) -> StepsRecord:
    """Returns the calculation of a record's head, from the tensors that a batch row of its call stores."""
    heads = records[number].numbers_of_heads if 0 <= number < len(records) else ()
    if head not in heads:
        known = f"from 0 to {len(heads) - 1}" if heads == tuple(range(len(heads))) else f"one of {list(heads)}"
        known = f" and head {known}" if heads else ""
        raise ArgumentError(
            f"steps must have (layer, head) with layer from 0 to {len(records) - 1}{known}; one is {(number, head)}"
        )
    record, (call, row) = records[number], shown[number]
    tiles = call.tiles
    if tiles is None:
        raise ArgumentError(f"the queries, keys and values of {record.name!r} were not stored; write {STEPS_USAGE}")
    source = tiles[row]
    if not isinstance(source, ProblemTiles):
        raise ArgumentError(f"{record.name!r} shows its weights alone; its queries, keys and values are unknown")
    position = heads.index(head)
    problem, chosen = source.problem, source.chosen[position]
    worked = worked_steps([problem], chosen, record.name, record.layer, record.queries, record.keys)
    parts = None
    if call.origin is not None:
        with suppress(ArgumentError):  # the walk has no station of sources then
            parts = score_parts(call, row, chosen)
    return replace(worked, head=position, parts=parts)


def _check_weights(watched: Watch, calls: Sequence[AttentionCall]) -> None:
    """Raises ArgumentError where a watched model has no weights to show."""
    if not calls:
        raise ArgumentError(f"no attention call was watched yet; call the model inside of the context: {WATCHING_LINE}")
    if all(call.weights is None and call.tiles is None for call in calls):
        if any(call.tiles is not None for call in watched.calls):
            raise ArgumentError(
                "keep=True keeps the queries and keys of each call, and the last sequence has several calls, one for "
                "each step: write View(watched.calls[0], tokens) for one of "
                f'{len(watched.calls)} calls, or for the whole sequence read="view" in place of keep=True'
            )
        raise ArgumentError(
            f"the weights were not read; write {WATCHING_LINE}; then View(watched, tokens). For long inputs write "
            "keep=True in place of read"
        )


def _of_text(watched: Watch, labels: TokenLabels, sequence: int, row: int) -> list[AttentionRecord]:
    """Returns the records of one text."""
    rows, columns = labels.rows, labels.columns
    if labels.tokens is not None:
        if rows is not None or columns is not None:
            raise ArgumentError("name tokens for both sides, or rows and columns: View(watched, rows=..., columns=...)")
        if any(call.kind == "cross" for call in watched.stitched(sequence)):
            raise ArgumentError(
                "the model attends from one sequence to another: write View(watched, rows=target_tokens, "
                "columns=source_tokens)"
            )
        rows = labels.tokens
    if rows is None and columns is None:
        return numbered_records(watched.stitched(sequence), row)
    if rows is None:
        raise ArgumentError("rows is missing, the tokens of the queries: View(watched, rows=..., columns=...)")
    keys = None if columns is None else labelled_axis("columns", columns)
    queries = labelled_axis("tokens" if labels.rows is None else "rows", rows)
    return watched.records(queries, keys, batch_row=row, sequence=sequence)
