"""Mixtures of values in which most weights are 0: sums over the nonzero weights, bit-identical to the whole product.

A fused multiply-add of 0 and a finite number does not change a sum. The microkernel adds the terms of a sum in the
order of keys, in passes of `DEPTH` terms. Sums in the same order and the same passes, without the keys of weight 0,
therefore have the same bits, and a row's output does not depend on how its block is mixed. See
docs/en/understand/derivations/sparse.md.
"""

from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.compressing import count_nonzero, store_nonzero
from regard.kernels.cpu.bodies.intrinsics import array_at, size_of, stack_memory
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.vectors import broadcast, four_registers, lanes_of, load, one_register, store, sum_of
from regard.kernels.cpu.bodies.wide_product import DEPTH, Matrix, Size, columns_from
from regard.kernels.cpu.sizes import LANES

SPARSE_NORMALIZERS = ("entmax15", "sparsemax", "entmax", "hard")
"""Normalizers with which most weights are 0."""

WEIGHTS_PER_NONZERO = 4
"""At most one in so many weights may be nonzero: such a weight takes twice as long as one of the whole product."""

INDEX_BYTES = 4 * (DEPTH + LANES)
"""Bytes of the key indices of one pass, with room for one more vector."""


@inlined
def are_finite(size: Size, values: Matrix, zero: Any) -> bool:
    """Whether all elements of a matrix are finite; False if their sum overflows. Rows consist of whole vectors."""
    zeros, number_size = one_register(zero), size_of(zero)
    total = zeros
    for i in range(size.rows):
        row = values.address + i * values.row * number_size
        for j in range(0, size.columns, lanes_of(zeros)):
            total = total + load(row + j * number_size, zeros)
    # The product is 0, or NaN.
    return sum_of(total * zeros) == zero


@inlined
def are_few(size: Size, weights: Matrix, zero: Any) -> bool:
    """Whether a block has so few nonzero weights that skipping the others is faster."""
    zeros, number_size = one_register(zero), size_of(zero)
    allowed = size.rows * size.depth // WEIGHTS_PER_NONZERO
    for i in range(size.rows):
        row = weights.address + i * weights.row * number_size
        for j in range(0, size.depth, lanes_of(zeros)):
            allowed -= count_nonzero(load(row + j * number_size, zeros), size.depth - j)
        if allowed < 0:
            return False
    return True


@inlined
def mix_sparsely(size: Size, weights: Matrix, values: Matrix, output: Matrix, beta: int) -> None:
    """Computes ``output = weights values + beta · output`` in float32, for finite values with rows of whole vectors."""
    wide, narrow, number_size = four_registers(np.float32(0)), one_register(np.float32(0)), size_of(np.float32(0))
    for i in range(size.rows):
        row = Matrix(weights.address + i * weights.row * number_size, weights.row, 1)
        result = Matrix(output.address + i * output.row * number_size, output.row, 1)
        j = 0
        while j + lanes_of(wide) <= size.columns:
            _mix_columns(size.depth, row, columns_from(values, j), columns_from(result, j), beta, wide)
            j += lanes_of(wide)
        while j < size.columns:
            _mix_columns(size.depth, row, columns_from(values, j), columns_from(result, j), beta, narrow)
            j += lanes_of(narrow)


@inlined
def _mix_columns(depth: int, weights: Matrix, values: Matrix, output: Matrix, beta: int, zeros: Any) -> None:
    """Computes one row's mixture for as many columns as a vector has lanes."""
    number = np.float32(0)
    narrow, size = one_register(number), size_of(number)
    memory = stack_memory(INDEX_BYTES)
    indices, row = array_at(memory, DEPTH + LANES, np.int32(0)), array_at(weights.address, depth, number)
    step = values.row * size
    result = load(output.address, zeros) if beta != 0 else zeros
    for k in range(0, depth, DEPTH):
        stop, end = min(k + DEPTH, depth), memory
        for j in range(k, stop, lanes_of(narrow)):
            end += 4 * store_nonzero(load(weights.address + j * size, narrow), j, depth - j, end)
        total = zeros
        for n in range((end - memory) // 4):
            key = np.int64(indices[n])
            total = total + broadcast(row[key], zeros) * load(values.address + key * step, zeros)
        result = result + total
    store(result, output.address)
