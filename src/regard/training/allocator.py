"""The C library's memory allocator, told to keep what a training step will ask for again."""

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST = 1 << 30


def keep_freed_memory() -> bool:
    """Let glibc keep freed blocks of up to 1 GiB for the next step in place of giving them back to the system.

    By default it maps large tensors afresh each time, and the system clears every page of them anew. The process
    holds on to the most memory that it has ever used. Commands call this; the library never does.

    Returns:
        whether it took effect: False where the C library is not glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST) and mallopt(_M_TRIM_THRESHOLD, _LARGEST))
