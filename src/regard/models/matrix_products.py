"""Matrix products outside of autograd, by the library that makes them faster on this processor.

PyTorch multiplies float32 matrices by MKL, which on AMD's processors uses vectors of 256 bits. oneDNN, which PyTorch
has for half precision and convolutions, uses those of 512 bits.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from regard.kernels.availability import is_slow_for_mkl

LEAST_ROWS = 16
"""Rows below which oneDNN's products take longer."""

_OPERATORS: Any = torch.ops.mkldnn


def product(inputs: Tensor, weight: Tensor, added: Tensor | None = None, *, reuses: bool = False) -> Tensor:
    """``inputs · weightᵀ + added``.

    Args:
        inputs: ``[rows, in]``.
        weight: ``[out, in]``.
        added: ``[out]`` or ``[rows, out]``; None: 0.
        reuses: whether the result may be written to ``added [rows, out]``, and returned as it.
    """
    if not _is_for_onednn(inputs, weight):
        if added is None:
            return inputs @ weight.t()
        return added.addmm_(inputs, weight.t()) if reuses else torch.addmm(added, inputs, weight.t())
    if added is not None and added.dim() == 2:
        return _OPERATORS._linear_pointwise.binary(inputs, added, weight, None, "add")
    return _OPERATORS._linear_pointwise(inputs, weight, added, "none", [], "")


def grad_input(gradient: Tensor, weight: Tensor) -> Tensor:
    """``gradient · weight``: that of a product's inputs, from that of the product."""
    if not _is_for_onednn(gradient, weight):
        return gradient @ weight
    return _OPERATORS._linear_pointwise(gradient, weight.t(), None, "none", [], "")


def _is_for_onednn(inputs: Tensor, weight: Tensor) -> bool:
    if torch.compiler.is_compiling():
        return False
    # Of a matrix with gaps between its rows it has only a plain loop, which takes a thousand times as long.
    return (
        inputs.dtype == torch.float32
        and inputs.device.type == "cpu"
        and len(inputs) >= LEAST_ROWS
        and weight.is_contiguous()
        and weight.numel() > 0
        and type(inputs) is Tensor
        and _is_faster()
    )


@cache
def _is_faster() -> bool:
    """Whether oneDNN is there, and faster than PyTorch's BLAS."""
    return is_slow_for_mkl() and torch.backends.mkldnn.is_available() and hasattr(_OPERATORS, "_linear_pointwise")
