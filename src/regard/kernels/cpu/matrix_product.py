"""The product of two large float32 matrices by the microkernel, on all threads.

The terms of each sum are added in one order, whatever the number of rows and of threads: a row's result depends on no
other row.
"""

from torch import Tensor

from regard.kernels.cpu import kernels
from regard.kernels.cpu.launch import transposed
from regard.kernels.cpu.own_record import OwnRecord
from regard.kernels.cpu.record import MATRICES
from regard.kernels.cpu.sizes import ceil_div

_RECORD = OwnRecord(MATRICES)

COLUMNS = 128
"""Columns of a task's block of the result."""

TILE_ROWS = 6
"""A task has a multiple of so many rows, those of the largest tile."""

TASKS = 16
"""Tasks that a product is cut into, about; threads end at nearly the same time."""

WORK = 2.0
"""Elementary operations of a product's term, roughly."""


def matrix_product(a: Tensor, b: Tensor, c: Tensor, *, keep: bool = False) -> Tensor:
    """``c = a b``, or ``c += a b``.

    Args:
        a: ``[rows, depth]``, with any strides.
        b: ``[depth, columns]``; the numbers of a row lie side by side.
        c: ``[rows, columns]``, likewise; written in place, and returned.
        keep: whether the product is added to ``c``.
    """
    (rows, depth), columns = a.shape, b.shape[1]
    across = ceil_div(columns, COLUMNS)
    block = TILE_ROWS * ceil_div(ceil_div(rows, ceil_div(TASKS, across)), TILE_ROWS)
    blocks = across * ceil_div(rows, block)
    _RECORD.launch(
        kernels.matrix_product(a.dtype),
        blocks,
        WORK * rows * columns * depth,
        blocks=blocks,
        rows=rows,
        columns=columns,
        depth=depth,
        block_rows=block,
        block_columns=COLUMNS,
        keep=keep,
        multiply=kernels.multiply(a.dtype).address,
        a=a.data_ptr(),
        a_row=a.stride(0),
        a_column=a.stride(1),
        b=b.data_ptr(),
        b_row=b.stride(0),
        c=c.data_ptr(),
        c_row=c.stride(0),
    )
    return c


def transposed_matrix(matrix: Tensor) -> Tensor:
    """The transpose of a matrix whose rows' numbers lie side by side, so that those of its columns do."""
    return transposed(matrix[None, None])[0, 0, :, : len(matrix)]
