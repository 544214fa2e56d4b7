"""The product of two large matrices, a block of the result for each task.

Factors whose terms lie far apart in memory are packed, some terms at a time: ``b`` into panels as wide as the largest
tile, ``a`` into rows of one term each (Goto & van de Geijn 2008, §4).
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from collections.abc import Callable
from typing import Any

from regard.kernels.cpu.bodies.arguments import ZEROS, matrices_at
from regard.kernels.cpu.bodies.intrinsics import array_at, copy, fetch_add, size_of, stack_memory
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.products import Routine, product
from regard.kernels.cpu.bodies.transposing import transpose
from regard.kernels.cpu.bodies.wide_product import DEPTH, Matrix, Size, columns_from, rows_from
from regard.kernels.cpu.record import WIDE
from regard.kernels.cpu.sizes import LANES, PACKED_ROWS, PRODUCT_COLUMNS

PANEL = 4 * LANES
"""Columns of the largest tile."""

_LEFT_BYTES, _RIGHT_BYTES = DEPTH * PACKED_ROWS * 4, DEPTH * PANEL * 4
"""Bytes of the terms of ``a`` and of ``b`` that are packed at a time, float32."""


@inlined
def _copy(source: Matrix, rows: int, columns: int, target: Matrix, example: Any) -> None:
    """``target = source``; numbers of a row lie side by side in both."""
    size = size_of(example)
    for i in range(rows):
        given = array_at(source.address + i * source.row * size, columns, example)
        copy(given, array_at(target.address + i * target.row * size, columns, example))


@inlined
def _pack(source: Matrix, rows: int, columns: int, target: Matrix, example: Any) -> None:
    """``target = source``; numbers of a row, or those of a column, lie side by side in ``source``."""
    if source.column == 1:
        _copy(source, rows, columns, target, example)
    else:
        transpose(Matrix(source.address, source.column, 1), columns, rows, target, example)


@inlined
def _some_terms(
    p: Any, size: Size, a: Matrix, b: Matrix, c: Matrix, packed: tuple[int, int], keep: int, one: Any
) -> None:
    """``c = a b + keep · c``, for as many terms as are packed at a time.

    Args:
        p: the launch.
        size: of the product.
        a, b, c: the matrices.
        packed: addresses of memory for what is packed of ``a`` and ``b``.
        keep: 0 or 1.
        one: the number 1.
    """
    routine = Routine(WIDE, 0, p.multiply)
    if p.packs_a != 0:
        left = Matrix(packed[0], PACKED_ROWS, 1)
        _copy(Matrix(a.address, a.column, 1), size.depth, size.rows, left, one)
        a = Matrix(left.address, 1, PACKED_ROWS)
    for j in range(0, size.columns, PANEL):
        of_panel, panel = Size(size.rows, min(PANEL, size.columns - j), size.depth), columns_from(b, j)
        if p.packs_b != 0:
            right = Matrix(packed[1], PANEL, 1)
            _pack(panel, size.depth, of_panel.columns, right, one)
            panel = right
        product(routine, of_panel, one, a, panel, columns_from(c, j), keep)


def matrix_product(dtype: str) -> Callable[[int], None]:
    """The body of `regard.kernels.cpu.matrix_product.matrix_product`; float32."""
    one = type(ZEROS[dtype])(1)

    def body(address: int) -> None:
        p = matrices_at(address)
        packed = stack_memory(_LEFT_BYTES), stack_memory(_RIGHT_BYTES)
        blocks_of_rows = (p.rows + p.block_rows - 1) // p.block_rows
        while True:
            task = fetch_add(address)
            if task >= p.blocks:
                break
            first, column = task % blocks_of_rows * p.block_rows, task // blocks_of_rows * PRODUCT_COLUMNS
            end, columns = min(first + p.block_rows, p.rows), min(PRODUCT_COLUMNS, p.columns - column)
            b = columns_from(Matrix(p.b, p.b_row, p.b_column), column)
            # The sums of packed rows stay in the second cache until they are done.
            step = PACKED_ROWS if p.packs_a != 0 else p.block_rows
            for row in range(first, end, step):
                rows = min(step, end - row)
                a = rows_from(Matrix(p.a, p.a_row, p.a_column), row)
                c = columns_from(rows_from(Matrix(p.c, p.c_row, 1), row), column)
                if p.bias != 0:
                    _copy(Matrix(p.bias + column * size_of(one), 0, 1), rows, columns, c, one)
                keep = 1 if p.bias != 0 else p.keep
                for k in range(0, max(p.depth, 1), DEPTH):
                    size = Size(rows, columns, min(DEPTH, p.depth - k))
                    _some_terms(p, size, columns_from(a, k), rows_from(b, k), c, packed, keep, one)
                    keep = 1

    return body
