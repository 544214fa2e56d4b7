"""Filling a kernel's parameters from tensors, and running the kernel on them."""

import numpy as np
import torch
from torch import Tensor

from regard.kernels import prepare
from regard.kernels.availability import wider_than_blas
from regard.kernels.call import Call
from regard.kernels.compiled import Kernel
from regard.kernels.kinds import DENSE_BIAS, DIAGONAL_BIAS
from regard.kernels.parameters import LAYOUT
from regard.kernels.products import gemm_address, limit_address
from regard.kernels.tanh_sum import TILE, padded_length
from regard.kernels.team import run


def parameters(call: Call, **more: int) -> np.ndarray:
    """The record of this call; ``more`` sets fields beyond the inputs."""
    record = np.zeros(1, LAYOUT)
    fields = record[0]
    query, key, value = call.query, call.key, call.value
    batch, heads, queries, dim = query.shape
    fields["gemm"], fields["limit_threads"] = gemm_address(query.dtype), limit_address()
    fields["wide"] = is_wide(query.dtype)
    fields["batch"], fields["heads"], fields["queries"], fields["dim"] = batch, heads, queries, dim
    fields["kv_heads"], fields["keys"], fields["value_dim"] = key.shape[1], key.shape[2], value.shape[3]
    fields["block"], fields["chunks"] = call.block, 1
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        fields[name] = tensor.data_ptr()
        fields[f"{name}_batch"], fields[f"{name}_head"], fields[f"{name}_row"] = tensor.stride()[:3]
    if call.weight is not None and call.exponentials is not None and call.extents is not None:
        fields["additive"], fields["weight"] = 1, call.weight.data_ptr()
        fields["weight_head"] = call.weight.stride(0) if call.weight.shape[0] > 1 else 0
        fields["exponentials"], fields["extents"] = call.exponentials.data_ptr(), call.extents.data_ptr()
    if call.start is not None and call.stop is not None:
        fields["start"], fields["stop"] = call.start.data_ptr(), call.stop.data_ptr()
        fields["span_batch"], fields["span_head"], fields["span_row"] = _repeating(call.start, 3)
    if call.mask is not None:
        fields["mask"] = call.mask.data_ptr()
        fields["mask_batch"], fields["mask_head"], fields["mask_row"] = _repeating(call.mask, 3)
    if call.bias is not None:
        fields["bias"] = call.bias.data_ptr()
        if call.diagonal:
            fields["bias_kind"] = DIAGONAL_BIAS
            (fields["bias_head"],) = _repeating(call.bias, 1)
        else:
            fields["bias_kind"] = DENSE_BIAS
            strides = _repeating(call.bias, 4)
            fields["bias_batch"], fields["bias_head"], fields["bias_row"], fields["bias_key"] = strides
    if call.offset is not None:
        fields["offset"] = call.offset.data_ptr()
        (fields["offset_head"],) = _repeating(call.offset, 1)
    if call.center is not None and call.width is not None:
        fields["center"], fields["width"] = call.center.data_ptr(), call.width.data_ptr()
        fields["window_batch"], fields["window_head"] = _repeating(call.center, 2)
    fields["normalizer"], fields["alpha"] = call.normalizer, call.alpha
    fields["scale"], fields["factor"], fields["cap"] = call.scale, call.factor, call.cap
    fields["kept"], fields["seed"] = 1.0 / (1.0 - call.dropout), call.seed
    fields["threshold"] = min(round(call.dropout * 2**32), 2**32 - 1)
    for name, number in more.items():
        fields[name] = number
    return record


def as_matrix(tensor: Tensor) -> Tensor:
    """Queries, keys or values as products take them: features side by side, rows apart."""
    if tensor.stride(-1) == 1 and tensor.stride(-2) >= tensor.shape[-1]:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def is_wide(dtype: torch.dtype) -> bool:
    """Whether products are made of wide vectors instead of BLAS's."""
    return dtype == torch.float32 and wider_than_blas()


def transposed(tensor: Tensor) -> Tensor:
    """Keys or values ``[batch, kv_heads, keys, dim]`` as ``[batch, kv_heads, dim, padded keys]``."""
    batch, heads, keys, dim = tensor.shape
    turned = tensor.new_empty(batch, heads, dim, padded_length(keys))
    stand_in = tensor[:, :, :1]
    record = parameters(Call(stand_in, tensor, tensor[..., :1]), output=turned.data_ptr())
    launch(prepare.transposed(tensor.dtype), record, batch * heads * -(-keys // TILE), 4.0 * tensor.numel())
    return turned


def launch(kernel: Kernel, record: np.ndarray, tasks: int, work: float) -> None:
    """Run a kernel on a record, all tasks of it."""
    record["counter"], record["tasks"] = 0, tasks
    run(kernel, record.ctypes.data, tasks, work)


def _repeating(tensor: Tensor, axes: int) -> tuple[int, ...]:
    """Strides of the first axes; 0 where an axis of length 1 stands for any length."""
    return tuple(tensor.stride(axis) if tensor.shape[axis] > 1 else 0 for axis in range(axes))


def check_inputs(call: Call) -> None:
    """Raise ValueError for what would make a kernel read beyond a tensor; for callers of the operators themselves."""
    query, key, value = call.query, call.key, call.value
    real = (torch.float32, torch.float64)
    if query.dtype not in real or not query.dtype == key.dtype == value.dtype:
        raise ValueError(f"operators take float32 or float64; got {query.dtype}, {key.dtype}, {value.dtype}")
    B, H, _Q, D = query.shape
    if key.shape[0] != B or H % key.shape[1] or key.shape[3] != D or value.shape[:3] != key.shape[:3]:
        raise ValueError(f"shapes do not fit: {list(query.shape)}, {list(key.shape)}, {list(value.shape)}")
