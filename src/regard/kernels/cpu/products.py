"""Matrix products inside a kernel: the BLAS that PyTorch brought along, one thread of it in each of ours."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

import ctypes
from functools import cache

import torch

from regard.kernels.cpu.compiled import inlined
from regard.kernels.cpu.intrinsics import array_at, call_gemm, call_with_number
from regard.kernels.cpu.threads import symbol
from regard.kernels.cpu.wide_product import plain_product, wide_product

_LIMITS = ("MKL_Set_Num_Threads_Local", "openblas_set_num_threads_local")


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


@inlined
def limit_threads(function, threads):
    """Let products of this thread use so many threads; how many it was before (0: as many as there are)."""
    return call_with_number(function, threads) if function != 0 else 0


@inlined
def product_with_transposed(gemm, rows, columns, depth, factor, a, a_row, b, b_row, c, c_row):
    """``c = factor · a bᵀ`` for row-major ``a [rows, depth]``, ``b [columns, depth]`` at addresses with row strides."""
    if gemm != 0:
        call_gemm(gemm, 1, 0, columns, rows, depth, factor, b, b_row, a, a_row, type(factor)(0), c, c_row)
        return
    left = array_at(a, rows * a_row, factor)
    right = array_at(b, columns * b_row, factor)
    result = array_at(c, rows * c_row, factor)
    for i in range(rows):
        x = left[i * a_row : i * a_row + depth]
        for j in range(columns):
            y = right[j * b_row : j * b_row + depth]
            total = type(factor)(0)
            for d in range(depth):
                total += x[d] * y[d]
            result[i * c_row + j] = factor * total


@inlined
def product(gemm, wide, rows, columns, depth, factor, a, a_row, b, b_row, keep, c, c_row):
    """``c = factor · a b + keep · c`` for row-major ``a [rows, depth]`` and ``b [depth, columns]``; keep is 0 or 1."""
    if wide != 0:
        wide_product(rows, columns, depth, factor, a, a_row, 1, b, b_row, keep, c, c_row)
    elif gemm != 0:
        call_gemm(gemm, 0, 0, columns, rows, depth, factor, b, b_row, a, a_row, type(factor)(keep), c, c_row)
    else:
        plain_product(0, rows, columns, depth, factor, a, a_row, 1, b, b_row, keep, c, c_row)


@inlined
def product_of_transposed(gemm, wide, rows, columns, depth, factor, a, a_row, b, b_row, keep, c, c_row):
    """``c = factor · aᵀ b + keep · c`` for row-major ``a [depth, rows]`` and ``b [depth, columns]``."""
    if wide != 0:
        wide_product(rows, columns, depth, factor, a, 1, a_row, b, b_row, keep, c, c_row)
    elif gemm != 0:
        call_gemm(gemm, 0, 1, columns, rows, depth, factor, b, b_row, a, a_row, type(factor)(keep), c, c_row)
    else:
        plain_product(0, rows, columns, depth, factor, a, 1, a_row, b, b_row, keep, c, c_row)
