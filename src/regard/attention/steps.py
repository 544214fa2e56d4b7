"""Steps of a decoder under a mask by position: what they see is found out for several numbers of keys at once."""

from collections.abc import Callable
from typing import Generic, TypeVar

from regard.masks import And, Band, Chunks, Mask, Or, Prefix, causal
from regard.shapes.grid import Grid

STEPS = 64
"""Largest number of steps whose visible keys are found out at once."""

KEPT_PAIRS = 1 << 14
"""Pairs of a head up to which a mask by position is kept as a tensor for later calls."""

Rows = TypeVar("Rows")


def follows_last_key(mask: object) -> bool:
    """Whether the last query sees the same keys, however many queries there are before it.

    Then the steps of a decoder, each a single query behind one more key, are the rows of one longer call.
    """
    if type(mask) is Band or type(mask) is Chunks:
        return mask.align == "end" and mask.offset is None
    if type(mask) is And or type(mask) is Or:
        return all(map(follows_last_key, mask.parts))
    return type(mask) is Prefix and isinstance(mask.n.value, int)


class KeptSteps(Generic[Rows]):
    """The keys that a mask by position hides from the next steps, kept from one step to the next; for all threads.

    Args:
        rows: ``(mask, grid) ->`` what is kept of a mask that hides the keys behind each query; a row for each step.
        pairs: the largest number of pairs of a grid, if there is more than one step; None for any number.
    """

    def __init__(self, rows: Callable[[Mask, Grid], Rows], pairs: int | None = None):
        self._rows, self._pairs = rows, pairs
        self._latest: tuple[range, Rows] | None = None

    def at(self, mask: Mask, keys: int) -> tuple[Rows, int]:
        """Returns what is kept, and the row of the step with so many keys.

        Args:
            mask: a mask that `follows_last_key`, the same at each step.
            keys: the number of keys.
        """
        latest = self._latest
        if latest is None or keys not in latest[0]:
            steps = STEPS if self._pairs is None else max(1, min(STEPS, self._pairs // keys))
            lengths = range(keys, keys + steps)
            latest = self._latest = lengths, self._rows(mask & causal(), Grid.whole(1, 1, steps, lengths[-1]))
        return latest[1], keys - latest[0][0]
