"""Dropout whose random numbers cost a fifth of PyTorch's on a CPU, in one pass with what stands beside it."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.weight_dropout import Draw, draw
from regard.kernels.availability import why_missing
from regard.transforms import can_branch_on, has_plain_memory, in_memory, reverse_mode_only

COMPILED = 1 << 15
"""Elements from which on a compiled kernel runs; with fewer its call costs as much as it saves."""


def dropout(input: Tensor, p: float, *, relu: bool = False, residual: Tensor | None = None) -> Tensor:
    """Elements set to 0 with probability ``p``, the others multiplied by ``1 / (1 − p)``.

    Srivastava et al. 2014, section 4 (inverted). PyTorch's CPU dropout draws a floating-point number for each element;
    here four elements share the 64 bits of one number, so that ``p`` is rounded to a multiple of 1 / 65,536. On other
    devices, while PyTorch traces, and under `torch.func` it is `torch.nn.functional.dropout`.

    Args:
        input: any floating-point tensor.
        p: probability of an element to be set to 0, in [0, 1].
        relu: whether the input goes through a ReLU first.
        residual: added to the result; as ``input``. Not with ``relu``. None: nothing.
    """
    drawn = draw(input, p)
    if drawn is None:
        found = F.dropout(F.relu(input) if relu else input, p) if p else F.relu(input) if relu else input
        return found if residual is None else residual + found
    if _is_compiled(input, residual):
        if relu:
            return _DroppedReLU.apply(input, *drawn)
        return _Dropped.apply(input, residual, *drawn)
    kept = drawn.kept(input)
    if relu:
        input = F.relu(input)
    return input * kept if residual is None else residual + input * kept


def _is_compiled(input: Tensor, residual: Tensor | None) -> bool:
    if input.numel() < COMPILED or input.dtype not in (torch.float32, torch.float64) or not input.is_contiguous():
        return False
    if not has_plain_memory(input) or not (residual is None or has_plain_memory(residual)):
        return False
    if residual is not None:
        same = residual.dtype == input.dtype and residual.shape == input.shape and residual.is_cpu
        if not same or not residual.is_contiguous() or not can_branch_on(residual):
            return False
    return reverse_mode_only(input) and why_missing() is None


class _Dropped(torch.autograd.Function):
    """``residual + kept · input``. Sixteen bits of an element are saved, and its gradient's function is this one."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, residual: Tensor | None, bits: Tensor, threshold: int, factor: float
    ) -> Tensor:
        from regard.kernels.cpu.dropping import drop

        ctx.save_for_backward(bits)
        ctx.numbers = threshold, factor
        return drop(input, bits, threshold, factor, False, residual)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (bits,) = ctx.saved_tensors
        of_input = None
        if ctx.needs_input_grad[0] and reverse_mode_only(gradient):
            of_input = _Dropped.apply(in_memory(gradient).contiguous(), None, bits, *ctx.numbers)
        elif ctx.needs_input_grad[0]:  # batched gradients
            of_input = gradient * Draw(bits, *ctx.numbers).kept(gradient)
        return of_input, gradient if ctx.needs_input_grad[1] else None, None, None, None


class _DroppedReLU(torch.autograd.Function):
    """``kept · max(input, 0)``. Its output tells what was kept and positive, so that nothing else is saved."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, bits: Tensor, threshold: int, factor: float) -> Tensor:
        from regard.kernels.cpu.dropping import drop

        output = drop(input, bits, threshold, factor, True, None)
        ctx.save_for_backward(output)
        ctx.factor = factor
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (output,) = ctx.saved_tensors
        return _gated(gradient, output, ctx.factor), None, None, None


def _gated(gradient: Tensor, output: Tensor, factor: float) -> Tensor:
    if reverse_mode_only(gradient):
        return _Gated.apply(in_memory(gradient).contiguous(), output.detach(), factor)
    return gradient * torch.where(output.detach() <= 0, 0.0, factor).to(gradient.dtype)


class _Gated(torch.autograd.Function):
    """The gradient of a ReLU with dropout: linear in the gradient that it is given."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, output: Tensor, factor: float) -> Tensor:
        from regard.kernels.cpu.dropping import gate

        ctx.save_for_backward(output)
        ctx.factor = factor
        return gate(gradient, output, factor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (output,) = ctx.saved_tensors
        return _gated(gradient, output, ctx.factor), None, None
