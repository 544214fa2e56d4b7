"""Checks whether a user's function treats each row or pair independently, by running it once on a small CPU tensor."""

import copy
import warnings
import weakref
from collections.abc import Callable, Hashable, Sequence
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.tracing.transforms import can_branch_on

_PASSED_TRIALS: "weakref.WeakKeyDictionary[Any, set[Hashable]]" = weakref.WeakKeyDictionary()
"""Function → the roles in which it has passed its trial."""


def needs_trial(function: Any, role: Hashable, *tensors: Tensor) -> bool:
    """Whether a function must be tried now.

    It must unless it has passed a trial in this role, or PyTorch traces or transforms the call with these tensors.
    """
    if not can_branch_on(*tensors):
        return False
    function, role = _trial_key(function, role)
    try:
        return role not in _PASSED_TRIALS.get(function, ())
    except TypeError:  # The function is not hashable.
        return True


def _trial_key(function: Any, role: Hashable) -> tuple[Any, Hashable]:
    """Returns the object and the role under which a trial is remembered.

    A bound method is a new object at each access, so its instance stands for it. A lambda without captured variables is
    a new object at each call, so its code stands for it.
    """
    if isinstance(function, MethodType):
        return function.__self__, (function.__func__, role)
    if isinstance(function, FunctionType) and not (function.__closure__ or function.__defaults__):
        return function.__code__, role
    return function, role


def remember_trial(function: Any, role: Hashable) -> None:
    """Records that a function has passed its trial in this role."""
    function, role = _trial_key(function, role)
    try:
        _PASSED_TRIALS.setdefault(function, set()).add(role)
    except TypeError:  # The function is not hashable, or has no weak references.
        return


def trial_values(shape: Sequence[int], like: Tensor, phase: float = 0.0) -> Tensor:
    """Returns a CPU tensor of values between −1 and 1, made without a random generator."""
    index = torch.arange(1.0, 1.0 + torch.Size(shape).numel(), dtype=like.dtype, device="cpu")
    return (index * 12.9898 + phase).sin().view(*shape)


def is_local(
    function: Callable[..., Any],
    arguments: Sequence[Tensor],
    others: Sequence[Tensor],
    part: Callable[[Tensor], Tensor],
    **options: Any,
) -> bool | None:
    """Whether one part of a function's result stays the same when unrelated parts of its arguments change.

    The trial has no side effects: PyTorch's random generator is restored, a module is copied without its hooks, and
    neither autograd nor a function mode records anything.

    Args:
        function: the function to try.
        arguments: tensors to call it with.
        others: the same tensors, changed wherever the part of the result must not depend on them.
        part: selects the part of a result.
        options: further arguments of the function.

    Returns:
        None if the trial is inconclusive: the function fails on these tensors, or its results vary from call to call.

    Raises:
        RegardError: raised by ``part``.
    """
    state = torch.get_rng_state()

    def result(inputs: Sequence[Tensor]) -> Tensor:
        torch.set_rng_state(state)
        return part(trial_function(*(tensor.clone() for tensor in inputs), **options)).double()

    try:
        with warnings.catch_warnings(), torch.no_grad(), torch._C.DisableTorchFunction():
            warnings.simplefilter("ignore")
            trial_function = _copy_without_hooks(function)
            before, after = result(arguments), result(others)
            if torch.allclose(before, after, rtol=1e-3, atol=1e-4, equal_nan=True):
                return True
            return False if torch.allclose(before, result(arguments), equal_nan=True) else None
    except RegardError:
        raise
    except Exception:
        # The user's own call will raise the error.
        return None
    finally:
        torch.set_rng_state(state)


def _copy_without_hooks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function itself, or a copy of a module without hooks, since running a module may change its buffers."""
    if not isinstance(function, nn.Module):
        return function
    module = copy.deepcopy(function)
    for part in module.modules():
        for hooks in (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks):
            hooks.clear()
    return module
