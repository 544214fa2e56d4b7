"""A document → what the viewer's module reads: plain JSON with compressed numbers."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, KindError
from regard.records import AttentionRecord, Axis, Document, StepsRecord
from regard.viewer.axes import axis_payload
from regard.viewer.encoding import packed_bits, packed_codes, packed_numbers
from regard.viewer.overview import overview_payloads

FORMAT = 1
"""Of the payload; the module refuses another one."""

BUDGET = 2_000_000
"""Bytes that exact numbers, pooled maps and exact tiles may take, as they are written, beside the 8-bit codes."""

MOST_CELLS = 2**22
"""Weights of one record that are carried whole; a larger one travels as an overview."""

MOST_CELLS_TOGETHER = 2**25
"""Weights of all records that are carried whole."""


def payload(document: Document, *, budget_bytes: int = BUDGET) -> dict[str, Any]:
    """Everything that the viewer shows of a document, ready for JSON.

    Records are carried whole as 8-bit square roots (an error of at most 0.004 of the largest weight, or of 1); their
    exact numbers are added, record by record, while codes and numbers together stay within the budget. Records that are
    too large for that carry pooled maps and some exact tiles. The viewer says which numbers are exact.

    Args:
        document: what to show.
        budget_bytes: see above; at least 0. With 0, no exact numbers.

    Raises:
        KindError: not a `Document`, or a budget that is no integer.
        ArgumentError: a negative budget.
    """
    if not isinstance(document, Document):
        raise KindError(f"document must be a regard.records.Document; it is of type {type(document).__name__}")
    if isinstance(budget_bytes, bool) or not isinstance(budget_bytes, int):
        raise KindError(f"budget_bytes must be an integer; it is of type {type(budget_bytes).__name__}")
    if budget_bytes < 0:
        raise ArgumentError(f"budget_bytes must be at least 0; it is {budget_bytes}")
    axes, masks = _Shared(axis_payload), _Shared(packed_bits)
    whole = carried_whole(document.records)
    entries = [_record(record, axes, masks, number in whole) for number, record in enumerate(document.records)]
    left = budget_bytes - sum(len(entry["codes"]["data"]) for entry in entries if entry["codes"])
    for number in sorted(whole):
        left -= _add_exact(entries[number], document.records[number], left)
    large = [number for number in range(len(entries)) if number not in whole]
    for number, overview in zip(
        large, overview_payloads([document.records[n] for n in large], max(left, 0)), strict=True
    ):
        entries[number]["overview"] = overview
    return {
        "format": FORMAT,
        "title": document.title,
        "texts": [list(text) for text in document.texts],
        "axes": axes.entries,
        "masks": masks.entries,
        "records": entries,
        "steps": [_steps(steps) for steps in document.steps],
        "budget": budget_bytes,
    }


class _Shared:
    """Parts that several records refer to by a number: each is carried once."""

    def __init__(self, encode: Any):
        self.encode = encode
        self.entries: list[dict[str, Any]] = []
        self._numbers: dict[Any, int] = {}

    def number(self, part: Axis | NDArray[np.bool_]) -> int:
        key = (part.shape, hashlib.sha256(part.tobytes()).digest()) if isinstance(part, np.ndarray) else _axis_key(part)
        if key not in self._numbers:
            self._numbers[key] = len(self.entries)
            self.entries.append(self.encode(part))
        return self._numbers[key]


def _axis_key(axis: Axis) -> Any:
    """Axes of tokens are equal by their contents, pictures only as objects (which a document keeps alive)."""
    return axis if type(axis).__name__ == "TokenAxis" else id(axis)


def carried_whole(records: tuple[AttentionRecord, ...]) -> set[int]:
    """The positions of the records whose every weight is carried.

    Records with the same numbers of queries and keys are all carried whole or all pooled, so that layers can be
    compared; the smallest come first.
    """
    alike: dict[tuple[int, int], list[int]] = {}
    for number, record in enumerate(records):
        alike.setdefault((len(record.queries), len(record.keys)), []).append(number)
    whole, cells = set(), 0
    for _, numbers in sorted(alike.items(), key=lambda item: item[0][0] * item[0][1]):
        sizes = [weights.size for number in numbers if (weights := records[number].weights) is not None]
        fits = len(sizes) == len(numbers) and max(sizes) <= MOST_CELLS and cells + sum(sizes) <= MOST_CELLS_TOGETHER
        if fits:
            whole.update(numbers)
            cells += sum(sizes)
    return whole


def _record(record: AttentionRecord, axes: _Shared, masks: _Shared, whole: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": str(record.name),
        "layer": int(record.layer),
        "kind": record.kind,
        "heads": record.heads,
        "queries": axes.number(record.queries),
        "keys": axes.number(record.keys),
        "codes": None,
        "exact": None,
        "visible": None,
        "overview": None,
    }
    if record.visible is not None and not record.visible.all() and whole:
        entry["visible"] = masks.number(record.visible)
    if whole:
        assert record.weights is not None, "only stored weights are carried whole"
        entry["codes"] = packed_codes(record.weights)
    return entry


def _add_exact(entry: dict[str, Any], record: AttentionRecord, left: int) -> int:
    """Add a record's exact numbers if they fit; the bytes that they take."""
    assert record.weights is not None, "only stored weights are carried whole"
    # Compressed numbers are hardly ever below a third of their size.
    if record.weights.size * 4 * 4 // 9 > left and record.weights.any():
        return 0
    numbers = packed_numbers(record.weights, "<f4")
    if len(numbers["data"]) > left:
        return 0
    entry["exact"] = numbers
    return len(numbers["data"])


def _steps(steps: StepsRecord) -> dict[str, Any]:
    return {
        "name": steps.name,
        "layer": steps.layer,
        "head": steps.head,
        "score": steps.score,
        "normalizer": steps.normalizer,
        "queries": list(steps.query_labels),
        "keys": list(steps.key_labels),
        "matrices": {name: packed_numbers(matrix, "<f8") for name, matrix in steps.matrices.items()},
    }
