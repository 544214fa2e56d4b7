"""Where attention calls are found: a function mode, patched names, and what regard itself runs.

A `TorchFunctionMode` sees each call of a PyTorch function that Python makes in this thread. Three things escape it:

- Functions of PyTorch that are written in Python run with the mode off. Their inner calls go by the name
  ``torch.nn.functional.scaled_dot_product_attention``, which is replaced as long as a model is watched.
- While a mode is active, ``torch.overrides.has_torch_function`` is true, and PyTorch's modules leave their fast paths,
  which would change bits of the output. It is replaced by one that does not count this mode.
- FlexAttention is a function of Python; the names that it has are replaced.

Everything is installed by the first context and restored by the last one. A call runs as it is, and is read after it.
"""

import inspect
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial, wraps
from types import FrameType, FunctionType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from regard.attention.listeners import LISTENERS, Execution
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.result import Attended
from regard.nn.key_values import KeyValueCache
from regard.watching.flex import read_flex
from regard.watching.intercepted import Intercepted
from regard.watching.mask_kind import MaskReader
from regard.watching.owners import Owner
from regard.watching.products import Softmax, four_axes
from regard.watching.regard_calls import read_problem
from regard.watching.sdpa import read_sdpa
from regard.watching.torch_modules import read_encoder_layer, read_multi_head, read_native

SDPA = F.scaled_dot_product_attention
"""PyTorch's own function, as it is before any name is replaced."""

HAS_TORCH_FUNCTION = torch.overrides.has_torch_function

RECENT = 4
"""Products before a softmax that may have made its scores: relative positions are products too."""

Function = Callable[..., Any]


class Observer(Protocol):
    """What a context does with the calls of its model."""

    def owner(self, frame: FrameType) -> Owner | None:
        """Whose call it is; None: it is none of this context's concern."""
        ...

    def take(self, owner: Owner, read: Callable[[], Intercepted]) -> None:
        """Is told of a call, after it ran."""
        ...

    def change(self, owner: Owner, output: Tensor) -> Tensor:
        """The output of heads ``[batch, heads, queries, value_dim]`` with which the model goes on."""
        ...

    @property
    def changes(self) -> bool:
        """Whether `change` may change an output."""
        ...

    def ran(self, module: nn.Module) -> None:
        """Is told of each module that is called, before it runs."""
        ...

    def reordered(self, index: Tensor) -> None:
        """Is told that the batch rows of a cache are taken anew, as a beam search does."""
        ...


class _ThreadState(threading.local):
    """What one thread watches.

    Attributes:
        observers: the contexts that are open, the outermost first.
        inside: calls of attention that are running, whose inner calls are their own matter.
        mode: the function mode; None where nothing is watched.
        softmax: the last softmax of a product, until it is used.
        products: rows and last axis of the results of the last products.
        masks: analyses masks.
    """

    def __init__(self) -> None:
        self.observers: list[Observer] = []
        self.inside = 0
        self.mode: _Mode | None = None
        self.softmax: Softmax | None = None
        self.products: deque[tuple[int, int]] = deque(maxlen=RECENT)
        self.dropout = 0.0
        self.masks = MaskReader()


STATE = _ThreadState()


@contextmanager
def observing(observer: Observer, used: Iterable[str]) -> Iterator[None]:
    """Tell an observer of all attention calls that this thread makes.

    Args:
        observer: what is told.
        used: names of the Python modules in which the classes of the model are.
    """
    _INSTALLATION.enter(used)
    STATE.observers.append(observer)
    try:
        if STATE.mode is None:
            STATE.mode = _Mode()
            torch._C._push_on_torch_function_stack(STATE.mode)
        yield
    finally:
        STATE.observers.remove(observer)
        if not STATE.observers:
            _without_mode(lambda: None, put_back=False)
            STATE.mode, STATE.softmax = None, None
            STATE.products.clear()
            STATE.masks.clear()
        _INSTALLATION.leave()


def _is_idle() -> bool:
    """Whether a call is nobody's matter: nothing is watched, or a compiler traces, or a backward pass computes again."""
    return (
        torch.compiler.is_compiling()
        or not STATE.observers
        or STATE.inside > 0
        or torch._C._current_graph_task_id() != -1
    )


def _run(function: Function, args: Any, kwargs: Any, read: Callable[[Owner], Intercepted], heads: "_Heads") -> Any:
    """Run a call as it is, then tell those whose model it belongs to."""
    frame = sys._getframe(1)
    told = [(observer, owner) for observer in STATE.observers if (owner := observer.owner(frame)) is not None]
    if not told:
        return function(*args, **kwargs)
    del frame
    STATE.inside += 1
    try:
        output = function(*args, **kwargs)
        for observer, owner in told:
            if observer.changes:
                output = heads(output, observer, owner)
            else:
                # The mode costs time for each function, and sees nothing that matters while a call is read.
                _without_mode(partial(observer.take, owner, partial(read, owner)))
        return output
    finally:
        STATE.inside -= 1


_Heads = Callable[[Any, Observer, Owner], Any]
"""Lets an observer change the output of heads that a result holds."""


def _change_tensor(output: Any, observer: Observer, owner: Owner) -> Any:
    """The output of `scaled_dot_product_attention`, whose first axes are the batch, but for the third last one."""
    if not isinstance(output, Tensor) or output.is_nested:
        return output
    shape = output.shape
    if owner.packed and output.dim() == 4:
        heads = output.reshape(shape[0], shape[1] * shape[2], 1, shape[3])
    elif output.dim() > 4:
        heads = output.flatten(0, -4)
    else:
        heads = output if output.dim() == 4 else output[:, None] if output.dim() == 3 else output[None, None]
    return observer.change(owner, heads).reshape(shape)


def _change_product(output: Tensor, observer: Observer, owner: Owner) -> Tensor:
    """The output of a product with values, whose axes are those of its weights."""
    return observer.change(owner, four_axes(output, owner.module)).reshape(output.shape)


def _change_first(output: Any, observer: Observer, owner: Owner) -> Any:
    if isinstance(output, tuple):
        return (_change_tensor(output[0], observer, owner), *output[1:])
    return _change_tensor(output, observer, owner)


def _keep(output: Any, observer: Observer, owner: Owner) -> Any:
    return output


# The handlers of functions. Each gets the function and its arguments, and gives its result.


@wraps(SDPA)
def watched_sdpa(*args: Any, **kwargs: Any) -> Any:
    """`scaled_dot_product_attention`, seen by those who watch."""
    return _handle_sdpa(SDPA, args, kwargs)


def _handle_sdpa(function: Function, args: Any, kwargs: Any) -> Any:
    if _is_idle():
        return function(*args, **kwargs)
    STATE.softmax = None
    masks = STATE.masks
    return _run(
        function,
        args,
        kwargs,
        lambda owner: read_sdpa(masks, *args, packed=owner.packed, **kwargs),
        _change_tensor,
    )


def _handle_multi_head(function: Function, args: Any, kwargs: Any) -> Any:
    if _is_idle():
        return function(*args, **kwargs)
    arguments = _bound(function, args, kwargs)
    if not arguments["need_weights"]:
        return function(*args, **kwargs)  # it calls scaled_dot_product_attention by its replaced name
    if any(observer.changes for observer in STATE.observers):
        return _multi_head_in_two_calls(function, arguments)
    masks = STATE.masks
    if not arguments["training"]:
        arguments["dropout_p"] = 0.0
    return _run(function, args, kwargs, lambda owner: read_multi_head(masks, arguments), _keep)


def _multi_head_in_two_calls(function: Function, arguments: dict[str, Any]) -> Any:
    """The weights of one call, which nothing changes, and the output of another one, whose heads can be changed."""
    STATE.inside += 1
    try:
        with torch.random.fork_rng(devices=[]):
            _, weights = function(**arguments)
    finally:
        STATE.inside -= 1
    output, _ = function(**{**arguments, "need_weights": False})
    return output, weights


def _handle_native(function: Function, args: Any, kwargs: Any) -> Any:
    if _is_idle():
        return function(*args, **kwargs)
    masks, arguments = STATE.masks, _bound_by_schema("_native_multi_head_attention", args, kwargs)
    return _run(function, args, kwargs, lambda owner: read_native(masks, arguments), _keep)


def _handle_encoder_layer(function: Function, args: Any, kwargs: Any) -> Any:
    if _is_idle():
        return function(*args, **kwargs)
    masks, arguments = STATE.masks, _bound_by_schema("_transformer_encoder_layer_fwd", args, kwargs)
    return _run(function, args, kwargs, lambda owner: read_encoder_layer(masks, arguments), _keep)


def _watched_flex(original: Function) -> Function:
    """FlexAttention under one of its names, seen by those who watch."""

    @wraps(original)
    def watched_flex(*args: Any, **kwargs: Any) -> Any:
        if _is_idle():
            return original(*args, **kwargs)
        arguments = _bound(_flex_function(), args, {k: v for k, v in kwargs.items() if k != "training"})

        def run(*args: Any, **kwargs: Any) -> Any:
            return _without_mode(lambda: original(*args, **kwargs))

        return _run(run, args, kwargs, lambda owner: read_flex(arguments), _change_first)

    return watched_flex


def _handle_softmax(function: Function, args: Any, kwargs: Any) -> Any:
    output = function(*args, **kwargs)
    if _is_idle() or not args:
        return output
    scores, dim = args[0], kwargs.get("dim", args[1] if len(args) > 1 else None)
    if isinstance(scores, Tensor) and scores.dim() >= 2 and dim in (-1, scores.dim() - 1):
        own = scores.shape[-1]
        rows = scores.numel() // own if own else 0
        if (rows, own) in STATE.products or (rows, own - 1) in STATE.products:
            STATE.softmax = Softmax(scores, output)
            STATE.dropout = 0.0
    return output


def _handle_dropout(function: Function, args: Any, kwargs: Any) -> Any:
    if STATE.softmax is not None and not _is_idle():
        p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        training = kwargs.get("training", args[2] if len(args) > 2 else True)
        STATE.dropout = float(p) if training else 0.0
    return function(*args, **kwargs)


def _handle_product(function: Function, args: Any, kwargs: Any) -> Any:
    if _is_idle():
        return function(*args, **kwargs)
    operands = args
    if function is torch.einsum and args and isinstance(args[0], str):
        operands = args[1:] if len(args) == 3 else tuple(args[1]) if len(args) == 2 else ()
    elif function in _ADDED_PRODUCTS:
        operands = args[1:]
    softmax = STATE.softmax
    if softmax is not None and len(operands) == 2:
        left, right = operands
        if function is torch.einsum:
            left, right = _einsum_operands(softmax, args[0], left, right)
        if softmax.is_used_by(left, right):
            STATE.softmax = None
            STATE.products.clear()
            dropout = STATE.dropout
            return _run(
                function,
                args,
                kwargs,
                lambda owner: softmax.read(left, right, owner.module, dropout),
                _einsum_change(args[0], softmax, operands[0]) if function is torch.einsum else _change_product,
            )
    output = function(*args, **kwargs)
    if isinstance(output, Tensor) and output.dim() >= 2 and output.shape[-1]:
        STATE.products.append((output.numel() // output.shape[-1], output.shape[-1]))
    return output


def _einsum_operands(softmax: Softmax, equation: str, left: Any, right: Any) -> tuple[Any, Any]:
    """The operands with the axes of ``matmul``, if the equation mixes values with weights; else nothing."""
    equation = equation.replace(" ", "")
    if not isinstance(left, Tensor) or not isinstance(right, Tensor) or "." in equation or "->" not in equation:
        return None, None
    operands, output = equation.split("->")
    first, second = operands.split(",")
    if softmax.weights.shape != left.shape:
        left, right, first, second = right, left, second, first
    key = first[-1]
    rest = [axis for axis in second if axis != key and axis not in first]
    if softmax.weights.shape != left.shape or key not in second or key in output or len(rest) != 1:
        return None, None
    shared = [axis for axis in first[:-2] if axis in second]
    if len(shared) + 2 != len(second) or not shared:
        return None, None
    return left, right.permute([second.index(axis) for axis in (*shared, key, rest[0])])


def _einsum_change(equation: str, softmax: Softmax, first: Tensor) -> _Heads:
    """Changes heads in the output of an equation that `_einsum_operands` understood."""
    operands, output = equation.replace(" ", "").split("->")
    weights, values = operands.split(",")
    if softmax.weights.shape != first.shape:
        weights, values = values, weights
    feature = next(axis for axis in values if axis not in weights)
    order = [output.index(axis) for axis in (*weights[:-1], feature)]
    back = [order.index(place) for place in range(len(order))]

    def change(result: Tensor, observer: Observer, owner: Owner) -> Tensor:
        return _change_product(result.permute(order), observer, owner).permute(back)

    return change


def _listen(
    execute: Execution, problem: Problem, backend: str, gatherer: Gatherer | None, need_weights: bool
) -> Attended:
    """A problem that a verb or a layer of regard runs."""
    if _is_idle():
        return execute(problem, backend, gatherer, need_weights)
    STATE.softmax = None

    def change(output: Any, observer: Observer, owner: Owner) -> Any:
        return Attended(observer.change(owner, output.output), output.weights)

    weights: list[Tensor] = []

    def run() -> Attended:
        random = problem.normalizer.random and gatherer is None
        attended = execute(problem, backend, gatherer, need_weights or random)
        if attended.weights is not None:
            weights.append(attended.weights)
        return attended if need_weights else Attended(attended.output, None)

    return _run(run, (), {}, lambda owner: read_problem(problem, weights[0] if weights else None), change)


_PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.einsum)
_ADDED_PRODUCTS = (torch.baddbmm, Tensor.baddbmm)

HANDLERS: dict[Any, Callable[[Function, Any, Any], Any]] = {
    SDPA: _handle_sdpa,
    F.multi_head_attention_forward: _handle_multi_head,
    torch._native_multi_head_attention: _handle_native,
    torch._transformer_encoder_layer_fwd: _handle_encoder_layer,
    **dict.fromkeys((F.softmax, torch.softmax, Tensor.softmax), _handle_softmax),
    **dict.fromkeys((F.dropout, torch.dropout), _handle_dropout),
    **dict.fromkeys((*_PRODUCTS, *_ADDED_PRODUCTS), _handle_product),
}
"""The functions that the mode looks at. All others run at once."""


class _Mode(TorchFunctionMode):
    """Sees each function of PyTorch that is called from Python in this thread."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        handler = HANDLERS.get(func)
        if handler is None:
            if type(func) is FunctionType and not func.__module__.startswith("torch."):
                # A function of Python runs with the mode off: its names are what shows its calls.
                _INSTALLATION.search(func.__globals__)
            return func(*args, **(kwargs or {}))
        return handler(func, args, kwargs or {})


def _without_mode(call: Callable[[], Any], put_back: bool = True) -> Any:
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


@wraps(HAS_TORCH_FUNCTION)
def _has_torch_function(relevant_args: Any) -> bool:
    if torch.compiler.is_compiling() or STATE.mode is None:
        return HAS_TORCH_FUNCTION(relevant_args)
    return _without_mode(lambda: HAS_TORCH_FUNCTION(relevant_args))


def _flex_function() -> Function:
    from torch.nn.attention import flex_attention

    return inspect.unwrap(flex_attention.flex_attention)


def _bound(function: Function, args: Any, kwargs: Any) -> dict[str, Any]:
    bound = _signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


@cache
def _signature(function: Function) -> inspect.Signature:
    return inspect.signature(function)


def _bound_by_schema(name: str, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of an operator by the names of its schema."""
    schema = getattr(torch.ops.aten, name).default._schema
    named = {argument.name: argument.default_value for argument in schema.arguments}
    named.update(zip(named, args, strict=False))
    named.update(kwargs)
    if "num_head" in named:
        named["num_heads"] = named["num_head"]
    return named


@contextmanager
def without_fast_paths() -> Iterator[None]:
    """PyTorch's modules without the kernels that compute a whole layer, in which no head can be changed."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def _reported(method: Function) -> Function:
    """A method that reorders the batch rows of a cache, and tells of it."""

    @wraps(method)
    def reorder(self: Any, index: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = method(self, index, *args, **kwargs)
        for observer in STATE.observers:
            observer.reordered(index)
        return result

    return reorder


NAMES = frozenset(
    {"scaled_dot_product_attention", "flex_attention", "compile_friendly_flex_attention", "EncoderDecoderCache"}
)
"""Names by which modules of Python are searched; each once, and those that have one of these again."""


class _Installation:
    """The names that are replaced as long as some thread watches a model."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._contexts = 0
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._hook: Any = None
        self._searched: set[str] = set()
        self._places: set[str] = set()

    def enter(self, used: Iterable[str]) -> None:
        """Install what is not installed yet.

        Args:
            used: names of Python modules whose names may have changed since another context.
        """
        with self._lock:
            self._contexts += 1
            if self._contexts == 1:
                LISTENERS.append(_listen)
                self._replace(vars(torch.overrides), "has_torch_function", _has_torch_function)
                self._replace(KeyValueCache, "select", _reported(KeyValueCache.select))
                self._hook = nn.modules.module.register_module_forward_pre_hook(_tell_of_module)
            self._replace_names(used)

    def leave(self) -> None:
        with self._lock:
            self._contexts -= 1
            if self._contexts == 0:
                self._hook.remove()
                for place, name, original, ours in reversed(self._replaced):
                    # What someone else put there since is not ours to remove.
                    if isinstance(place, type) and vars(place).get(name) is ours:
                        setattr(place, name, original)
                    elif isinstance(place, dict) and place.get(name) is ours:
                        place[name] = original
                self._replaced = []
                LISTENERS.remove(_listen)

    def _replace(self, place: dict[str, Any] | type, name: str, ours: Any) -> None:
        names = place if isinstance(place, dict) else vars(place)
        self._replaced.append((place, name, names[name], ours))
        if isinstance(place, dict):
            place[name] = ours
        else:
            setattr(place, name, ours)

    def search(self, names: dict[str, Any]) -> None:
        """Replace every name of a Python module that means `scaled_dot_product_attention`."""
        with self._lock:
            if self._contexts:
                for name in [name for name, value in names.items() if value is SDPA and name != "SDPA"]:
                    self._replace(names, name, watched_sdpa)

    def _replace_names(self, used: Iterable[str]) -> None:
        new = sys.modules.keys() - self._searched
        self._searched |= new
        flex = sys.modules.get("torch.nn.attention.flex_attention")
        flex_function = None if flex is None else inspect.unwrap(vars(flex)["flex_attention"])
        for name in {*new, *self._places, *used, "__main__"}:
            names = getattr(sys.modules.get(name), "__dict__", None)
            if names is None or name.startswith(("torch._C", "torch._dynamo", "regard.watching")):
                continue
            if not names.keys().isdisjoint(NAMES):
                self._places.add(name)
                self._replace_in(name, names, flex_function)

    def _replace_in(self, name: str, names: dict[str, Any], flex_function: Function | None) -> None:
        """Replace the names of one module that mean an attention function."""
        if names.get("scaled_dot_product_attention") is SDPA:
            self._replace(names, "scaled_dot_product_attention", watched_sdpa)
        if name == "transformers.integrations.flex_attention":
            # It compiles `flex_attention` once, for good, so that name stays what it is.
            wrapped = names.get("compile_friendly_flex_attention")
            if wrapped is not None and not hasattr(wrapped, "__wrapped__"):
                self._replace(names, "compile_friendly_flex_attention", _watched_flex(wrapped))
        elif flex_function is not None:
            given = names.get("flex_attention")
            if given is flex_function or getattr(given, "_torchdynamo_orig_callable", None) is flex_function:
                self._replace(names, "flex_attention", _watched_flex(given))
        if name == "transformers.cache_utils":
            for cache in (names["Cache"], names["EncoderDecoderCache"]):
                method = vars(cache).get("reorder_cache")
                if method is not None and not hasattr(method, "__wrapped__"):
                    self._replace(cache, "reorder_cache", _reported(method))


_INSTALLATION = _Installation()


def _tell_of_module(module: nn.Module, args: Any) -> None:
    if torch.compiler.is_compiling():
        return
    for observer in STATE.observers:
        observer.ran(module)
