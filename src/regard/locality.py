"""Whether a user's function treats each row, or each pair, by itself: it is tried once, on a few numbers on a CPU."""

import copy
import warnings
import weakref
from collections.abc import Callable, Hashable, Sequence
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.transforms import can_branch_on

_TRIED: "weakref.WeakKeyDictionary[Any, set[Hashable]]" = weakref.WeakKeyDictionary()
"""What each function was tried as."""


def needs_trial(function: Any, what: Hashable, *tensors: Tensor) -> bool:
    """Whether a function is to be tried now: it did not pass a trial as this before, and PyTorch neither traces nor
    transforms the call with these tensors."""
    if not can_branch_on(*tensors):
        return False
    function, what = _owner(function, what)
    try:
        return what not in _TRIED.get(function, ())
    except TypeError:  # It has no hash.
        return True


def _owner(function: Any, what: Hashable) -> tuple[Any, Hashable]:
    """What a trial is remembered for: the object of a bound method, which is a new method at each access; the code of a
    function that captures nothing, which a lambda in a call shares with the one of the call before."""
    if isinstance(function, MethodType):
        return function.__self__, (function.__func__, what)
    if isinstance(function, FunctionType) and not (function.__closure__ or function.__defaults__):
        return function.__code__, what
    return function, what


def remember_trial(function: Any, what: Hashable) -> None:
    """A function passed a trial, and needs no other one as this."""
    function, what = _owner(function, what)
    try:
        _TRIED.setdefault(function, set()).add(what)
    except TypeError:  # It cannot be referred to weakly, or has no hash.
        return


def numbers(shape: Sequence[int], like: Tensor, first: float = 0.0) -> Tensor:
    """Numbers between −1 and 1 of this shape on a CPU, which take nothing from a random generator."""
    count = torch.arange(1.0, 1.0 + torch.Size(shape).numel(), dtype=like.dtype, device="cpu")
    return (count * 12.9898 + first).sin().view(*shape)


def is_local(
    function: Callable[..., Any],
    arguments: Sequence[Tensor],
    others: Sequence[Tensor],
    part: Callable[[Tensor], Tensor],
    **options: Any,
) -> bool | None:
    """Whether a part of a function's result stays the same where only other parts of its arguments change.

    The trial leaves no trace: it draws from PyTorch's random generator and puts it back, a module is copied without its
    hooks, and nothing is recorded for a gradient or by a function mode.

    Args:
        function: what is tried.
        arguments: what it is called with.
        others: the same, but for what the part of the result may depend on.
        part: that part of a result.
        options: further arguments of the function.

    Returns:
        None where the trial cannot tell: the function fails on these numbers, or gives another result each time.

    Raises:
        RegardError: as ``part`` raises it.
    """
    state = torch.get_rng_state()

    def result(inputs: Sequence[Tensor]) -> Tensor:
        torch.set_rng_state(state)
        return part(tried(*(tensor.clone() for tensor in inputs), **options)).double()

    try:
        with warnings.catch_warnings(), torch.no_grad(), torch._C.DisableTorchFunction():
            warnings.simplefilter("ignore")
            tried = _without_traces(function)
            before, after = result(arguments), result(others)
            if torch.allclose(before, after, rtol=1e-3, atol=1e-4, equal_nan=True):
                return True
            return False if torch.allclose(before, result(arguments), equal_nan=True) else None
    except RegardError:
        raise
    except Exception:
        # The call itself will say what is wrong.
        return None
    finally:
        torch.set_rng_state(state)


def _without_traces(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; a copy without hooks if it is a module, whose buffers may change as it runs."""
    if not isinstance(function, nn.Module):
        return function
    module = copy.deepcopy(function)
    for part in module.modules():
        for hooks in (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks):
            hooks.clear()
    return module
