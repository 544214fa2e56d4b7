"""Transposition of matrices in memory, by squares that fit in vector registers."""

from typing import Any

from regard.kernels.cpu.bodies.intrinsics import array_at, size_of
from regard.kernels.cpu.bodies.parts import embedded
from regard.kernels.cpu.bodies.vectors import lanes_of, one_register, store_transposed
from regard.kernels.cpu.bodies.wide_product import Matrix


@embedded
def transpose(source: Matrix, rows: int, columns: int, target: Matrix, zero: Any) -> None:
    """Computes ``target [columns, rows] = sourceᵀ``; rows of both matrices are contiguous."""
    square, size = one_register(zero), size_of(zero)
    lanes = lanes_of(square)
    square_rows, square_columns = rows - rows % lanes, columns - columns % lanes
    for j in range(0, square_columns, lanes):
        for i in range(0, square_rows, lanes):
            a, b = source.address + (i * source.row + j) * size, target.address + (j * target.row + i) * size
            store_transposed(a, source.row * size, b, target.row * size, square)
    elements = array_at(source.address, (rows - 1) * source.row + columns, zero)
    transposed = array_at(target.address, (columns - 1) * target.row + rows, zero)
    for j in range(columns):
        for i in range(square_rows if j < square_columns else 0, rows):
            transposed[j * target.row + i] = elements[i * source.row + j]
