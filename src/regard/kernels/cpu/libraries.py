"""C functions of the libraries that PyTorch brought along: products of its BLAS, and the threads of its OpenMP."""

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

MKL_LIMIT = "MKL_Set_Num_Threads_Local"
"""A function that Intel's BLAS has."""

_LIMITS = (MKL_LIMIT, "openblas_set_num_threads_local")


@cache
def gemm_address(dtype: torch.dtype) -> int:
    """The address of BLAS's product in this dtype; 0 if PyTorch's library shows none."""
    return _address("sgemm_" if dtype == torch.float32 else "dgemm_") if limit_address() else 0


@cache
def limit_address() -> int:
    """The address of the function that limits the threads of the calling thread's products; 0 without one."""
    return next((address for address in map(_address, _LIMITS) if address), 0)


def _address(name: str) -> int:
    function = symbol(name)
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def openmp() -> Callable[[int, int, int, int], None] | None:
    """``GOMP_parallel(function, data, threads, flags)`` of the library that PyTorch itself runs on; None without one.

    It is the entry that compilers generate calls to for ``#pragma omp parallel``: GCC's library defines it, LLVM's and
    Intel's offer it for compatibility.
    """
    enter = symbol("GOMP_parallel") if torch.backends.openmp.is_available() else None
    if enter is None:
        return None
    enter.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    enter.restype = None
    return enter


@cache
def symbol(name: str):  # type: ignore[no-untyped-def]
    """A C function of PyTorch's CPU library or of those it is linked with; None if there is none."""
    library = _library()
    return None if library is None else getattr(library, name, None)


@cache
def _library() -> ctypes.CDLL | None:
    folder = Path(torch.__file__).parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib", "torch_cpu.dll"):
        if (folder / name).exists():
            try:
                return ctypes.CDLL(str(folder / name))
            except OSError:
                return None
    return None
