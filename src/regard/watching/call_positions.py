"""The positions of a call's queries and keys in the sequence, with a cache too."""

from collections.abc import Callable
from typing import NamedTuple

from regard.errors import ArgumentError
from regard.watching.change import Positions
from regard.watching.intercepted_call import InterceptedCall


class CallPositions(NamedTuple):
    """Where the queries and keys of a call are in their sequences.

    Attributes:
        query: the position of the first query; None: unknown.
        key: the position of the first key: above 0 in a cache that keeps a window.
        keys: the number of keys up to the last one that is written: below all in a cache of fixed size.
    """

    query: int | None
    key: int
    keys: int

    def queries_among(self, chosen: Positions, count: int) -> list[int]:
        """Returns the indices of the chosen ones of a call's queries."""
        if chosen is not None and self.query is None:
            raise ArgumentError(
                "the positions of queries are unknown where a call has other keys than its own tokens' and no cache "
                "of Hugging Face, and did not run on the first tokens in this context: open it before them"
            )
        return _indices(chosen, self.query or 0, count, self.query == 0, "queries")

    def keys_among(self, chosen: Positions) -> list[int]:
        """Returns the indices of the chosen ones of a call's keys."""
        return _indices(chosen, self.key, self.keys, self.query == 0, "keys")


class SequencePositions:
    """The positions of the calls of a model, of which each continues the sequence of the calls before."""

    def __init__(self) -> None:
        self._cached: int | None = None
        self._query: int | None = 0
        self._whole: set[str] = set()

    def begin_forward(self) -> None:
        """Begins a call of the model itself."""
        self._cached, self._query = None, 0

    def cache(self, count: Callable[[], int]) -> None:
        """Takes the number of tokens in the model's cache, before the current forward pass adds its own."""
        if self._cached is None:
            self._cached = int(count())

    def of_call(self, name: str, call: InterceptedCall, is_cross: bool) -> CallPositions:
        """Returns the positions of the next call of a module.

        A cache of Hugging Face knows how many tokens it has seen. Without one, the last query of a module that ran on
        whole sequences before, or has a causal mask, is the last token. Cross-attention has the queries of the
        self-attention before it.
        """
        queries, keys = call.grid.queries, call.grid.keys
        if is_cross:
            return CallPositions(self._query if self._cached is None else self._cached, 0, keys)
        if self._cached is not None:
            end = self._cached + queries
            # Keys that no token of the cache has yet are hidden, unless a module attends to others than those tokens.
            written = keys if keys <= end else max(end, int(call.reach()))
            first = CallPositions(self._cached, max(end - keys, 0), written)
        elif queries == keys:
            self._whole.add(name)
            first = CallPositions(0, 0, keys)
        else:
            reach = int(call.reach())
            is_continued = queries < reach and (call.mask.causal or name in self._whole)
            first = CallPositions(reach - queries if is_continued else None, 0, reach if is_continued else keys)
        self._query = first.query
        return first


def _indices(chosen: Positions, first: int, count: int, is_whole: bool, name: str) -> list[int]:
    """Returns the indices of the chosen positions among those from the first one on."""
    if chosen is None:
        return list(range(count))
    is_slice = isinstance(chosen, slice)
    ends = (chosen.start, chosen.stop) if is_slice else chosen
    if not is_whole and any(each is not None and each < 0 for each in ends):  # type: ignore[union-attr]
        raise ArgumentError(
            f"{name} must be positions from 0 where a sequence may go on with a cache; they are {chosen}, which count "
            "from its end"
        )
    end = first + count
    positions = range(*chosen.indices(end)) if is_slice else [each + end if each < 0 else each for each in chosen]  # type: ignore[union-attr]
    indices = [position - first for position in positions if first <= position < end]
    if len(set(indices)) < len(indices):
        raise ArgumentError(f"{name} must name each position once; they are {chosen}, of {end}")
    return indices
