"""Mixtures of values in which most weights are 0: sums over the others alone, with the bits of the whole product.

A fused multiply-add of 0 and a finite number leaves a sum as it is. The microkernel adds the terms of a sum in the
order of keys, `DEPTH` of them before the sum in memory is read again. Sums over the same keys, in the same order and in
the same parts, but without those whose weight is 0, therefore have the same bits: how a block is mixed, which depends
on all of its rows, cannot be told from a row's output. See docs/derivations/sparse.md.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.compressing import count_nonzero, store_nonzero
from regard.kernels.cpu.bodies.intrinsics import array_at, size_of, stack_memory
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.vectors import (
    broadcast,
    four_registers,
    lanes_of,
    load,
    one_register,
    store,
    sum_of,
)
from regard.kernels.cpu.bodies.wide_product import DEPTH, Matrix, Size, columns_from
from regard.kernels.cpu.sizes import LANES

SPARSE = ("entmax15", "sparsemax", "entmax", "hard")
"""Normalizers that give most keys a weight of 0."""

ONE_OF = 4
"""One weight of so many may differ from 0: a weight here takes twice as long as one of the whole product."""

PLACES = 4 * (DEPTH + LANES)
"""Bytes of the keys of a part of a sum, with room for a vector behind them."""


@inlined
def are_finite(size: Size, values: Matrix, zero: Any) -> bool:
    """Whether a matrix holds finite numbers alone; no, where their sum overflows. Its columns fill vectors."""
    zeros, number_size = one_register(zero), size_of(zero)
    total = zeros
    for i in range(size.rows):
        row = values.address + i * values.row * number_size
        for j in range(0, size.columns, lanes_of(zeros)):
            total = total + load(row + j * number_size, zeros)
    # 0, or NaN.
    return sum_of(total * zeros) == zero


@inlined
def are_few(size: Size, weights: Matrix, zero: Any) -> bool:
    """Whether so few weights of a block differ from 0 that mixing these alone is faster."""
    zeros, number_size = one_register(zero), size_of(zero)
    allowed = size.rows * size.depth // ONE_OF
    for i in range(size.rows):
        row = weights.address + i * weights.row * number_size
        for j in range(0, size.depth, lanes_of(zeros)):
            allowed -= count_nonzero(load(row + j * number_size, zeros), size.depth - j)
        if allowed < 0:
            return False
    return True


@inlined
def mix_sparsely(size: Size, weights: Matrix, values: Matrix, output: Matrix, beta: int) -> None:
    """``output = weights values + beta · output`` in float32, for finite values whose columns fill vectors."""
    many, one, number_size = four_registers(np.float32(0)), one_register(np.float32(0)), size_of(np.float32(0))
    for i in range(size.rows):
        row = Matrix(weights.address + i * weights.row * number_size, weights.row, 1)
        result = Matrix(output.address + i * output.row * number_size, output.row, 1)
        j = 0
        while j + lanes_of(many) <= size.columns:
            _mix_columns(size.depth, row, columns_from(values, j), columns_from(result, j), beta, many)
            j += lanes_of(many)
        while j < size.columns:
            _mix_columns(size.depth, row, columns_from(values, j), columns_from(result, j), beta, one)
            j += lanes_of(one)


@inlined
def _mix_columns(depth: int, weights: Matrix, values: Matrix, output: Matrix, beta: int, zeros: Any) -> None:
    """One row's mixture of as many columns as a vector has lanes."""
    number = np.float32(0)
    one, size = one_register(number), size_of(number)
    memory = stack_memory(PLACES)
    indices, row = array_at(memory, DEPTH + LANES, np.int32(0)), array_at(weights.address, depth, number)
    step = values.row * size
    result = load(output.address, zeros) if beta != 0 else zeros
    for k in range(0, depth, DEPTH):
        stop, end = min(k + DEPTH, depth), memory
        for j in range(k, stop, lanes_of(one)):
            end += 4 * store_nonzero(load(weights.address + j * size, one), j, depth - j, end)
        total = zeros
        for n in range((end - memory) // 4):
            key = np.int64(indices[n])
            total = total + broadcast(row[key], zeros) * load(values.address + key * step, zeros)
        result = result + total
    store(result, output.address)
