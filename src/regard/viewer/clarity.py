"""How clear the clearest pair of words of each head is: what a document opens on."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.records import AttentionRecord, Axis, TokenAxis
from regard.viewer.whole_words import visible_pairs, whole_words, word_starts

LEAST_KEYS = 4
"""The fewest keys that a query sees for which one of them is a choice."""

LEAST_APART = 0.5
"""The least weight of two whole words apart that comes before every other pair."""

NEAR = 4
"""The distance in words at which a pair counts half as much more as the farthest."""

LEAST_GIVEN = 0.25
"""The least weight that tells that a word looks at another."""

NOT_FOUND = -2.0
"""How clear a head of a long record is in which nothing was found."""

WIDE_LETTERS = 3
"""The number of letters that a character of a script without spaces counts as."""

TELLING_LETTERS = 6
"""The number of letters of a word that says as much as a longer one."""


def head_openings(record: AttentionRecord) -> list[tuple[float, int | None, int | None]]:
    """Returns for each head how clear its clearest pair of words is, and the pair: the first positions of both words.

    A pair is clear by its weight, times what the weight has more than its position predicts: than the mean weight of
    other queries at the same distance, than that of other queries on the same key, and than an equal share. Far pairs
    and long words count more. Special tokens, punctuation and the query itself are no pair. Whole words apart from each
    other with more than half of the weight come before all others, and those before neighbours (1 and 2 are added).
    """
    if record.weights is None or record.signed or not record.weights.size:  # shares of a row of any sum say nothing
        return [(0.0, None, None)] * record.heads
    words = whole_words(record)
    telling = _clarity(words, np.diff(word_starts(record.keys), append=len(record.keys)))
    flat = telling.reshape(record.heads, -1)
    cells, size = flat.argmax(axis=1), len(words.keys)
    rows, columns = word_starts(record.queries), word_starts(record.keys)
    openings = []
    for head, cell in enumerate(cells.tolist()):
        clarity = float(flat[head, cell])
        pair = (int(rows[cell // size]), int(columns[cell % size])) if clarity > 0 else (None, None)
        openings.append((round(clarity, 4), *pair))
    return openings


def found_openings(heads: int, findings: dict[str, list[dict[str, Any]]]) -> list[tuple[float, int | None, int | None]]:
    """Returns the openings of a record that is not carried whole, all less clear than those of others.

    The first single large weight comes before the first diagonal, and that before the first sink.
    """
    openings: list[tuple[float, int | None, int | None]] = [(NOT_FOUND, None, None)] * heads
    for one in [*findings["spikes"], *findings["diagonals"], *findings["sinks"]][:1]:
        openings[one["head"]] = (NOT_FOUND / 2, one.get("query"), one.get("key"))
    return openings


def _clarity(record: AttentionRecord, pieces: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns how clear each pair of words is, ``[heads, queries, keys]``; 0: no pair to open on.

    Args:
        record: of whole words.
        pieces: the number of pieces of each key, on which an equal share depends.
    """
    queries, keys = len(record.queries), len(record.keys)
    visible, asking, answering = visible_pairs(record), letters(record.queries)[:, None], letters(record.keys)
    counted = visible & (asking >= 0)
    weights = np.where(counted, np.nan_to_num(record.weights), np.float32(0))
    seen = visible.sum(-1, keepdims=True)
    uniform = (pieces / np.maximum(visible @ pieces, 1)[..., None]).astype(np.float32)
    expected = np.maximum(_mean_without(weights, *(each.sum(1, keepdims=True) for each in (weights, counted))), uniform)
    pairs = counted & (seen >= LEAST_KEYS) & (asking > 0) & (answering > 0)
    query, key = np.arange(queries)[:, None], np.arange(keys)
    positional = record.kind != "cross" and type(record.queries) is type(record.keys)
    own = query + keys - queries if positional else query * ((keys - 1) / max(1, queries - 1))
    distance = np.abs(key - own).astype(np.float32)
    apart = distance > positional  # from the neighbours
    worth = np.minimum(asking, 2) / 2 * np.minimum(answering, TELLING_LETTERS) / TELLING_LETTERS
    worth = worth * (1 + distance / (distance + NEAR))
    if positional:
        expected = np.maximum(expected, _of_distance(weights, counted))
        pairs = pairs & (distance > 0)
        if queries == keys:
            worth = worth * _content(np.where(pairs & apart, weights, np.float32(0))) * _sameness(record.keys)
    surprise = np.where(pairs & (weights > 2 * uniform), weights * (weights - expected), np.float32(0))
    telling = np.maximum(surprise, 0) * worth.astype(np.float32)
    apart = apart & (asking >= 2) & (answering >= 2)
    return telling + (telling > 0) * (apart + (apart & (weights > LEAST_APART)).astype(np.float32))


def _content(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns how much each word is looked at from afar, against how much it looks: words of content are near 1."""
    received, paid = weights.sum((0, 1)), np.where(weights > LEAST_GIVEN, weights, 0).sum((0, 2))
    return (0.1 + received) / (0.1 + received + paid)


def _sameness(axis: Axis) -> NDArray[np.float32]:
    """Returns a factor for each pair of an axis, which is smaller for two words with the same letters."""
    texts = np.array([text.lower() for text in axis.labels])
    return np.where(texts[:, None] == texts, np.float32(0.5), np.float32(1))


def _mean_without(weights: NDArray[np.float32], sums: NDArray[Any], counts: NDArray[Any]) -> NDArray[np.float32]:
    """Returns the mean of those that a sum and a count have, each weight itself left out; 0 where there is no other."""
    others = np.where(counts > 1, 1 / np.maximum(counts - 1, 1), 0).astype(np.float32)
    return (sums - weights) * others


def _of_distance(weights: NDArray[np.float32], counted: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Returns the mean of the other counted weights at the same distance; 0 where there is no other."""

    def along(values: NDArray[Any]) -> NDArray[Any]:
        """Returns the sum over the diagonal of each pair."""
        heads, queries, keys = values.shape
        # Rows with room behind them, read one shorter, make a column of a diagonal of the mirrored matrix.
        padded = np.zeros((heads, queries, keys + queries), values.dtype)
        padded[:, :, :keys] = values[:, :, ::-1]
        sums = padded.reshape(heads, -1)[:, :-queries].reshape(heads, queries, -1).sum(axis=1)
        places = np.arange(queries)[:, None] + np.arange(keys)[::-1]
        return sums[:, places]

    return _mean_without(weights, along(weights), along(counted.astype(np.int32)))


def letters(axis: Axis) -> NDArray[np.int64]:
    """Returns how much each position says, in letters: 0 for punctuation, −1 for a special token."""
    if not isinstance(axis, TokenAxis):
        return np.ones(len(axis), np.int64)  # patches and frames say less than words
    special = axis.known_special
    return np.array([-1 if flag else _count(text) for text, flag in zip(axis.tokens, special, strict=True)])


def _count(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(one) in "WF" and one.isalnum() for one in text)
    return (WIDE_LETTERS - 1) * wide + sum(one.isalnum() for one in text)
