"""The BLAS that PyTorch brought along: where its functions are that kernels call."""

import ctypes
from functools import cache

import torch

from regard.kernels.cpu.threads import symbol

MKL_LIMIT = "MKL_Set_Num_Threads_Local"
"""A function that Intel's BLAS has."""

_LIMITS = (MKL_LIMIT, "openblas_set_num_threads_local")


@cache
def gemm_address(dtype: torch.dtype) -> int:
    """Of BLAS's product for these numbers; 0 if PyTorch's library shows none."""
    return _address("sgemm_" if dtype == torch.float32 else "dgemm_") if limit_address() else 0


@cache
def limit_address() -> int:
    """Of the function that sets for the calling thread alone how many threads a product may use; 0 without one."""
    return next((address for address in map(_address, _LIMITS) if address), 0)


def _address(name: str) -> int:
    function = symbol(name)
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0
