"""Less memory for activations: computing them again in the backward pass, and treating rows a chunk at a time."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.transforms import active_transform
from regard.versions import Versions

P = ParamSpec("P")
R = TypeVar("R")


def recomputed(function: Callable[P, R]) -> Callable[P, R]:
    """The function with activation checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost").

    Its tensors are not kept for the backward pass, but computed again there from its inputs, with the state that the
    random number generators had: output and gradients are the same, bit for bit. Where no gradient is wanted, and under
    transforms of `torch.func`, which have no saved tensors to replace, the function runs as it is.

    Args:
        function: gives the same for the same inputs and random numbers; changes nothing else.

    The backward pass raises BackendError if an input, or a tensor of the function or its module, was changed in place.
    """

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.is_grad_enabled() or active_transform() is not None:
            return function(*args, **kwargs)
        versions, is_again = Versions(input=(args, kwargs), module=function), False

        def calculate(*args: P.args, **kwargs: P.kwargs) -> R:
            if is_again:
                versions.check()
            return function(*args, **kwargs)

        result = checkpoint(calculate, *args, use_reentrant=False, **kwargs)
        versions.forget_changed()
        is_again = True
        return result  # type: ignore[return-value]

    return run


def in_chunks(function: Callable[..., Tensor], rows: int, *inputs: Tensor) -> Tensor:
    """The function on some rows after the other, for a function that treats each row by itself.

    Args:
        function: tensors ``[chunk, ...]`` -> ``[chunk, ...]``.
        rows: rows of a chunk; 0: all at once.
        inputs: ``[rows, ...]``.
    """
    if not rows or len(inputs[0]) <= rows:
        return function(*inputs)
    # Split, not sliced: a slice's gradient has the size of the whole tensor.
    chunks = zip(*(tensor.split(rows) for tensor in inputs), strict=True)
    return torch.cat([function(*chunk) for chunk in chunks])
