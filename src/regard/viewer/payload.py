"""A document → the payload that the viewer's module reads: plain JSON with compressed arrays."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import KindError
from regard.records import (
    AttentionRecord,
    Axis,
    Document,
    FrameAxis,
    GridAxis,
    HeadGrid,
    ScoreParts,
    StepsRecord,
    TokenAxis,
)
from regard.shapes.checks import type_text, whole_number
from regard.viewer.carried_steps import carried_steps
from regard.viewer.clarity import found_openings, head_openings
from regard.viewer.encoding import packed, packed_bits, packed_codes, packed_numbers
from regard.viewer.overview import carried_whole, overview_payloads
from regard.viewer.padding import number_of_record

FORMAT = 1
"""The version of the payload; the module refuses others."""

BUDGET = 2_000_000
"""The most bytes that exact weights, pooled maps and exact tiles take as they are written, besides the 8-bit codes."""

LONGEST_IMAGE_SIDE = 1024
MOST_BINS, MOST_FRAMES = 256, 4096
MOST_RATE, MOST_SAMPLES = 16_000, 2**20
"""The sizes of the largest image, spectrogram and sound of an axis; larger ones are reduced to block means."""


def payload(
    document: Document, *, budget_bytes: int = BUDGET, walk_from: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Returns everything that the viewer shows of a document, ready for JSON.

    Records are carried whole as 8-bit square roots (an error of at most 0.004 of the largest weight, or of 1); exact
    weights are added, record by record, while codes and weights together stay within the budget. Records that are too
    large for that carry pooled maps and some exact tiles. The viewer marks the weights that are exact. Measures with a
    number for each key are carried with records that are carried whole, those with one for each pair while they fit.

    Worked calculations of the document are carried with all their numbers. Those of other heads, where the records have
    them (after ``watch(keep=True)``, or of a trained run), follow as queries, keys and values in float32, while they
    fit into half of the budget.

    Args:
        document: the document.
        budget_bytes: see above; at least 0. With 0, no weight is exact, and no head has a calculation unless the
            document has it.
        walk_from: the index of a record and the position of a head in it, whose calculation is carried first; None:
            only the document's own calculations are carried.

    Returns:
        the entries ``format``, ``title``, ``texts``, ``axes``, ``masks``, ``records``, ``steps``, ``grids`` and
        ``budget``, which hold texts, numbers, lists and dictionaries; arrays are compressed and written in base64.

    Raises:
        KindError: not a `Document`, or the budget is no integer.
        ArgumentError: the budget is negative.

    Example:
        >>> from regard import View, viewer
        >>> document = View([[0.9, 0.1], [0.2, 0.8]], ["the", "cat"]).document
        >>> content = viewer.payload(document)
        >>> content["axes"][0]["tokens"], content["records"][0]["codes"]["shape"]
        (['the', 'cat'], [1, 2, 2])
        >>> content["records"][0]["exact"]["type"], viewer.payload(document, budget_bytes=0)["records"][0]["exact"]
        ('float32', None)
    """
    if not isinstance(document, Document):
        raise KindError(f"document must be a regard.records.Document; it is {type_text(document)}")
    whole_number("budget_bytes", budget_bytes, low=0)
    axes, masks = _Shared(axis_payload), _Shared(packed_bits)
    whole = carried_whole(document.records)
    entries = [_record(record, axes, masks, number in whole) for number, record in enumerate(document.records)]
    for entry, text in zip(entries, document.text_numbers or (), strict=False):
        entry["text"] = text
    left = budget_bytes - sum(len(entry["codes"]["data"]) for entry in entries if entry["codes"])
    steps = [_steps(one, document.records) for one in document.steps]
    if walk_from is not None:
        own = {(one["record"], one["head"]) for one in steps}
        for number, head, one, numbers in carried_steps(document.records, own, walk_from, budget_bytes // 2):
            steps.append(_settings(one, number, head) | {"queries": None, "keys": None, "parts": None} | numbers)
            left -= sum(len(matrix["data"]) for matrix in numbers["matrices"].values())
    for number in sorted(whole):
        left -= _add_exact(entries[number], document.records[number], left)
    for number in sorted(whole):
        left -= _add_measures(entries[number], document.records[number], left)
    large = [number for number in range(len(entries)) if number not in whole]
    overviews = overview_payloads([document.records[number] for number in large], max(left, 0))
    for number, overview in zip(large, overviews, strict=True):
        entries[number]["overview"] = overview
        heads, findings = document.records[number].heads, overview["findings"]
        entries[number]["openings"] = [list(one) for one in found_openings(heads, findings)]
    return {
        "format": FORMAT,
        "title": document.title,
        "texts": [list(text) for text in document.texts],
        "axes": axes.entries,
        "masks": masks.entries,
        "records": entries,
        "steps": steps,
        "grids": [_grid_numbers(grid) for grid in document.grids],
        "budget": budget_bytes,
    }


class _Shared:
    """Parts to which several records refer by a number; each is carried once."""

    def __init__(self, encode: Any):
        self.encode = encode
        self.entries: list[dict[str, Any]] = []
        self._numbers: dict[Any, int] = {}

    def number(self, part: Axis | NDArray[np.bool_]) -> int:
        if isinstance(part, np.ndarray):
            key: Any = part.shape, hashlib.sha256(part.tobytes()).digest()
        else:  # the document keeps the objects of axes alive
            key = part if isinstance(part, TokenAxis) else id(part)
        if key not in self._numbers:
            self._numbers[key] = len(self.entries)
            self.entries.append(self.encode(part))
        return self._numbers[key]


def _record(record: AttentionRecord, axes: _Shared, masks: _Shared, whole: bool) -> dict[str, Any]:
    has_mask = whole and record.visible is not None and not record.visible.all()
    return {
        "name": str(record.name),
        "layer": int(record.layer),
        "kind": record.kind,
        "heads": record.heads,
        "head_numbers": None if record.head_numbers is None else list(record.head_numbers),
        "queries": axes.number(record.queries),
        "keys": axes.number(record.keys),
        "signed": record.signed,
        "codes": packed_codes(record.weights, record.signed) if whole and record.weights is not None else None,
        "exact": None,
        "visible": masks.number(record.visible) if has_mask and record.visible is not None else None,
        "overview": None,
        "openings": [list(one) for one in head_openings(record)] if whole else [],
        "statistics": None if record.statistics is None else [_without_nan(values) for values in record.statistics],
        "measures": {},
        "padding": record.padding,
    }


def _without_nan(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in values.items() if not math.isnan(value)}


def _add_measures(entry: dict[str, Any], record: AttentionRecord, left: int) -> int:
    """Adds a record's measures, those of pairs if they fit, and returns the bytes that these take."""
    used = 0
    for name, factors in record.measures.items():
        numbers = packed_numbers(factors, "<f4")
        size = len(numbers["data"]) if factors.ndim == 3 else 0
        if size == 0 or size <= left - used:
            entry["measures"][name] = numbers
            used += size
    return used


def _add_exact(entry: dict[str, Any], record: AttentionRecord, left: int) -> int:
    """Adds a record's exact weights if they fit, and returns the bytes that they take."""
    assert record.weights is not None, "only stored weights are carried whole"
    # Compressed weights are hardly ever below a third of their size.
    if record.weights.size * 4 * 4 // 9 > left and record.weights.any():
        return 0
    numbers = packed_numbers(record.weights, "<f4")
    if len(numbers["data"]) > left:
        return 0
    entry["exact"] = numbers
    return len(numbers["data"])


def _steps(steps: StepsRecord, records: Sequence[AttentionRecord]) -> dict[str, Any]:
    return _settings(steps, number_of_record(steps, records), steps.head) | {
        "queries": list(steps.query_labels),
        "keys": list(steps.key_labels),
        "matrices": {name: packed_numbers(matrix, "<f8") for name, matrix in steps.matrices.items()},
        "parts": None if steps.parts is None else _parts(steps.parts),
    }


def _settings(steps: StepsRecord, number: int | None, head: int | None) -> dict[str, Any]:
    """Returns the entries of a calculation besides its numbers and labels, as those of a head of a record."""
    return {
        "name": steps.name,
        "layer": steps.layer,
        "head": head,
        "record": number,
        "score": steps.score,
        "comparison": steps.comparison,
        "scale": steps.scale,
        "cap": steps.cap,
        "function": steps.function,
        "normalizer": steps.normalizer,
        "parameters": dict(steps.parameters),
    }


def _parts(parts: ScoreParts) -> dict[str, Any]:
    """Returns the parts of scores: their sources, and matrices with a row for each source and query."""
    return {
        "sources": [
            {"kind": one.kind, "name": one.module, "layer": one.layer, "head": one.head} for one in parts.sources
        ],
        "query": packed_numbers(parts.of_query.reshape(-1, parts.of_query.shape[2]), "<f8"),
        "key": packed_numbers(parts.of_key.reshape(-1, parts.of_key.shape[2]), "<f8"),
    }


def _grid_numbers(grid: HeadGrid) -> dict[str, Any]:
    """Returns a grid of heads × layers: its numbers are few, and null where they are not finite."""

    def rows(matrix: NDArray[np.float64]) -> list[list[float | None]]:
        return [[value if math.isfinite(value) else None for value in row] for row in matrix.tolist()]

    return {
        "title": grid.title,
        "unit": grid.unit,
        "axis": grid.axis,
        "signed": grid.signed,
        "high": grid.high,
        "layers": list(grid.layers),
        "columns": list(grid.columns),
        "notes": list(grid.notes),
        "values": rows(grid.values),
        "noise": None if grid.noise is None else rows(grid.noise),
    }


def axis_payload(axis: Axis) -> dict[str, Any]:
    """Returns one axis: its labels, and its picture."""
    if isinstance(axis, TokenAxis):
        return {
            "kind": "tokens",
            "length": len(axis),
            "tokens": list(axis.tokens),
            "special": [position for position, flag in enumerate(axis.known_special) if flag],
            "words": [word.start for word in axis.words],
            "generated": axis.generated,
        }
    return _grid(axis) if isinstance(axis, GridAxis) else _frames(axis)


def _grid(axis: GridAxis) -> dict[str, Any]:
    height, width = axis.image.shape[:2]
    step = -(-max(height, width) // LONGEST_IMAGE_SIDE)
    image = (
        axis.image if step == 1 else np.rint(block_means(block_means(axis.image, step, 0), step, 1)).astype(np.uint8)
    )
    return {
        "kind": "grid",
        "length": len(axis),
        "rows": int(axis.rows),
        "columns": int(axis.columns),
        "leading": int(axis.leading),
        "box": list(axis.box or (0.0, 0.0, float(width), float(height))),
        "size": [width, height],
        "image": {"width": image.shape[1], "height": image.shape[0], "data": packed(image)},
    }


def _frames(axis: FrameAxis) -> dict[str, Any]:
    spectrogram: NDArray[Any] = axis.spectrogram
    for axis_number, most in enumerate((MOST_BINS, MOST_FRAMES)):
        spectrogram = block_means(spectrogram, -(-spectrogram.shape[axis_number] // most), axis_number)
    low, high = float(spectrogram.min()), float(spectrogram.max())
    shades = np.rint(255 * (spectrogram - low) / ((high - low) or 1.0)).astype(np.uint8)
    return {
        "kind": "frames",
        "length": len(axis),
        "seconds": axis.seconds,
        "spectrogram": {"bins": shades.shape[0], "frames": shades.shape[1], "data": packed(shades)},
        "sound": None if axis.sound is None else _sound(axis.sound, axis.rate),
    }


def _sound(samples: NDArray[np.int16], rate: int) -> dict[str, Any]:
    """Returns a sound of at most `MOST_RATE` samples a second and `MOST_SAMPLES` in all, by means of neighbours."""
    step = max(-(-rate // MOST_RATE), -(-samples.size // MOST_SAMPLES))
    fewer = np.rint(block_means(samples, step, 0)).astype("<i2")
    # Differences of neighbours are small, and compress better than the samples.
    changes = np.diff(fewer, prepend=fewer.dtype.type(0))
    planes = changes.view(np.uint8).reshape(-1, 2).T
    return {"rate": rate / step, "samples": fewer.size, "data": packed(planes)}


def block_means(values: NDArray[Any], size: int, axis: int) -> NDArray[Any]:
    """Returns means of ``size`` neighbours along an axis; the last block may have fewer."""
    if size <= 1:
        return values
    starts = np.arange(0, values.shape[axis], size)
    sums = np.add.reduceat(values, starts, axis=axis, dtype=np.float64)
    counts = np.diff([*starts, values.shape[axis]])
    return sums / counts.reshape([-1 if other == axis else 1 for other in range(values.ndim)])
