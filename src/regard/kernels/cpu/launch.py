"""Filling a kernel's record from its inputs, and running the kernel on it."""

import ctypes
import struct

import torch
from torch import Tensor

from regard.kernels.availability import microkernel_is_faster
from regard.kernels.cpu import prepare
from regard.kernels.cpu.compiled import Kernel
from regard.kernels.cpu.fields import numbers_of
from regard.kernels.cpu.kernel_arguments import FORMATS
from regard.kernels.cpu.kernel_inputs import KernelInputs
from regard.kernels.cpu.products import gemm_address, limit_address
from regard.kernels.cpu.sizes import TILE, ceil_div, padded_length
from regard.kernels.cpu.threads import run
from regard.kernels.kinds import DENSE_BIAS, DIAGONAL_BIAS, NO_BIAS, SIGMOID, SOFTMAX

_PACKED = struct.Struct("".join(FORMATS.values()))


def fill_arguments(inputs: KernelInputs, **more: float) -> dict[str, float]:
    """The record's numbers by name, those that are not 0; ``more`` adds to those of the inputs."""
    query, key, value = inputs.query, inputs.key, inputs.value
    batch, heads, queries, dim = query.shape
    bias_kind = NO_BIAS
    if inputs.bias is not None:
        bias_kind = DIAGONAL_BIAS if inputs.diagonal else DENSE_BIAS
    if inputs.bias is not None and inputs.diagonal:
        # As a dense bias has its axes: [1, heads or 1, 1, diagonals].
        inputs = inputs._replace(bias=inputs.bias[None, :, None])
    dropout = inputs.dropout
    numbers = {
        **numbers_of(inputs),
        "gemm": gemm_address(query.dtype),
        "limit_threads": limit_address(),
        "batch": batch,
        "heads": heads,
        "kv_heads": key.shape[1],
        "queries": queries,
        "keys": key.shape[2],
        "dim": dim,
        "value_dim": value.shape[3],
        "block": inputs.block,
        "chunks": 1,
        "bias_kind": bias_kind,
        "inverse_temperature": 1.0 / inputs.temperature,
        "kept": 1.0 / (1.0 - dropout) if dropout else 1.0,
        "threshold": min(round(dropout * 2**32), 2**32 - 1) if dropout else 0,
        **more,
    }
    # One that the normalizer does not have must not be found by a kernel.
    if inputs.normalizer != SOFTMAX:
        numbers["sink"] = 0
    if inputs.normalizer != SIGMOID:
        numbers["shift"] = 0
    return numbers


def as_matrix(tensor: Tensor) -> Tensor:
    """Queries, keys or values as products take them: features side by side, rows apart."""
    if tensor.stride(-1) == 1 and tensor.stride(-2) >= tensor.shape[-1]:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def is_wide(dtype: torch.dtype) -> bool:
    """Whether products are made by the microkernel instead of BLAS."""
    return dtype == torch.float32 and microkernel_is_faster()


def transposed(tensor: Tensor) -> Tensor:
    """Keys or values ``[batch, kv_heads, keys, dim]`` as ``[batch, kv_heads, dim, padded keys]``."""
    batch, heads, keys, dim = tensor.shape
    output = tensor.new_empty(batch, heads, dim, padded_length(keys))
    stand_in = tensor[:, :, :1]
    record = fill_arguments(KernelInputs(stand_in, tensor, tensor[..., :1]), output=output.data_ptr())
    launch(prepare.transposed(tensor.dtype), record, batch * heads * ceil_div(keys, TILE), 4.0 * tensor.numel())
    return output


def launch(kernel: Kernel, fields: dict[str, float], tasks: int, work: float) -> None:
    """Run a kernel on the record of these numbers, all tasks of it."""
    fields["tasks"] = tasks
    record = packed(fields)
    run(kernel, ctypes.addressof(record), tasks, work)


def packed(fields: dict[str, float]) -> "ctypes.Array[ctypes.c_char]":
    """The record of these numbers; what is not among them is 0."""
    get = fields.get
    return ctypes.create_string_buffer(_PACKED.pack(*[get(name, 0) for name in FORMATS]))


def check_inputs(inputs: KernelInputs) -> None:
    """Raise ValueError for what would make a kernel read beyond a tensor; for callers of the operators themselves."""
    query, key, value = inputs.query, inputs.key, inputs.value
    real = (torch.float32, torch.float64)
    if query.dtype not in real or not query.dtype == key.dtype == value.dtype:
        raise ValueError(f"operators take float32 or float64; got {query.dtype}, {key.dtype}, {value.dtype}")
    B, H, _Q, D = query.shape
    if key.shape[0] != B or H % key.shape[1] or key.shape[3] != D or value.shape[:3] != key.shape[:3]:
        raise ValueError(f"shapes do not fit: {list(query.shape)}, {list(key.shape)}, {list(value.shape)}")
