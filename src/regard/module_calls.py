"""Whether a call of a module can be seen or changed from outside: by hooks, compilers, wrappers and overridden methods.

A part of a model whose call cannot be seen may be run in pieces, by methods that are not its ``forward``. Every other
part must be called as a module.
"""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_modules

_CALL = nn.Module.__call__

OWN_HOOKS: set[Callable[..., Any]] = set()
"""Forward pre-hooks on all modules that regard itself installs; a part that is run in pieces need not show itself to
them, so that watching changes no bit of a gradient either."""


def runs(module: nn.Module, forward: Callable[..., Any]) -> bool:
    """Whether a call of a module runs this ``forward``, with the hooks that it may have around it.

    It does not if the module is of another class, as a wrapper is, if its class overrides or replaces the method, or if
    the object itself has another one. A class that adds nothing but parametrizations or sharding keeps it.

    Args:
        module: the module.
        forward: the function of its class, as it was defined.
    """
    return type(module).forward is forward and "forward" not in vars(module)


def is_observed(module: nn.Module, own_hook: Callable[..., Any] | None = None) -> bool:
    """Whether a call of a module does more than its ``forward``: hooks, its own or global, or its compiled form.

    Args:
        module: the module.
        own_hook: a forward pre-hook of the module's class, which does not count; None: there is none.
    """
    return has_hooks(module, own_hook) or _has_foreign_global_hooks()


def _has_foreign_global_hooks() -> bool:
    """Whether there are hooks on all modules, other than regard's own."""
    if not torch_modules._has_any_global_hook():
        return False
    own = torch_modules._global_forward_pre_hooks
    return any(hook not in OWN_HOOKS for hook in own.values()) or any(
        (
            torch_modules._global_forward_hooks,
            torch_modules._global_backward_hooks,
            torch_modules._global_backward_pre_hooks,
        )
    )


def has_hooks(module: nn.Module, own_hook: Callable[..., Any] | None = None) -> bool:
    """As `is_observed`, without hooks on all modules; for a part that computes in another way when it is called."""
    return (
        any(hook is not own_hook for hook in module._forward_pre_hooks.values())
        or bool(module._forward_hooks)
        or bool(module._backward_hooks)
        or bool(module._backward_pre_hooks)
        or module._compiled_call_impl is not None
        or type(module).__call__ is not _CALL
    )
