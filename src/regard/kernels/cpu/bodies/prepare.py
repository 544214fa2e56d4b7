"""Preparations of keys and values that all queries share: exponentials and transpositions."""

from collections.abc import Callable

from regard.kernels.cpu.bodies.arguments import ZEROS, arguments_at
from regard.kernels.cpu.bodies.intrinsics import (
    address_of,
    allocate,
    array_at,
    cache_line,
    fetch_add,
    matrix_at,
    release,
    size_of,
)
from regard.kernels.cpu.bodies.relu_sum import copy_row
from regard.kernels.cpu.bodies.tanh_sum import keys_of, prepare_row
from regard.kernels.cpu.bodies.transposing import transpose
from regard.kernels.cpu.bodies.wide_product import Matrix
from regard.kernels.cpu.sizes import LANES, TILE, ceil_div, even_length, padded_length


def prepare_additive_keys(dtype: str) -> Callable[[int], None]:
    """Returns the body that computes exponentials of an additive score's keys, or copies keys of rectified units.

    A task is a tile of keys.
    """
    zero = ZEROS[dtype]

    def body(address: int) -> None:
        p = arguments_at(address)
        even_dim, tiles = even_length(p.dim), ceil_div(p.keys, TILE)
        memory = allocate(p, LANES * even_dim * size_of(zero))
        if memory == 0:
            return
        rows = matrix_at(cache_line(memory), LANES, even_dim, zero)
        while True:
            task = fetch_add(address)
            if task >= p.tasks:
                break
            head, tile = task // tiles, task % tiles
            keys = keys_of(p, head // p.kv_heads, head % p.kv_heads, zero)
            extent, stop = zero, min((tile + 1) * TILE, p.keys)
            for first in range(tile * TILE, stop, LANES):
                count = min(LANES, stop - first)
                for r in range(count):
                    offset = (first + r) * keys.stride
                    row = keys.raw[offset : offset + p.dim]
                    row_extent = copy_row(row, rows[r]) if p.relu != 0 else prepare_row(row, rows[r])
                    extent = row_extent if row_extent > extent else extent
                target = address_of(keys.exponentials) + first * size_of(zero)
                transpose(Matrix(address_of(rows), even_dim, 1), count, even_dim, Matrix(target, keys.padded, 1), zero)
            keys.extents[tile] = extent
            if tile == tiles - 1:
                for d in range(even_dim):
                    keys.exponentials[d * keys.padded + p.keys : (d + 1) * keys.padded] = zero
        release(p, memory)

    return body


def transpose_keys(dtype: str) -> Callable[[int], None]:
    """Returns the body that transposes keys into ``key_transposed``; a task is a tile of keys."""
    zero = ZEROS[dtype]

    def body(address: int) -> None:
        p = arguments_at(address)
        size = size_of(zero)
        tiles, padded = ceil_div(p.keys, TILE), padded_length(p.keys)
        while True:
            task = fetch_add(address)
            if task >= p.tasks:
                break
            head, first = task // tiles, task % tiles * TILE
            b, group = head // p.kv_heads, head % p.kv_heads
            count, stop = min(TILE, p.keys - first), min(first + TILE, padded)
            offset = b * p.key_batch + group * p.key_head + first * p.key_row
            key, output = Matrix(p.key + offset * size, p.key_row, 1), p.key_transposed + head * p.dim * padded * size
            transpose(key, count, p.dim, Matrix(output + first * size, padded, 1), zero)
            rows = array_at(output, p.dim * padded, zero)
            for d in range(p.dim):
                rows[d * padded + first + count : d * padded + stop] = zero

    return body
