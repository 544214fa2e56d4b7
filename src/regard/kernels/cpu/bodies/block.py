"""One block of query rows: the matrices of its queries, keys and values, and its scores.

A block's scores are in a scratch matrix ``[rows, width]``; columns are the keys of its segments. Each row has runs of
visible columns; all other columns become zeros, so that products over the block need no mask.
"""

from typing import Any, NamedTuple

import numpy as np

from regard.kernels.cpu.bodies.intrinsics import array_at, cache_line, copy, is_single, matrix_at, size_of
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.products import Routine, are_few_rows, product_with_keys, scores_of_few_rows
from regard.kernels.cpu.bodies.relu_sum import copy_row, score_rectified
from regard.kernels.cpu.bodies.tanh_sum import (
    Queries,
    clip_tile,
    exponent_limit,
    keys_of,
    prepare_row,
    score_tile,
    score_tile_directly,
    tiles_between,
)
from regard.kernels.cpu.bodies.visible_keys import SEGMENTS_LIMIT, KeyRange, range_at, write_segments
from regard.kernels.cpu.bodies.wide_product import Matrix, Size
from regard.kernels.cpu.sizes import LANES, ceil_div, even_length, padded_length


class QueryBlock(NamedTuple):
    """Query rows that are computed together.

    Attributes:
        batch, head, group: the batch row, query head and key-and-value head.
        row, rows: the first row, and the number of rows.
        flat_row: the first row, counted through all batch rows and heads.
        segments: the ranges of keys that the rows see, ``[…, 3]``, ascending: see `visible_keys`.
        segment_count: the number of segments; 0: no key is visible.
        columns: the end of the last segment's columns.
    """

    batch: int
    head: int
    group: int
    row: int
    rows: int
    flat_row: int
    segments: Any
    segment_count: int
    columns: int


class Scratch(NamedTuple):
    """Arrays in a thread's own memory.

    Attributes:
        scores: scores of a block, later its weights, ``[rows, width]``.
        gauss: a Gaussian window, ``[width]``, or empty.
        exponentials, extents: `Queries` of an additive score, ``[rows, even dim]`` and ``[rows]``.
        weight: an additive score's weight for a head, ``[even dim]``.
        segments: segments of a block, ``[SEGMENTS_LIMIT + 1, 3]``.
        runs: runs of a row, ``[runs, 3]``.
        end: end address of the memory.
    """

    scores: Any
    gauss: Any
    exponentials: Any
    extents: Any
    weight: Any
    segments: Any
    runs: Any
    end: int


@inlined
def scratch_at(p: Any, scores: int, additive: bool, example: Any) -> Scratch:
    """Returns unfilled memory for the largest block from an address on; for address 0, ``end`` is its size."""
    size, width, even_dim = size_of(example), padded_length(p.keys) + LANES, even_length(p.dim) if additive else 0
    window = width if p.center != 0 else 0
    gauss = scores + p.block * width * size
    exponentials = gauss + window * size
    extents = exponentials + p.block * even_dim * size
    weight = extents + p.block * size
    segments = cache_line(weight + even_dim * size)
    runs = segments + 3 * 8 * (SEGMENTS_LIMIT + 1)
    return Scratch(
        matrix_at(scores, p.block, width, example),
        array_at(gauss, window, example),
        matrix_at(exponentials, p.block, even_dim, example),
        array_at(extents, p.block, example),
        array_at(weight, even_dim, example),
        matrix_at(segments, SEGMENTS_LIMIT + 1, 3, np.int64(0)),
        matrix_at(runs, p.runs, 3, np.int64(0)),
        cache_line(runs + 3 * 8 * p.runs),
    )


@inlined
def block_of(p: Any, b: int, h: int, index: int, segments: Any) -> QueryBlock:
    """Returns a block of a head; its segments are written to ``segments``."""
    row = index * p.block
    rows = min(p.block, p.queries - row)
    count, columns = write_segments(p, b, h, row, rows, segments)
    flat_row = (b * p.heads + h) * p.queries + row
    return QueryBlock(b, h, h // (p.heads // p.kv_heads), row, rows, flat_row, segments, count, columns)


@inlined
def blocks_of_chunk(p: Any, chunk: int) -> Any:
    """Returns the indices of the blocks in a chunk of a head's rows."""
    blocks = ceil_div(p.queries, p.block)
    chunk_blocks = ceil_div(blocks, p.chunks)
    return range(chunk * chunk_blocks, min((chunk + 1) * chunk_blocks, blocks))


@inlined
def query_matrix(p: Any, block: QueryBlock, example: Any) -> Matrix:
    """Returns the queries of a block."""
    offset = block.batch * p.query_batch + block.head * p.query_head + block.row * p.query_row
    return Matrix(p.query + offset * size_of(example), p.query_row, 1)


@inlined
def key_matrix(p: Any, block: QueryBlock, segment: KeyRange) -> Matrix:
    """Returns the keys of a segment, as they are stored."""
    offset = block.batch * p.key_batch + block.group * p.key_head + segment.first * p.key_row
    return Matrix(p.key + offset * p.stored_bytes, p.key_row, 1)


@inlined
def value_matrix(p: Any, block: QueryBlock, segment: KeyRange) -> Matrix:
    """Returns the values of a segment, as they are stored."""
    offset = block.batch * p.value_batch + block.group * p.value_head + segment.first * p.value_row
    return Matrix(p.value + offset * p.stored_bytes, p.value_row, 1)


@inlined
def column_matrix(scores: Any, segment: KeyRange) -> Matrix:
    """Returns a segment's columns of a block's scores, weights or gradients."""
    return Matrix(scores.ctypes.data + segment.column * scores.itemsize, scores.shape[1], 1)


@inlined
def transposed_matrix(
    address: int, p: Any, block: QueryBlock, segment: KeyRange, features: int, example: Any
) -> Matrix:
    """Returns a segment of transposed keys or values, ``[batch, kv_heads, features, padded keys]``, or address 0."""
    padded = padded_length(p.keys)
    offset = (block.batch * p.kv_heads + block.group) * features * padded + segment.first
    return Matrix(address + offset * size_of(example) if address != 0 else 0, padded, 1)


@inlined
def _score_product(p: Any, block: QueryBlock, routine: Routine, scratch: Scratch) -> None:
    """Computes a block's scaled inner products, before cap, bias and mask."""
    scores = scratch.scores
    example = scores[0, 0]
    query, scale = query_matrix(p, block, example), scores.dtype.type(p.scale)
    for s in range(block.segment_count):
        segment = range_at(block.segments, s)
        key = key_matrix(p, block, segment)
        transposed = transposed_matrix(p.key_transposed, p, block, segment, p.dim, example)
        size = Size(block.rows, segment.keys, p.dim)
        if is_single(example) and are_few_rows(routine, block.rows):
            scores_of_few_rows(routine, size, scale, query, key, column_matrix(scores, segment))
        else:
            product_with_keys(routine, size, scale, query, key, transposed, column_matrix(scores, segment))


@inlined
def additive_queries(p: Any, block: QueryBlock, scratch: Scratch) -> Queries:
    """Returns the queries of a block for an additive score, with the exponentials that were prepared last."""
    example = scratch.extents[0]
    raw = array_at(query_matrix(p, block, example).address, (block.rows - 1) * p.query_row + p.dim, example)
    return Queries(scratch.exponentials, scratch.extents[: block.rows], raw, p.query_row)


def _prepare_units(relu: bool) -> Any:
    """Returns the part that prepares queries for rectified units, or for tanh."""
    write = copy_row if relu else prepare_row

    @inlined
    def prepare(p: Any, block: QueryBlock, scratch: Scratch) -> Queries:
        """Prepares the queries of a block for an additive score."""
        queries = additive_queries(p, block, scratch)
        for r in range(block.rows):
            row = queries.raw[r * queries.stride : r * queries.stride + p.dim]
            queries.extents[r] = write(row, queries.exponentials[r])
        return queries

    return prepare


@inlined
def _skip_preparation(p: Any, block: QueryBlock, scratch: Scratch) -> None:
    """Does nothing: inner products need no preparation."""


PREPARATIONS = {
    "product": _skip_preparation, "tanh": _prepare_units(relu=False), "relu": _prepare_units(relu=True),
}  # fmt: skip
"""Parts that prepare a block's queries, by a score's units: ``(arguments, block, scratch)``."""


def _score_units(relu: bool) -> Any:
    """Returns the part that scores with rectified units, or with tanh."""
    prepare = PREPARATIONS["relu" if relu else "tanh"]

    @inlined
    def score(p: Any, block: QueryBlock, routine: Routine, scratch: Scratch) -> None:
        """Computes a block's sums of units, before cap, bias and mask. The queries stay prepared."""
        scores, weight = scratch.scores, scratch.weight
        example = scores[0, 0]
        keys, queries = keys_of(p, block.batch, block.group, example), prepare(p, block, scratch)
        total = type(example)(0)
        for d in range(weight.size):
            total += weight[d]
        for s in range(block.segment_count):
            segment = range_at(block.segments, s)
            stop = min(segment.first + padded_length(segment.keys), keys.padded)
            for index in tiles_between(segment.first, stop):
                tile = clip_tile(index, segment.first, stop, segment.column)
                for r in range(block.rows):
                    row_scores = scores[r, tile.column : tile.column + tile.keys]
                    if relu:
                        score_rectified(queries.exponentials[r], keys, tile.first, weight, row_scores)
                    elif queries.extents[r] <= exponent_limit(example) - keys.extents[index]:
                        score_tile(queries.exponentials[r], keys, tile.first, weight, total, row_scores)
                    else:
                        row = queries.raw[r * queries.stride : r * queries.stride + p.dim]
                        score_tile_directly(
                            row, keys, tile.first, weight, row_scores[: min(tile.keys, p.keys - tile.first)]
                        )

    return score


SCORES = {"product": _score_product, "tanh": _score_units(relu=False), "relu": _score_units(relu=True)}
"""Parts that score a block, by a score's units: ``(arguments, block, routine for products, scratch)``."""


@inlined
def read_weight(p: Any, h: int, weight: Any) -> None:
    """Writes a head's weight of an additive score, padded with a zero to an even length."""
    zero = weight.dtype.type(0)
    if weight.size > 0:
        weight[weight.size - 1] = zero
        copy(array_at(p.weight + h * p.weight_head * size_of(zero), p.dim, zero), weight[: p.dim])
