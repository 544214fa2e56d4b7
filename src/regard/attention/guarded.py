"""Products and derivatives that hidden pairs never enter, by elementwise operations alone: for tensors on a device.

A hidden pair has weight 0 and gradient 0, but 0 · NaN is NaN. On a CPU, a look at the results tells whether that
happened (`regard.attention.isolation`). On a device the host would wait for the answer, so the calculation itself keeps
hidden elements out (contract 10):

- `visible_product` mixes values by weights. Hidden values count as 0; a visible one that is NaN or infinite has the
  effect that it has in an ordinary product.
- `finite_saved_tensors` makes autograd save finite numbers. The gradient of a hidden score is exactly 0, and so is its
  product with a finite number. The gradient of a visible NaN is NaN already.
"""

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from regard.shapes.axes import Bool, Float
from regard.tracing.transforms import active_transform, can_branch_on


def is_guarded(tensor: Tensor) -> bool:
    """Whether calculations with this tensor are guarded: it is on a device, and nothing is traced or transformed."""
    return not tensor.is_cpu and can_branch_on(tensor) and active_transform() is None


def finite_saved_tensors() -> AbstractContextManager[object]:
    """Returns a context in which autograd saves 1 for NaN, and no magnitude above an eighth of the largest number.

    Every derivative stays finite where its factor is 0: products, quotients, roots and saturated functions. Hooks
    outside of this context, such as those of activation checkpointing, still get every tensor.
    """
    outer = torch._C._autograd._top_saved_tensors_default_hooks(True)  # pyright: ignore[reportAttributeAccessIssue]
    if outer is None:
        return torch.autograd.graph.saved_tensors_hooks(_finite, lambda tensor: tensor)
    pack, unpack = outer
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: pack(_finite(tensor)), unpack)


def _finite(tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point() or isinstance(tensor, nn.Parameter):
        return tensor
    with torch.no_grad():
        limit = torch.finfo(tensor.dtype).max / 8
        return torch.nan_to_num(tensor, 1.0).clamp_(-limit, limit)


def visible_product(
    weights: Float[Tensor, "batch heads queries keys"],
    value: Float[Tensor, "batch heads keys value_dim"],
    shown: Bool[Tensor, "#batch #heads #queries #keys"],
) -> Float[Tensor, "batch heads queries value_dim"]:
    """Returns ``weights @ value``, in which hidden values count as 0, whatever they are; likewise its derivatives."""
    if not torch.is_grad_enabled() or not (weights.requires_grad or value.requires_grad):
        return _product(weights, value, shown)
    return _VisibleProduct.apply(weights, value, shown)


def _product(weights: Tensor, value: Tensor, shown: Tensor) -> Tensor:
    """Returns the product of the finite values, plus what the visible infinities and NaN amount to.

    Terms that are all +∞, or all −∞, have that sum; with any other among them the sum is NaN, as 0 · ∞ is.
    """
    finite = value.nan_to_num(0.0, 0.0, 0.0)
    product = weights @ finite
    # Sums of 0 and ±1 are exact in float32.
    marks = (value != finite).float()
    shown = shown.expand(*shown.shape[:2], weights.shape[2], value.shape[2])
    count = shown.float() @ marks
    directions = (value == torch.inf).float() - (value == -torch.inf).float()
    balance = torch.where(shown, weights.sign(), 0.0).float() @ directions
    infinity = torch.where(balance.abs() == count, balance * torch.inf, torch.nan).to(product.dtype)
    return torch.where(count > 0, product + infinity, product)


class _VisibleProduct(torch.autograd.Function):
    """Implements `visible_product`."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, value: Tensor, shown: Tensor) -> Tensor:
        ctx.save_for_backward(weights, value, shown)
        return _product(weights, value, shown)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (weights, value, shown), (gradient,) = ctx.saved_tensors, gradients
        grad_weights = grad_value = None
        if ctx.needs_input_grad[0]:
            with finite_saved_tensors():
                grad_weights = torch.where(shown, gradient @ value.transpose(-1, -2), 0.0)
        if ctx.needs_input_grad[1]:
            shown = shown.expand(*shown.shape[:2], *weights.shape[2:])
            grad_value = visible_product(weights.transpose(-1, -2), gradient, shown.transpose(-1, -2))
        return grad_weights, grad_value, None
