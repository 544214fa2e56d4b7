"""What a calculation may do with its tensors: read their numbers, and use a kernel that has reverse mode only."""

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

_BATCHED = torch._C._dispatch_key_parse("Batched")


def has_numbers(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor can be read, and what follows may depend on them.

    It may not while a compiler or an exporter traces, under a transform of ``torch.func``, for batched gradients, under
    a mode that sees every operation, and for tensors without numbers (meta, fake).
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and not tensor.is_meta
        and not is_transformed()
        and torch._C._len_torch_dispatch_stack() == 0
        and not torch._C._dispatch_keys(tensor).has(_BATCHED)
    )


def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` is active."""
    return torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore[reportAttributeAccessIssue]


def derivative_levels() -> int:
    """How many derivatives are being taken in one another, at most: one for each transform, and forward mode."""
    stack = torch._C._functorch.get_interpreter_stack()  # pyright: ignore[reportAttributeAccessIssue]
    return len(stack or ()) + forward_ad._current_level + 1


def reverse_mode_only(tensor: Tensor) -> bool:
    """Whether nothing but reverse mode can ask this calculation for a derivative, and numbers can be read."""
    return forward_ad._current_level < 0 and has_numbers(tensor)
