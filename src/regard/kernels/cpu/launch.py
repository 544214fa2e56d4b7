"""Filling a kernel's parameters from tensors, and running the kernel on them."""

import ctypes
import struct

import torch
from torch import Tensor

from regard.kernels.availability import wider_than_blas
from regard.kernels.cpu import prepare
from regard.kernels.cpu.compiled import Kernel
from regard.kernels.cpu.kernel_arguments import LAYOUT
from regard.kernels.cpu.kernel_inputs import KernelInputs
from regard.kernels.cpu.products import gemm_address, limit_address
from regard.kernels.cpu.tanh_sum import TILE, padded_length
from regard.kernels.cpu.threads import run
from regard.kernels.kinds import DENSE_BIAS, DIAGONAL_BIAS

_NAMES = LAYOUT.names or ()
_PACKED = struct.Struct("".join("q" if LAYOUT[name].kind == "i" else "d" for name in _NAMES))


def parameters(call: KernelInputs, **more: int) -> dict[str, float]:
    """The fields of this call's record by name, those that are not 0; ``more`` adds to the inputs."""
    query, key, value = call.query, call.key, call.value
    batch, heads, queries, dim = query.shape
    fields: dict[str, float] = {
        "gemm": gemm_address(query.dtype),
        "limit_threads": limit_address(),
        "wide": is_wide(query.dtype),
        "batch": batch,
        "heads": heads,
        "kv_heads": key.shape[1],
        "queries": queries,
        "keys": key.shape[2],
        "dim": dim,
        "value_dim": value.shape[3],
        "block": call.block,
        "chunks": 1,
        "normalizer": call.normalizer,
        "alpha": call.alpha,
        "scale": call.scale,
        "inverse_temperature": 1.0 / call.temperature,
        "cap": call.cap,
        "kept": 1.0,
    }
    fields["query"] = query.data_ptr()
    fields["query_batch"], fields["query_head"], fields["query_row"], _ = query.stride()
    fields["key"] = key.data_ptr()
    fields["key_batch"], fields["key_head"], fields["key_row"], _ = key.stride()
    fields["value"] = value.data_ptr()
    fields["value_batch"], fields["value_head"], fields["value_row"], _ = value.stride()
    if call.weight is not None and call.exponentials is not None and call.extents is not None:
        fields["additive"], fields["weight"] = 1, call.weight.data_ptr()
        (fields["weight_head"],) = _repeating(call.weight, 1)
        fields["exponentials"], fields["extents"] = call.exponentials.data_ptr(), call.extents.data_ptr()
    if call.start is not None and call.stop is not None:
        fields["start"], fields["stop"] = call.start.data_ptr(), call.stop.data_ptr()
        fields["span_batch"], fields["span_head"], fields["span_row"] = _repeating(call.start, 3)
    if call.mask is not None:
        fields["mask"] = call.mask.data_ptr()
        fields["mask_batch"], fields["mask_head"], fields["mask_row"] = _repeating(call.mask, 3)
    if call.bias is not None:
        fields["bias"], fields["bias_kind"] = call.bias.data_ptr(), DIAGONAL_BIAS if call.diagonal else DENSE_BIAS
        if call.diagonal:
            (fields["bias_head"],) = _repeating(call.bias, 1)
        else:
            strides = _repeating(call.bias, 4)
            fields["bias_batch"], fields["bias_head"], fields["bias_row"], fields["bias_key"] = strides
    for name in ("sink", "shift"):
        number = getattr(call, name)
        if number is not None:
            fields[name] = number.data_ptr()
            (fields[f"{name}_head"],) = _repeating(number, 1)
    if call.center is not None and call.sigma is not None:
        fields["center"], fields["sigma"] = call.center.data_ptr(), call.sigma.data_ptr()
        fields["window_batch"], fields["window_head"] = _repeating(call.center, 2)
    if call.dropout:
        fields["seed"], fields["kept"] = call.seed, 1.0 / (1.0 - call.dropout)
        fields["threshold"] = min(round(call.dropout * 2**32), 2**32 - 1)
    fields.update(more)
    return fields


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
    record = parameters(KernelInputs(stand_in, tensor, tensor[..., :1]), output=turned.data_ptr())
    launch(prepare.transposed(tensor.dtype), record, batch * heads * -(-keys // TILE), 4.0 * tensor.numel())
    return turned


def launch(kernel: Kernel, fields: dict[str, float], tasks: int, work: float) -> None:
    """Run a kernel on the record of these fields, all tasks of it."""
    fields["tasks"] = tasks
    get = fields.get
    record = ctypes.create_string_buffer(_PACKED.pack(*[get(name, 0) for name in _NAMES]))
    run(kernel, ctypes.addressof(record), tasks, work)


def _repeating(tensor: Tensor, axes: int) -> tuple[int, ...]:
    """Strides of the first axes; 0 where an axis of length 1 stands for any length."""
    return tuple(tensor.stride(axis) if tensor.shape[axis] > 1 else 0 for axis in range(axes))


def check_inputs(call: KernelInputs) -> None:
    """Raise ValueError for what would make a kernel read beyond a tensor; for callers of the operators themselves."""
    query, key, value = call.query, call.key, call.value
    real = (torch.float32, torch.float64)
    if query.dtype not in real or not query.dtype == key.dtype == value.dtype:
        raise ValueError(f"operators take float32 or float64; got {query.dtype}, {key.dtype}, {value.dtype}")
    B, H, _Q, D = query.shape
    if key.shape[0] != B or H % key.shape[1] or key.shape[3] != D or value.shape[:3] != key.shape[:3]:
        raise ValueError(f"shapes do not fit: {list(query.shape)}, {list(key.shape)}, {list(value.shape)}")
