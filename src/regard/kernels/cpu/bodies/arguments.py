"""A kernel's record as its body reads it, and the words that it is compiled for as types and numbers."""

from typing import Any

import numpy as np
from numba import from_dtype, types
from numba.extending import intrinsic

from regard.kernels.cpu.kernel_arguments import LAYOUT, PACKED, PRODUCT

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

ZEROS = {"float32": np.float32(0), "float64": np.float64(0)}
"""A number of each dtype, which tells parts their type."""

ZERO: Any = np.int64(0)
"""An integer as others are: for a literal one, Numba would compile a part once more."""


def _reader(layout: np.dtype) -> Any:
    record = from_dtype(layout)

    @intrinsic
    def record_at(typing: Any, address: Any) -> Any:
        """The record at an address."""
        return record(types.int64), _generate_pointer

    return record_at


def _generate_pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))


arguments_at, product_at, packed_at = (_reader(layout) for layout in (LAYOUT, PRODUCT, PACKED))
"""The records at an address."""
