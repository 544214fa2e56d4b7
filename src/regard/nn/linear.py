"""Linear layers whose products are made by the library that is faster on this processor."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.matrix_products import grad_input, grad_weight, product, suits_onednn
from regard.transforms import can_branch_on, reverse_mode_only


class Linear(nn.Linear):
    """`torch.nn.Linear` whose float32 products are oneDNN's where they are faster than those of PyTorch's BLAS.

    .. math:: y = x W^\\top + b

    PyTorch multiplies float32 matrices by MKL, which uses half of the vectors of AMD's processors. There it takes about
    1.2 times as long. On other processors, under autocast, for compilers, transforms of `torch.func`, forward mode,
    double backward and few rows this is `torch.nn.functional.linear`. Constructor, parameters, initial values and
    ``state_dict`` are torch's; what replaces modules of exactly the type `torch.nn.Linear` does not find this one.

    Numerics: the libraries differ in the last digits.
    """

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)

    @classmethod
    def of(cls, other: nn.Linear) -> "Linear":
        """A layer with the parameters of another one, themselves."""
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        made.in_features, made.out_features = other.in_features, other.out_features
        made.weight, made.bias = other.weight, other.bias
        return made


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear` by the library that is faster: see `Linear`.

    Args:
        input: ``[..., in]``.
        weight: ``[out, in]``.
        bias: ``[out]``; None: 0.

    Returns:
        ``[..., out]``.
    """
    if not _suits(input, weight, bias):
        return F.linear(input, weight, bias)
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in (input, weight, bias)):
        return _Linear.apply(input, weight, bias)
    return _product(input, weight, bias)


def _suits(input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether oneDNN's products are faster, and nothing but reverse mode may ask for a derivative."""
    if torch.compiler.is_compiling() or not input.is_contiguous():
        return False
    if input.dim() < 2 or weight.dim() != 2 or input.shape[-1] != weight.shape[1] or weight.dtype != torch.float32:
        return False
    if type(weight) is not nn.Parameter and type(weight) is not Tensor:
        return False
    if bias is not None and (bias.dtype != torch.float32 or bias.shape != weight.shape[:1]):
        return False
    rows = input.numel() // max(input.shape[-1], 1)
    return suits_onednn(input, rows, weight) and reverse_mode_only(input) and not torch.is_autocast_enabled("cpu")


def _product(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return product(_rows(input), weight, bias).view(*input.shape[:-1], len(weight))


def _rows(tensor: Tensor) -> Tensor:
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.shape[-1])


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(input, weight)
        return _product(input, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        input, weight = ctx.saved_tensors
        needs_input, needs_weight, needs_bias = ctx.needs_input_grad
        grad, rows = _rows(gradient.contiguous()), _rows(input)
        # A derivative of the gradient, and a batch of gradients, are made by PyTorch's own operations.
        plain = not torch.is_grad_enabled() and can_branch_on(gradient)
        of_input = of_weight = of_bias = None
        if needs_input:
            of_input = (grad_input(grad, weight) if plain else grad @ weight).view(input.shape)
        if needs_weight:
            of_weight = grad_weight(grad, rows) if plain else grad.mT @ rows
        if needs_bias:
            of_bias = grad.sum(0)
        return of_input, of_weight, of_bias
