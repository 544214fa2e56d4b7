"""The head and the pair of words on which a document opens, and what is said of them.

The payload carries the same choice to the viewer in the browser (`head_openings`), whose ``sentence.js`` says the same.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.pictures.fonts import visible_token
from regard.pictures.numbers import adds_up, percent, short_number, short_weight, weight_texts
from regard.records import AttentionRecord, Axis, Document, FrameAxis, GridAxis, TokenAxis
from regard.viewer.clarity import NOT_FOUND, found_openings, head_openings, letters
from regard.viewer.long_sentence import long_sentence
from regard.viewer.overview import carried_whole, record_findings
from regard.viewer.whole_words import matrix_of, visible_pairs, whole_words, word_at, word_starts
from regard.viewer.words import say, which_one, words

MOST_NAMED = 4
"""The most keys of a row whose weights are named one by one."""

GAP = " \u2003 "
"""What stands between the statements of the line of numbers."""

SUMS = {"pattern": "rowsAddUp", "lines": "wordsAddUp"}
"""What says that all weights of a query add up to 1, by the view beside which they stand."""

MOST_TEXTS, MOST_SEARCHED = 3, 12
"""The most texts of which a sentence tells, and in which it looks for both words."""

MOST_PARTS = 8
"""The most keys of a picture or a sound of which one is named."""


class Opening(NamedTuple):
    """A head and a pair of positions of a document, from 0.

    Attributes:
        record: the index of the record.
        head: its position in the record; None: the mean of all heads.
        row: the query, the first position of its word; None where nothing stands out.
        column: the key, likewise.
    """

    record: int
    head: int | None
    row: int | None
    column: int | None


def opening(
    document: Document, record: int | Collection[int] | None = None, head: int | str | None = None
) -> Opening | None:
    """Returns the head and the pair on which a document opens, as the viewer in the browser does.

    Args:
        document: any; without records there is nothing to open on, and None is returned.
        record: the index of the record, or those of which one is chosen; None: all of the first text.
        head: its position in the record, or ``"mean"``; None: the one with the clearest pair.

    Example:
        >>> from regard import View
        >>> from regard.viewer.opening import opening
        >>> weights = [[0.5, 0.2, 0.1, 0.2], [0.1, 0.1, 0.1, 0.7], [0.2, 0.3, 0.4, 0.1], [0.8, 0.1, 0.1, 0.0]]
        >>> opening(View(weights, ["animal", "was", "too", "tired"]).document)
        Opening(record=0, head=0, row=3, column=0)
    """
    records = document.records
    if record is None:  # where there are several texts, of the first one
        record = [number for number, text in enumerate(document.text_numbers or [0] * len(records)) if text == 0]
    numbers = [record] if isinstance(record, int) else record
    whole = carried_whole(records)
    best, clearest = None, -np.inf
    for number in sorted(numbers, key=lambda one: one not in whole):
        if head == "mean":
            return Opening(number, None, *_largest(records[number], None))
        if number not in whole and best is not None and clearest > NOT_FOUND:
            break  # what is found in long records comes last
        one = records[number]
        openings = head_openings(one) if number in whole else found_openings(one.heads, record_findings(one))
        for position, (clarity, *pair) in enumerate(openings):
            if head in (None, position) and clarity > clearest:
                best, clearest = Opening(number, position, *pair), clarity
    if best is not None and best.record in whole and best.row is None:
        return Opening(*best[:2], *_largest(records[best.record], best.head))
    return best


def _largest(record: AttentionRecord, head: int | None) -> tuple[int, int] | tuple[None, None]:
    """Returns the pair with the largest weight, of special tokens only where there is no other; None: all are 0."""
    if record.weights is None:
        return None, None
    words = whole_words(record)
    values, hidden = matrix_of(words, head)
    special = [letters(axis) < 0 for axis in (words.queries, words.keys)]
    size = np.where(hidden, 0.0, np.nan_to_num(np.abs(values)))
    alone = (~hidden).sum(axis=1, keepdims=True) == 1  # a query that sees one key has no choice
    score = np.where(size > 0, size - 1e3 * alone - 1e6 * (special[0][:, None] | special[1]), -np.inf)
    if not np.isfinite(score).any():
        return None, None
    row, column = divmod(int(score.argmax()), len(words.keys))
    return int(word_starts(record.queries)[row]), int(word_starts(record.keys)[column])


def sentence(document: Document, opening: Opening, language: str = "en", view: str = "pattern") -> tuple[str, str]:
    """Returns what is said of an opening, and a second line: ``(text, shares)``.

    Args:
        document: that of the opening.
        opening: the head and the pair, as `opening` returns them.
        language: ``"en"`` or ``"zh"``.
        view: the view that shows it. The second line says what is true of all rows in ``"pattern"`` and ``"lines"``,
            where the weights of the query stand beside, and else names the strongest keys of the query.

    Returns:
        both texts; empty where the opening has no pair of a record that is carried whole.

    Example:
        >>> from regard import View
        >>> from regard.viewer.opening import opening, sentence
        >>> document = View([[0.9, 0.1], [0.2, 0.8]], ["le", "chat"]).document
        >>> text, shares = sentence(document, opening(document))
        >>> text.replace("\\u2068", "").replace("\\u2069", "")
        '“le” gives 90\\xa0% of its attention to “le”.'
    """
    record = document.records[opening.record]
    if opening.record not in carried_whole(document.records):
        return long_sentence(record, record_findings(record), opening.head, language)
    if opening.row is None or opening.column is None or record.weights is None:
        return "", ""
    row = _Row(record, opening, language, view)
    text, shares = row.parts() or (_comparison(document, opening, row) or row.pair(), row.shares())
    count = record.heads if opening.head is None else 1
    return (say("meanOfHeadsSays", language, count=count, text=text) if count > 1 else text), shares


def _comparison(document: Document, opening: Opening, row: _Row) -> str:
    """Returns how much the query gives to the key in each text that has both words; "" if no other text has."""
    numbers, record = document.text_numbers, row.record
    if numbers is None or not row.is_whole or not isinstance(record.keys, TokenAxis):
        return ""
    texts = [[one for one, text in enumerate(numbers) if text == number] for number in range(max(numbers) + 1)]
    own = numbers[opening.record]
    layer, pair = texts[own].index(opening.record), row.pair_of_words
    shares = {own: float(row.weights[row.column])}
    for number, text in enumerate(texts[:MOST_SEARCHED]):
        other = document.records[text[layer]]
        if len(shares) == MOST_TEXTS or number == own or other.weights is None or other.heads != record.heads:
            continue
        joined = whole_words(other)
        if pair[0] not in joined.queries.labels or pair[1] not in joined.keys.labels:
            continue
        starts = word_starts(other.queries), word_starts(other.keys)
        at = joined.queries.labels.index(pair[0]), joined.keys.labels.index(pair[1])
        same = Opening(text[layer], opening.head, *(int(one[at_one]) for one, at_one in zip(starts, at, strict=True)))
        one = _Row(other, same, row.language, row.view)
        if one.is_whole and one.column in one.order:
            shares[number] = float(one.weights[one.column])
    language = row.language
    parts = [
        say("shareInText", language, percent=percent(shares[number], language), number=number + 1)
        for number in sorted(shares)
    ]
    listed = say("listed", language).join(parts[:-1]) + say("listedLast", language) + parts[-1]
    names = {"query": row.query, "key": row.name(row.column)}
    return say("givesTexts", language, **names, list=listed) if len(shares) > 1 else ""


class _Row:
    """The weights of the query of an opening, pieces of words joined."""

    def __init__(self, record: AttentionRecord, opening: Opening, language: str, view: str):
        assert opening.row is not None, "checked by sentence"
        assert opening.column is not None, "checked by sentence"
        self.record, self.head, self.language, self.view = record, opening.head, language, view
        joined = whole_words(record)
        row, self.column = word_at(record.queries, opening.row), word_at(record.keys, opening.column)
        self.pieces = range(*[*word_starts(record.queries).tolist(), len(record.queries)][row : row + 2])
        matrix, hidden = matrix_of(joined, opening.head)
        self.weights, self.keys = matrix[row], joined.keys
        self.query = _named(joined.queries, row, language)
        self.pair_of_words = joined.queries.labels[row], joined.keys.labels[self.column]
        sizes = np.where(np.isnan(self.weights), -1.0, np.abs(self.weights))
        self.order = [key for key in np.argsort(-sizes, kind="stable").tolist() if not hidden[row, key]]
        self.is_whole = not record.signed and bool(adds_up(self.weights[self.order]))
        self.even = self._even_share() if self.is_whole else None
        self.rest = self._rest(joined, matrix, hidden)
        self.rows_add_up = not record.signed and bool(adds_up(np.where(hidden, 0.0, matrix)).all())

    def _say(self, name: str, /, **values: str | int) -> str:
        pools = self.record.name == "pooling" and len(self.record.queries) == 1
        return say(f"{name}Pooled" if pools and f"{name}Pooled" in words() else name, self.language, **values)

    def name(self, key: int) -> str:
        """Returns the name of a key in a sentence, in quotes."""
        return _named(self.keys, key, self.language)

    def _weight(self, value: float) -> str:
        return short_number(value) if self.record.signed and 0 < abs(value) < 0.01 else short_weight(value)

    def pair(self) -> str:
        """Returns how much the query gives to the key of the opening."""
        value, names = float(self.weights[self.column]), {"query": self.query, "key": self.name(self.column)}
        if self.is_whole:
            return self._say("gives", **names, percent=percent(value, self.language))
        return self._say("givesWeight", **names, weight=self._weight(value))

    def _even_text(self, name: str) -> str:
        """Returns what is said of an equal share, with the number of keys that it comes from; "" without one."""
        if self.even is None:
            return ""
        kind = {GridAxis: "grid", FrameAxis: "frames"}.get(type(self.keys), "tokens")
        kind = "tokens" if isinstance(self.keys, GridAxis) and self.keys.leading else kind  # these are no patches
        keys = self._say(f"even_{kind}", count=round(1 / self.even))
        return self._say(name, weight=short_weight(self.even), keys=keys)

    def parts(self) -> tuple[str, str] | None:
        """Returns how few parts of a picture or a sound have how much; None where keys are named one by one."""
        kind = {GridAxis: "givesPatches", FrameAxis: "givesFrames"}.get(type(self.keys))
        if kind is None or len(self.order) <= MOST_PARTS or not self.is_whole or self.even is None:
            return None
        leading = self.keys.leading if isinstance(self.keys, GridAxis) else 0  # these are no patches
        many = [float(self.weights[key]) for key in self.order if key >= leading and self.weights[key] > 2 * self.even]
        values = {"count": len(many), "all": len(self.weights) - leading, "percent": percent(sum(many), self.language)}
        return self._say(kind, query=self.query, **values), self._even_text("partsShown")

    def shares(self) -> str:
        """Returns the strongest keys and an equal share; where the weights stand beside, what is true of all rows."""
        if self.view in SUMS:
            return f"{self._say(SUMS[self.view]) if self.rows_add_up else ''}{self.rest}".strip()
        values = [float(self.weights[key]) for key in self.order]
        named, others = self.order[:MOST_NAMED], len(values) - MOST_NAMED
        *texts, rest = weight_texts(values[:MOST_NAMED], sum(values[MOST_NAMED:]), self._weight)
        listed = [f"{_in_list(self.name(key))} {text}" for key, text in zip(named, texts, strict=True)]
        if others > 0:
            listed.append(self._say("moreKeys", count=others, weight=rest))
        even = self._even_text("evenShare")
        return GAP.join(filter(None, [f"{_in_list(self.query)} → {' · '.join(listed)}", even]))

    def _rest(self, joined: AttentionRecord, matrix: NDArray[np.float64], hidden: NDArray[np.bool_]) -> str:
        """Returns how many words look most at a special token, where most do."""
        queries, keys = joined.queries, joined.keys
        if joined.signed or not isinstance(queries, TokenAxis) or not isinstance(keys, TokenAxis):
            return ""
        special = [np.array(axis.known_special) for axis in (queries, keys)]
        asks = ~special[0] & [any(map(str.isalnum, text)) for text in queries.labels]
        rows = np.flatnonzero(asks & ~hidden.all(1))
        best = np.where(hidden, -1.0, np.nan_to_num(np.abs(matrix), nan=-1.0))[rows].argmax(1)
        counts = np.bincount(best[special[1][best]], minlength=len(keys))
        key, words = int(counts.argmax()), int(asks.sum())
        most = int(counts[key])
        return self._say("mostRest", count=most, all=words, key=_in_list(self.name(key))) if 2 * most > words else ""

    def _even_share(self) -> float | None:
        """Returns what each key that the query sees would get if all got the same; None: no one number."""
        visible = visible_pairs(self.record)
        heads = range(len(visible)) if self.head is None else [min(self.head, len(visible) - 1)]
        seen = np.stack([visible[head, query] for head in heads for query in self.pieces]).astype(np.float64)
        counts = seen.sum(1, keepdims=True)
        shares = (seen / np.maximum(counts, 1)).sum(0) / max(1, int((counts > 0).sum()))
        shares = shares[shares > 0]
        return float(shares.max()) if shares.size > 1 and np.ptp(shares) <= 1e-9 else None


def _named(axis: Axis, position: int, language: str) -> str:
    """Returns a position in quotes, kept from changing the direction of the words around it, and which one it is of
    several words that are alike."""
    text = visible_token(axis.labels[position], 48)
    if isinstance(axis, FrameAxis):
        text = f"{position * axis.seconds:.2f}–{(position + 1) * axis.seconds:.2f} s"
    elif isinstance(axis, GridAxis):
        cell = position - axis.leading
        parts: dict[str, Any] = {"number": cell, "row": cell // axis.columns, "column": cell % axis.columns}
        text = say("beforePatches", language, position=position) if cell < 0 else say("patch", language, **parts)
    name = f"“\u2068{text}\u2069”"
    return which_one(axis.labels, position, name, language) if isinstance(axis, TokenAxis) else name


def _in_list(name: str) -> str:
    """Returns a name without its quotes; one of several words that are alike has them."""
    return name.strip("“”") if name.startswith("“") else name
