"""The dtypes of a recurrent layer over packed rows: of its products, of its states, and of what it was given."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from regard.models.step_products import compute_dtype
from regard.nn.matrix_products import product_dtype


def keep_dtypes(ctx: Any, *tensors: Tensor) -> Iterator[Tensor]:
    """The data and the weights in the dtype of the products; the context keeps their own dtypes and that of gates."""
    dtype = product_dtype(compute_dtype(tensors[0]), tensors[0].device)
    ctx.given = [tensor.dtype for tensor in tensors]
    ctx.real = torch.float64 if dtype == torch.float64 else torch.float32
    return (tensor.to(dtype) for tensor in tensors)


def as_given(ctx: Any, gradients: tuple[Tensor, ...]) -> Iterator[Tensor]:
    """Gradients in the dtypes of the tensors that `keep_dtypes` was called with."""
    return (gradient.to(dtype) for gradient, dtype in zip(gradients, ctx.given, strict=True))
