"""Functions into which `torch.compile` does not look."""

import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs as it is wherever a compiler meets it.

    `torch.compiler.disable` alone loads the compiler, which takes longer than all else in the first call of a process.
    A compiler that is not loaded looks into nothing.
    """

    @cache
    def disabled() -> Callable[..., Any]:
        return torch.compiler.disable(function)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        return (disabled() if "torch._dynamo" in sys.modules else function)(*arguments)

    return call
