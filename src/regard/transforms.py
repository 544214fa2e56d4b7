"""What a calculation may do with its tensors under the transforms of PyTorch.

Compilers, exporters, fake and meta tensors have no numbers; ``torch.func`` transforms, forward mode and batched
gradients need calculations made of differentiable operations, whose course depends on no number.
"""

from math import isfinite
from typing import TypeVar

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
from torch.utils._pytree import _register_namedtuple

Named = TypeVar("Named", bound=type)

_BATCHED = torch._C._dispatch_key_parse("Batched")
_BATCHING = torch._C._dispatch_key_parse("VmapMode")
"""All calculations with batched gradients are made under this key; ``torch.func`` has its own stack."""


def exportable(kind: Named) -> Named:
    """A decorator of a named tuple: programs of ``torch.export`` that return one can be saved."""
    _register_namedtuple(kind, serialized_type_name=f"{kind.__module__}.{kind.__qualname__}")
    return kind


def has_data(tensor: Tensor) -> bool:
    """Whether the numbers of ``tensor`` can be read now, so that Python may decide by them.

    False for tensors on ``meta`` and fake tensors, for tensors that a transform of ``torch.func`` wraps (``vmap``,
    ``grad``, ``jvp``), and for all tensors while ``torch.compile``, ``torch.export``, ``torch.jit.trace`` or
    ``make_fx`` traces.
    """
    if torch.compiler.is_compiling() or _is_tracing():
        return False
    if type(tensor) is Tensor and peek_interpreter_stack() is None and _len_torch_dispatch_stack() == 0:
        # The usual case, told by the quickest tests.
        return not (tensor.is_meta or torch._is_functional_tensor(tensor) or is_functorch_wrapped_tensor(tensor))
    return not (
        tensor.is_meta
        or isinstance(tensor, (FakeTensor, FunctionalTensor))
        or is_functorch_wrapped_tensor(tensor)
        or torch._is_functional_tensor(tensor)
        or get_proxy_mode() is not None
    )


def can_branch_on(*tensors: Tensor) -> bool:
    """Whether what follows may depend on the numbers of all these tensors.

    It may not where they cannot be read, under a transform of ``torch.func``, for batched gradients, while PyTorch
    traces, and under a mode that sees every operation.
    """
    # Asked in every call, so by the quickest tests.
    if torch.compiler.is_compiling() or _is_tracing():
        return False
    if peek_interpreter_stack() is not None or _len_torch_dispatch_stack():
        return False
    batching = _is_included(_BATCHING)
    for tensor in tensors:
        kind = type(tensor)
        if (kind is not Tensor and kind is not Parameter) or tensor.is_meta or (batching and is_batched(tensor)):
            return False
    return True


def lie_in_memory(*tensors: Tensor) -> bool:
    """Whether a kernel may read these tensors' numbers where they lie, on a CPU: none are changed as they are read."""
    return can_branch_on(*tensors) and all(tensor.is_cpu and has_plain_memory(tensor) for tensor in tensors)


def is_alias(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors are one, or the same memory in the same layout, as PyTorch's backward hooks pass it."""
    if first is second:
        return True
    same = first.shape == second.shape and first.stride() == second.stride() and first.dtype == second.dtype
    return same and lie_in_memory(first, second) and first.data_ptr() == second.data_ptr()


def has_plain_memory(tensor: Tensor) -> bool:
    """Whether a tensor's memory holds its numbers: no view changes their signs, and it is no zeros without memory."""
    return not (tensor.is_neg() or tensor._is_zerotensor())


def in_memory(tensor: Tensor) -> Tensor:
    """The tensor, or a copy if a view changes the signs of its memory's numbers or if it is zeros without memory."""
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
        if not isfinite(numbers.sum()):
            return False
    return True


def reverse_mode_only(tensor: Tensor) -> bool:
    """Whether reverse mode alone can ask this calculation for a derivative, and numbers can be read."""
    return forward_ad._current_level < 0 and can_branch_on(tensor)


def is_traced(tensor: Tensor) -> bool:
    """Whether a call is recorded or has shapes alone, so that nothing may depend on numbers.

    True while ``torch.compile``, ``torch.export`` or ``torch.jit.trace`` traces, for tensors on ``meta``, and for fake
    tensors.
    """
    if torch.compiler.is_compiling() or _is_tracing():
        return True
    return tensor.is_meta or (type(tensor) is not Tensor and isinstance(tensor, (FakeTensor, FunctionalTensor)))


def is_batched(tensor: Tensor) -> bool:
    """Whether a tensor stands for a batch, as ``vmap`` and ``is_grads_batched`` make it."""
    by_autograd = _is_included(_BATCHING) and torch._C._dispatch_keys(tensor).has(_BATCHED)
    return by_autograd or is_functorch_wrapped_tensor(tensor)


def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` is active."""
    return peek_interpreter_stack() is not None


def derivative_levels() -> int:
    """How many derivatives are being taken in one another, at most: one for each transform, and forward mode."""
    return len(get_interpreter_stack() or ()) + forward_ad._current_level + 1


def active_transform() -> str | None:
    """What takes a derivative, or maps, in a way that only differentiable PyTorch operations support; None if nothing.

    A forward-mode level or a ``torch.func`` transform (`grad`, `vmap`, `jvp`, `jacrev`, …) is active for whole regions
    of a program, so constants inside of one count as well.
    """
    if forward_ad._current_level >= 0:
        return "a forward-mode derivative is being taken"
    return "a torch.func transform is active" if is_transformed() else None
