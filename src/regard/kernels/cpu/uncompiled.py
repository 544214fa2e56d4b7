"""Functions that `torch.compile` does not trace."""

import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function so that a compiler calls it without tracing it.

    `torch.compiler.disable` alone imports the compiler, which takes longer than anything else in the first call of a
    process. As long as the compiler is not imported, nothing is traced.
    """

    @cache
    def disabled() -> Callable[..., Any]:
        return torch.compiler.disable(function)

    @wraps(function)
    def untraced(*arguments: Any) -> Any:
        return (disabled() if "torch._dynamo" in sys.modules else function)(*arguments)

    return untraced
