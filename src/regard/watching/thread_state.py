"""The state of one thread's watching, and the way a call of a watched model runs."""

import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_
from types import FrameType, MappingProxyType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.weak import TensorWeakRef

from regard.attention.execution import is_unwatched
from regard.errors import ArgumentError
from regard.watching.changed_call import CallChange, CallOfChange
from regard.watching.families import looks_like_attention
from regard.watching.intercepted_call import InterceptedCall
from regard.watching.mask_kind import MaskReader
from regard.watching.owners import ModuleNames, Owner
from regard.watching.recurrent_states import RecurrentStates
from regard.watching.tracked_tensors import TrackedTensors

# The modes of this thread that see each function of PyTorch.
_count = torch._C._len_torch_function_stack
_pop, _push = torch._C._pop_torch_function_stack, torch._C._push_on_torch_function_stack

SDPA = F.scaled_dot_product_attention
"""PyTorch's own function, before any name is replaced."""

Function = Callable[..., Any]


class Follower(Protocol):
    """Follows the outputs of a model's heads: `regard.watching.projections.Projections`."""

    def begins(self, module: nn.Module, args: tuple[Any, ...]) -> None: ...
    def ends(self, module: nn.Module, output: Any) -> None: ...
    def heads(self, output: Tensor) -> Tensor: ...
    def follow(self, function: Function, args: Any, kwargs: dict[str, Any], result: Any) -> None: ...
    def projected(self, weight: Tensor, bias: Tensor | None, output: Any, batch_first: bool) -> None: ...


class Observer:
    """Receives the attention calls of a context's model; this base class ignores them.

    Attributes:
        is_changing: whether it changes calls; `changes_of` is called in place of `take` then.
    """

    is_changing = False

    def __init__(self, model: nn.Module):
        self.names = ModuleNames(model)

    def take(self, owner: Owner, read: Callable[[Owner], InterceptedCall]) -> None:
        """Records a call after it ran: its owner, and a function that reads it."""

    @property
    def follower(self) -> Follower | None:
        """The follower of the outputs of heads; None: they are not followed."""
        return None

    @property
    def follows_ends(self) -> bool:
        """Whether the ends of modules are reported."""
        return self.is_changing or self.follower is not None

    def changes_of(self, owner: Owner, read: Callable[[Owner], InterceptedCall]) -> Sequence[CallOfChange]:
        """Returns the changes that concern a call: its owner, and a function that reads it."""
        return ()

    def concerns(self, owner: Owner) -> bool:
        """Whether a change may concern the next call of a module."""
        return False

    def leaves_fast_path(self, module: object) -> bool:
        """Whether a module must not run PyTorch's kernel for a whole layer, in which no head can be changed."""
        return False

    def ran(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Handles the call of a module with these arguments, before it runs."""

    def made_weights(self, owner: Owner, count: int) -> None:
        """Handles weights that a module made (1), or a sum that they weigh (−1)."""

    def reordered(self, index: Tensor) -> None:
        """Handles a new order of a cache's batch rows, as a beam search makes it."""

    def cached(self, cache: object, frame: FrameType) -> None:
        """Handles a frame that adds tokens to a cache."""

    def cropped(self, cache: object, before: int, after: int) -> None:
        """Handles the removal of tokens from a cache, given its lengths before and after."""


class ReturnedWeights(NamedTuple):
    """Weights that a module made and weighed a sum by, and the weights after a change of the call."""

    module: nn.Module
    weights: TensorWeakRef
    changed: Callable[[Tensor], Tensor]


class _WatchState(threading.local):
    """The watching of one thread.

    Attributes:
        observers: the open contexts, the outermost first.
        followers: their followers.
        inside: the number of running calls of attention, whose inner calls are not watched.
        is_opened: whether a function of PyTorch runs that is written in Python, and whose inner calls are watched.
        opened_read: the reading of the call of that function, whose inner calls are parts of it; None: they are calls.
        last_change: the changes of the last call that ran; None: there were none.
        returned: weights that a module may return, and those that are returned instead.
        padding: last layers of encoders of PyTorch that left their fast path, and the tokens whose output is 0 there.
        mode: the function mode; None if nothing is watched.
        tracked: the tensors that come from a softmax and have not weighed a sum yet.
        recurrences: the tokens inside the states of linear recurrences.
    """

    def __init__(self) -> None:
        self.observers: list[Observer] = []
        self.followers: list[Follower] = []
        self.inside = 0
        self.is_opened = False
        self.opened_read: Callable[[Owner], InterceptedCall] | None = None
        self.last_change: CallChange | None = None
        self.returned: list[ReturnedWeights] = []
        self.padding: dict[nn.Module, Tensor] = {}
        self.mode: TorchFunctionMode | None = None
        self.tracked = TrackedTensors()
        self.masks = MaskReader()
        self.recurrences = RecurrentStates()


STATE = _WatchState()


def is_idle() -> bool:
    """Whether a call is not watched: no context, a compiler that traces, or a backward pass that recomputes.

    Raises:
        ArgumentError: a compiler traces attention within a context that changes it.
    """
    if torch.compiler.is_compiling():
        if any(observer.is_changing for observer in STATE.observers):
            raise ArgumentError(
                "attention cannot be changed while torch.compile or torch.export traces it, since its code would not "
                "have the change: call the function that is not compiled, and export outside of the context"
            )
        return True
    return not STATE.observers or is_apart()


def is_apart() -> bool:
    """Whether this is not the model's own run: within a call of attention, or in a backward pass."""
    return STATE.inside > 0 or is_unwatched() or torch._C._current_graph_task_id() != -1


HeadsChange = Callable[[Any, Callable[[Tensor], Tensor], Owner], Any]
"""Applies a function to the output of heads ``[batch, heads, queries, value_dim]`` in the result of a call."""


def run_watched(
    function: Function,
    args: Any,
    kwargs: Any,
    read: Callable[[Owner], InterceptedCall],
    change: HeadsChange,
    makers: Mapping[int, Owner] = MappingProxyType({}),
    layer: nn.Module | None = None,
) -> Any:
    """Runs a call unchanged, then reports it to the observers of its model.

    Args:
        function, args, kwargs: the call.
        read: as for `Observer.take`.
        change: changes the output of heads in the result.
        makers: the module that made the weights, if it is named as attention, by the identity of each observer.
        layer: the layer of regard that makes the call; None: another module does.
    """
    # Two frames up is the caller of the handler, whose own variables name no module.
    frame, state = sys._getframe(2), STATE
    state.last_change = None
    owners = [
        (observer, owner)
        for observer in state.observers
        if (owner := (layer is not None and observer.names.announced(layer)) or observer.names.owner(frame))
    ]
    del frame
    if makers:
        owners = [(observer, _owner_or_maker(owner, makers.get(id(observer)))) for observer, owner in owners]
    if not owners:
        return function(*args, **kwargs)
    # The mode costs time for each function, and sees nothing that matters while a call runs and is read.
    above = leave_mode()
    state.inside += 1
    try:
        output = function(*args, **kwargs)
        changes = [
            each for observer, owner in owners if observer.is_changing for each in observer.changes_of(owner, read)
        ]
        if changes:
            owner = next(owner for observer, owner in owners if observer.is_changing)
            state.last_change = changed = CallChange(owner, read, changes)
            changed.check_recorded(sys._getframe(2))
            output = change(output, changed.heads, owner)
            changed.check_made()
            read = changed.changed
        for observer, owner in owners:
            if not observer.is_changing:
                observer.take(owner, read)
                if observer.follower is not None:
                    change(output, observer.follower.heads, owner)
        return output
    finally:
        state.inside -= 1
        return_to_mode(above)


def with_changed_weights(output: Any, returned: Sequence[ReturnedWeights]) -> Any:
    """Returns the output of a module with changed weights in place of those that it returns; None: it returns none."""
    if not isinstance(output, tuple | list):
        return None
    results = list(output)
    for number, result in enumerate(output):
        for each in returned:
            if result is not None and each.weights() is result:
                results[number] = without_mode(lambda each=each, result=result: each.changed(result))
    if all(map(is_, results, output)):
        return None
    return type(output)(*results) if hasattr(output, "_fields") else type(output)(results)


def _owner_or_maker(owner: Owner, maker: Owner | None) -> Owner:
    """Returns the module named as attention, where one module makes the weights and another one the sum."""
    if maker is None or looks_like_attention(owner.module) or f"{owner.name}.".startswith(f"{maker.name}."):
        return owner
    return maker if maker.name else owner


def change_first(output: Any, change: Callable[[Tensor], Tensor], owner: Owner) -> Any:
    """Changes the result of FlexAttention, ``[batch, heads, queries, value_dim]``, or the first of a tuple."""
    if isinstance(output, tuple):
        return (change_first(output[0], change, owner), *output[1:])
    return output if output.is_nested else change(output)


def keep_output(output: Any, change: Callable[[Tensor], Tensor], owner: Owner) -> Any:
    """Returns the result of a function whose heads cannot be changed."""
    return output


def without_mode(call: Callable[[], Any]) -> Any:
    """Calls a function with the mode off."""
    above = leave_mode()
    try:
        return call()
    finally:
        return_to_mode(above)


def run_opened(function: Function, args: Any, kwargs: Any) -> Any:
    """Runs a function of PyTorch that is written in Python, so that its inner calls are seen."""
    state = STATE
    if state.is_opened:  # the function has found overriding arguments
        return run_overrides(function, args, kwargs)
    state.is_opened = True
    try:
        return _under_mode(lambda: function(*args, **kwargs))
    finally:
        state.is_opened = False


def run_overrides(function: Function, args: Any, kwargs: Any) -> Any:
    """Runs a function as the classes of its arguments override it, so that their inner calls are seen."""
    overriding = overriding_arguments((*args, *kwargs.values()))
    types = tuple({type(argument): None for argument in overriding})

    def run() -> Any:
        for argument in overriding:
            result = type(argument).__torch_function__(function, types, args, kwargs)
            if result is not NotImplemented:
                return result
        raise TypeError(f"no implementation of {function} for {[kind.__name__ for kind in types]}")

    return _under_mode(run)


def overriding_arguments(arguments: Iterable[object]) -> list[Tensor]:
    """Returns one tensor of each class that overrides PyTorch's functions, in the order in which PyTorch asks them."""
    if not torch._C._is_torch_function_enabled():
        return []
    overriding: list[Tensor] = []
    for argument in arguments:
        kind: Any = type(argument)
        if not isinstance(argument, Tensor) or kind is Tensor or kind.__torch_function__ is _NO_OVERRIDE:
            continue
        if all(type(other) is not kind for other in overriding):
            # A subclass comes before its bases.
            bases = (number for number, other in enumerate(overriding) if issubclass(kind, type(other)))
            overriding.insert(next(bases, len(overriding)), argument)
    return overriding


_NO_OVERRIDE = torch._C._disabled_torch_function_impl


def _under_mode(call: Callable[[], Any]) -> Any:
    """Calls a function with the mode on, below all others."""
    above = leave_mode()
    others = [_pop() for _ in range(_count())]
    _push(STATE.mode)
    for other in reversed(others):
        _push(other)
    try:
        return call()
    finally:
        leave_mode()
        return_to_mode(above)


def leave_mode() -> list[Any] | None:
    """Takes the mode off, and returns the modes above it; None if it was not on."""
    mode, above, was_on = STATE.mode, [], False
    while _count() and not was_on:
        top = _pop()
        was_on = top is mode
        if not was_on:
            above.append(top)
    for other in reversed(above):
        _push(other)
    return above if was_on else None


def return_to_mode(above: list[Any] | None) -> None:
    """Puts the mode back, below those that were above it."""
    if above is None:
        return
    for _ in above:
        _pop()
    _push(STATE.mode)
    for other in reversed(above):
        _push(other)
