"""Dropout in one pass over the numbers, with what stands before or after it: a ReLU, or a residual connection."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from collections.abc import Callable

import numpy as np

from regard.kernels.cpu.bodies.arguments import ZEROS, arguments_at
from regard.kernels.cpu.bodies.intrinsics import array_at, fetch_add, size_of
from regard.kernels.cpu.sizes import PART


def drop_numbers(dtype: str, beside: str) -> Callable[[int], None]:
    """The body of ``output = residual + factor · [bits >= threshold] · max(input, 0)``.

    Args:
        dtype: float32 or float64.
        beside: ``plain`` is without sum and maximum, ``relu`` without the sum, ``residual`` without the maximum.
    """
    zero, short, relu, residual = ZEROS[dtype], np.int16(0), beside == "relu", beside == "residual"

    def body(address: int) -> None:
        p = arguments_at(address)
        size, factor, threshold = size_of(zero), type(zero)(p.kept), np.int16(p.threshold)
        while True:
            task = fetch_add(address)
            if task >= p.tasks:
                break
            first = task * PART
            count = min(PART, p.keys - first)
            input = array_at(p.query + first * size, count, zero)
            output = array_at(p.output + first * size, count, zero)
            bits = array_at(p.key + first * 2, count, short)
            if residual:
                other = array_at(p.value + first * size, count, zero)
                for i in range(count):
                    output[i] = other[i] + input[i] * (factor if bits[i] >= threshold else zero)
            elif relu:
                for i in range(count):
                    # Not max: NaN stays NaN.
                    positive = zero if input[i] <= zero else input[i]
                    output[i] = positive * (factor if bits[i] >= threshold else zero)
            else:
                for i in range(count):
                    output[i] = input[i] * (factor if bits[i] >= threshold else zero)

    return body


def gate_numbers(dtype: str) -> Callable[[int], None]:
    """The body of ``output = factor · gradient`` where a number is not 0 or less, else 0."""
    zero = ZEROS[dtype]

    def body(address: int) -> None:
        p = arguments_at(address)
        size, factor = size_of(zero), type(zero)(p.kept)
        while True:
            task = fetch_add(address)
            if task >= p.tasks:
                break
            first = task * PART
            count = min(PART, p.keys - first)
            gradient = array_at(p.query + first * size, count, zero)
            number = array_at(p.key + first * size, count, zero)
            output = array_at(p.output + first * size, count, zero)
            for i in range(count):
                output[i] = gradient[i] * (zero if number[i] <= zero else factor)

    return body
