"""What one thread watches, and how a call runs that belongs to a watched model."""

import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from regard.watching.intercepted import Intercepted
from regard.watching.mask_kind import MaskReader
from regard.watching.owners import ModuleNames, Owner
from regard.watching.products import Softmax, four_axes

if TYPE_CHECKING:
    from regard.watching.sdpa import SameCall

SDPA = F.scaled_dot_product_attention
"""PyTorch's own function, as it is before any name is replaced."""

RECENT = 4
"""Products before a softmax that may have made its scores: relative positions are products too."""

Function = Callable[..., Any]


class Observer:
    """What a context does with the calls of its model: here nothing.

    Args:
        model: the model.

    Attributes:
        names: its modules.
        changes: whether `change` may change an output; it is called in place of `take` then.
    """

    changes = False

    def __init__(self, model: nn.Module):
        self.names = ModuleNames(model)

    def owner(self, frame: FrameType) -> Owner | None:
        """Whose call it is; None: it is none of this context's concern."""
        return self.names.owner(frame)

    def take(self, owner: Owner, read: Callable[[], Intercepted], same: "Callable[[Owner], SameCall | None]") -> None:
        """Is told of a call, after it ran.

        Args:
            owner: whose it is.
            read: gives what it computed.
            same: gives what it has in common with calls that differ in their numbers alone, at little cost.
        """

    def change(self, owner: Owner, output: Tensor) -> Tensor:
        """The output of heads ``[batch, heads, queries, value_dim]`` with which the model goes on."""
        return output

    def ran(self, module: nn.Module) -> None:
        """Is told of each module that is called, before it runs."""

    def reordered(self, index: Tensor) -> None:
        """Is told that the batch rows of a cache are taken anew, as a beam search does."""


class _ThreadState(threading.local):
    """What one thread watches.

    Attributes:
        observers: the contexts that are open, the outermost first.
        inside: calls of attention that are running, whose inner calls are their own matter.
        mode: the function mode; None where nothing is watched.
        softmax: the last softmax of a product, until it is used.
        products: rows and last axis of the results of the last products.
        dropout: the rate of the last dropout behind the softmax.
        masks: analyses masks.
    """

    def __init__(self) -> None:
        self.observers: list[Observer] = []
        self.inside = 0
        self.mode: TorchFunctionMode | None = None
        self.softmax: Softmax | None = None
        self.products: deque[tuple[int, int]] = deque(maxlen=RECENT)
        self.dropout = 0.0
        self.masks = MaskReader()


STATE = _ThreadState()


def is_idle() -> bool:
    """Whether a call is not looked at: no context, a compiler that traces, or a backward pass that computes again."""
    return (
        torch.compiler.is_compiling()
        or not STATE.observers
        or STATE.inside > 0
        or torch._C._current_graph_task_id() != -1
    )


def is_like_no_other(owner: Owner) -> None:
    """Says of a call that nothing is known of others like it."""


def run_watched(
    function: Function,
    args: Any,
    kwargs: Any,
    read: Callable[[Owner], Intercepted],
    heads: "Heads",
    same: "Callable[[Owner], SameCall | None]" = is_like_no_other,
) -> Any:
    """Run a call as it is, then tell those whose model it belongs to.

    Args:
        function, args, kwargs: the call.
        read: says what it computes.
        heads: changes its output.
        same: as for `Observer.take`.
    """
    # The caller is a handler, whose own variables tell nothing.
    frame = sys._getframe(2)
    told = [(observer, owner) for observer in STATE.observers if (owner := observer.owner(frame)) is not None]
    if not told:
        return function(*args, **kwargs)
    del frame
    # The mode costs time for each function, and sees nothing that matters while a call runs and is read.
    return without_mode(partial(_run_told, told, function, args, kwargs, read, heads, same))


def _run_told(
    told: list[tuple[Observer, Owner]],
    function: Function,
    args: Any,
    kwargs: Any,
    read: Callable[[Owner], Intercepted],
    heads: "Heads",
    same: "Callable[[Owner], SameCall | None]",
) -> Any:
    """Run a call, then tell these observers."""
    STATE.inside += 1
    try:
        output = function(*args, **kwargs)
        for observer, owner in told:
            if observer.changes:
                output = heads(output, observer, owner)
            else:
                observer.take(owner, partial(read, owner), same)
        return output
    finally:
        STATE.inside -= 1


Heads = Callable[[Any, Observer, Owner], Any]
"""Lets an observer change the output of heads that a result holds."""


def change_tensor(output: Any, observer: Observer, owner: Owner) -> Any:
    """The output of `scaled_dot_product_attention`, whose first axes are the batch, but for the third last one."""
    if not isinstance(output, Tensor) or output.is_nested:
        return output
    shape = output.shape
    if owner.packed and output.dim() == 4:
        heads = output.reshape(shape[0], shape[1] * shape[2], 1, shape[3])
    else:
        heads = four_axes(output)
    return observer.change(owner, heads).reshape(shape)


def change_product(output: Tensor, observer: Observer, owner: Owner) -> Tensor:
    """The output of a product with values, whose axes are those of its weights."""
    return observer.change(owner, four_axes(output, owner.module)).reshape(output.shape)


def change_first(output: Any, observer: Observer, owner: Owner) -> Any:
    if isinstance(output, tuple):
        return (change_tensor(output[0], observer, owner), *output[1:])
    return change_tensor(output, observer, owner)


def keep_output(output: Any, observer: Observer, owner: Owner) -> Any:
    return output


def without_mode(call: Callable[[], Any], put_back: bool = True) -> Any:
    """Call with the mode off, wherever it is among the modes of this thread."""
    mode, above, found = STATE.mode, [], False
    while torch._C._len_torch_function_stack() and not found:
        top = torch._C._pop_torch_function_stack()
        found = top is mode
        if not found:
            above.append(top)
    for other in reversed(above):
        torch._C._push_on_torch_function_stack(other)
    try:
        return call()
    finally:
        if found and put_back:
            others = [torch._C._pop_torch_function_stack() for _ in above]
            torch._C._push_on_torch_function_stack(mode)
            for other in reversed(others):
                torch._C._push_on_torch_function_stack(other)
