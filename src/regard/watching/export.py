"""Records of attention calls as plain data, for viewers and pages."""

from collections.abc import Sequence

import numpy as np

from regard.errors import ArgumentError, KindError, ShapeError
from regard.records import AttentionRecord, Axis, FrameAxis, GridAxis, TokenAxis
from regard.watching.attention_call import AttentionCall


def records_of(
    calls: Sequence[AttentionCall],
    query_tokens: Sequence[str] | Axis,
    key_tokens: Sequence[str] | Axis | None,
    batch_row: int,
) -> list[AttentionRecord]:
    """One plain record for each call that has weights or tiles: see `Watch.records`."""
    own = _axis("query_tokens", query_tokens)
    other = own if key_tokens is None else _axis("key_tokens", key_tokens)
    records = []
    for call in calls:
        if call.weights is None and call.tiles is None:
            continue
        if not 0 <= batch_row < call.batch:
            raise ArgumentError(f"batch_row must be from 0 to {call.batch - 1}; it is {batch_row}")
        if call.kind == "cross":
            axes = _fitting(call, "queries", own), _fitting(call, "keys", other)
        elif call.kind == "self" and key_tokens is not None and len(other) == call.queries:
            axes = other, other
        else:
            axes = _fitting(call, "queries", own), _fitting(call, "keys", own)
        queries, keys = axes
        weights = source = None
        if call.weights is not None:
            weights = call.weights[batch_row, :, : len(queries), : len(keys)].float().numpy()
        elif call.tiles is not None:
            source = call.tiles[batch_row]
        visible = None
        if call.visible_mask is not None and call.queries * call.keys <= PAIRS_LIMIT:
            visible = call.visible(batch_row)[:, : len(queries), : len(keys)].numpy()
            visible = np.ascontiguousarray(visible[0] if (visible == visible[:1]).all() else visible)
        records.append(AttentionRecord(call.name, call.layer, call.kind, queries, keys, weights, visible, source))
    if not records:
        raise ArgumentError("there is no record with weights: watch with read=Readings(weights=True), or keep=True")
    return records


PAIRS_LIMIT = 1 << 26
"""A record of more pairs has no dense mask: 64 MiB."""


def _axis(name: str, tokens: Sequence[str] | Axis) -> Axis:
    if isinstance(tokens, (TokenAxis, GridAxis, FrameAxis)):
        return tokens
    if isinstance(tokens, str) or not isinstance(tokens, Sequence):
        raise KindError(
            f"{name} must be a sequence of texts, or an axis of regard.records; it is {type(tokens).__name__}"
        )
    return TokenAxis(tuple(tokens))


def _fitting(call: AttentionCall, side: str, axis: Axis) -> Axis:
    """The axis, without a last token that was generated and never fed."""
    length = call.queries if side == "queries" else call.keys
    if len(axis) == length:
        return axis
    if isinstance(axis, TokenAxis) and len(axis) == length + 1 and call.kind != "self":
        words = tuple(range(word.start, min(word.stop, length)) for word in axis.words if word.start < length)
        return TokenAxis(axis.tokens[:length], axis.special[:length], words)
    raise ShapeError(f"{call.name!r} has {length} {side}; there are {len(axis)} tokens")
