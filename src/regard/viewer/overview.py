"""What a file carries of a record that is too large to carry whole: pooled maps, findings, and some exact tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import ShapeError
from regard.records import AttentionRecord, DenseTiles, TileSource, bin_edges
from regard.viewer.encoding import packed_codes, packed_numbers
from regard.viewer.patterns import diagonals, sinks, spikes

FINEST = 512
"""Rows and columns of the pooled maps, if the budget allows it."""

COARSEST = 64
"""Rows and columns that the maps have in any case."""

TILE = 64
"""Queries and keys of one exact tile."""

MOST_TILES = 48


def overview_payload(record: AttentionRecord, budget_bytes: int) -> dict[str, Any]:
    """Pooled maps of all heads, the finest that fit the budget, and exact tiles for the rest of it.

    The coarsest maps are carried even where they exceed the budget.

    Args:
        record: with weights or a source of tiles.
        budget_bytes: what the maps and tiles may take, as they are written.

    Raises:
        ShapeError: the source gives other shapes than it was asked for.
    """
    source = tile_source(record)
    mean, maximum = _pooled(source, min(FINEST, source.queries), min(FINEST, source.keys))
    maps, size = _packed_maps(mean, maximum)
    while size > budget_bytes and min(mean.shape[1:]) >= 2 * COARSEST:
        mean, maximum = _halved(source, mean, maximum)
        maps, size = _packed_maps(mean, maximum)
    rows, columns = mean.shape[1:]
    findings: dict[str, Any] = {"sinks": sinks(source), "diagonals": diagonals(source, maximum)}
    tiles = _tiles(record, maximum, budget_bytes - size, findings)
    findings["spikes"] = [tile["spike"] for tile in tiles if "spike" in tile]
    return {"rows": rows, "columns": columns, "tile": TILE, **maps, "findings": findings, "tiles": tiles}


def _pooled(source: TileSource, rows: int, columns: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    mean, maximum = source.pooled(rows, columns)
    for name, found in (("mean", mean), ("maximum", maximum)):
        if found.shape != (source.heads, rows, columns):
            raise ShapeError(
                f"source.pooled({rows}, {columns}) must give [heads, rows, columns]; its {name} has shape "
                f"{list(found.shape)}"
            )
    return mean, maximum


def _halved(
    source: TileSource, mean: NDArray[np.float32], maximum: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Maps with half of the rows and columns; from the finer ones where their bins are parts of the new ones."""
    rows, columns = mean.shape[1:]
    if rows % 2 or columns % 2:
        return _pooled(source, rows // 2, columns // 2)
    counts = np.diff(bin_edges(source.queries, rows))[:, None] * np.diff(bin_edges(source.keys, columns))[None, :]

    def blocks(values: NDArray[Any]) -> NDArray[Any]:
        return values.reshape(*values.shape[:-2], rows // 2, 2, columns // 2, 2)

    coarse = blocks(mean * counts).sum((-3, -1)) / blocks(counts).sum((-3, -1))
    return coarse.astype(np.float32), blocks(maximum).max((-3, -1))


def _packed_maps(mean: NDArray[np.float32], maximum: NDArray[np.float32]) -> tuple[dict[str, Any], int]:
    """Both maps as they are written, and their size in bytes."""
    maps = {"mean": _codes(mean), "maximum": _codes(maximum)}
    return maps, sum(len(entry["data"]) for entry in maps.values())


def tile_source(record: AttentionRecord) -> TileSource:
    """The record's source of exact tiles; its own weights where it has no other."""
    if record.source is not None:
        return record.source
    assert record.weights is not None, "a record has weights or a source"
    return DenseTiles(record.weights)


def tile_payload(record: AttentionRecord, queries: tuple[int, int], keys: tuple[int, int]) -> dict[str, Any]:
    """An exact tile as ``options.fetchTile`` of the viewer's module may give it; −1 marks a masked weight.

    Args:
        record: with weights or a source of tiles.
        queries: first, and one past the last.
        keys: likewise.
    """
    values = np.array(tile_source(record).tile(queries, keys), dtype=np.float32)
    expected = (record.heads, queries[1] - queries[0], keys[1] - keys[0])
    if values.shape != expected:
        raise ShapeError(f"source.tile must give {list(expected)}; its shape is {list(values.shape)}")
    if record.visible is not None:
        shown = record.visible[..., queries[0] : queries[1], keys[0] : keys[1]]
        values[~np.broadcast_to(shown, values.shape)] = -1
    return packed_numbers(values, "<f4")


def _codes(values: Any) -> dict[str, Any]:
    """Codes relative to the largest number, since means over many pairs are small."""
    known = np.nan_to_num(values)
    largest = float(known.max(initial=0.0))
    scale = np.float32(1 / largest) if largest > 0 else np.float32(1)
    coded = packed_codes(np.minimum(np.asarray(values, np.float32) * scale, np.float32(1)))
    return {**coded, "maximum": largest or 1.0}


def _tiles(record: AttentionRecord, maximum: Any, budget: int, findings: dict[str, Any]) -> list[dict[str, Any]]:
    """Exact tiles at single large weights, sinks and diagonals, as long as the budget lasts."""
    source = tile_source(record)
    rows, columns = maximum.shape[1:]
    query_edges, key_edges = bin_edges(source.queries, rows), bin_edges(source.keys, columns)
    places: list[tuple[int, int, dict[str, Any] | None]] = []
    for head, row, column in spikes(maximum, MOST_TILES // 2):
        q0, q1, k0, k1 = (int(e) for e in (*query_edges[row : row + 2], *key_edges[column : column + 2]))
        block = np.nan_to_num(source.tile((q0, q1), (k0, k1))[head])
        q, k = (int(i) for i in np.unravel_index(int(block.argmax()), block.shape))
        spike = {"head": head, "query": q0 + q, "key": k0 + k, "weight": float(block[q, k])}
        if not _explained(spike, findings):
            places.append((q0 + q, k0 + k, spike))
    places += [(source.queries // 2, sink["key"], None) for sink in findings["sinks"]]
    for diagonal in findings["diagonals"]:
        q = min(max(source.queries // 2, -diagonal["offset"]), source.queries - 1)
        places.append((q, min(max(q + diagonal["offset"], 0), source.keys - 1), None))
    tiles: dict[tuple[int, int], dict[str, Any]] = {}
    for query, key, spike in places:
        corner = (query // TILE * TILE, key // TILE * TILE)
        if corner in tiles or len(tiles) == MOST_TILES:
            continue
        q1, k1 = min(corner[0] + TILE, source.queries), min(corner[1] + TILE, source.keys)
        numbers = tile_payload(record, (corner[0], q1), (corner[1], k1))
        if len(numbers["data"]) > budget:
            break
        budget -= len(numbers["data"])
        tiles[corner] = {"query": corner[0], "key": corner[1], **numbers} | ({"spike": spike} if spike else {})
    return list(tiles.values())


def _explained(spike: dict[str, Any], findings: dict[str, Any]) -> bool:
    """Whether a single weight is part of a diagonal or a sink that was found."""
    on_diagonal = any(
        one["head"] == spike["head"] and one["offset"] == spike["key"] - spike["query"] for one in findings["diagonals"]
    )
    return on_diagonal or any(one["head"] == spike["head"] and one["key"] == spike["key"] for one in findings["sinks"])
