"""The product of two large float32 matrices by the microkernel, on all threads.

The terms of each sum are added in one order, whatever the number of rows and of threads: a row's result depends on no
other row.
"""

import torch
from torch import Tensor

from regard.kernels.cpu import kernels
from regard.kernels.cpu.fields import address_of
from regard.kernels.cpu.own_record import OwnRecord
from regard.kernels.cpu.record import MATRICES
from regard.kernels.cpu.sizes import PRODUCT_COLUMNS, ceil_div

_RECORD = OwnRecord(MATRICES)

TILE_ROWS = 6
"""A task has a multiple of so many rows, those of the largest tile."""

TASKS = 4
"""Tasks of a thread, about: threads end at nearly the same time, and what is packed serves many rows."""

WORK = 2.0
"""Elementary operations of a product's term, roughly."""

FAR = 2048
"""Numbers from a term of a sum to the next from which on terms are packed: with 1,024 packing costs more than it gains.
"""

DEEP = 4096
"""Terms from which on a block's columns of ``b`` are packed: 2 MiB, more than a second cache holds."""

PACKING_ROWS = 48
"""Least rows of a task that packs ``b``: packing takes a tenth of the time of their products."""


def matrix_product(a: Tensor, b: Tensor, c: Tensor, bias: Tensor | None = None, *, keep: bool = False) -> Tensor:
    """``c = a b + bias``, or ``c += a b``.

    Args:
        a: ``[rows, depth]``, with any strides.
        b: ``[depth, columns]``; the numbers of a row, or those of a column, lie side by side.
        c: ``[rows, columns]``; the numbers of a row lie side by side. Written in place, and returned.
        bias: ``[columns]``, contiguous; None: 0.
        keep: whether the product is added to ``c``; without a bias.
    """
    (rows, depth), columns = a.shape, b.shape[1]
    across = ceil_div(columns, PRODUCT_COLUMNS)
    # Of a single column any stride may be given.
    b_column = b.stride(1) if columns > 1 else 1
    packs_b = b_column != 1 or b.stride(0) >= FAR or depth >= DEEP
    each = ceil_div(rows, ceil_div(TASKS * torch.get_num_threads(), across))
    block = TILE_ROWS * ceil_div(max(each, PACKING_ROWS if packs_b else 1), TILE_ROWS)
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
        keep=keep,
        bias=address_of(bias),
        multiply=kernels.multiply(a.dtype).address,
        packs_a=a.stride(0) == 1 and a.stride(1) >= FAR,
        packs_b=packs_b,
        a=address_of(a),
        a_row=a.stride(0),
        a_column=a.stride(1),
        b=address_of(b),
        b_row=b.stride(0),
        b_column=b_column,
        c=address_of(c),
        c_row=c.stride(0),
    )
    return c
