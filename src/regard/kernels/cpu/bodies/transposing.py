"""Transposes of matrices in memory, a square at a time that vector registers hold."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any

from regard.kernels.cpu.bodies.intrinsics import array_at, size_of
from regard.kernels.cpu.bodies.parts import embedded
from regard.kernels.cpu.bodies.vectors import lanes_of, one_register, store_transposed
from regard.kernels.cpu.bodies.wide_product import Matrix


@embedded
def transpose(source: Matrix, rows: int, columns: int, target: Matrix, zero: Any) -> None:
    """``target [columns, rows] = sourceᵀ``; numbers of a row lie side by side in both."""
    square, size = one_register(zero), size_of(zero)
    lanes = lanes_of(square)
    whole_rows, whole_columns = rows - rows % lanes, columns - columns % lanes
    for j in range(0, whole_columns, lanes):
        for i in range(0, whole_rows, lanes):
            a, b = source.address + (i * source.row + j) * size, target.address + (j * target.row + i) * size
            store_transposed(a, source.row * size, b, target.row * size, square)
    given = array_at(source.address, (rows - 1) * source.row + columns, zero)
    out = array_at(target.address, (columns - 1) * target.row + rows, zero)
    for j in range(columns):
        for i in range(whole_rows if j < whole_columns else 0, rows):
            out[j * target.row + i] = given[i * source.row + j]
