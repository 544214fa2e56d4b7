"""The largest of many numbers in vector registers; compilers do not dare to reorder comparisons that NaN may enter."""

from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.intrinsics import address_of, size_of
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.vectors import (
    broadcast,
    four_registers,
    lanes_of,
    larger,
    largest_of,
    load,
    two_registers,
)

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.


@inlined
def largest(row: Any) -> Any:
    """The largest number of a row; −inf if it is empty. NaN is passed over."""
    top, zeros = row.dtype.type(-np.inf), four_registers(row.dtype.type(0))
    whole, size = row.size - row.size % lanes_of(zeros), size_of(top)
    if whole > 0:
        tops = broadcast(top, zeros)
        for j in range(0, whole, lanes_of(zeros)):
            tops = larger(load(address_of(row) + j * size, zeros), tops)
        top = largest_of(tops)
    for j in range(whole, row.size):
        top = row[j] if row[j] > top else top
    return top


@inlined
def largest_magnitude(row: Any) -> Any:
    """The largest |number| of a row; 0 if it is empty. NaN is passed over."""
    top, zeros = row.dtype.type(0), two_registers(row.dtype.type(0))
    whole, size = row.size - row.size % lanes_of(zeros), size_of(top)
    if whole > 0:
        tops = zeros
        for j in range(0, whole, lanes_of(zeros)):
            numbers = load(address_of(row) + j * size, zeros)
            tops = larger(zeros - numbers, larger(numbers, tops))
        top = largest_of(tops)
    for j in range(whole, row.size):
        magnitude = abs(row[j])
        top = magnitude if magnitude > top else top
    return top
