"""The overview of a record that is too large to be carried whole: pooled maps, findings, and some exact tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from regard.errors import ShapeError
from regard.records import AttentionRecord, DenseTiles, TileSource, bin_edges
from regard.viewer.encoding import packed_codes, packed_numbers
from regard.viewer.long_sentence import in_units, long_sentence, named_distances
from regard.viewer.patterns import Chance, diagonals, nearness, peaks, sinks, spikes, stripes
from regard.viewer.words import LANGUAGES, say

MOST_CELLS = 2**22
"""The most weights of one record that are carried whole; a larger record is carried as an overview."""

MOST_CELLS_TOGETHER = 2**25
"""The most weights of all records together that are carried whole."""

FINEST_SIDE = 512
"""The most rows and columns of the pooled maps."""

COARSEST_SIDE = 64
"""The fewest rows and columns of the maps, for any budget."""

TILE_SIDE = 64
"""The queries and keys of one exact tile."""

MOST_TILES = 48

FOUND: WeakKeyDictionary[AttentionRecord, dict[str, Any]] = WeakKeyDictionary()
"""What `record_findings` has found, as long as the record is used."""

MOST_BINS = 2**25
"""The most bins of all maps that are computed at once, unless the budget is large."""


def carried_whole(records: tuple[AttentionRecord, ...]) -> set[int]:
    """Returns the indices of the records that are carried whole.

    Records with the same numbers of queries and keys are all carried whole or all pooled, so that layers can be
    compared; the smallest come first.
    """
    alike: dict[tuple[int, int], list[int]] = {}
    for number, record in enumerate(records):
        alike.setdefault((len(record.queries), len(record.keys)), []).append(number)
    whole, cells = set(), 0
    for _, numbers in sorted(alike.items(), key=lambda item: item[0][0] * item[0][1]):
        sizes = [weights.size for number in numbers if (weights := records[number].weights) is not None]
        if len(sizes) == len(numbers) and max(sizes) <= MOST_CELLS and cells + sum(sizes) <= MOST_CELLS_TOGETHER:
            whole.update(numbers)
            cells += sum(sizes)
    return whole


def overview_payloads(records: Sequence[AttentionRecord], budget_bytes: int) -> list[dict[str, Any]]:
    """Returns pooled maps of all heads, the finest that fit the budget together, and exact tiles for the rest.

    Records of the same size have maps of the same size, so that they can be compared. The coarsest maps are carried
    even if they exceed the budget, which counts the maps and tiles as they are written.
    """
    sources = [tile_source(record) for record in records]
    heads = sum(source.heads for source in sources)
    sides = [_first_sides(source, heads, budget_bytes) for source in sources]
    pooled = [_pooled(source, *side) for source, side in zip(sources, sides, strict=True)]
    chances = [Chance(record) for record in records]
    packed = [
        _packed_maps(*maps, chance, record) for maps, chance, record in zip(pooled, chances, records, strict=True)
    ]
    while sum(size for _, size in packed) > budget_bytes:
        large = [number for number, (mean, _) in enumerate(pooled) if min(mean.shape[1:]) >= 2 * COARSEST_SIDE]
        if not large:
            break
        for number in large:
            pooled[number] = _halved(sources[number], *pooled[number])
            packed[number] = _packed_maps(*pooled[number], chances[number], records[number])
    together = sum(source.heads * source.queries * source.keys for source in sources)
    left = max(0, budget_bytes - sum(size for _, size in packed)) // max(1, len(records))
    return [
        _overview(record, chance, maps[1], written, left)
        | {"why": {language: _why_pooled(record, together, language) for language in LANGUAGES}}
        for record, chance, maps, (written, _) in zip(records, chances, pooled, packed, strict=True)
    ]


def _first_sides(source: TileSource, heads: int, budget_bytes: int) -> tuple[int, int]:
    """Returns the numbers of rows and columns to try first: `FINEST_SIDE`, or fewer to save memory."""
    rows, columns = min(FINEST_SIDE, source.queries), min(FINEST_SIDE, source.keys)
    most = max(16 * budget_bytes, MOST_BINS)
    while 2 * heads * rows * columns > most and min(rows, columns) >= 2 * COARSEST_SIDE:
        rows, columns = rows // 2, columns // 2
    return rows, columns


def _overview(
    record: AttentionRecord, chance: Chance, maximum: NDArray[np.float32], maps: dict[str, Any], budget_bytes: int
) -> dict[str, Any]:
    """Returns the maps of a record with its findings and exact tiles."""
    source, everything = tile_source(record), _found(record, chance, maximum)
    findings = {name: everything[name] for name in ("sinks", "diagonals", "spikes")}
    rows, columns = maximum.shape[1:]
    even = np.maximum.reduceat(chance.of_queries, bin_edges(source.queries, rows)[:-1], axis=1)
    return {
        "even": [[float(f"{share:.4g}") for share in head] for head in even] if record.visible is not None else None,
        "rows": rows,
        "columns": columns,
        "tile": TILE_SIDE,
        "hidden": record.kind == "causal" or (record.visible is not None and not record.visible.all()),
        **maps,
        "findings": findings,
        "largest": float(np.abs(np.nan_to_num(maximum)).max(initial=0.0)),
        "peaks": everything["peaks"],
        "says": {
            language: [list(long_sentence(record, everything, head, language)) for head in (*range(record.heads), None)]
            for language in LANGUAGES
        },
        "stripes": [named_distances(record, everything, head) for head in (*range(record.heads), None)],
        "tiles": _tiles(record, findings, budget_bytes),
    }


def _why_pooled(record: AttentionRecord, together: int, language: str) -> str:
    """Returns why a record is carried as an overview, and what to write to see its weights, of `together` in all."""
    pairs, side = len(record.queries) * len(record.keys), math.isqrt(MOST_CELLS)
    if pairs > MOST_CELLS:
        return in_units(record, say("long_why_long", language, side=f"{side:,}"), language)
    is_read = record.weights is None and record.heads * pairs <= MOST_CELLS and together <= MOST_CELLS_TOGETHER
    return say("long_why_read" if is_read else "long_why_heads", language)


def record_findings(record: AttentionRecord) -> dict[str, Any]:
    """Returns what is found in a record that is not carried whole, once: ``sinks``, ``diagonals``, ``spikes``, and of
    each head its ``peaks``, ``stripes`` and how much attention is ``near``."""
    if record not in FOUND:
        source = tile_source(record)
        maximum = _pooled(source, *_first_sides(source, source.heads, 0))[1]
        FOUND[record] = _found(record, Chance(record), maximum)
    return FOUND[record]


def _found(record: AttentionRecord, chance: Chance, maximum: NDArray[np.float32]) -> dict[str, Any]:
    source = tile_source(record)
    everything: dict[str, Any] = {"sinks": [], "diagonals": [], "spikes": [], "peaks": [], "near": [], "stripes": []}
    if not record.signed:  # shares of a row that has any sum say nothing
        shift = source.keys - source.queries if record.kind == "causal" else 0
        everything |= {"sinks": sinks(source, chance), "diagonals": diagonals(source, maximum, chance)}
        everything["spikes"] = spikes(source, maximum, chance, everything)
        everything["peaks"] = peaks(source, maximum, chance, shift)
        if record.kind != "cross":
            everything |= {"near": nearness(source, chance, shift), "stripes": stripes(source, shift)}
    return everything


def _pooled(source: TileSource, rows: int, columns: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    mean, maximum = source.pooled(rows, columns)
    for name, pooled in (("mean", mean), ("maximum", maximum)):
        if pooled.shape != (source.heads, rows, columns):
            raise ShapeError(
                f"source.pooled({rows}, {columns}) must return [heads, rows, columns]; its {name} has shape "
                f"{list(pooled.shape)}"
            )
    return mean, maximum


def _halved(
    source: TileSource, mean: NDArray[np.float32], maximum: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns maps with half of the rows and columns, computed from the finer maps if their numbers are even."""
    rows, columns = mean.shape[1:]
    if rows % 2 or columns % 2:
        return _pooled(source, rows // 2, columns // 2)
    counts = np.diff(bin_edges(source.queries, rows))[:, None] * np.diff(bin_edges(source.keys, columns))[None, :]

    def blocks(values: NDArray[Any]) -> NDArray[Any]:
        return values.reshape(*values.shape[:-2], rows // 2, 2, columns // 2, 2)

    coarse = blocks(mean * counts).sum((-3, -1)) / blocks(counts).sum((-3, -1))
    highest, lowest = blocks(maximum).max((-3, -1)), blocks(maximum).min((-3, -1))
    return coarse.astype(np.float32), np.where(-lowest > highest, lowest, highest)


def _packed_maps(
    mean: NDArray[np.float32], maximum: NDArray[np.float32], chance: Chance, record: AttentionRecord
) -> tuple[dict[str, Any], int]:
    """Returns both maps as they are written, in multiples of the equal share without signs, and their size in bytes."""
    maps = {
        name: _codes(values if record.signed else chance.multiples(values), record.signed)
        for name, values in (("mean", mean), ("maximum", maximum))
    }
    return maps, sum(len(entry["data"]) for entry in maps.values())


def tile_source(record: AttentionRecord) -> TileSource:
    """Returns the record's source of exact tiles, or its stored weights."""
    if record.source is not None:
        return record.source
    assert record.weights is not None, "a record has weights or a source"
    return DenseTiles(record.weights)


def tile_payload(record: AttentionRecord, queries: tuple[int, int], keys: tuple[int, int]) -> dict[str, Any]:
    """Returns an exact tile, as the viewer's module expects it from ``options.fetchTile``; −1 marks a masked weight, in
    a record with signs −∞.

    Args:
        record: with weights or a source of tiles.
        queries: first, and one past the last.
        keys: likewise.

    Returns:
        the float32 elements ``[heads, queries, keys]``, compressed and written in base64, with their type and shape.

    Raises:
        ShapeError: the record's source gives another shape.

    Example:
        >>> import numpy as np
        >>> from regard import View, viewer
        >>> record = View(np.full((2, 6, 4), 0.25), rows=range(6), columns=range(4)).document.records[0]
        >>> tile = viewer.tile_payload(record, queries=(0, 3), keys=(2, 4))
        >>> tile["type"], tile["shape"]
        ('float32', [2, 3, 2])
    """
    values = np.array(tile_source(record).tile(queries, keys), dtype=np.float32)
    expected = (record.heads, queries[1] - queries[0], keys[1] - keys[0])
    if values.shape != expected:
        raise ShapeError(f"source.tile must return {list(expected)}; its shape is {list(values.shape)}")
    if record.visible is not None:
        shown = record.visible[..., queries[0] : queries[1], keys[0] : keys[1]]
        values[~np.broadcast_to(shown, values.shape)] = -np.inf if record.signed else -1
    return packed_numbers(values, "<f4")


def _codes(values: Any, signed: bool) -> dict[str, Any]:
    """Encodes a map relative to its maximum, since means over many pairs are small."""
    if signed:
        return packed_codes(np.asarray(values, np.float64), signed)
    known = np.nan_to_num(values)
    largest = float(known.max(initial=0.0))
    scale = np.float32(1 / largest) if largest > 0 else np.float32(1)
    coded = packed_codes(np.minimum(np.asarray(values, np.float32) * scale, np.float32(1)))
    return {**coded, "maximum": largest or 1.0}


def _tiles(record: AttentionRecord, findings: dict[str, Any], budget: int) -> list[dict[str, Any]]:
    """Returns exact tiles at single large weights, sinks and diagonals, within the budget."""
    source = tile_source(record)
    points = [(spike["query"], spike["key"]) for spike in findings["spikes"]]
    points += [(source.queries // 2, sink["key"]) for sink in findings["sinks"]]
    for diagonal in findings["diagonals"]:
        q = min(max(source.queries // 2, -diagonal["offset"]), source.queries - 1)
        points.append((q, min(max(q + diagonal["offset"], 0), source.keys - 1)))
    tiles: dict[tuple[int, int], dict[str, Any]] = {}
    for query, key in points:
        corner = (query // TILE_SIDE * TILE_SIDE, key // TILE_SIDE * TILE_SIDE)
        if corner in tiles or len(tiles) == MOST_TILES:
            continue
        q1, k1 = min(corner[0] + TILE_SIDE, source.queries), min(corner[1] + TILE_SIDE, source.keys)
        numbers = tile_payload(record, (corner[0], q1), (corner[1], k1))
        if len(numbers["data"]) > budget:
            break
        budget -= len(numbers["data"])
        tiles[corner] = {"query": corner[0], "key": corner[1], **numbers}
    return list(tiles.values())
