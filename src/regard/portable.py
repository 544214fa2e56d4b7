"""Programs that run without regard: whether what is traced must consist of PyTorch's own operations."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_portable: ContextVar[bool] = ContextVar("portable operations", default=False)


@contextmanager
def portable_operations() -> Iterator[None]:
    """In this context, a traced program consists of PyTorch's own operations, so that it runs without regard.

    Attention is traced step by step as the specification computes it, in quadratic memory, and not as one operator.
    """
    token = _portable.set(True)
    try:
        yield
    finally:
        _portable.reset(token)


def is_portable() -> bool:
    """Whether `portable_operations` is active; never within ``torch.compile``, which reads no context variable."""
    return not torch.compiler.is_dynamo_compiling() and _portable.get()
