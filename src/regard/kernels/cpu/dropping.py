"""Dropout in one pass over the numbers, with what stands before or after it: a ReLU, or a residual connection."""

from functools import cache

import numpy as np
import torch
from torch import Tensor

from regard.kernels.cpu.compiled import Kernel
from regard.kernels.cpu.intrinsics import array_at, fetch_add, size_of
from regard.kernels.cpu.kernel_arguments import arguments_at, named_kernel
from regard.kernels.cpu.launch import launch, named_arguments
from regard.kernels.cpu.sizes import ceil_div

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

PART = 1 << 15
"""Numbers of a task."""


@cache
def _kernel(dtype: torch.dtype, relu: bool, residual: bool) -> Kernel:
    """``output = residual + factor · [bits >= threshold] · max(input, 0)``, with or without the sum and the maximum."""
    zero = np.float32(0) if dtype == torch.float32 else np.float64(0)
    short = np.int16(0)

    def drop_numbers(address: int) -> None:
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

    kind = ("relu",) if relu else ("residual",) if residual else ()
    return named_kernel(drop_numbers, dtype, *kind)


@cache
def _gate_kernel(dtype: torch.dtype) -> Kernel:
    """``output = factor · gradient`` where a number is not 0 or less, else 0."""
    zero = np.float32(0) if dtype == torch.float32 else np.float64(0)

    def gate_numbers(address: int) -> None:
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

    return named_kernel(gate_numbers, dtype)


def drop(input: Tensor, bits: Tensor, threshold: int, factor: float, relu: bool, residual: Tensor | None) -> Tensor:
    """``residual + factor · [bits >= threshold] · input``; with ``relu``, of the input's positive part, not summed.

    Args:
        input: float32 or float64, contiguous.
        bits: ``int16``, at least as many as ``input`` has numbers, contiguous.
        threshold: in [−32,768, 32,767].
        factor: of what is kept.
        relu: whether the input goes through a ReLU.
        residual: as ``input``; None: 0.
    """
    output = torch.empty_like(input)
    named = {"query": input.data_ptr(), "key": bits.data_ptr(), "output": output.data_ptr(), "threshold": threshold}
    value = 0 if residual is None else residual.data_ptr()
    _run(_kernel(input.dtype, relu, residual is not None), input, factor, value=value, **named)
    return output


def gate(gradient: Tensor, number: Tensor, factor: float) -> Tensor:
    """``factor · gradient`` where ``number`` is above 0 or NaN, and 0 elsewhere; both contiguous, of one dtype."""
    output = torch.empty_like(gradient)
    addresses = {"query": gradient.data_ptr(), "key": number.data_ptr(), "output": output.data_ptr()}
    _run(_gate_kernel(gradient.dtype), gradient, factor, **addresses)
    return output


def _run(kernel: Kernel, input: Tensor, factor: float, **named: float) -> None:
    count = input.numel()
    launch(kernel, named_arguments(keys=count, kept=factor, **named), ceil_div(count, PART), float(count))
