"""The resident memory of a training process, which stays close to the memory in use.

Two things make the resident memory of a training on a CPU grow although no tensor outlives its step:

1. oneDNN compiles a primitive for each new shape of a matrix product in bfloat16, and keeps 1,024 of them; PyTorch
   keeps as many of their descriptions. Batches of sentences have thousands of shapes, and the two take half a megabyte
   for each shape.
2. The allocator of glibc keeps freed memory that lies below a block in use. Batches have tensors of all sizes, and
   small blocks that stay in use lie between them, so several hundred freed megabytes stay resident.
"""

import ctypes
import os
import time
from functools import cache
from typing import Any

PRIMITIVES = 64
"""Capacity of the caches of primitives. A step of a translator uses about 30 shapes, most of them many times."""

RELEASE_SECONDS = 5.0
"""Time between two releases of freed memory; one release takes some milliseconds."""

LARGE_BLOCK = 1 << 20
"""Bytes from which on a block is mapped by itself."""

_M_MMAP_THRESHOLD = -3  # of malloc.h
_CAPACITIES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


def bound_primitive_caches() -> None:
    """Bounds the caches of oneDNN and PyTorch to `PRIMITIVES` compiled primitives each.

    They read these numbers from the environment at their first use and offer no function for them. This function
    therefore has no effect in a process that has already used oneDNN. It overrides no value that the user has set.
    """
    for name in _CAPACITIES:
        os.environ.setdefault(name, str(PRIMITIVES))


def return_large_blocks() -> None:
    """Makes glibc's allocator return blocks of `LARGE_BLOCK` bytes and more to the system as soon as they are freed.

    Otherwise it keeps freed blocks of up to 32 MiB between blocks in use, once the first was freed: for activations of
    16 MiB this is twice the memory in use. Each new block then costs the time to fill its pages with zeros. The setting
    lasts as long as the process; with another allocator this does nothing.
    """
    set_option = _function("mallopt")
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, LARGE_BLOCK)


def release_freed_memory() -> None:
    """Returns freed memory to the system; does nothing with an allocator other than glibc's."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


class MemoryRelease:
    """Releases freed memory periodically, with ``seconds`` between two releases."""

    def __init__(self, seconds: float = RELEASE_SECONDS):
        self._seconds = seconds
        self._released = time.monotonic()

    def step(self) -> None:
        """Releases freed memory if the last release was long enough ago."""
        now = time.monotonic()
        if now - self._released >= self._seconds:
            self._released = now
            release_freed_memory()


@cache
def _function(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # another C library; TypeError: Windows
        return None
