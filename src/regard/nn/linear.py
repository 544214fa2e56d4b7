"""Linear layers whose large products run on the microkernel, where it is faster than PyTorch's library."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.matrix_products import grad_weight, large_grad_input, large_product, multiplies_many_rows
from regard.transforms import has_dense_cpu_storage, reverse_mode_only


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear`: ``input · weightᵀ + bias``.

    Large products of float32 on a CPU run on the microkernel where it is faster than PyTorch's library (on processors
    of AMD with vectors of 512 bits); all others, those of other dtypes, of autocast, and whatever a compiler or a
    transform of ``torch.func`` looks at, are PyTorch's.

    Args:
        input: ``[..., in]``.
        weight: ``[out, in]``.
        bias: ``[out]``; None: 0.

    Returns:
        ``[..., out]``. Sums are float32; they may differ from PyTorch's in the last bits.
    """
    if not _is_large(input, weight, bias):
        return F.linear(input, weight, bias)
    rows = input.reshape(-1, weight.shape[1])
    wants_gradient = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (input, weight, bias)
    )
    output = _Linear.apply(rows, weight, bias) if wants_gradient else large_product(rows, weight, bias)
    return output.unflatten(0, input.shape[:-1])


class Linear(nn.Linear):
    """`torch.nn.Linear` by `linear`: its constructor, its parameters and its ``state_dict``."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return large_product(rows, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        rows, weight = ctx.saved_tensors
        needs_rows, needs_weight, needs_bias = ctx.needs_input_grad
        if torch.is_grad_enabled() or not has_dense_cpu_storage(grad_output):
            # A gradient of the gradient may be wanted, or a batch of gradients; or a kernel cannot read this one.
            return (
                grad_output @ weight if needs_rows else None,
                grad_output.t() @ rows if needs_weight else None,
                grad_output.sum(0) if needs_bias else None,
            )
        gradient = grad_output.contiguous()
        return (
            large_grad_input(gradient, weight) if needs_rows else None,
            grad_weight(gradient, rows) if needs_weight else None,
            gradient.sum(0) if needs_bias else None,
        )


def _is_large(input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the microkernel makes the product; what is not right is left to PyTorch, which says so."""
    if not reverse_mode_only(input) or torch.is_autocast_enabled("cpu") or input.is_nested:
        return False
    given = (input, weight) if bias is None else (input, weight, bias)
    if any(tensor.layout is not torch.strided or not tensor.numel() for tensor in given):
        return False
    if input.dim() < 2 or weight.dim() != 2 or input.shape[-1] != weight.shape[1]:
        return False
    fits = bias is None or (bias.shape == weight.shape[:1] and bias.dtype == torch.float32)
    return fits and multiplies_many_rows(input.numel() // weight.shape[1], *given)
