"""Maxima in vector registers: compilers do not reorder comparisons of values that may be NaN."""

from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.intrinsics import address_of, size_of
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.vectors import broadcast, four_registers, lane_max, lanes_of, load, max_of, two_registers


@inlined
def row_maximum(row: Any) -> Any:
    """Returns the row's maximum; −inf if it is empty. NaN is ignored."""
    maximum, zeros = row.dtype.type(-np.inf), four_registers(row.dtype.type(0))
    vector_end, size = row.size - row.size % lanes_of(zeros), size_of(maximum)
    if vector_end > 0:
        maxima = broadcast(maximum, zeros)
        for j in range(0, vector_end, lanes_of(zeros)):
            maxima = lane_max(load(address_of(row) + j * size, zeros), maxima)
        maximum = max_of(maxima)
    for j in range(vector_end, row.size):
        maximum = row[j] if row[j] > maximum else maximum
    return maximum


@inlined
def row_max_abs(row: Any) -> Any:
    """Returns the maximum of |x| over a row; 0 if it is empty. NaN is ignored."""
    maximum, zeros = row.dtype.type(0), two_registers(row.dtype.type(0))
    vector_end, size = row.size - row.size % lanes_of(zeros), size_of(maximum)
    if vector_end > 0:
        maxima = zeros
        for j in range(0, vector_end, lanes_of(zeros)):
            elements = load(address_of(row) + j * size, zeros)
            maxima = lane_max(zeros - elements, lane_max(elements, maxima))
        maximum = max_of(maxima)
    for j in range(vector_end, row.size):
        magnitude = abs(row[j])
        maximum = magnitude if magnitude > maximum else maximum
    return maximum
