"""What a picture of a view shows: the head and the pair of the viewer's opening, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError
from regard.pictures.caption import Caption
from regard.pictures.fonts import visible_token
from regard.pictures.numbers import adds_up
from regard.records import AttentionRecord, Document, FrameAxis, GridAxis, TokenAxis
from regard.viewer.clarity import letters
from regard.viewer.opening import Opening, opening, sentence
from regard.viewer.overview import carried_whole, tile_source
from regard.viewer.whole_words import matrix_of, visible_pairs, whole_words, word_at
from regard.viewer.words import say

MOST_TOKENS = 400
"""The most tokens of one side of a picture that shows their names."""

POOLED_SIDE = 256
"""The most points of a side of a map of bins."""


class Shown(NamedTuple):
    """A head of a record, whose positions are whole words where its weights are stored, and the pair that is spoken of.

    Attributes:
        head: its position in the record; None: the mean of all heads.
        row, column: the pair; None where nothing stands out.
        single: the record with its pieces of words.
    """

    record: AttentionRecord
    head: int | None
    row: int | None
    column: int | None
    caption: Caption
    single: AttentionRecord

    def matrix(self) -> NDArray[np.float64]:
        """Returns the weights; −inf is masked."""
        weights, hidden = matrix_of(self.record, self.head)
        return np.where(hidden, -np.inf, weights)

    def unpooled(self) -> Shown | None:
        """Returns the same with stored weights, if a map of bins has a bin for each; None: it is too long."""
        source = tile_source(self.record)
        if max(source.queries, source.keys) > POOLED_SIDE:
            return None
        weights = source.tile((0, source.queries), (0, source.keys))
        return self._replace(record=replace(self.record, weights=weights, source=None))

    @property
    def marked(self) -> tuple[int, int | None] | None:
        """The row and the column that a picture outlines."""
        return None if self.row is None else (self.row, self.column)

    @property
    def labels(self) -> tuple[list[str], list[str]]:
        """The names of queries and keys."""
        return list(self.record.queries.labels), list(self.record.keys.labels)


def shown_head(document: Document, view: str, layer: int | None, head: int | str | None, language: str) -> Shown:
    """Returns what a view of one head shows; arguments as of `figure`."""
    records = document.records
    kind = {"image": GridAxis, "sound": FrameAxis, "words": TokenAxis}.get(view)
    fitting = [
        number
        for number, record in enumerate(records)
        if (view == "long" or record.weights is not None) and (kind is None or isinstance(record.keys, kind))
    ]
    if view == "long":
        whole = carried_whole(records)
        fitting = [number for number in fitting if number not in whole] or fitting
    if not fitting:
        raise ArgumentError(f"view {view!r} has no record in this document that it can draw")
    number = layer if layer is not None and layer in fitting else None
    # The opening of a record is that of the browser; only where the view cannot draw it, another record's.
    first = opening(document, number, head)
    if first is None or first.record not in fitting:
        first = opening(document, fitting, head) or Opening(fitting[0], None, None, None)
    record = records[first.record]
    text, shares = sentence(document, first, language, view)
    joined = record if view == "long" else whole_words(record)
    caption = Caption(
        _title(document, record, first.head, language), text, shares, _notes(record, joined, language),
        cast(Literal["en", "zh"], language), even=(None, None) if view == "long" else _equal_shares(record, first),
    )  # fmt: skip
    row, column = first.row, first.column
    if joined is not record:
        row = None if row is None else word_at(record.queries, row)
        column = None if column is None else word_at(record.keys, column)
    return Shown(joined, first.head, row, column, caption, record)


def _notes(record: AttentionRecord, joined: AttentionRecord, language: str) -> str:
    """Returns that pieces of words are joined, and which tokens are special, as the viewer's legend says it."""
    seen = True if joined.visible is None else joined.visible.reshape(-1, len(joined.keys)).any(axis=0)
    special = np.flatnonzero((letters(joined.keys) < 0) & seen) if isinstance(joined.keys, TokenAxis) else ()
    tokens = ", ".join([*dict.fromkeys(visible_token(joined.keys.labels[number], 12) for number in special)][:4])
    notes = (_merged(record, joined, language), say("specialNote", language, tokens=tokens) if tokens else "")
    return " · ".join(filter(None, notes))


def _merged(record: AttentionRecord, joined: AttentionRecord, language: str) -> str:
    """Returns how many tokens there are, and how many names of them where pieces of words are joined."""
    sides = ((record.keys, joined.keys), (record.queries, joined.queries))
    count, shown = next(((len(each), len(one)) for each, one in sides if len(each) > len(one)), (0, 0))
    return say("mergedWords", language, count=count, shown=shown) if count else ""


def _equal_shares(record: AttentionRecord, first: Opening) -> tuple[float | None, float | None] | None:
    """Returns the equal share among the keys of the query that asks, and of all queries if it is one number; pieces of
    words count one by one."""
    if record.weights is None or record.signed:
        return None if record.weights is None else (None, None)
    values, hidden = matrix_of(record, first.head)
    whole = adds_up(np.where(hidden, 0.0, values)) | hidden.all(axis=1)
    visible = visible_pairs(record)
    visible = visible if first.head is None else visible[min(first.head, len(visible) - 1)][None]

    def share(pairs: NDArray[np.bool_]) -> float | None:
        counts = np.unique(pairs.sum(-1))
        counts = counts[counts > 0]
        return 1.0 / int(counts[0]) if len(counts) == 1 and counts[0] > 1 else None

    one = None if first.row is None or not whole[first.row] else share(visible[:, first.row])
    return one, share(visible) if whole.all() else None


def _title(document: Document, record: AttentionRecord, head: int | None, language: str) -> str:
    """Returns whose weights are shown, with what tells the record from the others of its document."""
    kinds = {(one.kind, type(one.keys)) for one in document.records}
    number = text_number(document, record)
    parts = [
        document.title,
        say("layerNumber", language, layer=record.layer) if len(document.records) > 1 or record.heads > 1 else "",
        record.kind if len(kinds) > 1 else "",
        say("textBrief", language, number=number) if number else "",
        head_text(record, head, language) if record.heads > 1 or record.head_numbers is not None else "",
    ]
    return " · ".join(filter(None, parts))


def head_text(record: AttentionRecord, head: int | None, language: str) -> str:
    """Returns the name of a head of a record; None: of the mean of all."""
    if head is None and record.heads > 1:
        return say("meanOfHeads", language, count=record.heads)
    return say("headNumber", language, head=record.numbers_of_heads[head or 0])


def text_number(document: Document, record: AttentionRecord) -> int:
    """Returns the number of a record's text, from 1, where one model read several texts; 0 for one."""
    numbers = document.text_numbers
    return (
        0
        if numbers is None
        else next(number + 1 for number, one in zip(numbers, document.records, strict=True) if one is record)
    )


def check_length(record: AttentionRecord, most: int = MOST_TOKENS) -> None:
    """Raises ArgumentError if a record has more positions than a picture has room to name."""
    longest = max(len(record.queries), len(record.keys))
    if longest > most:
        raise ArgumentError(
            f"a picture with a name for each position shows at most {most} positions; this record has {longest:,}. "
            "Save the view as .html, or choose view='grid' or 'long'"
        )
