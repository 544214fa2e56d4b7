"""Joins the calls of one sequence: the prefill and each decoded token become one record of each layer.

`regard.watching.cached_keys` determines which calls continue a sequence, and which of its tokens their queries are.
Cross attention has no keys of its own tokens: its queries are those of the decoder's call before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from regard.errors import ArgumentError, KindError, ShapeError
from regard.masks import keep
from regard.shapes.checks import whole_number
from regard.watching.attention_call import QUERY_ATTRIBUTES, AttentionCall
from regard.watching.cached_keys import CachedKeys, CachedSequence, SequenceCall
from regard.watching.logit_path import LogitPath

ROW_READINGS = tuple(name for name in QUERY_ATTRIBUTES if name != "weights")
"""Readings of each query, which are joined along the queries."""


@dataclass(eq=False)
class JoinedPart:
    """The part of one call in a joined record.

    Attributes:
        rows: the call's batch row for each row of the record.
        queries: the number of the call's first queries in the record.
        first_query, first_key: the positions of its first query and its first key in the sequence.
        keys: the number of its first keys in the record.
        source: the number of its last keys, those of a source.
    """

    call: AttentionCall
    rows: Tensor
    queries: int
    first_query: int
    first_key: int
    keys: int
    source: int = 0

    @cached_property
    def columns(self) -> Tensor:
        """The indices of the call's keys in the record."""
        count = self.call.keys
        return torch.cat([torch.arange(self.keys), torch.arange(count - self.source, count)])

    def places(self, keys: int) -> Tensor:
        """Returns the positions of these keys among those of the joined record."""
        own = torch.arange(self.first_key, self.first_key + self.keys)
        return torch.cat([own, torch.arange(keys - self.source, keys)])

    @property
    def end(self) -> int:
        """The position after its last query."""
        return self.first_query + self.queries

    @property
    def is_whole(self) -> bool:
        """Whether the part is the whole call."""
        rows = torch.equal(self.rows, torch.arange(self.call.batch))
        return rows and self.queries == self.call.queries and len(self.columns) == self.call.keys


@dataclass(eq=False)
class JoinedCalls:
    """The calls of one module that belong to one sequence.

    Attributes:
        cached: the sequence of these calls, or the one whose queries they share; None: they follow each other.
        calls: by the number of the call of the sequence that has the same queries.
    """

    cached: CachedSequence | None
    calls: dict[int, AttentionCall]

    @property
    def first(self) -> AttentionCall:
        """The first call."""
        return next(iter(self.calls.values()))


class Generation:
    """The sequences of a context's calls, by the links in ``cached``."""

    def __init__(self, calls: Sequence[AttentionCall], cached: CachedKeys):
        self._cached = cached
        self._modules: dict[tuple[str, int, int], list[JoinedCalls]] = {}
        queries: dict[int, list[SequenceCall]] = {}
        for key, sequences in cached.sequences.items():
            self._modules[key] = []
            for sequence in sequences:
                pieces = [piece for piece, _ in sequence.pieces()]
                self._modules[key].append(JoinedCalls(sequence, {p.call.number: p.call for p in pieces}))
        for piece in cached.pieces.values():
            if piece.call.kind == "causal" or piece.parent is not None or piece.sequence.last is not piece:
                queries.setdefault(piece.call.forward, []).append(piece)
        of_sequence: dict[tuple[object, ...], JoinedCalls] = {}
        for call in calls:
            if call.number in cached.pieces:
                continue
            key = call.name, call.layer, call.part
            sequences = self._modules.setdefault(key, [])
            partner = _partner(call, queries.get(call.forward, ()))
            if partner is None:
                self._add_recurrent(sequences, call)
                continue
            joined = of_sequence.get((key, partner.sequence))
            if joined is None:
                joined = of_sequence[key, partner.sequence] = JoinedCalls(partner.sequence, {})
                sequences.append(joined)
            joined.calls[partner.call.number] = call

    @property
    def count(self) -> int:
        """The number of sequences of the module that has most of them."""
        return max(map(len, self._modules.values()), default=0)

    def prompt(self, sequence: int) -> int | None:
        """Returns how many tokens a causal sequence had before its first new one; None: unknown, or there is none."""
        for sequences in self._modules.values():
            joined = sequences[sequence if -len(sequences) <= sequence < len(sequences) else -1]
            cached = joined.cached
            if cached is not None and joined.first.kind == "causal":
                pieces = [piece for piece, count in cached.pieces() if count]
                # The end of a prompt that was read in pieces is unknown.
                return pieces[0].end if len(pieces) > 1 and pieces[1].call.queries == 1 else None
        return None

    def stitch(self, sequence: int, beam_indices: Tensor | None) -> list[AttentionCall]:
        """Joins the calls of one sequence: see `Watch.stitched`."""
        joined = (join(parts) for parts in self.parts(sequence, beam_indices) if parts)
        return sorted(joined, key=lambda call: call.number)

    def parts(self, sequence: int = -1, beam_indices: Tensor | None = None) -> list[list[JoinedPart]]:
        """Returns the parts of each module's calls that make the record of a sequence, in the order of its queries."""
        if beam_indices is not None and (
            not isinstance(beam_indices, Tensor) or beam_indices.dim() != 2 or beam_indices.is_floating_point()
        ):
            raise KindError("beam_indices must be an integer tensor [sequences, tokens]")
        sequence = whole_number("sequence", sequence)
        if self._modules:
            _check_sequence(sequence, self.count)
        return [self._parts(sequences, sequence, beam_indices) for sequences in self._modules.values()]

    def _parts(self, sequences: list[JoinedCalls], number: int, beam_indices: Tensor | None) -> list[JoinedPart]:
        if len(sequences) == 1 and number not in (0, -1):  # an encoder that ran once for several sequences
            number = -1
        _check_sequence(number, len(sequences))
        beams = None
        if beam_indices is not None and sequences[number].first.kind != "self":
            beams = beam_indices.cpu().long()
            if len(sequences[number].calls) == 1 < beams.shape[1]:
                number, beams = _beams_of_pass(sequences, number, beams)
        return self._parts_of(sequences[number], beams)

    def _parts_of(self, joined: JoinedCalls, beams: Tensor | None) -> list[JoinedPart]:
        cached = joined.cached
        if not self._cached.rewritten.isdisjoint(call.number for call in joined.calls.values()):
            raise _unjoined(
                joined.first.name, "keys of its own tokens take the places of others, beside keys of a source"
            )
        if cached is None:
            return self._recurrent_parts(list(joined.calls.values()))
        pieces = cached.pieces()
        if cached.is_unseen:
            call = pieces[0][0].call
            raise _unjoined(
                call.name,
                f"call {call.number} reads {cached.start} keys of a cache that are not those of its earlier calls",
            )
        rows = self._rows([piece for piece, _ in pieces], beams)
        parts = []
        for (piece, count), of_call in zip(pieces, rows, strict=False):
            call = joined.calls.get(piece.call.number)
            if not count:
                continue
            if call is None or (call is not piece.call and call is not joined.first and self._has_other_source(call)):
                raise _unjoined(joined.first.name, f"they are not one for each call of {piece.call.name!r}")
            if call is not piece.call:
                parts.append(JoinedPart(call, of_call, count, piece.first_query, 0, call.keys))
            elif len(pieces) == 1 and call.kind != "causal":
                parts.append(JoinedPart(call, of_call, count, 0, 0, call.keys))
            else:
                keys = min(piece.own, cached.end - piece.first_key)
                parts.append(JoinedPart(call, of_call, count, piece.first_query, piece.first_key, keys, piece.source))
        return parts

    def _has_other_source(self, call: AttentionCall) -> bool:
        return call.number in self._cached.other_sources

    def _add_recurrent(self, sequences: list[JoinedCalls], call: AttentionCall) -> None:
        """Adds a call of a decoder that attends once a step: several times in one pass, or once in each of many."""
        if sequences and sequences[-1].cached is None and call.kind == "cross":
            calls = list(sequences[-1].calls.values())
            last, is_rewritten = calls[-1], call.number in self._cached.rewritten
            several = len(calls) > 1 and calls[-2].forward == last.forward
            is_step = call.forward == last.forward or (call.queries == 1 and not several)
            if last.keys == call.keys and is_step and (is_rewritten or not self._has_other_source(call)):
                sequences[-1].calls[call.number] = call
                return
        sequences.append(JoinedCalls(None, {call.number: call}))

    def _recurrent_parts(self, calls: list[AttentionCall]) -> list[JoinedPart]:
        """Returns the steps of a decoder without attention to its own tokens."""
        rows = self._rows_back([(call, None) for call in calls], torch.arange(calls[-1].batch))
        parts: list[JoinedPart] = []
        for call, of_call in zip(calls, rows, strict=True):
            first = parts[-1].end if parts else 0
            parts.append(JoinedPart(call, of_call, call.queries, first, 0, call.keys))
        return parts

    def _rows(self, pieces: list[SequenceCall], beams: Tensor | None) -> list[Tensor]:
        """Returns the batch rows of each call from which the last ones, or those of the returned sequences, came."""
        known = [(piece.call, piece.rows) for piece in pieces]
        if beams is None:
            return self._rows_back(known, torch.arange(pieces[-1].call.batch))
        events = [self._cached.between(pieces[0].call, piece.call) for piece in pieces]
        steps = [len(each) for each in events]
        width = beams.shape[1]
        if width > steps[-1] + 1:
            raise ArgumentError(
                f"beam_indices has {width} tokens; the calls of {pieces[0].call.name!r} have {steps[-1] + 1} steps"
            )
        batch = pieces[-1].call.batch
        if beams.numel() and int(beams.max()) >= batch:
            raise ArgumentError(f"beam_indices must be below {batch}, the rows of the calls")
        order = [each.index for each in events[-1]]
        last = {step: number for number, step in enumerate(steps)}
        traced = []
        for of_row in beams:
            length = max(int((of_row >= 0).sum()), 1)
            for step in range(length - 1):
                if int(order[step][of_row[step + 1]]) != int(of_row[step]):
                    raise ArgumentError("beam_indices are not those of the calls: the caches' rows went other ways")
            end = last[length - 1]
            row = of_row[length - 1].clamp(min=0)[None]
            after = [row] * (last[width - 1] - end)  # padding
            traced.append(torch.cat([*self._rows_back(known[: end + 1], row), *after]))
        return list(torch.stack(traced, 1)) if traced else [torch.arange(0)] * (last[width - 1] + 1)

    def _rows_back(self, calls: list[tuple[AttentionCall, Tensor | None]], current: Tensor) -> list[Tensor]:
        """Returns the batch rows of each call from which the ``current`` rows of the last call came.

        Each call comes with the row of the previous call that each of its rows continues; None: unknown.
        """
        rows = [current]
        for (before, _), (after, known) in zip(reversed(calls[:-1]), reversed(calls[1:]), strict=True):
            current = self._rows_before(before, after, current) if known is None else known[current]
            rows.append(current)
        return rows[::-1]

    def _rows_before(self, before: AttentionCall, after: AttentionCall, rows: Tensor) -> Tensor:
        """Returns the rows of a call that the rows of a later one continue, if its keys do not determine them."""
        if before.batch and after.batch % before.batch and not self._cached.between(before, after):
            raise ShapeError(
                f"the calls of {before.name!r} cannot be joined: their batch changes from {before.batch} to "
                f"{after.batch}, and how is not known"
            )
        return self._cached.expected_rows(before, after, after.batch, before.batch)[rows]


def _partner(call: AttentionCall, pieces: Sequence[SequenceCall]) -> SequenceCall | None:
    """Returns the decoder's call with the same queries: the one before, or else the one after."""
    alike = [p for p in pieces if (p.call.batch, p.call.queries) == (call.batch, call.queries)]
    before = [piece for piece in alike if piece.call.number < call.number]
    return before[-1] if before else alike[0] if alike else None


def _unjoined(name: str, reason: str) -> ArgumentError:
    return ArgumentError(
        f"the calls of {name!r} cannot be joined: {reason}. watched.calls has each call by itself; a cache that grows, "
        "as DynamicCache of transformers, lets them be joined"
    )


def _check_sequence(sequence: int, count: int) -> None:
    if not -count <= sequence < max(count, 1):
        raise ArgumentError(f"sequence must be from {-count} to {count - 1}, one of {count}; it is {sequence}")


def _beams_of_pass(sequences: list[JoinedCalls], number: int, beams: Tensor) -> tuple[int, Tensor]:
    """Returns the number of a sequence and the rows of its call, where each step is a sequence of its own."""
    sizes = [(joined.first.batch, joined.first.queries) for joined in sequences]
    last = number % len(sequences)
    first = last
    while first and sizes[first - 1] == (sizes[first][0], sizes[first][1] - 1):
        first -= 1
    # A search may go on after the last token of the best sequence.
    step = min(last - first, beams.shape[1] - 1)
    rows = beams[:, step : step + 1]
    if rows.numel() and int(rows.min()) < 0:
        ended = int(rows[:, 0].argmin())
        length = int((beams[ended] >= 0).sum())
        raise ArgumentError(
            f"row {ended} of beam_indices ends before step {step}: write stitched(sequence={first + length - 1}, "
            f"beam_indices=beam_indices[{ended}:{ended + 1}])"
        )
    return first + step, rows


def join(parts: list[JoinedPart]) -> AttentionCall:
    """Joins the parts of one sequence of one module to one record."""
    first, last = parts[0], parts[-1]
    if len(parts) == 1 and first.is_whole:
        return first.call
    start = first.first_query
    queries, batch = last.end - start, len(last.rows)
    own = max(part.first_key + part.keys for part in parts)
    keys = own + last.source

    def readings_of(name: str) -> list[Tensor] | None:
        readings = [getattr(part.call, name) for part in parts]
        return None if any(reading is None for reading in readings) else readings

    def joined(name: str) -> Tensor | None:
        """Joins a reading of queries."""
        readings = readings_of(name)
        if readings is None:
            return None
        if name == "top_indices":
            readings = [_moved(each, part, own) for each, part in zip(readings, parts, strict=True)]
        return torch.cat([each[part.rows, :, : part.queries] for each, part in zip(readings, parts, strict=True)], 2)

    weights = None
    if (whole := readings_of("weights")) is not None:
        weights = whole[0].new_zeros(batch, whole[0].shape[1], queries, keys)
        for part, each in zip(parts, whole, strict=True):
            offset = part.first_query - start
            values = each[part.rows, :, : part.queries][..., part.columns]
            weights[:, :, offset : offset + part.queries, part.places(keys)] = values
    readings = {name: joined(name) for name in ROW_READINGS}
    if any(part.keys != part.call.keys for part in parts):
        # Positions of queries were taken from the end of all keys.
        readings["distance"] = None if readings["distance"] is None else _distance(weights, start, last.source)
    norms, value, log_decay, beta = last.call.value_norms, last.call.value, last.call.log_decay, last.call.beta
    return replace(
        last.call,
        layer=first.call.layer,
        kind="causal" if len(parts) > 1 and last.call.kind == "self" and not last.source else last.call.kind,
        forward=first.call.forward,
        number=first.call.number,
        batch=batch,
        queries=queries,
        keys=keys,
        mask=_mask_of(first.call, last.call),
        reach=keys,
        **readings,
        received=_received(parts, weights, batch, keys),
        weights=weights,
        # A cache of a sliding window lacks the first values.
        value_norms=None if norms is None or last.first_key else norms[last.rows][..., last.columns],
        value=None if value is None or last.first_key else value[last.rows][:, :, last.columns],
        log_decay=None if log_decay is None else log_decay[last.rows],
        beta=None if beta is None else beta[last.rows],
        **dict.fromkeys(("pooled_mean", "pooled_max", "rows", "tile", "tiles")),
        visible_mask=None if weights is None else keep(_visible(parts, queries, keys)),
        path=_joined_path(parts),
    )


def _joined_path(parts: Sequence[JoinedPart]) -> LogitPath | None:
    """Returns the path of all queries, with the modules of the last call and the statistics of each one."""
    paths = [part.call.path for part in parts]
    last = paths[-1]
    scales = [None if path is None else path.scale for path in paths]
    if last is None or any(scale is None for scale in scales):
        reason = next((path.reason for path in paths if path is not None and path.scale is None), "")
        return None if last is None else replace(last, scale=None, reason=reason or last.reason)
    pieces = [
        scale[part.rows][:, :, : part.queries] for scale, part in zip(scales, parts, strict=True) if scale is not None
    ]
    return replace(last, scale=torch.cat(pieces, dim=2))


def _moved(indices: Tensor, part: JoinedPart, own: int) -> Tensor:
    """Converts indices of a call's keys to those of the joined record; -1: none."""
    of_source = indices - (part.call.keys - part.source)
    moved = torch.where((of_source >= 0) & (part.source > 0), of_source + own, indices + part.first_key)
    return torch.where(indices >= 0, moved, -1)


def _distance(weights: Tensor | None, start: int, source: int) -> Tensor | None:
    if weights is None or source:
        return None
    queries, keys = weights.shape[-2:]
    gap = torch.arange(keys) - torch.arange(start, start + queries)[:, None]
    return (weights * gap.abs()).sum(-1)


def _received(parts: list[JoinedPart], weights: Tensor | None, batch: int, keys: int) -> Tensor | None:
    """Returns the sum of the weights of each key; None if a call has unjoined queries and no weights."""
    readings = [part.call.received for part in parts]
    if any(reading is None for reading in readings):
        return None
    if any(part.queries != part.call.queries for part in parts):
        return None if weights is None else weights.sum(-2)
    total = readings[0].new_zeros(batch, readings[0].shape[1], keys)
    for part, reading in zip(parts, readings, strict=True):
        total[..., part.places(keys)] += reading[part.rows][..., part.columns]
    return total


def _mask_of(first: AttentionCall, last: AttentionCall) -> str:
    """Returns the kind of mask of a joined record: later queries are hidden by the order of the calls."""
    kind = first.mask if first.queries > 1 else last.mask
    if last.kind == "cross" or kind.startswith(("causal", "window", "dense")):
        return kind
    return "causal" if kind == "none" else f"causal+{kind}"


def _visible(parts: list[JoinedPart], queries: int, keys: int) -> Tensor:
    """Returns the visible pairs of a joined record, bool ``[batch, heads or 1, queries, keys]``."""
    start, rows = parts[0].first_query, parts[-1].rows
    heads = max((part.call.visible(0).shape[0] for part in parts if part.call.batch), default=1)
    shown = torch.zeros(len(rows), heads, queries, keys, dtype=torch.bool)
    for part in parts:
        offset = part.first_query - start
        for new, old in enumerate(part.rows.tolist()):
            visible = part.call.visible(old)[:, : part.queries][..., part.columns]
            shown[new, :, offset : offset + part.queries, part.places(keys)] = visible
    return shown
