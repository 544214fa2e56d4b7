"""Joining the calls of one sequence: the prefill and each decoded token become one record of each layer.

The positions of a call's queries follow from its keys: a cache that grows has the keys of all tokens so far; one of a
fixed size hides those that are not there yet; one of a sliding window has the last keys alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.errors import ArgumentError, KindError, ShapeError
from regard.masks import keep
from regard.watching.attention_call import AttentionCall
from regard.watching.logit_path import LogitPath

ROW_READINGS = ("lse", "entropy", "peak", "top_weights", "top_indices", "distance", "head_output", "shares")
"""Readings of each query, which are joined along the queries."""


@dataclass(frozen=True, eq=False)
class Reordering:
    """A new order of the rows of all caches, as a beam search makes it between two steps.

    Attributes:
        number: how many calls were made before.
        index: for each new row, the old one.
    """

    number: int
    index: Tensor


@dataclass(eq=False)
class _Piece:
    """One call, and the positions of its first query and its first key in the sequence."""

    call: AttentionCall
    first_query: int
    first_key: int

    @property
    def end(self) -> int:
        """The position after the last query."""
        return self.first_query + self.call.queries


_Sequence = list[_Piece]
"""The calls of one module that continue one sequence."""


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
    joined = []
    for sequences in _sequences(calls):
        if not -len(sequences) <= sequence < len(sequences):
            if len(sequences) == 1:  # an encoder that ran once for several sequences of its decoder
                joined.append(_join(sequences[0], reorderings, None))
                continue
            raise ArgumentError(f"sequence must be one of {len(sequences)}; it is {sequence}")
        pieces = sequences[sequence]
        of_beams = beam_indices if pieces[0].call.kind != "self" else None
        if of_beams is not None and len(pieces) == 1:
            # Without a cache each step is a sequence of its own.
            step = min(sequence % len(sequences), max(of_beams.shape[-1] - 1, 0))
            of_beams = of_beams[..., step : step + 1]
        joined.append(_join(pieces, reorderings, of_beams))
    return sorted(joined, key=lambda call: call.number)


def count_sequences(calls: Sequence[AttentionCall]) -> int:
    """The number of sequences of the module that has most of them."""
    return max(map(len, _sequences(calls)), default=0)


def prompt_length(calls: Sequence[AttentionCall]) -> int | None:
    """How many tokens the last causal sequence had before its first new token; None where all came in one call."""
    for sequences in _sequences(calls):
        if sequences[-1][0].call.kind == "causal":
            return sequences[-1][0].end if len(sequences[-1]) > 1 else None
    return None


def _sequences(calls: Sequence[AttentionCall]) -> list[list[_Sequence]]:
    """The sequences of each module."""
    modules: dict[tuple[str, int, int], list[_Sequence]] = {}
    restarted: set[int] = set()
    for call in calls:
        if call.kind == "causal" and _add(modules.setdefault((call.name, call.layer, call.part), []), call):
            restarted.add(call.forward)
    has_decoder = any(call.kind == "causal" for call in calls)
    for call in calls:
        sequences = modules.setdefault((call.name, call.layer, call.part), [])
        if call.kind == "cross":
            _add_cross(sequences, call, restarted, has_decoder)
        elif call.kind == "self":
            sequences.append([_Piece(call, 0, 0)])
    return list(modules.values())


def _add(sequences: list[_Sequence], call: AttentionCall) -> bool:
    """Add a call to the sequence that it continues; True if it begins a new one."""
    reach = _reach(call)
    if sequences:
        end = sequences[-1][-1].end
        longer = end + call.queries
        if reach == longer or call.queries < call.keys == reach < longer:
            sequences[-1].append(_Piece(call, end, longer - reach))
            return False
    sequences.append([_Piece(call, max(reach - call.queries, 0), 0)])
    return True


def _add_cross(sequences: list[_Sequence], call: AttentionCall, restarted: set[int], has_decoder: bool) -> None:
    """Add a call of cross-attention; ``restarted`` are the forward passes in which a decoder began a sequence."""
    if sequences:
        pieces = sequences[-1]
        last = pieces[-1].call
        if has_decoder:
            continues = call.forward not in restarted or call.forward == last.forward
        else:
            # A recurrent decoder attends once a step: several times in one forward pass, or once in each of many.
            several = len(pieces) > 1 and pieces[-2].call.forward == last.forward
            continues = call.forward == last.forward or (call.queries == 1 and not several)
        if continues and last.keys == call.keys:
            pieces.append(_Piece(call, pieces[-1].end, 0))
            return
    sequences.append([_Piece(call, 0, 0)])


def _join(pieces: _Sequence, reorderings: Sequence[Reordering], beam_indices: Tensor | None) -> AttentionCall:
    if beam_indices is not None:
        rows = _rows_of_beams(beam_indices, pieces)
        pieces = pieces[: len(rows)]
    elif len(pieces) == 1:
        return pieces[0].call
    else:
        rows = _rows_back(pieces, reorderings)
    first, last = pieces[0], pieces[-1]
    start = first.first_query
    queries, batch = last.end - start, len(rows[-1])
    keys = max(_reach(piece.call) + piece.first_key for piece in pieces)

    def parts_of(name: str) -> list[Tensor] | None:
        parts = [getattr(piece.call, name) for piece in pieces]
        return None if any(part is None for part in parts) else parts

    def joined(name: str) -> Tensor | None:
        """A reading over queries."""
        parts = parts_of(name)
        if parts is None:
            return None
        if name == "top_indices":
            firsts = [piece.first_key for piece in pieces]
            parts = [torch.where(part >= 0, part + key, -1) for part, key in zip(parts, firsts, strict=True)]
        return torch.cat([part[row] for part, row in zip(parts, rows, strict=True)], dim=2)

    def over_keys(name: str, axes: tuple[int, ...]) -> Tensor | None:
        """A reading over keys, with 0 for keys that a call did not have."""
        parts = parts_of(name)
        if parts is None:
            return None
        whole = parts[0].new_zeros(batch, parts[0].shape[1], *axes)
        for part, piece, row in zip(parts, pieces, rows, strict=True):
            width = min(part.shape[-1], keys - piece.first_key)
            span = slice(piece.first_key, piece.first_key + width)
            if len(axes) == 1:
                whole[:, :, span] += part[row][..., :width]
            else:
                whole[:, :, piece.first_query - start : piece.end - start, span] = part[row][..., :width]
        return whole

    weights, norms, value = over_keys("weights", (queries, keys)), last.call.value_norms, last.call.value
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
        received=over_keys("received", (keys,)),
        weights=weights,
        # A cache of a sliding window has not all values.
        value_norms=None if norms is None or last.first_key else norms[rows[-1]][..., :keys],
        value=None if value is None or last.first_key else value[rows[-1]][:, :, :keys],
        **dict.fromkeys(("pooled_mean", "pooled_max", "rows", "tile", "tiles")),
        visible_mask=None if weights is None else keep(_visible(pieces, rows, queries, keys)),
        path=_joined_path([piece.call.path for piece in pieces], rows),
    )


def _joined_path(paths: Sequence[LogitPath | None], rows: Sequence[Tensor]) -> LogitPath | None:
    """The path of all queries: its modules are those of the last call, its statistics those of each one."""
    last = paths[-1]
    scales = [None if path is None else path.scale for path in paths]
    if last is None or any(scale is None for scale in scales):
        reason = next((path.reason for path in paths if path is not None and path.scale is None), "")
        return None if last is None else replace(last, scale=None, reason=reason or last.reason)
    parts = [scale[row] for scale, row in zip(scales, rows, strict=True) if scale is not None]
    return replace(last, scale=torch.cat(parts, dim=2))


def _mask_of(first: AttentionCall, last: AttentionCall) -> str:
    """The kind of mask of a joined record: later queries are hidden by the order of the calls."""
    kind = first.mask if first.queries > 1 else last.mask
    if last.kind != "causal" or kind.startswith(("causal", "window", "dense")):
        return kind
    return "causal" if kind == "none" else f"causal+{kind}"


def _reach(call: AttentionCall) -> int:
    return call.keys if call.reach is None else call.reach


def _visible(pieces: _Sequence, rows: Sequence[Tensor], queries: int, keys: int) -> Tensor:
    """The pairs that a joined record can see, bool ``[batch, heads or 1, queries, keys]``."""
    start = pieces[0].first_query
    heads = max((piece.call.visible(0).shape[0] for piece in pieces if piece.call.batch), default=1)
    shown = torch.zeros(len(rows[-1]), heads, queries, keys, dtype=torch.bool)
    for piece, row in zip(pieces, rows, strict=True):
        width = min(piece.call.keys, keys - piece.first_key)
        of_piece = slice(piece.first_query - start, piece.end - start), slice(piece.first_key, piece.first_key + width)
        for new, old in enumerate(row.tolist()):
            shown[new, :, *of_piece] = piece.call.visible(old)[..., :width]
    return shown


def _rows_back(pieces: _Sequence, reorderings: Sequence[Reordering]) -> list[Tensor]:
    """For each call, the batch rows from which the rows of the last call came."""
    current = torch.arange(pieces[-1].call.batch)
    rows = [current]
    for piece, next_piece in zip(reversed(pieces[:-1]), reversed(pieces[1:]), strict=True):
        before, after = piece.call, next_piece.call
        between = [each for each in reorderings if before.number < each.number <= after.number]
        for reordering in reversed(between):
            current = reordering.index[current]
        if not between and before.batch != after.batch:
            if after.batch % max(before.batch, 1):
                raise ShapeError(
                    f"the calls of {before.name!r} cannot be joined: their batch changes from {before.batch} to "
                    f"{after.batch}, and how is not known"
                )
            current = current // (after.batch // before.batch)
        rows.append(current)
    return rows[::-1]


def _rows_of_beams(beam_indices: Tensor, pieces: _Sequence) -> list[Tensor]:
    """For each call, the batch rows of the returned sequences; after the end of a sequence, its last row."""
    rows = beam_indices.cpu().clone()
    for step in range(1, rows.shape[1]):
        rows[:, step] = torch.where(rows[:, step] < 0, rows[:, step - 1], rows[:, step])
    if rows.numel() and int(rows.max()) >= min(piece.call.batch for piece in pieces):
        raise ArgumentError(f"beam_indices must be below {pieces[0].call.batch}, the rows of the calls")
    return [rows[:, step].long() for step in range(min(rows.shape[1], len(pieces)))]
