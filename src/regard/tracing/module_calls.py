"""The calls of modules: their types, and whether hooks, compilers, wrappers or overridden methods see or change them.

If nothing can, regard may run the module in pieces, by methods other than its ``forward``. Every other module must be
called through ``__call__``.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from torch import nn
from torch.nn.modules import module as torch_modules
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from regard.tracing.portable import is_portable

if TYPE_CHECKING:
    _Arguments = ParamSpec("_Arguments")
    _Result = TypeVar("_Result", covariant=True)

    class _HasForward(Protocol[_Arguments, _Result]):
        def forward(self, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result: ...

    class Module(nn.Module):
        """A `torch.nn.Module` whose call has the types of its ``forward``; type checkers alone see the difference."""

        def __call__(
            self: _HasForward[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
        ) -> _Result: ...

else:
    Module = nn.Module

_CALL = nn.Module.__call__

OWN_HOOKS: set[Callable[..., Any]] = set()
"""Global forward hooks and pre-hooks that regard itself installs. Modules may run in pieces in spite of them, so that
watching changes no bit of a gradient."""


def runs(module: nn.Module, forward: Callable[..., Any]) -> bool:
    """Whether calling a module runs this ``forward``, with any hooks around it.

    It does not if the module is of another class, as a wrapper is, if its class overrides or replaces the method, or if
    the object has a ``forward`` of its own. A class that adds nothing but parametrizations or sharding keeps it.
    """
    return type(module).forward is forward and "forward" not in vars(module)


def is_observed(module: nn.Module) -> bool:
    """Whether calling a module does more than its ``forward``: it is compiled, or has hooks, its own or global ones."""
    return has_hooks(module) or has_foreign_global_hooks()


def has_foreign_global_hooks() -> bool:
    """Whether there are global hooks other than regard's own."""
    if not torch_modules._has_any_global_hook():
        return False
    forward = (*torch_modules._global_forward_pre_hooks.values(), *torch_modules._global_forward_hooks.values())
    return any(hook not in OWN_HOOKS for hook in forward) or any(
        (torch_modules._global_backward_hooks, torch_modules._global_backward_pre_hooks)
    )


def has_hooks(module: nn.Module, own_hook: Callable[..., Any] | None = None) -> bool:
    """Whether `is_observed` holds for reasons other than global hooks.

    Args:
        own_hook: a forward pre-hook that the module's class installs and that does not count.
    """
    return (
        any(hook is not own_hook for hook in module._forward_pre_hooks.values())
        or bool(module._forward_hooks)
        or bool(module._backward_hooks)
        or bool(module._backward_pre_hooks)
        or module._compiled_call_impl is not None
        # An exporter replaces the method of every class.
        or (type(module).__call__ is not _CALL and not is_portable())
    )


_PLAIN_MODULES = (
    nn.Linear, NonDynamicallyQuantizableLinear, nn.Dropout, nn.LayerNorm, nn.RMSNorm, nn.Identity, nn.ReLU, nn.GELU,
    nn.SiLU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU, nn.ELU, nn.Softplus, nn.Mish, nn.PReLU,
)  # fmt: skip
_FORWARDS: dict[type, Callable[..., Any]] = {kind: kind.forward for kind in _PLAIN_MODULES}


def is_plain_part(module: nn.Module) -> bool:
    """Whether a module is one of PyTorch's that treats each row by itself, whose call is neither seen nor changed."""
    kind = type(module)
    return _FORWARDS.get(kind) is kind.forward and "forward" not in vars(module) and not has_hooks(module)
