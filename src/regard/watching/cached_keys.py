"""Links each call to the call that it continues, by the keys that it reads besides those of its own tokens.

A cache grows, is filled in pieces, loses the tokens that a search rejected and the keys that left a window, has free
positions after its keys, and its batch rows are repeated, dropped or reordered. Several caches may be read in turn, and
keys of a source may follow the own ones. So neither the number of calls nor that of keys determines which token a query
is: some elements of each key (its marks) are compared with those that earlier calls of the module read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from regard.watching.attention_call import AttentionCall

MARK_ELEMENTS = 8
"""The number of elements of a key's first head by which it is recognized: its marks."""

BRANCHES_LIMIT = 64
"""The most sequences of a module that can be continued; older ones are complete."""

ROUNDING_TOLERANCE, QUANTIZATION_TOLERANCE = 1e-3, 0.25
"""The largest distances of equal keys relative to their lengths: recomputed, or stored in fewer bits."""


def key_marks(key: Tensor) -> Tensor:
    """Returns a few elements of each of the keys ``[batch, heads, keys, dim]``, a copy ``[batch, keys, elements]``."""
    return key.select(1, 0).narrow(2, 0, min(key.shape[3], MARK_ELEMENTS)).clone()


@dataclass(frozen=True, eq=False)
class Reordering:
    """A new order of the rows of all caches, as a beam search makes it between two steps.

    Attributes:
        number: the number of calls before it.
        index: the old row of each new one.
    """

    number: int
    index: Tensor


@dataclass(eq=False)
class CachedSequence:
    """The calls of one module that continue one sequence.

    Attributes:
        start: the number of keys in the first call's cache before it.
        end: the position after the last token.
        is_unseen: whether the cache had keys before the first call that no earlier call of the module read.
        last: the last call.
    """

    start: int
    end: int
    is_unseen: bool = False
    last: "SequenceCall" = field(init=False)

    def pieces(self) -> list[tuple["SequenceCall", int]]:
        """Returns the calls with tokens that are still cached, and the number of each call's queries among these."""
        pieces: list[tuple[SequenceCall, int]] = []
        piece: SequenceCall | None = self.last
        end = self.end
        while piece is not None:
            count = min(end, piece.end) - piece.first_query
            pieces.append((piece, max(count, 0)))
            end, piece = min(end, piece.first_query), piece.parent
        return pieces[::-1]


@dataclass(eq=False)
class SequenceCall:
    """One call of a sequence.

    Attributes:
        parent: the call that it continues; None: it is the first one.
        rows: the row of the parent that each batch row continues; None: unknown.
        first_query, first_key: the positions of its first query and its first key in the sequence.
        own: the number of keys up to that of its last query.
        source: the number of keys of a source that follow.
    """

    call: AttentionCall
    sequence: CachedSequence
    parent: "SequenceCall | None"
    rows: Tensor | None
    first_query: int
    first_key: int
    own: int
    source: int = 0

    @property
    def end(self) -> int:
        """The position after the last query."""
        return self.first_query + self.call.queries


@dataclass(eq=False)
class _Branch:
    """The contents of a cache after a call.

    Attributes:
        marks: those of the keys ``[batch, keys, elements]``; None: unknown.
        own: the number of keys of the sequence itself.
    """

    piece: SequenceCall
    marks: Tensor | None
    own: int

    @property
    def end(self) -> int:
        """The position after the last token."""
        return self.piece.first_key + self.own


class _CachedRange(NamedTuple):
    """A range of a branch's keys that may be the cached keys of a call.

    Attributes:
        number: the number of the cached keys.
        first: the index of the first one.
        source: the number of keys of a source that follow the call's own ones.
        own: the number of own keys of the branch.
    """

    branch: _Branch
    number: int
    first: int
    source: int
    own: int


class _KeyMatch(NamedTuple):
    """Two calls where each batch row of the later one has the keys of some row of the earlier one.

    Attributes:
        new, old: the marks of the later and of the earlier keys.
        tolerance: the largest distance of equal keys.
        are_same: whether each row has the keys of the same row.
    """

    before: AttentionCall
    after: AttentionCall
    new: Tensor
    old: Tensor
    tolerance: float
    are_same: bool

    def pairs(self) -> Tensor:
        """Returns which rows have the same keys, bool ``[rows, earlier rows]``."""
        return torch.stack([_alike(keys, self.old, self.tolerance) for keys in self.new])


class CachedKeys:
    """The sequences of all modules of a watched model.

    Attributes:
        reorderings: those of the batch rows of all caches.
        caches: the caches of transformers that the model uses, with the last forward pass that used each.
        pieces: the calls that belong to sequences, by their numbers.
        other_sources: the numbers of calls of cross attention whose keys are not those of the call before.
        rewritten: those among them whose own tokens' keys replaced others.
        sequences: those of each module, by name, layer and part, in the order of their first calls.
    """

    def __init__(self) -> None:
        self.reorderings: list[Reordering] = []
        self.caches: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self.pieces: dict[int, SequenceCall] = {}
        self.other_sources: set[int] = set()
        self.rewritten: set[int] = set()
        self.sequences: dict[tuple[str, int, int], list[CachedSequence]] = {}
        self._branches: dict[tuple[str, int], list[_Branch]] = {}
        self._waiting: list[tuple[AttentionCall, Tensor | None]] = []
        self._unlinked: list[tuple[AttentionCall, Tensor | None]] = []

    def note(self, call: AttentionCall, key: Tensor | None) -> None:
        """Stores a call and marks of the keys ``[batch, heads, keys, dim]`` that it reads; no plain tensor: unknown."""
        self._waiting.append((call, key_marks(key) if type(key) is Tensor else None))

    @property
    def waiting(self) -> list[Tensor]:
        """The marks of the calls' keys since the last delivery."""
        return [marks for _, marks in self._waiting if marks is not None]

    def settle(self, copies: Sequence[Tensor]) -> None:
        """Receives copies of the `waiting` marks on the CPU, and links their calls to the calls that they continue."""
        marks = iter(copies)
        settled = [(call, None if each is None else next(marks)) for call, each in self._waiting]
        self._waiting = []
        self._unlinked += settled
        # Calls without a cache continue nothing, and most contexts have no others.
        if any(call.keys > call.queries for call, _ in settled):
            self.link()

    def link(self) -> None:
        """Links each settled call to the one that it continues."""
        unlinked, self._unlinked = self._unlinked, []
        # The matches of batch rows by the calls of one token, by their modules.
        step: dict[tuple[str, int, int], tuple[_KeyMatch, SequenceCall | None]] = {}
        forward = -1
        for call, marks in unlinked:
            module = call.name, call.layer, call.part
            if module in step or call.forward != forward:
                self._find_rows(list(step.values()))
                step, forward = {}, call.forward
            equal = self._add(call, None if marks is None else marks.float().nan_to_num())
            if equal is not None:
                step[module] = equal, self.pieces.get(call.number)
        self._find_rows(list(step.values()))

    def between(self, before: AttentionCall, after: AttentionCall) -> list[Reordering]:
        """Returns the reorderings between two calls."""
        return [each for each in self.reorderings if before.number < each.number <= after.number]

    def _find_rows(self, step: list[tuple[_KeyMatch, SequenceCall | None]]) -> None:
        """Finds the earlier batch rows that the rows of a step continue, the same for all its calls."""
        for sizes in {(len(equal.new), len(equal.old)) for equal, _ in step}:
            group = [(equal, piece) for equal, piece in step if (len(equal.new), len(equal.old)) == sizes]
            expected = self.expected_rows(group[0][0].before, group[0][0].after, *sizes)
            if all(equal.are_same for equal, _ in group) and torch.equal(expected, torch.arange(sizes[0])):
                pairs = [torch.eye(sizes[0], dtype=torch.bool)] * len(group)
            else:
                pairs = [equal.pairs() for equal, _ in group]
            agreed = torch.stack(pairs).all(0)
            for (_, piece), own in zip(group, pairs, strict=True):
                if piece is not None:
                    allowed = torch.where(agreed.any(-1, keepdim=True), agreed, own)
                    distance = (torch.arange(sizes[1]) - expected[:, None]).abs()
                    piece.rows = distance.masked_fill(~allowed, sizes[1]).argmin(-1)

    def expected_rows(self, before: AttentionCall, after: AttentionCall, rows: int, earlier: int) -> Tensor:
        """Returns the earlier batch rows that those of a call continue, by reorderings and sizes alone."""
        expected = torch.arange(rows)
        between = [each for each in self.between(before, after) if len(each.index) == rows]
        for reordering in reversed(between):
            expected = reordering.index[expected]
        return expected if between else expected * earlier // max(rows, 1)

    def crop(self, cache: object, before: int, after: int) -> None:
        """Handles the removal of tokens from a cache, given its lengths before and after."""
        self.link()
        forward = self.caches.get(cache)
        for branch in (branch for branches in self._branches.values() for branch in branches):
            if branch.piece.call.forward == forward and branch.end == before:
                branch.own -= before - after
                if branch.piece is branch.piece.sequence.last:
                    branch.piece.sequence.end = after

    def _add(self, call: AttentionCall, marks: Tensor | None) -> _KeyMatch | None:
        """Adds a call; returns how its keys match those of an earlier call, or None if they match none."""
        branches = self._branches.setdefault((call.name, call.part), [])
        if call.keys > call.queries > 0 and call.batch:
            for cached, tolerance in _candidates(call, marks, branches):
                equal = None if marks is None else _equal(call, cached, marks, tolerance)
                if equal is not None or (marks is None and cached.branch.marks is None):
                    self._continue(call, marks, cached)
                    return equal
        equal = None
        if call.kind == "cross" and call.keys and marks is not None:
            sources = [_CachedRange(each, call.keys, 0, 0, each.own) for each in branches if not each.piece.source]
            equal = next(filter(None, (_equal(call, each, marks, ROUNDING_TOLERANCE) for each in sources)), None)
            if sources and equal is None:
                self.other_sources.add(call.number)
                former = sources[0].branch.marks
                if former is not None and former.shape == marks.shape:
                    replaced = int((~_are_close(marks, former, ROUNDING_TOLERANCE)).any(0).sum())
                    if replaced <= call.queries and replaced < call.keys:
                        self.rewritten.add(call.number)
        self._begin(call, marks, branches)
        return equal

    def _continue(self, call: AttentionCall, marks: Tensor | None, cached: _CachedRange) -> None:
        branch, parent = cached.branch, cached.branch.piece
        sequence = parent.sequence
        if parent.parent is None and parent.call.kind != "causal":
            # The continuation shows which keys belong to its own tokens.
            parent.own, parent.source = cached.own, cached.source
            parent.first_query = sequence.start = cached.own - parent.call.queries
            self._record(parent)
        first_key = parent.first_key + cached.first
        own = cached.number + call.queries
        piece = SequenceCall(call, sequence, parent, None, first_key + cached.number, first_key, own, cached.source)
        if cached.first + cached.number == cached.own:
            branch.piece, branch.marks, branch.own = piece, marks, own
        else:  # the removed part can still be continued
            self._keep(_Branch(piece, marks, own), self._branches[call.name, call.part])
        sequence.last, sequence.end = piece, piece.end
        self.pieces[call.number] = piece

    def _begin(self, call: AttentionCall, marks: Tensor | None, branches: list[_Branch]) -> None:
        own = call.keys if call.reach is None else call.reach
        start = max(own - call.queries, 0) if call.kind == "causal" else 0
        is_unseen = start > 0 and any(branch.piece.sequence.start == 0 or branch.end == start for branch in branches)
        sequence = CachedSequence(start, start + call.queries, is_unseen)
        sequence.last = SequenceCall(call, sequence, None, None, start, 0, own)
        if call.kind == "cross":
            # There are many equal calls that read only a source.
            branches[:] = [branch for branch in branches if branch.piece.source]
        else:
            self._record(sequence.last)
        self._keep(_Branch(sequence.last, marks, own), branches)

    def _record(self, first: SequenceCall) -> None:
        """Records a sequence by its first call."""
        call = first.call
        if call.number not in self.pieces:
            self.pieces[call.number] = first
            self.sequences.setdefault((call.name, call.layer, call.part), []).append(first.sequence)

    @staticmethod
    def _keep(branch: _Branch, branches: list[_Branch]) -> None:
        branches.append(branch)
        if len(branches) > BRANCHES_LIMIT:
            del branches[0]


def _candidates(
    call: AttentionCall, marks: Tensor | None, branches: Sequence[_Branch]
) -> Iterator[tuple[_CachedRange, float]]:
    """Yields ranges of a cache that a call may continue, the likeliest first, and the tolerances of equal keys."""
    latest = branches[::-1]
    places = [(branch, *each) for branch in latest for each in _ends(call, branch)]
    grown = [_CachedRange(branch, count, 0, source, own) for branch, count, source, own in places if count == own > 0]
    yield from ((cached, ROUNDING_TOLERANCE) for cached in grown)
    if marks is None:
        return
    shorter = [candidate for candidate in places if 0 < candidate[1] < candidate[3]]
    for branch, count, source, own in shorter:
        # A window has lost the oldest keys; a search has removed the newest ones.
        ends = (own - count, 0) if "window" in branch.piece.call.mask or branch.piece.first_key else (0, own - count)
        yield from ((_CachedRange(branch, count, first, source, own), ROUNDING_TOLERANCE) for first in ends)
    for branch, count, source, own in shorter:
        if branch.marks is not None and branch.marks.shape[2:] == marks.shape[2:]:
            # Both happened: the last cached key is looked up in the branch.
            last = (
                _are_close(marks[0, count - 1], branch.marks, ROUNDING_TOLERANCE)
                .any(0)[count : own - 1]
                .nonzero()[:, 0]
            )
            yield from (
                (_CachedRange(branch, count, first + 1, source, own), ROUNDING_TOLERANCE)
                for first in last.flip(0).tolist()
            )
    yield from ((cached, QUANTIZATION_TOLERANCE) for cached in grown)


def _ends(call: AttentionCall, branch: _Branch) -> Iterator[tuple[int, int, int]]:
    """Yields possible numbers of cached keys, of keys of a source that follow, and of the branch's own keys."""
    first, source = branch.piece, branch.piece.source
    if call.kind != "cross" or source:
        yield call.keys - source - call.queries, source, branch.own
        if call.reach is not None and call.reach < call.keys and not source:
            yield call.reach - call.queries, 0, branch.own  # free positions follow
    if first.parent is None and not source and call.kind != "causal" and call.keys > first.call.keys:
        # Keys of a source follow the first call's own ones if the number of keys between them grows.
        source = first.call.keys - first.call.queries
        if source:
            yield call.keys - source - call.queries, source, first.call.queries


def _equal(call: AttentionCall, cached: _CachedRange, marks: Tensor, tolerance: float) -> _KeyMatch | None:
    """Returns the match of a call's cached keys if each batch row of them is one of the branch; else None."""
    former = cached.branch.marks
    if former is None or former.shape[2:] != marks.shape[2:] or not len(former) or not len(marks):
        return None
    new, old = marks[:, : cached.number], former[:, cached.first : cached.first + cached.number]
    if cached.source:
        new, old = (torch.cat([own, each[:, -cached.source :]], 1) for own, each in ((new, marks), (old, former)))
    if new.shape[1:] != old.shape[1:]:
        return None
    are_same = new.shape == old.shape and torch.equal(new, old)
    if not are_same and not all(bool(_alike(keys, old, tolerance).any()) for keys in new):
        return None
    return _KeyMatch(cached.branch.piece.call, call, new, old, tolerance, are_same)


def _alike(keys: Tensor, others: Tensor, tolerance: float) -> Tensor:
    """Returns which batch rows ``[rows, keys, elements]`` have these keys ``[keys, elements]``."""
    alike = _are_close(keys[-1], others[:, -1], tolerance)
    if bool(alike.any()):  # the last key differs most often
        alike = alike & _are_close(keys, others, tolerance).all(-1)
    return alike


def _are_close(key: Tensor, others: Tensor, tolerance: float) -> Tensor:
    """Whether keys are equal, up to a tolerance in parts of their lengths."""
    return (key - others).norm(dim=-1) <= tolerance * (key.norm(dim=-1) + others.norm(dim=-1))
