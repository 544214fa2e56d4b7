"""Saving activation memory: recomputation in the backward pass, and processing of rows in chunks."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.distributed.sequence_parts import current, within
from regard.tracing.transforms import active_transform
from regard.tracing.versions import Versions

P = ParamSpec("P")
R = TypeVar("R")


def recomputed(function: Callable[P, R]) -> Callable[P, R]:
    """Adds activation checkpointing to a function (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost").

    Its intermediate tensors are not saved for the backward pass but recomputed there from its inputs, with the same
    state of the random number generators, so output and gradients are the same, bit for bit. The function must have no
    side effects. Without a gradient, and under `torch.func` transforms, which have no saved tensors to replace, it runs
    unchanged. The backward pass raises BackendError if an input, or a tensor of the function or its module, was changed
    in place.
    """

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.is_grad_enabled() or active_transform() is not None:
            return function(*args, **kwargs)
        versions, is_backward, sequences = Versions(input=(args, kwargs), module=function), False, current()

        def calculate(*args: P.args, **kwargs: P.kwargs) -> R:
            if is_backward:
                versions.check()
                with within(sequences):
                    return function(*args, **kwargs)
            return function(*args, **kwargs)

        result = checkpoint(calculate, *args, use_reentrant=False, **kwargs)
        versions.forget_changed()
        is_backward = True
        return result

    return run


def in_chunks(function: Callable[..., Tensor], rows: int, *inputs: Tensor) -> Tensor:
    """Applies a function that treats each row of ``[..., dim]`` independently to chunks of ``rows`` rows; 0: all rows
    at once, as in an exported program, whose sizes are open."""
    if not rows or torch.compiler.is_exporting() or inputs[0].shape[:-1].numel() <= rows:
        return function(*inputs)
    # `split` is used because the gradient of a slice has the size of the whole tensor.
    chunks = zip(*(tensor.flatten(0, -2).split(rows) for tensor in inputs), strict=True)
    return torch.cat([function(*chunk) for chunk in chunks]).view(*inputs[0].shape[:-1], -1)
