"""Checks whether a module's call can be seen or changed by hooks, compilers, wrappers or overridden methods.

If it cannot, regard may run the module in pieces, by methods other than its ``forward``. Every other module must be
called through ``__call__``.
"""

import threading
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_modules

from regard.fork_lock import ForkLock

_CALL = nn.Module.__call__
_LOCK = ForkLock()

OWN_HOOKS: set[Callable[..., Any]] = set()
"""Global forward pre-hooks that regard itself installs. Modules may run in pieces in spite of them, so that watching
changes no bit of a gradient."""


def runs(module: nn.Module, forward: Callable[..., Any]) -> bool:
    """Whether calling a module runs this ``forward``, with any hooks around it.

    It does not if the module has another class (a wrapper), if a subclass overrides the method, or if the instance
    has a ``forward`` of its own. Parametrizations and sharding change the class but keep the method.

    Args:
        module: the module.
        forward: the function as its class defines it.
    """
    attributes = vars(module)
    return type(module).forward is forward and (
        "forward" not in attributes or isinstance(attributes["forward"], _Substitute)
    )


class _Substitute:
    """Replaces a module's ``forward`` during `call_with`; each thread has its own replacement function.

    All other calls run the ``forward`` of the module's class, including those by hooks that call the module again.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module, self.calls, self.local = module, 0, threading.local()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        forward, self.local.forward = getattr(self.local, "forward", None), None
        if forward is None:
            return type(self.module).forward(self.module, *arguments, **named)
        return forward(*arguments, **named)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Substitute, (self.module,)  # A hook may copy the module during a call; the copy is not being called.


def call_with(module: nn.Module, forward: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a module with its hooks, but with another function in place of its ``forward``.

    Hooks thus see a module that is computed in another way, and the result is the same with and without hooks. Several
    threads may call the module at once. The function runs once, in the first call that reaches the ``forward``; if a
    forward pre-hook calls the module, that is the call.

    Args:
        module: the module, whose class has the ``forward`` (see `runs`).
        forward: a function with the same result as the module's ``forward``.
        arguments: arguments of the call.
    """
    attributes = vars(module)
    with _LOCK:
        substitute = attributes.setdefault("forward", _Substitute(module))
        substitute.calls += 1
    previous, substitute.local.forward = getattr(substitute.local, "forward", None), forward
    try:
        return module(*arguments)
    finally:
        substitute.local.forward = previous
        with _LOCK:
            substitute.calls -= 1
            if not substitute.calls and attributes.get("forward") is substitute:
                del attributes["forward"]


def is_observed(module: nn.Module, own_hook: Callable[..., Any] | None = None) -> bool:
    """Whether calling a module does more than its ``forward``: it is compiled, or it has hooks, its own or global ones.

    Args:
        module: the module.
        own_hook: a forward pre-hook that the module's class installs and that does not count.
    """
    return has_hooks(module, own_hook) or _has_foreign_global_hooks()


def _has_foreign_global_hooks() -> bool:
    """Whether there are global hooks other than regard's own."""
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
    """Whether `is_observed` holds for reasons other than global hooks."""
    return (
        any(hook is not own_hook for hook in module._forward_pre_hooks.values())
        or bool(module._forward_hooks)
        or bool(module._backward_hooks)
        or bool(module._backward_pre_hooks)
        or module._compiled_call_impl is not None
        or type(module).__call__ is not _CALL
    )
