"""Dropout in one pass over the numbers, with what stands before or after it: a ReLU, or a residual connection."""

import torch
from torch import Tensor

from regard.kernels.cpu import kernels
from regard.kernels.cpu.fields import address_of
from regard.kernels.cpu.kernel import Kernel
from regard.kernels.cpu.launch import launch, named_arguments
from regard.kernels.cpu.sizes import PART, ceil_div


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
    named = {"query": address_of(input), "key": address_of(bits), "output": address_of(output), "threshold": threshold}
    value = address_of(residual)
    beside = "residual" if residual is not None else "relu" if relu else "plain"
    _run(kernels.drop(input.dtype, beside), input, factor, value=value, **named)
    return output


def gate(gradient: Tensor, number: Tensor, factor: float) -> Tensor:
    """``factor · gradient`` where ``number`` is above 0 or NaN, and 0 elsewhere; both contiguous, of one dtype."""
    output = torch.empty_like(gradient)
    addresses = {"query": address_of(gradient), "key": address_of(number), "output": address_of(output)}
    _run(kernels.gate(gradient.dtype), gradient, factor, **addresses)
    return output


def _run(kernel: Kernel, input: Tensor, factor: float, **named: float) -> None:
    count = input.numel()
    launch(kernel, named_arguments(keys=count, kept=factor, **named), ceil_div(count, PART), float(count))
