"""What the kernels do not have: gradients of gradients, and several gradients at once."""

from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from regard.errors import BackendError

_BATCHED = torch._C._dispatch_key_parse("Batched")


def refuse_second_derivative(*_: Any) -> NoReturn:
    """Raise BackendError: without it a gradient's own gradient would be silently wrong."""
    raise BackendError(
        "the fused kernels (backend 'cpu') have no second derivative; backend='reference' has, for any score"
    )


def refuse_batched_gradients(*grads: Tensor | None) -> None:
    """Raise BackendError if a gradient is a batch of them, as `is_grads_batched` and `torch.func.vmap` make."""
    for grad in grads:
        if grad is not None and _is_batched(grad):
            raise BackendError(
                "the fused kernels (backend 'cpu') take one gradient at a time, not a batch of them; "
                "backend='reference' takes both"
            )


def _is_batched(tensor: Tensor) -> bool:
    return torch._C._dispatch_keys(tensor).has(_BATCHED) or is_functorch_wrapped_tensor(tensor)
