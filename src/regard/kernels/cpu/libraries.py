"""C functions of the libraries that ship with PyTorch: matrix products of its BLAS, threads of its OpenMP."""

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

_THREAD_LIMITS = ("MKL_Set_Num_Threads_Local", "openblas_set_num_threads_local")


@cache
def gemm_address(dtype: torch.dtype) -> int:
    """Returns the address of BLAS's ``gemm`` for this dtype; 0 if PyTorch's library does not export it."""
    return _address("sgemm_" if dtype == torch.float32 else "dgemm_") if limit_address() else 0


@cache
def limit_address() -> int:
    """Returns the address of the function that limits the threads of BLAS calls of this thread; 0 if there is none."""
    return next((address for address in map(_address, _THREAD_LIMITS) if address), 0)


def _address(name: str) -> int:
    function = symbol(name)
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def openmp() -> Callable[[int, int, int, int], None] | None:
    """Returns ``GOMP_parallel(function, data, threads, flags)`` of PyTorch's own OpenMP library; None if it has none.

    Compilers translate ``#pragma omp parallel`` to calls of this function: GCC's library defines it, LLVM's and
    Intel's provide it for compatibility.
    """
    parallel = symbol("GOMP_parallel") if torch.backends.openmp.is_available() else None
    if parallel is None:
        return None
    parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None
    return parallel


@cache
def symbol(name: str):  # type: ignore[no-untyped-def]
    """Returns a C function of PyTorch's CPU library or of a library linked with it; None if there is none."""
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
