"""What is made of keys and values once, before any query comes: exponentials, and transposes."""

from collections.abc import Callable

from regard.kernels.cpu.bodies.arguments import ZEROS, arguments_at
from regard.kernels.cpu.bodies.intrinsics import allocate, array_at, cache_line, fetch_add, release, size_of
from regard.kernels.cpu.bodies.relu_sum import copy_keys
from regard.kernels.cpu.bodies.tanh_sum import keys_of, prepare_keys
from regard.kernels.cpu.sizes import TILE, ceil_div, padded_length

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.


def prepare_additive_keys(dtype: str) -> Callable[[int], None]:
    """The body that takes exponentials of an additive score's keys, or copies those of rectified units.

    A task is a tile of keys.
    """
    zero = ZEROS[dtype]

    def body(address: int) -> None:
        p = arguments_at(address)
        memory = allocate(p, p.dim * size_of(zero))
        if memory == 0:
            return
        scratch = array_at(cache_line(memory), p.dim, zero)
        tiles = ceil_div(p.keys, TILE)
        while True:
            task = fetch_add(address)
            if task >= p.tasks:
                break
            head, tile = task // tiles, task % tiles
            keys = keys_of(p, head // p.kv_heads, head % p.kv_heads, zero)
            first = tile * TILE
            count = min(TILE, p.keys - first)
            if p.relu != 0:
                keys.extents[tile] = copy_keys(keys, first, count, p.dim)
            else:
                keys.extents[tile] = prepare_keys(keys, first, count, scratch)
            if tile == tiles - 1:
                for d in range(keys.powers.size // keys.padded):
                    keys.powers[d * keys.padded + p.keys : (d + 1) * keys.padded] = zero
        release(p, memory)

    return body


def transpose_keys(dtype: str) -> Callable[[int], None]:
    """The body that transposes keys, a tile of them for each task, into ``key_transposed``."""
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
            at = b * p.key_batch + group * p.key_head + first * p.key_row
            key = array_at(p.key + at * size, (count - 1) * p.key_row + p.dim, zero)
            output = array_at(p.key_transposed + head * p.dim * padded * size, p.dim * padded, zero)
            for d in range(p.dim):
                row = output[d * padded + first : d * padded + stop]
                for j in range(count):
                    row[j] = key[j * p.key_row + d]
                for j in range(count, row.size):
                    row[j] = zero

    return body
