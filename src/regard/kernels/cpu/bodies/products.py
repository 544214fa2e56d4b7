"""Matrix products inside a kernel: by the BLAS that PyTorch brought along, or by a kernel that only multiplies.

A kernel calls that one, and is compiled without it: it would take longer to compile than the kernel itself.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any, NamedTuple

from regard.kernels.cpu.bodies.arguments import product_at
from regard.kernels.cpu.bodies.intrinsics import call_gemm, call_kernel, call_with_number, stack_memory
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.wide_product import Matrix, Size
from regard.kernels.cpu.kernel_arguments import BLAS, FEW_MIXTURES, FEW_SCORES, PLAIN_TRANSPOSED, PRODUCT, WIDE
from regard.kernels.cpu.sizes import padded_length

_PRODUCT_SIZE = PRODUCT.itemsize


@inlined
def limit_threads(function: int, threads: int) -> int:
    """Let products of this thread use so many threads; how many it was before (0: as many as there are)."""
    return call_with_number(function, threads) if function != 0 else 0


class Routine(NamedTuple):
    """What makes products.

    Attributes:
        way: `BLAS`, `WIDE` or `PLAIN`.
        gemm: BLAS's, at an address, of which each of our threads uses one thread; 0: there is none.
        multiply: the kernel of `multiply`, at an address, for all other ways; 0: it is not needed.
    """

    way: int
    gemm: int
    multiply: int


@inlined
def routine_of(p: Any) -> Routine:
    """That of a launch."""
    return Routine(p.products, p.gemm, p.multiply)


@inlined
def _multiply(routine: Routine, way: int, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, keep: int) -> None:
    """A product by the kernel of `multiply`."""
    place = stack_memory(_PRODUCT_SIZE)
    p = product_at(place)
    p.way, p.keep, p.factor = way, keep, factor
    p.rows, p.columns, p.depth = size.rows, size.columns, size.depth
    p.a, p.a_row, p.a_column = a.address, a.row, a.column
    p.b, p.b_row = b.address, b.row
    p.c, p.c_row = c.address, c.row
    call_kernel(routine.multiply, place)


@inlined
def _by_blas(
    routine: Routine, transposes: tuple[int, int], size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, keep: int
) -> None:
    """A product by BLAS, which counts by columns: it is given ``cᵀ = bᵀ aᵀ``."""
    flipped, kept = (size.columns, size.rows, size.depth), type(factor)(keep)
    call_gemm(
        routine.gemm, transposes, flipped, factor, (b.address, b.row), (a.address, a.row), (c.address, c.row), kept
    )


@inlined
def product(routine: Routine, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, keep: int) -> None:
    """``c = factor · a b + keep · c`` for row-major matrices; ``keep`` is 0 or 1."""
    if routine.way == BLAS:
        _by_blas(routine, (0, 0), size, factor, a, b, c, keep)
    else:
        _multiply(routine, routine.way, size, factor, a, b, c, keep)


@inlined
def product_of_transposed(
    routine: Routine, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, keep: int
) -> None:
    """``c = factor · aᵀ b + keep · c`` for row-major ``a [depth, rows]`` and ``b [depth, columns]``."""
    if routine.way == BLAS:
        _by_blas(routine, (0, 1), size, factor, a, b, c, keep)
    else:
        _multiply(routine, routine.way, size, factor, Matrix(a.address, a.column, a.row), b, c, keep)


@inlined
def product_with_transposed(routine: Routine, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix) -> None:
    """``c = factor · a bᵀ`` for row-major ``a [rows, depth]`` and ``b [columns, depth]``."""
    if routine.gemm != 0:
        _by_blas(routine, (1, 0), size, factor, a, b, c, 0)
    else:
        _multiply(routine, PLAIN_TRANSPOSED, size, factor, a, b, c, 0)


@inlined
def product_with_keys(
    routine: Routine, size: Size, factor: Any, a: Matrix, b: Matrix, transposed: Matrix, c: Matrix
) -> None:
    """`product_with_transposed`, or by the microkernel from ``transposed``, which is bᵀ if its address is not 0.

    Rows of ``transposed`` and ``c`` go on to a multiple of LANES.
    """
    if routine.way == WIDE and transposed.address != 0:
        padded = Size(size.rows, padded_length(size.columns), size.depth)
        _multiply(routine, WIDE, padded, factor, a, transposed, c, 0)
    else:
        product_with_transposed(routine, size, factor, a, b, c)


@inlined
def scores_of_few_rows(routine: Routine, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix) -> None:
    """``c = factor · a bᵀ`` in float32, for a few rows of ``a``."""
    _multiply(routine, FEW_SCORES, size, factor, a, b, c, 0)


@inlined
def mixtures_of_few_rows(routine: Routine, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, keep: int) -> None:
    """``c = factor · a b + keep · c`` in float32, for a few rows of ``a``; columns are a multiple of LANES."""
    _multiply(routine, FEW_MIXTURES, size, factor, a, b, c, keep)
