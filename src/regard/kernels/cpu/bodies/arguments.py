"""The records that bodies of kernels read, and the zeros that tell parts their types."""

from typing import Any

import numpy as np
from numba import from_dtype, types
from numba.extending import intrinsic

from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.wide_product import Matrix
from regard.kernels.cpu.column_arguments import COLUMN_RECORD
from regard.kernels.cpu.kernel_arguments import FUNCTION_RECORD, LAYOUT, PACKED_RECORD, PRODUCT_RECORD, STAGE_RECORD
from regard.kernels.cpu.linear_arguments import LINEAR_RECORD

ZEROS = {"float32": np.float32(0), "float64": np.float64(0)}
"""A zero of each dtype, which tells parts their type."""

ZERO: Any = np.int64(0)
"""An integer that is not a literal: for a literal one, Numba would compile a part again."""


def _record_reader(layout: np.dtype) -> Any:
    record = from_dtype(layout)

    @intrinsic
    def record_at(typing: Any, address: Any) -> Any:
        return record(types.int64), _generate_pointer

    return record_at


def _generate_pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))


arguments_at, product_at, packed_at, function_at, stage_at, linear_at, columns_at = map(
    _record_reader, (LAYOUT, PRODUCT_RECORD, PACKED_RECORD, FUNCTION_RECORD, STAGE_RECORD, LINEAR_RECORD, COLUMN_RECORD)
)
"""Intrinsics ``(address) -> record``: arguments of attention, products, packed rows, functions of a row, linear
attention and listed keys; stages."""


@inlined
def rows_at(tensor: Any, batch: int, head: int, row: int) -> Matrix:
    """Returns the rows of a head of a tensor from a row on."""
    offset = batch * tensor.batch + head * tensor.head + row * tensor.row
    return Matrix(tensor.address + offset * 4, tensor.row, 1)
