"""Matrix products inside a kernel: by the BLAS that ships with PyTorch, or by a kernel that only multiplies.

The latter is compiled separately, since it takes longer to compile than the kernels that call it.
"""

from typing import Any, NamedTuple

import numpy as np

from regard.kernels.cpu.bodies.arguments import product_at
from regard.kernels.cpu.bodies.intrinsics import call_gemm, call_int32, call_kernel, stack_memory
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.wide_product import Matrix, Size
from regard.kernels.cpu.kernel_arguments import (
    BLAS,
    FEW_MIXTURES,
    FEW_ROWS,
    FEW_SCORES,
    PAIRED,
    PLAIN_TRANSPOSED,
    PRODUCT_RECORD,
    WIDE,
)
from regard.kernels.cpu.sizes import padded_length

_PRODUCT_SIZE = PRODUCT_RECORD.itemsize


@inlined
def limit_threads(function: int, threads: int) -> Any:
    """Limits the threads of this thread's BLAS calls; returns the limit before (0: none)."""
    return np.int64(call_int32(function, np.int32(threads))) if function != 0 else 0


class Routine(NamedTuple):
    """How a launch computes products.

    Attributes:
        method: `BLAS`, `WIDE`, `PAIRED` or `PLAIN`.
        gemm: address of BLAS's ``gemm``, which runs on one thread; 0: there is none.
        multiply: address of the kernel of `multiply`, for all other methods; 0: it is not needed.
    """

    method: int
    gemm: int
    multiply: int


@inlined
def routine_of(p: Any) -> Routine:
    """Returns the routine of a launch."""
    return Routine(p.products, p.gemm, p.multiply)


@inlined
def _multiply(
    routine: Routine, method: int, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, beta: int
) -> None:
    """Computes a product by the kernel of `multiply`."""
    address = stack_memory(_PRODUCT_SIZE)
    p = product_at(address)
    p.method, p.beta, p.factor = method, beta, factor
    p.rows, p.columns, p.depth = size.rows, size.columns, size.depth
    p.a, p.a_row, p.a_column = a.address, a.row, a.column
    p.b, p.b_row = b.address, b.row
    p.c, p.c_row = c.address, c.row
    call_kernel(routine.multiply, address)


@inlined
def _by_blas(
    routine: Routine, transposes: tuple[int, int], size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, beta: int
) -> None:
    """Computes a product by BLAS, which is column-major: it computes ``cᵀ = bᵀ aᵀ``."""
    flipped, real_beta = (size.columns, size.rows, size.depth), type(factor)(beta)
    call_gemm(
        routine.gemm, transposes, flipped, factor, (b.address, b.row), (a.address, a.row), (c.address, c.row), real_beta
    )


@inlined
def product(routine: Routine, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, beta: int) -> None:
    """Computes ``c = factor · a b + beta · c`` for row-major matrices; ``beta`` is 0 or 1."""
    if routine.method == BLAS:
        _by_blas(routine, (0, 0), size, factor, a, b, c, beta)
    else:
        _multiply(routine, routine.method, size, factor, a, b, c, beta)


@inlined
def product_of_transposed(
    routine: Routine, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, beta: int
) -> None:
    """Computes ``c = factor · aᵀ b + beta · c`` for row-major ``a [depth, rows]`` and ``b [depth, columns]``."""
    if routine.method == BLAS:
        _by_blas(routine, (0, 1), size, factor, a, b, c, beta)
    else:
        _multiply(routine, routine.method, size, factor, Matrix(a.address, a.column, a.row), b, c, beta)


@inlined
def product_with_transposed(routine: Routine, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix) -> None:
    """Computes ``c = factor · a bᵀ`` for row-major ``a [rows, depth]`` and ``b [columns, depth]``."""
    if routine.gemm != 0:
        _by_blas(routine, (1, 0), size, factor, a, b, c, 0)
    else:
        _multiply(routine, PLAIN_TRANSPOSED, size, factor, a, b, c, 0)


@inlined
def product_with_keys(
    routine: Routine, size: Size, factor: Any, a: Matrix, b: Matrix, transposed: Matrix, c: Matrix
) -> None:
    """Computes ``c = factor · a bᵀ``; the microkernel computes it if ``transposed``, which holds bᵀ, has an address.

    Rows of ``transposed`` and ``c`` are padded to a multiple of LANES.
    """
    if (routine.method == WIDE or routine.method == PAIRED) and transposed.address != 0:
        padded = Size(size.rows, padded_length(size.columns), size.depth)
        _multiply(routine, routine.method, padded, factor, a, transposed, c, 0)
    else:
        product_with_transposed(routine, size, factor, a, b, c)


@inlined
def are_few_rows(routine: Routine, rows: int) -> bool:
    """Whether the products of few rows in float32 compute the scores and the mixtures of a block of so many rows."""
    return routine.multiply != 0 and routine.method != PAIRED and rows <= FEW_ROWS


@inlined
def scores_of_few_rows(routine: Routine, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix) -> None:
    """Computes ``c = factor · a bᵀ`` in float32, for a few rows of ``a``."""
    _multiply(routine, FEW_SCORES, size, factor, a, b, c, 0)


@inlined
def mixtures_of_few_rows(routine: Routine, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, beta: int) -> None:
    """Computes ``c = factor · a b + beta · c`` in float32, for a few rows of ``a``; columns are a multiple of LANES."""
    _multiply(routine, FEW_MIXTURES, size, factor, a, b, c, beta)
