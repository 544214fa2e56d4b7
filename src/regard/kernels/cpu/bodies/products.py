"""Matrix products inside a kernel: the BLAS that PyTorch brought along, one thread of it in each of ours."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any, NamedTuple

from regard.kernels.cpu.bodies.arguments import ZERO
from regard.kernels.cpu.bodies.intrinsics import array_at, call_gemm, call_with_number
from regard.kernels.cpu.bodies.parts import chosen_for, inlined
from regard.kernels.cpu.bodies.wide_product import Matrix, Size, plain_product, wide_product
from regard.kernels.cpu.sizes import padded_length


@inlined
def limit_threads(function: int, threads: int) -> int:
    """Let products of this thread use so many threads; how many it was before (0: as many as there are)."""
    return call_with_number(function, threads) if function != 0 else 0


@inlined
def product_with_transposed(gemm: int, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix) -> None:
    """``c = factor · a bᵀ`` for row-major ``a [rows, depth]`` and ``b [columns, depth]``."""
    if gemm != 0:
        flipped = (size.columns, size.rows, size.depth)
        call_gemm(
            gemm, (1, 0), flipped, factor, (b.address, b.row), (a.address, a.row), (c.address, c.row), type(factor)(0)
        )
        return
    left = array_at(a.address, size.rows * a.row, factor)
    right = array_at(b.address, size.columns * b.row, factor)
    result = array_at(c.address, size.rows * c.row, factor)
    for i in range(size.rows):
        x = left[i * a.row : i * a.row + size.depth]
        for j in range(size.columns):
            y = right[j * b.row : j * b.row + size.depth]
            total = type(factor)(0)
            for d in range(size.depth):
                total += x[d] * y[d]
            result[i * c.row + j] = factor * total


class Blas(NamedTuple):
    """Products by BLAS's gemm at an address; 0: by plain loops."""

    gemm: int


class Microkernel(NamedTuple):
    """Products by the microkernel; by BLAS's gemm where it needs a matrix transposed that is not."""

    gemm: int


ROUTINES = {"blas": Blas, "microkernel": Microkernel}
"""By the words that kernels are compiled for."""


def product(routine: Any, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, keep: int) -> None:
    """``c = factor · a b + keep · c`` for row-major matrices; ``keep`` is 0 or 1.

    A kernel is compiled for one ``routine``: the type of the first argument chooses.
    """
    raise NotImplementedError("only in kernels")


@inlined
def _product_by_blas(routine: Blas, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, keep: int) -> None:
    if routine.gemm != 0:
        flipped = (size.columns, size.rows, size.depth)
        kept = type(factor)(keep)
        call_gemm(
            routine.gemm, (0, 0), flipped, factor, (b.address, b.row), (a.address, a.row), (c.address, c.row), kept
        )
    else:
        plain_product(0, size, factor, a, b, c, keep)


@chosen_for(product)
def _(routine: Any, size: Any, factor: Any, a: Any, b: Any, c: Any, keep: Any) -> Any:
    if routine.instance_class is Microkernel:
        return lambda routine, size, factor, a, b, c, keep: wide_product(size, factor, a, b, c, keep)
    return lambda routine, size, factor, a, b, c, keep: _product_by_blas(routine, size, factor, a, b, c, keep)


def product_of_transposed(routine: Any, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, keep: int) -> None:
    """``c = factor · aᵀ b + keep · c`` for row-major ``a [depth, rows]`` and ``b [depth, columns]``."""
    raise NotImplementedError("only in kernels")


@inlined
def flipped_matrix(a: Matrix) -> Matrix:
    """The transpose."""
    return Matrix(a.address, a.column, a.row)


@inlined
def _product_of_transposed_by_blas(
    routine: Blas, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, keep: int
) -> None:
    if routine.gemm != 0:
        flipped = (size.columns, size.rows, size.depth)
        kept = type(factor)(keep)
        call_gemm(
            routine.gemm, (0, 1), flipped, factor, (b.address, b.row), (a.address, a.row), (c.address, c.row), kept
        )
    else:
        plain_product(0, size, factor, flipped_matrix(a), b, c, keep)


@chosen_for(product_of_transposed)
def _(routine: Any, size: Any, factor: Any, a: Any, b: Any, c: Any, keep: Any) -> Any:
    if routine.instance_class is Microkernel:
        return lambda routine, size, factor, a, b, c, keep: wide_product(size, factor, flipped_matrix(a), b, c, keep)
    return lambda routine, size, factor, a, b, c, keep: _product_of_transposed_by_blas(
        routine, size, factor, a, b, c, keep
    )


def product_with_keys(
    routine: Any, size: Size, factor: Any, a: Matrix, b: Matrix, transposed: Matrix, c: Matrix
) -> None:
    """``c = factor · a bᵀ`` as `product_with_transposed`, or from ``transposed``, which is bᵀ if its address is not 0.

    Rows of ``transposed`` and ``c`` go on to a multiple of LANES.
    """
    raise NotImplementedError("only in kernels")


@inlined
def _product_with_keys_by_microkernel(
    routine: Microkernel, size: Size, factor: Any, a: Matrix, b: Matrix, transposed: Matrix, c: Matrix
) -> None:
    if transposed.address != 0:
        wide_product(Size(size.rows, padded_length(size.columns), size.depth), factor, a, transposed, c, ZERO)
    else:
        product_with_transposed(routine.gemm, size, factor, a, b, c)


@chosen_for(product_with_keys)
def _(routine: Any, size: Any, factor: Any, a: Any, b: Any, transposed: Any, c: Any) -> Any:
    if routine.instance_class is Microkernel:
        return lambda routine, size, factor, a, b, transposed, c: _product_with_keys_by_microkernel(
            routine, size, factor, a, b, transposed, c
        )
    return lambda routine, size, factor, a, b, transposed, c: product_with_transposed(
        routine.gemm, size, factor, a, b, c
    )
