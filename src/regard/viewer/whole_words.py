"""The weights of a record as they are shown: of whole words, and of one head or the mean of all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.records import AttentionRecord, Axis, TokenAxis
from regard.records.axis import join_pieces


def whole_words(record: AttentionRecord) -> AttentionRecord:
    """Returns a record whose positions are words: weights of a word's keys are added, those of its queries averaged.

    A query that sees no key has no part in the mean. A record without weights or words is returned unchanged.

    Example:
        >>> from regard import View
        >>> from regard.viewer.whole_words import whole_words
        >>> weights = [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]
        >>> record = View(weights, ["it", "un", "##seen"]).document.records[0]
        >>> words = whole_words(record)
        >>> words.keys.tokens, words.weights.tolist()
        (('it', 'unseen'), [[[0.5, 0.5], [0.25, 0.75]]])
    """
    has_words = any(isinstance(axis, TokenAxis) and axis.words for axis in (record.queries, record.keys))
    if record.weights is None or not has_words:
        return record
    queries, keys = word_starts(record.queries), word_starts(record.keys)
    weights, seeing = record.weights.astype(np.float64), np.ones((1, len(record.queries)))
    visible = record.visible
    if visible is not None:
        weights = np.where(visible, weights, 0.0)
        seeing = visible.any(-1).reshape(-1, len(record.queries)).astype(np.float64)
        visible = np.logical_or.reduceat(np.logical_or.reduceat(visible, queries, axis=-2), keys, axis=-1)
    sums = np.add.reduceat(np.add.reduceat(weights, keys, axis=2), queries, axis=1)
    counts = np.maximum(np.add.reduceat(seeing, queries, axis=1), 1)[:, :, None]
    axes = _joined(record.queries, queries), _joined(record.keys, keys)
    return AttentionRecord(
        record.name, record.layer, record.kind, *axes, sums / counts, visible,
        signed=record.signed, head_numbers=record.head_numbers,
    )  # fmt: skip


def word_starts(axis: Axis) -> NDArray[np.int64]:
    """Returns the first position of each word of an axis; all positions where there are no words."""
    words = axis.words if isinstance(axis, TokenAxis) else ()
    return np.array([word.start for word in words] or range(len(axis)), np.int64)


def word_at(axis: Axis, position: int) -> int:
    """Returns the number of the word in which a position is."""
    return int(np.searchsorted(word_starts(axis), position, "right")) - 1


def _joined(axis: Axis, starts: NDArray[np.int64]) -> Axis:
    if not isinstance(axis, TokenAxis) or not axis.words:
        return axis
    special = axis.known_special
    stops = [*starts[1:].tolist(), len(axis)]
    groups = [slice(start, stop) for start, stop in zip(starts.tolist(), stops, strict=True)]
    return TokenAxis(
        tuple(join_pieces(axis.tokens[group]) for group in groups), tuple(all(special[group]) for group in groups)
    )


def matrix_of(record: AttentionRecord, head: int | None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Returns a head's weights, or their mean over the heads in which a query sees a key, and the masked pairs."""
    assert record.weights is not None, "a source of tiles has no matrix"
    heads = slice(None) if head is None else slice(head, head + 1)
    weights = record.weights[heads].astype(np.float64)
    if record.visible is None:
        return weights.mean(axis=0), np.zeros(weights.shape[1:], np.bool_)
    shown = np.broadcast_to(record.visible if record.visible.ndim == 2 else record.visible[heads], weights.shape)
    seeing = shown.any(axis=2).sum(axis=0)[:, None]
    return np.where(shown, weights, 0.0).sum(axis=0) / np.maximum(seeing, 1), np.logical_not(shown.any(axis=0))


def visible_pairs(record: AttentionRecord) -> NDArray[np.bool_]:
    """Returns which pairs are visible, ``[1 or heads, queries, keys]``: without a mask all, or all that come before."""
    queries, keys = len(record.queries), len(record.keys)
    if record.visible is not None:
        return record.visible.reshape(-1, queries, keys)
    shown = np.ones((1, queries, keys), np.bool_)
    return np.tril(shown, keys - queries) if record.kind == "causal" else shown
