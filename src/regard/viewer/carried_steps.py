"""Worked calculations of as many heads as a file has room for, with the numbers that a viewer cannot compute itself.

Queries, keys and values are carried as float32, the precision of the model's own weights; a viewer computes scores,
weights and outputs from them. Numbers that it cannot compute are carried too: scores that are no dot product, a bias,
and what an unknown function or normalizer makes of the scores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from regard.errors import RegardError
from regard.records import AttentionRecord, StepsRecord
from regard.viewer.encoding import packed_bits, packed_numbers
from regard.viewer.padding import shortened_steps

NORMALIZERS = ("softmax", "softmax_with_sink", "entmax", "sparsemax", "sigmoid")
"""The normalizers that a viewer computes."""

ENTRY_BYTES = 400
"""About the bytes of an entry without its numbers."""

MOST_PAIRS = 2**22
"""The most pairs of queries and keys of a record, over its heads, that are worked out."""


def has_steps(record: AttentionRecord) -> bool:
    """Whether the calculations of a record's heads are known and not too long."""
    return record.worked is not None and record.heads * len(record.queries) * len(record.keys) <= MOST_PAIRS


def carried_steps(
    records: Sequence[AttentionRecord], others: Collection[tuple[int, int]], first: tuple[int, int], left: int
) -> Iterator[tuple[int, int, StepsRecord, dict[str, Any]]]:
    """Yields the record, the head, the calculation and its numbers of each head, while they fit.

    Args:
        records: those of the document.
        others: the pairs of a record and a head that are carried already.
        first: the record and the head that come first; the other heads of its record follow.
        left: the bytes of all together.
    """
    walkable = {number: record.worked for number, record in enumerate(records) if has_steps(record)}
    order = [(number, head) for number in walkable for head in range(records[number].heads)]
    for number, head in sorted(order, key=lambda one: (one != first, one[0] != first[0])):
        worked = walkable[number]
        if worked is None or left < ENTRY_BYTES or (number, head) in others:
            continue
        try:
            steps = shortened_steps(worked(head), records[number])
        except RegardError:
            continue
        numbers = _numbers(steps)
        left -= ENTRY_BYTES + sum(len(one["data"]) for one in numbers["matrices"].values())
        if left < 0:
            return
        yield number, head, steps, numbers


def _numbers(steps: StepsRecord) -> dict[str, Any]:
    """Returns the matrices of a calculation, the names of those that a viewer derives, and the visible pairs."""
    derived = {
        "scores": steps.score == "dot",
        "scaled": steps.scale is not None,
        "capped": steps.cap is not None,
        "masked": True,
        "weights": steps.normalizer in NORMALIZERS,
        "output": True,
    }
    names = [name for name in steps.matrices if derived.get(name, False)]
    masked = steps.matrices.get("masked")
    return {
        "matrices": {
            name: packed_numbers(matrix, "<f4") for name, matrix in steps.matrices.items() if name not in names
        },
        "derived": names,
        "visible": None if masked is None else packed_bits(masked != -np.inf),
    }
