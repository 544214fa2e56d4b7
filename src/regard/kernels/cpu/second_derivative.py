"""Errors for what the kernels do not support: gradients of gradients, and batches of gradients."""

from typing import Any, NoReturn

from torch import Tensor

from regard.errors import BackendError
from regard.tracing.transforms import is_batched


def refuse_second_derivative(*_: Any) -> NoReturn:
    """Raises BackendError, since a second derivative would be silently wrong."""
    raise BackendError(
        "the fused kernels (backend 'cpu') have no second derivative; backend='reference' has one for any score"
    )


def refuse_batched_gradients(*grads: Tensor | None) -> None:
    """Raises BackendError if a gradient is a batch of gradients, as `is_grads_batched` and `torch.func.vmap`
    produce."""
    for grad in grads:
        if grad is not None and is_batched(grad):
            raise BackendError(
                "the fused kernels (backend 'cpu') take one gradient at a time, not a batch of gradients; "
                "backend='reference' takes both"
            )
