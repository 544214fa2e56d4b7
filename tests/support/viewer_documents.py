"""Documents whose every number is known, for the tests of the viewer."""

import functools

import numpy as np
import torch

from regard.records import (
    AttentionRecord,
    DenseTiles,
    Document,
    FrameAxis,
    GridAxis,
    HeadGrid,
    TokenAxis,
    bin_edges,
    word_ranges,
)

HOSTILE = (
    "</script><script>document.title='run'</script>",
    "<img src=x onerror=\"document.title='run'\">",
    "'\"`${document.title='run'}`&quot;&lt;",
    "\0\x01\x1b[31m",
    "שלום עולם",
    "\u202eabc\u202c",
    "👩‍👩‍👧‍👦",
    "\ud800",
    "<!--",
    "]]>",
    "",
    " ",
    "x" * 5000,
)


def attention(heads, queries, keys, *, visible=None, sharpness=1.5, seed=0):
    """Softmax weights in float64, ``[heads, queries, keys]``."""
    generator = torch.Generator().manual_seed(seed)
    scores = sharpness * torch.randn(heads, queries, keys, generator=generator, dtype=torch.float64)
    if visible is not None:
        scores = scores.masked_fill(~torch.from_numpy(visible), -torch.inf)
    return scores.softmax(-1).nan_to_num(0)


def alignment(heads=2, queries=3, keys=5, **options):
    """A rectangular record, and its float64 weights."""
    weights = attention(heads, queries, keys, **options)
    rows = TokenAxis(tuple(f"q{number}" for number in range(queries)))
    columns = TokenAxis(tuple(f"k{number}" for number in range(keys)))
    visible = options.get("visible")
    return AttentionRecord("decoder.cross", 0, "cross", rows, columns, weights.numpy(), visible), weights


def causal(heads=16, words=("[CLS]", "un", "##want", "##ed", "noise", "[SEP]")):
    """A causal record over sub-words with special tokens."""
    special = tuple(word.startswith("[") for word in words)
    axis = TokenAxis(words, special, word_ranges(words, special))
    visible = np.tril(np.ones((len(words),) * 2, np.bool_))
    weights = attention(heads, len(words), len(words), visible=visible)
    return AttentionRecord("decoder.0", 0, "causal", axis, axis, weights.numpy(), visible), weights


def patches(rows=14, columns=21):
    """Words over an image of patches with a class token before."""
    weights = attention(2, 3, 1 + rows * columns)
    image = np.zeros((rows * 8, columns * 8, 3), np.uint8)
    image[..., 0] = np.arange(columns * 8, dtype=np.uint8)[None, :]
    image[..., 1] = np.arange(rows * 8, dtype=np.uint8)[:, None]
    grid = GridAxis(rows, columns, image, leading=1)
    words = TokenAxis(("a", "red", "house"))
    return AttentionRecord("decoder.cross", 0, "cross", words, grid, weights.numpy()), weights


def sound(positions=13):
    """Words over a spectrogram that is three times finer than the positions."""
    weights = attention(2, 3, positions)
    spectrogram = np.random.default_rng(0).random((7, 3 * positions), np.float32)
    frames = FrameAxis(spectrogram, 0.04, positions)
    return AttentionRecord("listener", 0, "cross", TokenAxis(("one", "two", "three")), frames, weights.numpy()), weights


class PlantedTiles:
    """100,000 × 100,000 weights: a diagonal in head 0, a sink and one large weight in head 1."""

    heads, queries, keys = 2, 100_000, 100_000
    diagonal, sink, spike = 0.6, (40_001, 0.25), (61_234, 23_456, 0.9)
    floor = 1e-7

    def tile(self, queries, keys):
        query, key = np.arange(*queries)[:, None], np.arange(*keys)[None, :]
        weights = np.full((2, queries[1] - queries[0], keys[1] - keys[0]), self.floor, np.float32)
        weights[0] += self.diagonal * (key == query - 1)
        weights[1] += self.sink[1] * (key == self.sink[0]) + self.spike[2] * (
            (query == self.spike[0]) & (key == self.spike[1])
        )
        return weights

    def pooled(self, rows, columns):
        row_edges, column_edges = bin_edges(self.queries, rows), bin_edges(self.keys, columns)
        counts = np.diff(row_edges)[:, None] * np.diff(column_edges)[None, :]
        mean = np.full((2, rows, columns), self.floor)
        maximum = np.full((2, rows, columns), self.floor)

        def bins(edges, positions):
            return np.searchsorted(edges, positions, "right") - 1

        query = np.arange(1, self.queries)
        row, column = bins(row_edges, query), bins(column_edges, query - 1)
        np.add.at(mean[0], (row, column), self.diagonal / counts[row, column])
        maximum[0, row, column] = self.diagonal
        column = bins(column_edges, self.sink[0])
        mean[1, :, column] += self.sink[1] * np.diff(row_edges) / counts[:, column]
        maximum[1, :, column] = self.sink[1]
        row, column = bins(row_edges, self.spike[0]), bins(column_edges, self.spike[1])
        mean[1, row, column] += self.spike[2] / counts[row, column]
        maximum[1, row, column] = self.spike[2]
        return mean.astype(np.float32), maximum.astype(np.float32)


@functools.cache
def planted():
    """The view of `PlantedTiles`, whose payload is made once."""
    from regard.viewer import View

    axis = TokenAxis(tuple(f"t{number}" for number in range(PlantedTiles.keys)))
    return View(AttentionRecord("layers.0", 0, "causal", axis, axis, None, source=PlantedTiles()), view="long", head=1)


def tiled(length=150, heads=2):
    """A record that has a source of tiles only, and its weights."""
    weights = attention(heads, length, length, sharpness=3.0)
    axis = TokenAxis(tuple(f"t{number}" for number in range(length)))
    source = DenseTiles(weights.float().numpy())
    return AttentionRecord("layers.0", 0, "self", axis, axis, None, source=source), weights


def steps():
    """A worked calculation with a causal mask, and its explanation."""
    import regard
    from regard.viewer import steps_record

    generator = torch.Generator().manual_seed(5)
    query, key, value = (torch.randn(1, 1, 4, size, generator=generator, dtype=torch.float64) for size in (3, 3, 2))
    names = ["This", "is", "a", "book"]
    explanation = regard.explain(query, key, value, mask=regard.masks.causal()).labelled(names, names)
    return steps_record(explanation, name="one head"), explanation


@functools.cache
def everything():
    """A document that every view can show something of."""
    records = (alignment()[0], causal()[0], patches()[0], sound()[0], tiled()[0])
    grids = (HeadGrid("effects", [[0.5, -0.25], [0.0, float("nan")]], unit="nats"),)
    return Document("Everything", records, (steps()[0],), (("input", "a text"),), grids)
