"""A weight that every step of a loop uses, and whose gradient is computed once for all steps.

Autograd would compute ``grad_tᵀ · input_t`` at each step t and add matrices of the weight's size. Here the sum over the
T steps is one product of concatenated matrices:

    ∂L/∂W = Σ_t grad_tᵀ input_t = [grad_1; …; grad_T]ᵀ [input_1; …; input_T]
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class SharedWeight:
    """A weight (and a bias) for the steps of one loop.

    Each step's own autograd function takes `weight` (and `bias`) as inputs, returns no gradient for them, and calls
    `add` in its backward pass instead. Autograd runs the backward of this weight after that of all steps; there
    the product is computed.

    Args:
        weight: ``[out, in]``.
        bias: ``[out]`` or None.
        dtype: the dtype of the loop; weight and bias are cast to it once.

    Attributes:
        weight: the weight in ``dtype``.
        bias: the bias in ``dtype``, or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype):
        self._uses: list[tuple[Tensor, Tensor]] = []
        self.weight: Tensor
        self.bias: Tensor | None
        if torch.compiler.is_compiling():
            # A compiler arranges the products of a backward pass itself.
            self.weight, self.bias = weight.to(dtype), None if bias is None else bias.to(dtype)
        else:
            self.weight, self.bias = _SharedWeightFunction.apply(weight, bias, dtype, self._uses)

    def add(self, inputs: Tensor, grad_product: Tensor) -> None:
        """Record one step, in the backward pass.

        Args:
            inputs: ``[rows, in]``, the factor of the weight in this step.
            grad_product: ``[rows, out]``, the gradient of the product.
        """
        self._uses.append((inputs, grad_product))


class _SharedWeightFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, uses: list[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        ctx.uses = uses
        ctx.weight_dtype, ctx.has_bias = weight.dtype, bias is not None
        cast = weight.to(dtype) if weight.dtype != dtype else weight.view_as(weight)
        if bias is None:
            return cast, None
        return cast, bias.to(dtype) if bias.dtype != dtype else bias.view_as(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not ctx.uses:
            return None, None, None, None
        inputs = torch.cat([use[0] for use in ctx.uses])
        grad_products = torch.cat([use[1] for use in ctx.uses])
        ctx.uses.clear()
        grad_weight = (grad_products.t() @ inputs).to(ctx.weight_dtype)
        grad_bias = grad_products.sum(0, dtype=ctx.weight_dtype) if ctx.has_bias else None
        return grad_weight, grad_bias, None, None


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype of a matrix product with this tensor: autocast's dtype if autocast is on, else the tensor's dtype."""
    kind = tensor.device.type
    if torch.is_autocast_enabled(kind) and tensor.dtype != torch.float64:
        return torch.get_autocast_dtype(kind)
    return tensor.dtype
