"""What the kernels do not have: gradients of gradients."""

from typing import Any, NoReturn

from regard.errors import BackendError


def refuse_second_derivative(*_: Any) -> NoReturn:
    """Raise BackendError: without it a gradient's own gradient would be silently wrong."""
    raise BackendError("the fused kernels have no second derivative; backend='reference' has, for any score")
