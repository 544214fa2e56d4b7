"""Joining the calls of one sequence: the prefill and each decoded token become one record of each layer.

Where the queries of a call stand follows from its keys: a cache that grows has the keys of all tokens so far; one of a
fixed size hides those that are not there yet; one of a sliding window has the last keys alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from regard.errors import ArgumentError, KindError, ShapeError
from regard.masks import keep
from regard.watching.attention_call import AttentionCall

ROW_READINGS = ("lse", "entropy", "peak", "top_weights", "top_indices", "distance", "head_output")
"""Readings of each query, which are joined along the queries."""


@dataclass(frozen=True, eq=False)
class Reordering:
    """The rows of all caches were taken anew, as a beam search does between two steps.

    Attributes:
        number: how many calls were made before.
        index: for each new row, the old one.
    """

    number: int
    index: Tensor


@dataclass(eq=False)
class _Piece:
    """One call, where its queries and keys stand in the sequence."""

    call: AttentionCall
    first_query: int
    first_key: int


@dataclass(eq=False)
class _Sequence:
    """The calls of one module that continue one sequence."""

    pieces: list[_Piece] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        last = self.pieces[-1]
        return last.first_query + last.call.queries


def stitch(
    calls: Sequence[AttentionCall], reorderings: Sequence[Reordering], sequence: int, beam_indices: Tensor | None
) -> list[AttentionCall]:
    """The calls of one sequence, joined: see `Watch.stitched`."""
    if beam_indices is not None and (
        not isinstance(beam_indices, Tensor) or beam_indices.dim() != 2 or beam_indices.is_floating_point()
    ):
        raise KindError("beam_indices must be an integer tensor [sequences, tokens]")
    if isinstance(sequence, bool) or not isinstance(sequence, int):
        raise KindError(f"sequence must be an integer; it is a {type(sequence).__name__}")
    modules: dict[tuple[str, int], list[_Sequence]] = {}
    restarted: set[int] = set()
    for call in calls:
        if call.kind == "causal":
            known = modules.setdefault((call.name, call.layer), [])
            if _add(known, call):
                restarted.add(call.forward)
    for call in calls:
        known = modules.setdefault((call.name, call.layer), [])
        if call.kind == "cross":
            _add_cross(known, call, restarted, any(other.kind == "causal" for other in calls))
        elif call.kind == "self":
            known.append(_Sequence([_Piece(call, 0, 0)]))
    joined = []
    for known in modules.values():
        if not -len(known) <= sequence < len(known):
            if len(known) == 1:  # an encoder that ran once for several sequences of its decoder
                joined.append(_join(known[0], reorderings, None))
                continue
            raise ArgumentError(f"sequence must be one of {len(known)}; it is {sequence}")
        of_beams = beam_indices if known[sequence].pieces[0].call.kind != "self" else None
        if of_beams is not None and len(known[sequence].pieces) == 1:
            # Without a cache each step is a sequence of its own.
            step = min(sequence % len(known), max(of_beams.shape[-1] - 1, 0))
            of_beams = of_beams[..., step : step + 1]
        joined.append(_join(known[sequence], reorderings, of_beams))
    return sorted(joined, key=lambda call: call.number)


def _add(known: list[_Sequence], call: AttentionCall) -> bool:
    """Add a call to the sequence that it continues; True if it begins one."""
    reach = call.keys if call.reach is None else call.reach
    if known:
        tokens = known[-1].tokens
        longer = tokens + call.queries
        if reach == longer:
            known[-1].pieces.append(_Piece(call, tokens, 0))
            return False
        if call.queries < call.keys == reach < longer:
            known[-1].pieces.append(_Piece(call, tokens, longer - reach))
            return False
    known.append(_Sequence([_Piece(call, max(reach - call.queries, 0), 0)]))
    return True


def _add_cross(known: list[_Sequence], call: AttentionCall, restarted: set[int], has_decoder: bool) -> None:
    if known:
        last = known[-1].pieces[-1].call
        same = last.keys == call.keys
        if has_decoder:
            same = same and (call.forward not in restarted or call.forward == last.forward)
        else:
            # A recurrent decoder attends once a step: several times in one forward pass, or once in each of many.
            several = len(known[-1].pieces) > 1 and known[-1].pieces[-2].call.forward == last.forward
            same = same and (call.forward == last.forward or (call.queries == 1 and not several))
        if same:
            known[-1].pieces.append(_Piece(call, known[-1].tokens, 0))
            return
    known.append(_Sequence([_Piece(call, 0, 0)]))


def _join(found: _Sequence, reorderings: Sequence[Reordering], beam_indices: Tensor | None) -> AttentionCall:
    pieces = found.pieces
    if beam_indices is not None:
        rows = _rows_of(beam_indices, pieces)
        pieces = pieces[: len(rows)]
    elif len(pieces) == 1:
        return pieces[0].call
    else:
        rows = _rows_back(pieces, reorderings)
    first, last = pieces[0], pieces[-1]
    start = first.first_query
    queries = last.first_query + last.call.queries - start
    keys = max(_reach(piece) + piece.first_key for piece in pieces)
    batch = len(rows[-1])

    def joined(name: str) -> Tensor | None:
        parts = [getattr(piece.call, name) for piece in pieces]
        if any(part is None for part in parts):
            return None
        if name == "top_indices":
            parts = [
                torch.where(part >= 0, part + piece.first_key, -1) for part, piece in zip(parts, pieces, strict=True)
            ]
        return torch.cat([part[row] for part, row in zip(parts, rows, strict=True)], dim=2)

    def placed(name: str, axes: tuple[int, ...], fill: float) -> Tensor | None:
        """A reading over keys: its rows, and 0 for keys that a call did not have."""
        parts = [getattr(piece.call, name) for piece in pieces]
        if any(part is None for part in parts):
            return None
        whole = torch.full((batch, parts[0].shape[1], *axes), fill, dtype=parts[0].dtype)
        for part, piece, row in zip(parts, pieces, rows, strict=True):
            width = min(part.shape[-1], keys - piece.first_key)
            span = slice(piece.first_key, piece.first_key + width)
            if len(axes) == 1:
                whole[:, :, span] += part[row][..., :width]
            else:
                place = piece.first_query - start
                whole[:, :, place : place + piece.call.queries, span] = part[row][..., :width]
        return whole

    weights = placed("weights", (queries, keys), 0.0)
    has_pairs = weights is not None or last.call.tiles is not None
    return replace(
        last.call,
        forward=first.call.forward,
        number=first.call.number,
        batch=batch,
        queries=queries,
        keys=keys,
        mask=_mask_of(first.call, last.call),
        reach=keys,
        **{name: joined(name) for name in ROW_READINGS},
        received=placed("received", (keys,), 0.0),
        weights=weights,
        value_norms=_last_norms(last, rows[-1], keys),
        pooled_mean=None,
        pooled_max=None,
        rows=None,
        tile=None,
        tiles=None,
        visible_mask=keep(_visible(pieces, rows, start, queries, keys)) if has_pairs and weights is not None else None,
    )


def _mask_of(first: AttentionCall, last: AttentionCall) -> str:
    """The kind of mask of a joined record: later queries are hidden by the order of the calls."""
    found = first.mask if first.queries > 1 else last.mask
    if last.kind != "causal" or found.startswith(("causal", "window", "dense")):
        return found
    return "causal" if found == "none" else f"causal+{found}"


def _reach(piece: _Piece) -> int:
    return piece.call.keys if piece.call.reach is None else piece.call.reach


def _last_norms(last: _Piece, row: Tensor, keys: int) -> Tensor | None:
    """Norms of values, where the last call has all of them: a sliding window forgets the first ones."""
    norms = last.call.value_norms
    return None if norms is None or last.first_key else norms[row][..., :keys]


def _visible(pieces: Sequence[_Piece], rows: Sequence[Tensor], start: int, queries: int, keys: int) -> Tensor:
    batch, heads = len(rows[-1]), 1
    for piece in pieces:
        if piece.call.batch:
            heads = max(heads, piece.call.visible(0).shape[0])
    shown = torch.zeros(batch, heads, queries, keys, dtype=torch.bool)
    for piece, row in zip(pieces, rows, strict=True):
        place = piece.first_query - start
        width = min(piece.call.keys, keys - piece.first_key)
        for new, old in enumerate(row.tolist()):
            seen = piece.call.visible(old)[..., :width]
            shown[new, :, place : place + piece.call.queries, piece.first_key : piece.first_key + width] = seen
    return shown


def _rows_back(pieces: Sequence[_Piece], reorderings: Sequence[Reordering]) -> list[Tensor]:
    """For each call, the batch rows from which the rows of the last call came."""
    current = torch.arange(pieces[-1].call.batch)
    rows = [current]
    for piece, next_piece in zip(reversed(pieces[:-1]), reversed(pieces[1:]), strict=True):
        between = [each for each in reorderings if piece.call.number < each.number <= next_piece.call.number]
        for reordering in reversed(between):
            current = reordering.index[current]
        if not between and piece.call.batch != next_piece.call.batch:
            if next_piece.call.batch % max(piece.call.batch, 1):
                raise ShapeError(
                    f"the calls of {piece.call.name!r} cannot be joined: their batch changes from {piece.call.batch} "
                    f"to {next_piece.call.batch}, and how is not known"
                )
            current = current // (next_piece.call.batch // piece.call.batch)
        rows.append(current)
    return rows[::-1]


def _rows_of(beam_indices: Tensor, pieces: Sequence[_Piece]) -> list[Tensor]:
    """For each call, the batch rows of the returned sequences; after the end of a sequence, its last row."""
    given = beam_indices.cpu().clone()
    for place in range(1, given.shape[1]):
        given[:, place] = torch.where(given[:, place] < 0, given[:, place - 1], given[:, place])
    if given.numel() and int(given.max()) >= min(piece.call.batch for piece in pieces):
        raise ArgumentError(f"beam_indices must be below {pieces[0].call.batch}, the rows of the calls")
    steps = min(given.shape[1], len(pieces))
    return [given[:, place].long() for place in range(steps)]
