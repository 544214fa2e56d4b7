"""Sparse normalizers as PyTorch operators on plain rows: ``torch.ops.regard_cpu.entmax`` and its backward pass."""

from typing import Any

import torch
from torch import Tensor
from torch.library import Library, register_autograd

from regard.kernels.cpu import kernels
from regard.kernels.cpu.kernel import are_usable as kernels_are_usable
from regard.kernels.cpu.launch import launch, named_arguments
from regard.kernels.cpu.second_derivative import refuse_second_derivative
from regard.kernels.cpu.sizes import ceil_div
from regard.kernels.cpu.uncompiled import uncompiled
from regard.tracing.transforms import in_memory

TASK_ELEMENTS = 1 << 15
"""Approximate number of elements in the rows of a task."""

WORK = 24.0
"""Approximate number of elementary operations per element: a few passes."""


def are_usable(dtype: torch.dtype, alpha: float, gradient: bool) -> bool:
    """Whether the kernels for an alpha are compiled, or have to be waited for: see `kernel.are_usable`."""
    return kernels_are_usable(kernels.rows(dtype, alpha, backward) for backward in (False, True)[: 1 + gradient])


_LIBRARY = Library("regard_cpu", "FRAGMENT")
_LIBRARY.define("entmax(Tensor scores, float alpha) -> Tensor")
_LIBRARY.define("entmax_backward(Tensor gradient, Tensor weights, float alpha) -> Tensor")


def _launch(input: Tensor, output: Tensor, gradient: Tensor | None, alpha: float) -> None:
    keys = input.shape[-1]
    rows = input.numel() // keys
    block = max(1, TASK_ELEMENTS // keys)
    sizes = {"queries": rows, "keys": keys, "block": block}
    arguments = named_arguments(**sizes, query=input, output=output, grad_output=gradient, alpha=alpha)
    kernel = kernels.rows(input.dtype, alpha, gradient is not None)
    launch(kernel, arguments, ceil_div(rows, block), WORK * input.numel())


def _entmax(scores: Tensor, alpha: float) -> Tensor:
    scores = in_memory(scores).contiguous()
    weights = torch.empty_like(scores)
    if scores.numel():
        _launch(scores, weights, None, alpha)
    return weights


def _entmax_backward(gradient: Tensor, weights: Tensor, alpha: float) -> Tensor:
    gradient, weights = in_memory(gradient).contiguous(), in_memory(weights).contiguous()
    output = torch.empty_like(gradient)
    if gradient.numel():
        _launch(weights, output, gradient, alpha)
    return output


def _save_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.alpha = inputs[1]
    ctx.save_for_backward(output)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    (weights,) = ctx.saved_tensors
    return torch.ops.regard_cpu.entmax_backward(gradient, weights, ctx.alpha), None


def _shape(rows: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(rows, memory_format=torch.contiguous_format)


for _name, _run in (("entmax", _entmax), ("entmax_backward", _entmax_backward)):
    # Compilers do not trace into the operators.
    _LIBRARY.impl(_name, uncompiled(_run), "CPU")
    torch.library.register_fake(f"regard_cpu::{_name}", _shape, lib=_LIBRARY)
register_autograd("regard_cpu::entmax", _backward, setup_context=_save_context, lib=_LIBRARY)
register_autograd("regard_cpu::entmax_backward", refuse_second_derivative, lib=_LIBRARY)

entmax_backward = torch.ops.regard_cpu.entmax_backward.default
entmax = torch.ops.regard_cpu.entmax.default
"""Weights of the rows along the last axis, for float32 or float64 scores and any alpha above 1; differentiable."""
