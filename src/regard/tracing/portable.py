"""Programs that run without regard: whether what is traced must consist of PyTorch's own operations, and which
operations an operator of regard consists of."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch._decomp import register_decomposition
from torch._subclasses.functional_tensor import dispatch_functionalize

_portable: ContextVar[bool] = ContextVar("portable operations", default=False)


@contextmanager
def portable_operations() -> Iterator[None]:
    """Returns a context in which a traced program consists of PyTorch's own operations, so that it runs without regard.

    Attention is composed of them, and is not one operator of regard. `torch.onnx.export` needs no such context.

    Example:
        >>> import torch
        >>> from regard import exports, nn
        >>> layer, x = nn.MultiheadAttention(8, 2).eval(), torch.randn(5, 3, 8)
        >>> with exports.portable_operations():
        ...     program = torch.export.export(layer, (x, x, x))
        >>> "regard" in str(program.graph)
        False
    """
    token = _portable.set(True)
    try:
        yield
    finally:
        _portable.reset(token)


def is_portable() -> bool:
    """Whether `portable_operations` is active; never within ``torch.compile``, which reads no context variable."""
    return not torch.compiler.is_dynamo_compiling() and _portable.get()


def register_operations(operator: Any, function: Callable[..., Any], shapes: Callable[..., Any]) -> None:
    """Registers the operations that an operator consists of, for exporters to other formats.

    `torch.onnx.export` looks for them in PyTorch's table of decompositions; so does
    ``ExportedProgram.run_decompositions`` with that table.

    Args:
        function: computes the operator's results with PyTorch's operations, within `portable_operations`.
        shapes: returns empty results. Where PyTorch computes shapes alone, it would take the operations otherwise.
    """

    def operations(*inputs: Any) -> Any:
        # An exporter takes no operation in place.
        with portable_operations():
            return dispatch_functionalize(function)(*inputs)

    register_decomposition(operator)(operations)
    register_decomposition(operator, type="meta")(shapes)


def vector(values: Sequence[float], dtype: torch.dtype) -> Tensor:
    """Returns numbers as a tensor on the CPU; where programs are portable it is made by operations, since what replaces
    an operator may hold no tensor of its own."""
    if is_portable() and values:
        return torch.cat([torch.full((1,), value, dtype=dtype, device="cpu") for value in values])
    return torch.tensor(values, dtype=dtype, device="cpu")
