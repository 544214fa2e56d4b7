"""The product of two large matrices, a block of the result for each task."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from collections.abc import Callable

from regard.kernels.cpu.bodies.arguments import ZEROS, matrices_at
from regard.kernels.cpu.bodies.intrinsics import fetch_add
from regard.kernels.cpu.bodies.products import Routine, product
from regard.kernels.cpu.bodies.wide_product import Matrix, Size, columns_from, rows_from
from regard.kernels.cpu.record import WIDE


def matrix_product(dtype: str) -> Callable[[int], None]:
    """The body of `regard.kernels.cpu.matrix_product.matrix_product`; float32."""
    one = type(ZEROS[dtype])(1)

    def body(address: int) -> None:
        p = matrices_at(address)
        a, b, c = Matrix(p.a, p.a_row, p.a_column), Matrix(p.b, p.b_row, 1), Matrix(p.c, p.c_row, 1)
        blocks_of_rows = (p.rows + p.block_rows - 1) // p.block_rows
        while True:
            task = fetch_add(address)
            if task >= p.blocks:
                break
            row, column = task % blocks_of_rows * p.block_rows, task // blocks_of_rows * p.block_columns
            size = Size(min(p.block_rows, p.rows - row), min(p.block_columns, p.columns - column), p.depth)
            product(
                Routine(WIDE, 0, p.multiply), size, one,
                rows_from(a, row), columns_from(b, column), columns_from(rows_from(c, row), column), p.keep,
            )  # fmt: skip

    return body
