"""Matrix products of any size, from tiles of the microkernel and from plain loops."""

from collections.abc import Callable
from typing import Any, NamedTuple

from regard.kernels.cpu.bodies.intrinsics import array_at, is_single, size_of
from regard.kernels.cpu.bodies.microkernel import tile
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.vectors import register_bytes
from regard.kernels.cpu.sizes import LANES, REGISTER

DEPTH = 128
"""Terms of a sum that are added in one pass: so many rows of ``b``, 64 wide, fit in a first-level cache."""


class Size(NamedTuple):
    """The sizes of a product ``a b``: rows of ``a``, columns of ``b``, and terms of each sum."""

    rows: int
    columns: int
    depth: int


class Matrix(NamedTuple):
    """A matrix in memory: its address in bytes, and its row and column strides in elements."""

    address: int
    row: int
    column: int


@inlined
def plain_product(start: int, size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, beta: int) -> None:
    """Computes the product in loops, from column ``start`` on; rows of ``b`` and ``c`` are contiguous."""
    number_size = size_of(factor)
    extent = (size.rows - 1) * a.row + (size.depth - 1) * a.column + 1 if size.depth > 0 else 0
    left = array_at(a.address, extent, factor)
    for i in range(size.rows):
        result = array_at(c.address + i * c.row * number_size, size.columns, factor)[start:]
        for j in range(result.size):
            result[j] = result[j] if beta != 0 else type(factor)(0)
        for k in range(size.depth):
            number = factor * left[i * a.row + k * a.column]
            right = array_at(b.address + k * b.row * number_size, size.columns, factor)[start:]
            for j in range(result.size):
                result[j] += number * right[j]


@inlined
def plain_product_with_transposed(size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix) -> None:
    """Computes ``c = factor · a bᵀ`` in loops."""
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


def over_rows(tile_of: Callable[[int], Any], sizes: tuple[int, ...]) -> Any:
    """Returns a part ``(rows, a, b, c, depth, factor, option) -> None`` that multiplies any number of rows by tiles.

    Args:
        tile_of: returns for a number of rows the intrinsic ``(a, b, c, depth, factor, option)`` that multiplies them.
        sizes: rows of the tiles, in decreasing order to 1.
    """
    size, *smaller = sizes
    run_tile = tile_of(size)
    if not smaller:

        @inlined
        def single_rows(rows: int, a: Matrix, b: Matrix, c: Matrix, depth: int, factor: Any, option: int) -> None:
            for i in range(rows):
                run_tile(rows_from(a, i), b, rows_from(c, i), depth, factor, option)

        return single_rows
    run_rest = over_rows(tile_of, tuple(smaller))

    @inlined
    def tiles(rows: int, a: Matrix, b: Matrix, c: Matrix, depth: int, factor: Any, option: int) -> None:
        i = 0
        while i + size <= rows:
            run_tile(rows_from(a, i), b, rows_from(c, i), depth, factor, option)
            i += size
        run_rest(rows - i, rows_from(a, i), b, rows_from(c, i), depth, factor, option)

    return tiles


@inlined
def rows_from(matrix: Matrix, row: int) -> Matrix:
    """Returns the rows of a float32 matrix from ``row`` on."""
    return Matrix(matrix.address + row * matrix.row * 4, matrix.row, matrix.column)


@inlined
def columns_from(matrix: Matrix, column: int) -> Matrix:
    """Returns the columns of a float32 matrix from ``column`` on."""
    return Matrix(matrix.address + column * matrix.column * 4, matrix.row, matrix.column)


def _over_columns(widths: tuple[int, ...]) -> Any:
    """Returns the part ``(rows, columns, a, b, c, depth, factor, beta) -> None`` that multiplies columns of whole
    vectors by tiles.

    Args:
        widths: vectors of the tiles, in decreasing order to 1.
    """
    vectors, *smaller = widths
    columns_of_tile = vectors * LANES
    run_tiles = over_rows(lambda rows: tile(rows, vectors), (6, 4, 2, 1))
    if not smaller:

        @inlined
        def single(
            rows: int, columns: int, a: Matrix, b: Matrix, c: Matrix, depth: int, factor: Any, beta: int
        ) -> None:
            for j in range(0, columns, LANES):
                run_tiles(rows, a, columns_from(b, j), columns_from(c, j), depth, factor, beta)

        return single
    run_rest = _over_columns(tuple(smaller))

    @inlined
    def tiles(rows: int, columns: int, a: Matrix, b: Matrix, c: Matrix, depth: int, factor: Any, beta: int) -> None:
        j = 0
        while j + columns_of_tile <= columns:
            run_tiles(rows, a, columns_from(b, j), columns_from(c, j), depth, factor, beta)
            j += columns_of_tile
        run_rest(rows, columns - j, a, columns_from(b, j), columns_from(c, j), depth, factor, beta)

    return tiles


# The sums of a tile stay in registers: 24 of the 32 of AVX-512, 12 of the 16 of AVX2.
_run_columns = _over_columns((4, 2, 1) if register_bytes() == REGISTER else (1,))


@inlined
def _whole_vectors(size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, beta: int) -> None:
    """Computes the columns of a product that fill whole vectors."""
    vector_end = size.columns - size.columns % LANES
    for k in range(0, max(size.depth, 1), DEPTH):
        terms = min(DEPTH, size.depth - k)
        part_beta = beta if k == 0 else 1
        _run_columns(size.rows, vector_end, columns_from(a, k), rows_from(b, k), c, terms, factor, part_beta)


@inlined
def wide_product(size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, beta: int) -> None:
    """Computes ``c = factor · a b + beta · c`` in vectors of float32; rows of ``b`` and ``c`` are contiguous."""
    if not is_single(factor):
        return
    _whole_vectors(size, factor, a, b, c, beta)
    vector_end = size.columns - size.columns % LANES
    if vector_end < size.columns:
        plain_product(vector_end, size, factor, a, b, c, beta)
