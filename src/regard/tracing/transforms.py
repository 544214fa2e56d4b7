"""Checks what a calculation may do with its tensors under PyTorch's transforms.

The elements of a tensor cannot be read under a compiler or an exporter, nor those of fake and meta tensors.
``torch.func`` transforms, forward mode and batched gradients need calculations that consist of differentiable
operations and whose control flow does not depend on elements.
"""

import sys
from collections.abc import Callable
from functools import lru_cache
from math import isfinite
from typing import TypeVar, cast

import torch
from torch import Tensor
from torch._C import _dispatch_tls_is_dispatch_key_included as _is_included
from torch._C import _is_tracing, _len_torch_dispatch_stack
from torch._C._functorch import get_interpreter_stack, is_functorch_wrapped_tensor, peek_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.nn import Parameter

Function = TypeVar("Function", bound=Callable[..., object])

_BATCHED_KEY = torch._C._dispatch_key_parse("Batched")
_BATCHING_KEY = torch._C._dispatch_key_parse("VmapMode")
"""The dispatch key of batched gradients; ``torch.func`` has its own stack."""


def has_data(tensor: Tensor) -> bool:
    """Whether the elements of ``tensor`` can be read now, so that Python may branch on them.

    False for meta and fake tensors, for tensors that a ``torch.func`` transform wraps (``vmap``, ``grad``, ``jvp``),
    and for all tensors while ``torch.compile``, ``torch.export``, ``torch.jit.trace`` or ``make_fx`` traces.
    """
    if torch.compiler.is_compiling() or _is_tracing():
        return False
    if type(tensor) is Tensor and peek_interpreter_stack() is None and _len_torch_dispatch_stack() == 0:
        # The common case, by the fastest checks.
        return not (tensor.is_meta or torch._is_functional_tensor(tensor) or is_functorch_wrapped_tensor(tensor))
    return not (
        tensor.is_meta
        or isinstance(tensor, (FakeTensor, FunctionalTensor))
        or is_functorch_wrapped_tensor(tensor)
        or torch._is_functional_tensor(tensor)
        or get_proxy_mode() is not None
    )


def is_dtensor(value: object) -> bool:
    """Whether this is a DTensor, whose elements lie on several processes."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


READS_PINNED_MEMORY = ("cuda", "xpu")
"""Kinds of devices that copy from pinned memory by themselves, while the host goes on; ROCm's are ``cuda``."""


def moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Returns the tensor on a device; from a host's memory to that of a GPU the copy is asynchronous."""
    if tensor.is_cpu and torch.device(device).type in READS_PINNED_MEMORY:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def sent(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Returns a small tensor on a device, from a host's memory without waiting for what a GPU calculates.

    Devices of `READS_PINNED_MEMORY` take the elements before the call returns. On others, such as Apple's GPUs, only a
    copy that blocks is sure to read a temporary tensor before its memory is used again.
    """
    return tensor.to(device, non_blocking=tensor.is_cpu and torch.device(device).type in READS_PINNED_MEMORY)


def is_capturing(device: torch.device) -> bool:
    """Whether a CUDA graph of what runs on the device is captured now, in this thread."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def stream_of(device: torch.device) -> int:
    """Returns a number for the stream in whose order this thread's operations run on a device."""
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


SHARED_POSITIONS = 1 << 18
"""Positions of which a device keeps the integers: 2 MiB."""


def shared_positions(span: range, device: torch.device) -> Tensor:
    """Returns the positions of a span, int64; on a device in memory that calls share, which nothing may change."""
    if not _may_share(device) or span.stop > SHARED_POSITIONS:
        return torch.arange(span.start, span.stop, device=device)
    size = 1 << max(span.stop - 1, 0).bit_length()
    return _positions(size, device, stream_of(device))[span.start : span.stop]


def shared_scalar(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns a number as a tensor without axes, for operations that would write it to a device at each call.

    The memory is shared as that of `shared_positions` is.
    """
    if not _may_share(device):
        return torch.full((), value, dtype=dtype, device=device)
    return _scalar(value, dtype, device, stream_of(device))


def _may_share(device: torch.device) -> bool:
    """Whether memory outlives a call: it is on a device, and belongs to no trace and to no graph."""
    return device.type not in ("cpu", "meta") and can_branch_on() and not is_capturing(device)


# Memory belongs to a stream, whose order its operations have; it is made in no inference mode, since trainings save it.


@lru_cache(64)
def _positions(size: int, device: torch.device, stream: int) -> Tensor:
    with torch.inference_mode(False):
        return torch.arange(size, device=device)


@lru_cache(64)
def _scalar(value: float, dtype: torch.dtype, device: torch.device, stream: int) -> Tensor:
    with torch.inference_mode(False):
        return torch.full((), value, dtype=dtype, device=device)


def is_on_host(tensor: Tensor) -> bool:
    """Whether Python can read the tensor's elements without waiting for an accelerator."""
    return tensor.is_cpu


def exact_dtype(device: torch.device) -> torch.dtype:
    """Returns float64; float32 on Apple's GPUs, which have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def can_branch_on(*tensors: Tensor) -> bool:
    """Whether control flow may depend on the elements of all these tensors.

    It may not if they cannot be read, under a ``torch.func`` transform, for batched gradients, while PyTorch traces,
    and under a mode that intercepts every operation.
    """
    # Every call comes here, so the checks are the fastest ones.
    if torch.compiler.is_compiling() or _is_tracing():
        return False
    if peek_interpreter_stack() is not None or _len_torch_dispatch_stack():
        return False
    batching = _is_included(_BATCHING_KEY)
    for tensor in tensors:
        kind = type(tensor)
        if (kind is not Tensor and kind is not Parameter) or tensor.is_meta or (batching and is_batched(tensor)):
            return False
    return True


def has_host_data(*tensors: Tensor) -> bool:
    """Whether the elements can be read now, without waiting for a device: as `has_data`, and all are on the CPU."""
    return all(tensor.is_cpu and has_data(tensor) for tensor in tensors)


def can_read(*tensors: Tensor) -> bool:
    """Whether control flow may depend on elements (`can_branch_on`) without waiting for a device: all are on the CPU.

    On a device, calculations decide by elementwise operations, so that no call waits for it (contract 15).
    """
    return all(tensor.is_cpu for tensor in tensors) and can_branch_on(*tensors)


def has_dense_cpu_storage(*tensors: Tensor) -> bool:
    """Whether a kernel may read the elements of these tensors directly from CPU memory."""
    return can_branch_on(*tensors) and all(tensor.is_cpu and has_plain_memory(tensor) for tensor in tensors)


def has_plain_memory(tensor: Tensor) -> bool:
    """Whether a tensor's memory holds its elements: it is neither a lazily negated view nor a zero tensor without
    memory."""
    return not (tensor.is_neg() or tensor._is_zerotensor())


def in_memory(tensor: Tensor) -> Tensor:
    """Returns the tensor, or a copy if it is a lazily negated view or a zero tensor without memory."""
    return tensor if has_plain_memory(tensor) else tensor.clone()


def is_finite(*tensors: Tensor) -> bool:
    """Whether all numbers are finite; a sum of huge finite numbers that overflows counts as not finite.

    One sum of each tensor tells, at the speed of memory: a sum with NaN or an infinity in it is never finite.
    """
    for tensor in tensors:
        numbers = tensor.detach() if tensor.requires_grad else tensor
        # Sums in float16 would overflow.
        if numbers.dtype is torch.float16:
            numbers = numbers.float()
        if not isfinite(_sum(numbers)):
            return False
    return True


SERIAL_SUM = range(1 << 15, (1 << 18) + 1)
"""The numbers of elements that are summed on one thread. PyTorch takes several, which saves microseconds, and on a
machine with a busy core costs milliseconds: the call waits for a thread that shares its core."""

_SUM_ROW = 1024


def _sum(numbers: Tensor) -> float | Tensor:
    """Returns the sum of all elements."""
    is_serial = numbers.numel() in SERIAL_SUM and numbers.numel() % _SUM_ROW == 0 and numbers.dtype is torch.float32
    if is_serial and numbers.is_contiguous() and has_dense_cpu_storage(numbers):
        return numbers.numpy().reshape(-1, _SUM_ROW).sum(0).sum()
    return numbers.sum()


def reverse_mode_only(tensor: Tensor) -> bool:
    """Whether elements can be read and only reverse mode can differentiate the calculation."""
    return forward_ad._current_level < 0 and can_branch_on(tensor)


def is_traced(tensor: Tensor) -> bool:
    """Whether a call is traced or has only shapes, so that nothing may depend on elements.

    True while ``torch.compile``, ``torch.export`` or ``torch.jit.trace`` traces, and for meta and fake tensors.
    """
    if torch.compiler.is_compiling() or _is_tracing():
        return True
    return tensor.is_meta or (type(tensor) is not Tensor and isinstance(tensor, (FakeTensor, FunctionalTensor)))


def has_saved_tensor_hooks() -> bool:
    """Whether hooks get the tensors that autograd saves now, as in activation checkpointing."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)  # pyright: ignore[reportAttributeAccessIssue]
    return hooks is not None


def uncompiled(function: Function) -> Function:
    """Decorates a function that compilers run as it is, because processes exchange tensors in it."""
    return cast(Function, torch.compiler.disable(function))


def is_batched(tensor: Tensor) -> bool:
    """Whether a tensor stands for a batch, as in ``vmap`` and with ``is_grads_batched``."""
    by_autograd = _is_included(_BATCHING_KEY) and torch._C._dispatch_keys(tensor).has(_BATCHED_KEY)
    return by_autograd or is_functorch_wrapped_tensor(tensor)


def is_transformed() -> bool:
    """Whether a ``torch.func`` transform is active."""
    return peek_interpreter_stack() is not None


def derivative_levels() -> int:
    """Returns an upper bound of the number of nested derivatives: the transforms, plus the forward-mode levels."""
    return len(get_interpreter_stack() or ()) + forward_ad._current_level + 1


def active_transform() -> str | None:
    """Returns a sentence about the active transform that only differentiable PyTorch operations support, or None.

    A forward-mode level or a ``torch.func`` transform (`grad`, `vmap`, `jvp`, `jacrev`, …) is active for a whole region
    of a program, so it counts even if no tensor of the call is wrapped.
    """
    if forward_ad._current_level >= 0:
        return "a forward-mode derivative is being taken"
    return "a torch.func transform is active" if is_transformed() else None
