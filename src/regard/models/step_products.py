"""Products with the same weights at every step of a loop, whose gradients are computed once for all steps.

Autograd would compute ``grad_tᵀ · input_t`` at each step t and add matrices of the weight's size. Here the sum over the
T steps is one product of the matrices of all steps:

    ∂L/∂W = Σ_t grad_tᵀ input_t = [grad_1; …; grad_T]ᵀ [input_1; …; input_T]
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.nn.matrix_products import grad_input, grad_weight, product, product_dtype


class StepGradients:
    """The gradients of the sums of one loop, and the inputs of their products, as the steps' backward passes give them.

    Args:
        steps: number of steps of the loop.
        dim: features of a sum.
    """

    def __init__(self, steps: int, dim: int):
        self._steps, self._dim = steps, dim
        self._inputs: dict[int, tuple[Tensor, ...]] = {}
        self._gradients: Tensor | None = None
        self._pass = -1

    def gradient(self, step: int, inputs: tuple[Tensor, ...]) -> Tensor:
        """Where a step's backward pass must write the gradient of its sum, ``[rows, dim]``.

        Args:
            step: index of the step.
            inputs: ``[rows, in_k]``, the factor of each weight in this step.
        """
        running = torch._C._current_graph_task_id()
        if self._gradients is None or self._pass != running:
            # A backward pass that ended early leaves its steps here.
            self._inputs.clear()
            self._gradients = inputs[0].new_empty(self._steps, len(inputs[0]), self._dim)
            self._pass = running
        self._inputs[step] = inputs
        return self._gradients[step]

    def take(self) -> tuple[Tensor, list[Tensor]] | None:
        """What the running backward pass gathered; None if it reached no step. It is forgotten here.

        Returns:
            the gradients of the sums ``[steps, rows, dim]``, and for each weight its factors ``[steps · rows, in_k]``.
        """
        gradients, inputs = self._gradients, self._inputs
        self._gradients, self._inputs = None, {}
        if gradients is None or self._pass != torch._C._current_graph_task_id():
            return None
        reached = next(iter(inputs.values()))
        nothing = tuple(torch.zeros_like(tensor) for tensor in reached)
        for step in range(self._steps):
            if step not in inputs:
                gradients[step].zero_()
                inputs[step] = nothing
        ordered = (inputs[step] for step in range(self._steps))
        return gradients, [torch.cat(tensors) for tensors in zip(*ordered, strict=True)]


class StepProducts:
    """The sums ``known_t + b + Σ_k W_k input_{k,t}`` of one loop: their weights, and their gradients.

    Each step's own autograd function takes `weights` (and `bias`) as inputs and returns no gradient for them, nor for
    its `known`; its backward pass writes the gradient of its sum into what `gradients` gives. Autograd runs the
    backward pass of the weights after that of all steps; there the products are computed.

    Args:
        weights: each ``[out, in_k]``.
        bias: ``[out]`` or None.
        known: ``[steps, rows, out]``, what is known of the sums before the loop, in the dtype of the products; None:
            nothing.
        steps: number of steps of the loop.
        dtype: of what the steps return; weights and bias are cast once to that of its products
            (`matrix_products.product_dtype`).

    Attributes:
        dtype: of what the steps return.
        weights: in the dtype of the products.
        bias: likewise, or None.
        known: ``[rows, out]`` for each step, or empty.
        gradients: of the sums. A step keeps them, and not the whole, whose weights would keep the graph alive.
    """

    def __init__(
        self, weights: tuple[Tensor, ...], bias: Tensor | None, known: Tensor | None, steps: int, dtype: torch.dtype
    ):
        self.dtype = dtype
        self.gradients = StepGradients(steps, weights[0].shape[0])
        self.bias: Tensor | None
        dtype = product_dtype(dtype, weights[0].device)
        if torch.compiler.is_compiling():
            # A compiler arranges the products of a backward pass itself.
            self.weights = tuple(weight.to(dtype) for weight in weights)
            self.bias = None if bias is None else bias.to(dtype)
            self.known = () if known is None else known.unbind(0)
        else:
            self.bias, *cast = _WeightsFunction.apply(self.gradients, dtype, known, bias, *weights)  # pyright: ignore[reportGeneralTypeIssues]
            self.weights = tuple(cast)
            self.known = () if known is None else known.detach().unbind(0)


class StepLinear:
    """A linear map of one input in each step of a loop.

    Args:
        linear: its weight and bias.
        steps: number of steps of the loop.
        dtype: of what the steps return.
    """

    def __init__(self, linear: nn.Linear, steps: int, dtype: torch.dtype):
        self._products = StepProducts((linear.weight,), linear.bias, None, steps, dtype)

    def step(self, time: int, inputs: Tensor) -> Tensor:
        """``[rows, out]`` from a step's input ``[rows, in]``."""
        (weight,), bias = self._products.weights, self._products.bias
        if torch.compiler.is_compiling():
            return F.linear(inputs.to(weight.dtype), weight, bias).to(self._products.dtype)
        found: Any = _LinearStep.apply(self._products.gradients, time, inputs, weight, bias)
        return found.to(self._products.dtype)


class _LinearStep(torch.autograd.Function):
    """``W input + b`` of one step."""

    @staticmethod
    def forward(
        ctx: Any, sums: StepGradients, time: int, inputs: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        ctx.sums, ctx.time, ctx.dtype = sums, time, inputs.dtype
        inputs = inputs.to(weight.dtype)
        ctx.save_for_backward(inputs, weight)
        return product(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs, weight = ctx.saved_tensors
        gradient = ctx.sums.gradient(ctx.time, (inputs,)).copy_(grad_output)
        return None, None, grad_input(gradient, weight).to(ctx.dtype), None, None


class _WeightsFunction(torch.autograd.Function):
    """Bias and weights in the dtype of the loop."""

    @staticmethod
    def forward(
        ctx: Any, sums: StepGradients, dtype: torch.dtype, known: Tensor | None, *parameters: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)
        ctx.sums, ctx.has_known = sums, known is not None
        ctx.given = [None if parameter is None else parameter.dtype for parameter in parameters]
        return tuple(
            parameter
            if parameter is None
            else parameter.view_as(parameter)
            if parameter.dtype == dtype
            else parameter.to(dtype)
            for parameter in parameters
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        taken = ctx.sums.take()
        if taken is None:
            return (None,) * (3 + len(ctx.given))
        gradients, inputs = taken
        rows = gradients.flatten(0, 1)
        bias_dtype, *weight_dtypes = ctx.given
        needs_bias, *needs_weights = ctx.needs_input_grad[3:]
        grad_bias = rows.sum(0, dtype=bias_dtype) if needs_bias else None
        grad_weights = [
            grad_weight(rows, factor).to(dtype) if needed else None
            for factor, dtype, needed in zip(inputs, weight_dtypes, needs_weights, strict=True)
        ]
        return None, None, gradients if ctx.has_known else None, grad_bias, *grad_weights


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype of a matrix product with this tensor: autocast's dtype if autocast is on, else the tensor's dtype."""
    kind = tensor.device.type
    if torch.is_autocast_enabled(kind) and tensor.dtype != torch.float64:
        return torch.get_autocast_dtype(kind)
    return tensor.dtype


def replaces_autocast(tensor: Tensor) -> bool:
    """Whether products with this tensor are made in another dtype than autocast's, so that autocast must be off."""
    dtype = compute_dtype(tensor)
    return tensor.dtype != dtype and product_dtype(dtype, tensor.device) != dtype
