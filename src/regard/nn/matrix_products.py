"""Matrix products outside of autograd, in the way that is fastest on this processor.

PyTorch multiplies float32 matrices by MKL, which on AMD's processors uses vectors of 256 bits. oneDNN, which PyTorch
has for half precision and convolutions, uses those of 512 bits, and so does our microkernel. oneDNN compiles a product
for each number of rows, and keeps what it compiled and memory for it: hundreds of megabytes where that number changes
from batch to batch. The microkernel keeps nothing.

Where a processor has no instructions for bfloat16, PyTorch's products of it take three times as long as those of
float32, which are more accurate: so `product_dtype` says float32 there. Products write into memory of their own, since
autocast leaves such products in the dtype that they are given.
"""

import platform
from functools import cache
from typing import Any

import torch
from torch import Tensor

from regard.kernels.availability import is_slow_for_mkl, microkernel_is_faster
from regard.transforms import has_dense_cpu_storage

LEAST_ROWS = 16
"""Rows below which oneDNN's products take longer."""

LARGE = 1 << 23
"""Multiplications from which on a product is worth a launch of the microkernel."""

MANY_ROWS = 128
"""Rows from which on the microkernel takes about as long as oneDNN, although it packs a transposed weight."""

_OPERATORS: Any = torch.ops.mkldnn


def product(
    inputs: Tensor, weight: Tensor, added: Tensor | None = None, *, reuses: bool = False, memory: Tensor | None = None
) -> Tensor:
    """``inputs · weightᵀ + added``.

    Args:
        inputs: ``[rows, in]``.
        weight: ``[out, in]``.
        added: ``[out]`` or ``[rows, out]``; None: 0. Any other shape is PyTorch's: it is broadcast, or an error.
        reuses: whether the result may be written to ``added [rows, out]``, and returned as it.
        memory: a tensor ``[rows, out]`` that the result may be written to, and returned as it; None: there is none.
    """
    matrix = added if added is not None and added.dim() == 2 else None
    given = (inputs, weight) if added is None else (inputs, weight, added)
    fits = added is None or added.shape in ((len(weight),), (len(inputs), len(weight)))
    if fits and multiplies_many_rows(len(inputs), *given):
        if matrix is None:
            return large_product(inputs, weight, added, memory)
        output = matrix if reuses else matrix.clone(memory_format=torch.contiguous_format)
        return _by_microkernel(inputs, weight.t(), output, keep=True)
    if not fits or not _is_for_onednn(inputs, weight):
        if reuses and added is not None:
            return added.addmm_(inputs, weight.t())
        output = inputs.new_empty(len(inputs), len(weight)) if memory is None else memory
        if added is None:
            return torch.mm(inputs, weight.t(), out=output)
        return torch.addmm(added, inputs, weight.t(), out=output)
    if added is not None and added.dim() == 2:
        return _OPERATORS._linear_pointwise.binary(inputs, added, weight, None, "add")
    return _OPERATORS._linear_pointwise(inputs, weight, added, "none", [], "")


def grad_input(gradient: Tensor, weight: Tensor) -> Tensor:
    """``gradient · weight``: that of a product's inputs, from that of the product."""
    if multiplies(gradient.numel() * weight.shape[1], gradient, weight):
        return large_grad_input(gradient, weight)
    if not _is_for_onednn(gradient, weight):
        return torch.mm(gradient, weight, out=gradient.new_empty(len(gradient), weight.shape[1]))
    return _OPERATORS._linear_pointwise(gradient, weight.t(), None, "none", [], "")


def grad_weight(gradient: Tensor, inputs: Tensor) -> Tensor:
    """``gradientᵀ · inputs``: that of a product's weight, from that of the product."""
    output = gradient.new_empty(gradient.shape[1], inputs.shape[1])
    if multiplies(len(gradient) * output.numel(), gradient, inputs):
        return _by_microkernel(gradient.t(), inputs, output)
    return torch.mm(gradient.t(), inputs, out=output)


def add_grad_weight(total: Tensor, gradient: Tensor, inputs: Tensor) -> None:
    """Add ``gradientᵀ · inputs`` to ``total``."""
    if multiplies(len(gradient) * total.numel(), gradient, inputs, total):
        _by_microkernel(gradient.t(), inputs, total, keep=True)
    else:
        total.addmm_(gradient.t(), inputs)


def large_product(inputs: Tensor, weight: Tensor, bias: Tensor | None = None, memory: Tensor | None = None) -> Tensor:
    """``inputs · weightᵀ + bias`` by the microkernel, where `multiplies_many_rows` says so.

    Args:
        inputs, weight, memory: as for `product`.
        bias: ``[out]``; None: 0.
    """
    output = inputs.new_empty(len(inputs), len(weight)) if memory is None else memory
    return _by_microkernel(inputs, weight.t(), output, bias)


def large_grad_input(gradient: Tensor, weight: Tensor) -> Tensor:
    """``gradient · weight`` by the microkernel, likewise."""
    return _by_microkernel(gradient, weight, gradient.new_empty(len(gradient), weight.shape[1]))


def multiplies_many_rows(rows: int, inputs: Tensor, weight: Tensor, *others: Tensor) -> bool:
    """Whether the microkernel makes ``inputs · weightᵀ``, for which it packs the weight.

    Args:
        rows: of the inputs.
        inputs, weight: the factors.
        others: what is added or written to.
    """
    return rows >= MANY_ROWS and multiplies(rows * weight.numel(), inputs, weight, *others)


def multiplies(terms: int, *matrices: Tensor) -> bool:
    """Whether the microkernel makes a product.

    Args:
        terms: multiplications.
        matrices: what is multiplied, and written to.
    """
    if terms < LARGE or not has_dense_cpu_storage(*matrices):
        return False
    return (
        all(matrix.dtype == torch.float32 and matrix.stride(-1) == 1 for matrix in matrices) and microkernel_is_faster()
    )


def _by_microkernel(a: Tensor, b: Tensor, output: Tensor, bias: Tensor | None = None, keep: bool = False) -> Tensor:
    from regard.kernels.cpu.matrix_product import matrix_product

    return matrix_product(a, b, output, bias, keep=keep)


def product_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype of products whose results are wanted in a dtype: float32 instead of a bfloat16 without instructions."""
    if dtype != torch.bfloat16 or device.type != "cpu" or torch.compiler.is_compiling():
        return dtype
    return torch.float32 if _has_no_bfloat16() else dtype


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


@cache
def _has_no_bfloat16() -> bool:
    """Whether this is an x86 processor that only converts bfloat16, and does not multiply it."""
    has: Any = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return platform.machine().lower() in ("x86_64", "amd64") and has is not None and not has()
