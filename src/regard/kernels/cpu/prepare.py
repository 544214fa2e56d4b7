"""What is made of keys and values once, before any query comes: exponentials, and transposes."""

from functools import cache

import numpy as np
import torch

from regard.kernels.cpu.compiled import Kernel
from regard.kernels.cpu.intrinsics import array_at, fetch_add, size_of
from regard.kernels.cpu.kernel_arguments import arguments_at, named_kernel
from regard.kernels.cpu.relu_sum import copy_keys
from regard.kernels.cpu.sizes import TILE, ceil_div, padded_length
from regard.kernels.cpu.tanh_sum import keys_of, prepare_keys

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.


@cache
def exponentials(dtype: torch.dtype) -> Kernel:
    """The kernel that takes exponentials of an additive score's keys, or copies those of rectified units.

    A task is a tile of keys.
    """
    zero = np.float32(0) if dtype == torch.float32 else np.float64(0)

    def prepare_additive_keys(address: int) -> None:
        p = arguments_at(address)
        scratch = np.empty(p.dim, type(zero))
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

    return named_kernel(prepare_additive_keys, dtype)


@cache
def transposed(dtype: torch.dtype) -> Kernel:
    """The kernel that transposes keys, a tile of them for each task, into ``output [batch, kv_heads, dim, padded]``."""
    zero = np.float32(0) if dtype == torch.float32 else np.float64(0)

    def transpose_keys(address: int) -> None:
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
            output = array_at(p.output + head * p.dim * padded * size, p.dim * padded, zero)
            for d in range(p.dim):
                row = output[d * padded + first : d * padded + stop]
                for j in range(count):
                    row[j] = key[j * p.key_row + d]
                for j in range(count, row.size):
                    row[j] = zero

    return named_kernel(transpose_keys, dtype)
