"""Findings in a long map: keys that many queries attend to (sinks), diagonals, single large weights (spikes).

Every number of a finding is exact, and every finding is far above the result of uniform weights over the visible keys,
so that a map of noise has none. Means leave out queries that see no key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.records import AttentionRecord, TileSource, bin_edges

MOST_FINDINGS = 8
"""The most findings of one kind, of diagonals of one head."""

SINK_SHARE, SINK_TIMES = 0.02, 10
"""The least mean weight of a sink, and its least ratio to that of uniform weights."""

MOST_DISTANCES = 16
"""The most distances whose means are computed."""

DIAGONAL_SHARE, DIAGONAL_TIMES = 0.05, 5
"""The least mean weight of a diagonal, and its least ratio to that of uniform weights."""

LEAST_PART, LOOK_TIMES = 0.5, 2
"""The least part of the queries that look at a sink, or at the distance of a diagonal, since what few do is not what a
head does; and the least ratio of a weight to an equal share with which a query looks at a key."""

SAMPLED_QUERIES = 256
"""The most queries that are asked whether they look at a sink; more are sampled evenly."""

SPIKE_WEIGHT, SPIKE_TIMES, SPIKE_GAP = 0.25, 10, 3
"""The least weight of a spike, and its least ratios to the uniform weight and to its head's largest other weight."""

PEAKS, PEAK_KEYS, PEAK_SPREAD = 5, 16, 10
"""The most peaks of a head; the fewest keys that the query of one sees, since among few keys a large part is no peak;
and of how many parts of the text each has one at most."""

NEAR, NEAR_PART = (4, 16, 64), 8
"""The distances within which the attention of a head is added up; what is farther is far, and so is more than this part
of a short text."""

STRIPE_SHARE, STRIPE_TIMES, STRIPE_DEVIATIONS, STRIPES = 0.01, 5, 8, 3
"""The least mean attention to a fixed far distance, its least ratio to the distances around it, how many deviations its
sum is above theirs, as counts deviate by chance, and the most distances of a head."""

STRIPE_WIDTH, STRIPE_APART = 2, 32
"""How far from a distance the attention still counts to it, and how far from each other distances are named."""

STRIPE_CELLS = 2**28
"""The most weights of a record whose distances are all added up; of a larger one, tiles are sampled evenly."""

EVEN_BIN = 1.25
"""The most ratio of the numbers of keys that the queries of a bin see, for which its largest weight is enough."""

SAMPLED_TILES = 5
"""The number of tiles along a diagonal that are read to decide which offsets to read as a whole."""

TILE_SIDE = 128
"""The most queries of such a tile, and the span of offsets that are read together."""

MOST_CELLS = 2**24
"""The most weights of all heads in a tile along a whole diagonal: few large tiles are cheaper than many."""


class Chance:
    """The result of uniform weights over the visible keys of a record, with which findings are compared.

    Attributes:
        counts: the number of keys that each query sees, ``[1 or heads, queries]``.
    """

    def __init__(self, record: AttentionRecord):
        self._visible = record.visible
        queries, self._keys = len(record.queries), len(record.keys)
        if record.visible is not None:
            counts = record.visible.sum(-1, dtype=np.int64).reshape(-1, queries)
        elif record.kind == "causal":
            counts = np.clip(np.arange(queries) + 1 + self._keys - queries, 0, self._keys)[None]
        else:
            counts = np.full((1, queries), self._keys)
        self.counts: NDArray[np.int64] = counts

    @property
    def masked(self) -> bool:
        """Whether a mask is given: without one, queries see all keys, or the first ones."""
        return self._visible is not None

    @property
    def seeing(self) -> NDArray[np.int64]:
        """The number of queries that see a key, ``[1 or heads]``; at least 1."""
        return np.maximum((self.counts > 0).sum(-1), 1)

    @property
    def of_queries(self) -> NDArray[np.float64]:
        """The uniform weight of each query, ``[1 or heads, queries]``; 0 if it sees no key."""
        return np.divide(1.0, self.counts, out=np.zeros(self.counts.shape), where=self.counts > 0)

    def multiples(self, maximum: NDArray[np.float32]) -> NDArray[np.float64]:
        """Returns how many equal shares the largest weights ``[heads, rows, columns]`` of bins are at least."""
        edges = bin_edges(self.counts.shape[1], maximum.shape[1])[:-1]
        uniform = np.maximum.reduceat(self.of_queries, edges, axis=1)[:, :, None]
        return np.divide(maximum, uniform, out=np.zeros(maximum.shape), where=uniform > 0)

    @property
    def of_keys(self) -> NDArray[np.float64]:
        """The mean weight that each key would receive, ``[1 or heads, keys]``."""
        shares = self.of_queries
        if self._visible is None:
            # Key j is seen by the queries that see more than j keys.
            sums = np.zeros((len(shares), self._keys + 1))
            for head, (counts, of_head) in enumerate(zip(self.counts, shares, strict=True)):
                np.add.at(sums[head], counts, of_head)
            received = np.cumsum(sums[:, ::-1], axis=1)[:, ::-1][:, 1:]
        else:
            visible = self._visible.reshape(len(shares), -1, self._keys)
            received = np.stack([np.einsum("q,qk->k", one, seen) for one, seen in zip(shares, visible, strict=True)])
        return received / self.seeing[:, None]

    def visible_on(self, queries: NDArray[np.int64], offset: int) -> NDArray[np.bool_]:
        """Whether each query of a diagonal sees its key, ``[1 or heads, queries]``."""
        if self._visible is None:
            return self.counts[:, queries] > queries + offset
        return self._visible.reshape(len(self.counts), -1, self._keys)[:, queries, queries + offset]


def sinks(source: TileSource, chance: Chance) -> list[dict[str, Any]]:
    """Finds keys with a large mean weight over queries that see keys, largest first: ``head``, ``key``, ``share``.

    At least half of the sampled queries look at such a key.
    """
    mean, _ = source.pooled(1, source.keys)
    shares = np.nan_to_num(mean[:, 0, :]) * (source.queries / chance.seeing)[:, None]
    is_sink = shares >= np.maximum(SINK_SHARE, SINK_TIMES * chance.of_keys)
    cells = np.argwhere(is_sink)
    common = _looking(source, chance, cells) >= LEAST_PART
    ordered = sorted(((float(shares[h, k]), h, k) for h, k in cells[common].tolist()), reverse=True)
    return [{"head": head, "key": key, "share": share} for share, head, key in ordered[:MOST_FINDINGS]]


def _looking(source: TileSource, chance: Chance, places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the part of the queries that look at each of some (head, key) pairs, among those that see a key."""
    if not len(places):
        return np.zeros(0)
    counts, looking, seeing = chance.of_queries, np.zeros(len(places)), np.zeros(len(places))
    heads = np.minimum(places[:, 0], len(counts) - 1)
    for query in np.unique(np.linspace(0, source.queries - 1, SAMPLED_QUERIES).astype(int)).tolist():
        weights = np.nan_to_num(source.tile((query, query + 1), (0, source.keys)))[:, 0]
        uniform = counts[heads, query]
        looking += (uniform > 0) & (weights[tuple(places.T)] >= np.maximum(SINK_SHARE, LOOK_TIMES * uniform))
        seeing += uniform > 0
    return looking / np.maximum(seeing, 1)


def diagonals(source: TileSource, maximum: NDArray[np.float32], chance: Chance) -> list[dict[str, Any]]:
    """Finds distances key − query with a large mean weight: ``head``, ``offset``, ``share``, ``queries``, ``all``.

    The mean is over the ``queries`` that see such a key, of ``all`` that see any. At least half of all look at it.

    Candidates are the diagonals of the pooled ``maximum [heads, rows, columns]`` that are bright along their whole
    length; a few of their tiles yield the distances, and all tiles along these the means.
    """
    candidates = []
    for offset, shares, looking in _diagonal_means(source, _candidates(source, maximum), chance):
        queries = np.arange(max(0, -offset), min(source.queries, source.keys - offset))
        seen = chance.visible_on(queries, offset)
        reaching = np.broadcast_to(seen.sum(-1), shares.shape)
        uniform = (chance.of_queries[:, queries] * seen).sum(-1) / np.maximum(reaching, 1)
        common = LEAST_PART * chance.seeing <= looking
        heads = np.flatnonzero(common & (shares >= np.maximum(DIAGONAL_SHARE, DIAGONAL_TIMES * uniform))).tolist()
        candidates += [(float(shares[head]), head, offset, int(reaching[head])) for head in heads]
    ordered = sorted(candidates, reverse=True)
    every = np.broadcast_to(chance.seeing, (source.heads,)).tolist()
    return [
        {"head": head, "offset": offset, "share": share, "queries": reaching, "all": every[head]}
        for number, (share, head, offset, reaching) in enumerate(ordered)
        if sum(other == head for _, other, _, _ in ordered[:number]) < MOST_FINDINGS
    ]


def _candidates(source: TileSource, maximum: NDArray[np.float32]) -> list[int]:
    """Returns offsets whose weights are large in some tiles, the largest first."""
    heads, rows, columns = maximum.shape
    query_edges, key_edges = bin_edges(source.queries, rows), bin_edges(source.keys, columns)
    best: dict[int, float] = {}
    for offset in _bright_offsets(np.nan_to_num(maximum)):
        first, last = max(0, -offset), min(rows, columns - offset)
        sampled = np.unique(np.linspace(first, last - 1, SAMPLED_TILES).astype(int))
        sums: dict[int, NDArray[np.float64]] = {}
        counts: dict[int, int] = {}
        for row in sampled.tolist():
            q0 = int(query_edges[row])
            q1 = min(int(query_edges[row + 1]), q0 + TILE_SIDE)
            k0 = max(0, int(key_edges[row + offset]) - 1)
            k1 = min(source.keys, int(key_edges[row + offset + 1]) + TILE_SIDE)
            tile = np.nan_to_num(source.tile((q0, q1), (k0, k1))).astype(np.float64)
            for distance in range(k0 - q1 + 1, k1 - q0):
                line = np.diagonal(tile, distance + q0 - k0, axis1=1, axis2=2)
                # A corner of the tile covers too little of the diagonal.
                if 2 * line.shape[1] >= min(q1 - q0, k1 - k0):
                    sums[distance] = sums.get(distance, np.zeros(heads)) + line.sum(axis=1)
                    counts[distance] = counts.get(distance, 0) + line.shape[1]
        for distance, total in sums.items():
            best[distance] = max(best.get(distance, 0.0), float(total.max()) / counts[distance])
    likely = sorted((offset for offset in best if 2 * best[offset] >= DIAGONAL_SHARE), key=lambda offset: -best[offset])
    return likely[:MOST_DISTANCES]


def _diagonal_means(
    source: TileSource, offsets: Sequence[int], chance: Chance
) -> Iterator[tuple[int, NDArray[np.float64], NDArray[np.int64]]]:
    """Yields the mean weight of each head along whole diagonals, over the queries that see the key; and who looks."""
    groups: list[list[int]] = []  # offsets that are near each other are read from the same tiles
    for offset in sorted(offsets):
        if not groups or offset - groups[-1][0] > TILE_SIDE:
            groups.append([])
        groups[-1].append(offset)
    step = max(TILE_SIDE, int((MOST_CELLS / max(1, source.heads)) ** 0.5))
    for group in groups:
        totals = {offset: np.zeros(source.heads) for offset in group}
        looking = {offset: np.zeros(source.heads, np.int64) for offset in group}
        for q0 in range(max(0, -group[-1]), min(source.queries, source.keys - group[0]), step):
            q1 = min(q0 + step, source.queries)
            k0, k1 = max(0, q0 + group[0]), min(source.keys, q1 + group[-1])
            tile = source.tile((q0, q1), (k0, k1))
            for offset in group:
                line = np.nan_to_num(np.diagonal(tile, offset + q0 - k0, axis1=1, axis2=2))
                totals[offset] += line.sum(axis=1, dtype=np.float64)
                first = max(q0, -offset)
                uniform = chance.of_queries[:, first : first + line.shape[1]]
                looking[offset] += (line >= np.maximum(DIAGONAL_SHARE, LOOK_TIMES * uniform)).sum(axis=1)
        for offset, total in totals.items():
            queries = np.arange(max(0, -offset), min(source.queries, source.keys - offset))
            yield offset, total / np.maximum(chance.visible_on(queries, offset).sum(-1), 1), looking[offset]


def _bright_offsets(maximum: NDArray[np.float32]) -> list[int]:
    """Returns diagonals of a pooled map, as column − row, that are bright on average even without bright columns."""
    _, rows, columns = maximum.shape
    # Subtract the columns that are bright throughout.
    rest = maximum - np.minimum(np.median(maximum, axis=1, keepdims=True), maximum)
    shortest = max(4, min(rows, columns) // 4)
    scores = []
    for offset in range(-rows + shortest, columns - shortest + 1):
        line = np.diagonal(rest, offset, axis1=1, axis2=2)
        scores.append((float(np.median(line, axis=1).max()), offset))
    best = [(score, offset) for score, offset in sorted(scores, reverse=True)[:6] if score >= DIAGONAL_SHARE]
    return [offset for _, offset in best]


def spikes(
    source: TileSource, maximum: NDArray[np.float32], chance: Chance, findings: dict[str, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Finds single large weights, the largest first: ``head``, ``query``, ``key``, ``weight``.

    They are the few largest of a head, if all its others are much smaller; sinks, diagonals (both in ``findings``), and
    queries that see few keys are left out. ``maximum`` is pooled, ``[heads, rows, columns]``.
    """
    heads, rows, columns = maximum.shape
    query_edges, key_edges = bin_edges(source.queries, rows), bin_edges(source.keys, columns)
    values = np.where(chance.multiples(maximum) >= SPIKE_TIMES, np.nan_to_num(maximum), 0.0)
    for sink in findings["sinks"]:
        values[sink["head"], :, np.searchsorted(key_edges, sink["key"], "right") - 1] = 0.0
    for diagonal in findings["diagonals"]:
        queries = np.arange(max(0, -diagonal["offset"]), min(source.queries, source.keys - diagonal["offset"]))
        row = np.searchsorted(query_edges, queries, "right") - 1
        column = np.searchsorted(key_edges, queries + diagonal["offset"], "right") - 1
        values[diagonal["head"], row, column] = 0.0
    largest_weights: list[dict[str, Any]] = []
    for head in range(heads):
        flat = values[head].ravel()
        order = np.argsort(-flat, kind="stable")[: MOST_FINDINGS + 1]
        largest = np.append(flat[order], 0.0)
        gaps = [
            n
            for n in range(1, min(MOST_FINDINGS, len(order)) + 1)
            if largest[n - 1] >= SPIKE_WEIGHT and largest[n - 1] > SPIKE_GAP * largest[n]
        ]
        largest_weights += [
            {"head": head, **_largest(source, head, maximum.shape, *divmod(cell, columns))}
            for cell in order[: max(gaps, default=0)].tolist()
        ]
    return sorted(largest_weights, key=lambda spike: -spike["weight"])[:MOST_FINDINGS]


def _largest(source: TileSource, head: int, shape: tuple[int, ...], row: int, column: int) -> dict[str, Any]:
    """Returns the exact largest weight of a bin of a map ``[heads, rows, columns]``: ``query``, ``key``, ``weight``."""
    q0, q1 = bin_edges(source.queries, shape[1])[row : row + 2].tolist()
    k0, k1 = bin_edges(source.keys, shape[2])[column : column + 2].tolist()
    block = np.nan_to_num(source.tile((q0, q1), (k0, k1))[head])
    query, key = divmod(int(block.argmax()), k1 - k0)
    return {"query": q0 + query, "key": k0 + key, "weight": float(block[query, key])}


def nearness(source: TileSource, chance: Chance, shift: int) -> list[list[float]]:
    """Returns of each head the mean attention to the tokens at most so far from each query as each of `NEAR` says.

    The token at a query's own place is its key ``query + shift``. Queries that see no key are left out.
    """
    sums, step = np.zeros((source.heads, len(NEAR))), 256
    for q0 in range(0, source.queries, step):
        q1 = min(q0 + step, source.queries)
        k0, k1 = max(0, q0 + shift - NEAR[-1]), min(source.keys, q1 + shift + NEAR[-1])
        if k0 < k1:
            tile = np.nan_to_num(source.tile((q0, q1), (k0, k1)))
            away = np.abs(np.arange(k0, k1) - shift - np.arange(q0, q1)[:, None])
            sums += np.stack([(tile * (away <= most)).sum((1, 2), dtype=np.float64) for most in NEAR], -1)
    return (sums / chance.seeing[:, None]).tolist()


def stripes(source: TileSource, shift: int) -> list[list[int]]:
    """Finds of each head, and last of the mean of all, the fixed far distances with the most attention, largest first.

    A distance is key − (query + shift). Its mean attention stands out from those around it, a few neighbours count as
    one, and at least a quarter of the queries have a key there.
    """
    queries, keys, step = source.queries, source.keys, 64
    sums = np.zeros((source.heads, queries + keys - 1))
    counts = np.zeros(queries + keys - 1)
    for q0 in range(0, queries, step * -(-source.heads * queries * keys // STRIPE_CELLS)):
        tile = np.nan_to_num(source.tile((q0, min(q0 + step, queries)), (0, keys)))
        for row in range(tile.shape[1]):
            along = slice(queries - 1 - q0 - row, queries - 1 - q0 - row + keys)
            sums[:, along] += tile[:, row]
            counts[along] += 1
    offsets = np.arange(len(counts)) - (queries - 1) - shift
    means = np.concatenate([sums, sums.mean(0, keepdims=True)]) / np.maximum(counts, 1)
    far = (np.abs(offsets) > min(NEAR[-1], keys // NEAR_PART)) & (4 * counts >= counts.max())
    of_heads = []
    for single in means:
        named: list[int] = []
        of_head = np.convolve(single, np.ones(2 * STRIPE_WIDTH + 1), "same")
        places = np.flatnonzero(far & (of_head >= STRIPE_SHARE))
        for index in places[np.argsort(-of_head[places] * counts[places], kind="stable")].tolist():
            around = of_head[max(0, index - STRIPE_APART) : index + STRIPE_APART + 1]
            usual = float(np.median(around))
            chance = usual * counts[index] + STRIPE_DEVIATIONS * max(1.0, usual * counts[index]) ** 0.5
            stands = of_head[index] >= max(around.max(), STRIPE_TIMES * usual, chance / counts[index])
            if stands and len(named) < STRIPES:
                first = max(0, index - STRIPE_WIDTH)
                named.append(int(offsets[first + single[first : index + STRIPE_WIDTH + 1].argmax()]))
        of_heads.append(named)
    return of_heads


def peaks(source: TileSource, maximum: NDArray[np.float32], chance: Chance, shift: int) -> list[dict[str, Any]]:
    """Finds the far pairs of each head with the most attention, and a bound of all multiples of the equal share.

    The ``pairs`` (``query``, ``key``, ``weight``, ``times``) are exact; each is of another part of the text, and its
    key is farther than `NEAR` from ``query + shift``, the query's own place. ``times`` is the bound: no weight is a
    larger multiple of the equal share of its query. ``maximum`` is pooled.
    """
    heads, rows, columns = maximum.shape
    query_edges, key_edges = bin_edges(source.queries, rows), bin_edges(source.keys, columns)
    counts = np.broadcast_to(chance.counts, (heads, source.queries))
    most = np.maximum.reduceat(counts, query_edges[:-1], axis=1)
    least = np.minimum.reduceat(np.where(counts > 0, counts, source.keys), query_edges[:-1], axis=1)
    bounds = np.nan_to_num(maximum).max(-1) * most
    for row in np.flatnonzero((most > EVEN_BIN * least).any(0)).tolist():
        q0, q1 = int(query_edges[row]), int(query_edges[row + 1])
        seen = (0, source.keys if chance.masked else int(most[:, row].max()))
        bounds[:, row] = (np.nan_to_num(source.tile((q0, q1), seen)).max(-1) * counts[:, q0:q1]).max(-1)
    # A bin of which some pair is near is left out.
    near = min(NEAR[-1], source.keys // NEAR_PART)
    behind = (query_edges[:-1, None] + shift) - (key_edges[None, 1:] - 1) > near
    ahead = key_edges[None, :-1] - (query_edges[1:, None] - 1 + shift) > near
    weights = np.where((least[:, :, None] >= PEAK_KEYS) & (behind | ahead), np.nan_to_num(maximum), 0.0)
    of_heads = []
    for head in range(heads):
        pairs: list[dict[str, Any]] = []
        left = weights[head]
        while len(pairs) < PEAKS and left.max(initial=0.0) > 0:
            row, column = divmod(int(left.argmax()), columns)
            pair = _largest(source, head, maximum.shape, row, column)
            pairs.append({**pair, "times": float(f"{pair['weight'] * int(counts[head, pair['query']]):.4g}")})
            left[:, max(0, column - 1) : column + 2] = 0.0
            apart = -(-rows // PEAK_SPREAD)
            left[max(0, row - apart) : row + apart + 1] = 0.0
        of_heads.append({"pairs": pairs, "times": float(f"{bounds[head].max():.4g}")})
    return of_heads
