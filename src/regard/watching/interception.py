"""Intercepts attention calls: by a function mode, replaced names, and the listener of regard's own calls.

A `TorchFunctionMode` sees each call of a PyTorch function that Python makes in this thread. Four things escape it:

- Functions of PyTorch that are written in Python run with the mode off. One of them calls
  ``scaled_dot_product_attention``, ``multi_head_attention_forward``: it runs with the mode on, and its
  ``has_torch_function`` does not count the mode.
- Functions of other packages that can be overridden as PyTorch's run with the mode off too. Their inner calls use the
  names in their modules, which are replaced as long as a model is watched. PyTorch's own name stays unchanged: a
  subclass of Tensor compares it with the function that it is asked to override.
- While a mode is active, ``torch.overrides.has_torch_function`` is true, and PyTorch's modules leave their fast paths,
  which would change bits of the output. It is replaced by a function that ignores this mode.
- FlexAttention is a function of Python, whose names are replaced.

The first context installs everything, and the last one restores it. Calls run unchanged and are read afterwards.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from threading import current_thread
from types import FunctionType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from regard.attention.execution import LISTENERS
from regard.errors import ArgumentError
from regard.files.fork_lock import ForkLock
from regard.nn.key_values import SequenceCache
from regard.tracing.module_calls import OWN_HOOKS
from regard.watching.families import RECURRENCES
from regard.watching.handlers import COMPILED_FLEX_NAME, HANDLERS, listen, watched_flex, watched_sdpa
from regard.watching.hugging_face import ImplementationChoice
from regard.watching.owners import refuse_compiled
from regard.watching.recurrences import recurrent_names, watched_recurrence
from regard.watching.softmax_tracking import track
from regard.watching.thread_state import (
    SDPA,
    STATE,
    Function,
    Observer,
    is_idle,
    leave_mode,
    return_to_mode,
    with_changed_weights,
    without_mode,
)  # fmt: skip

HAS_TORCH_FUNCTION = torch.overrides.has_torch_function


class _Mode(TorchFunctionMode):
    """Sees each function of PyTorch that is called from Python in this thread."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, handler, state = kwargs or {}, HANDLERS.get(func), STATE
        if torch.compiler.is_compiling():
            is_idle()  # raises where attention is changed
        elif handler is None and type(func) is FunctionType and not func.__module__.startswith("torch."):
            # A function of Python runs with the mode off: its calls are seen only by replaced names.
            _INSTALLATION.search(func.__globals__)
        elif handler is None and state.tracked.known:
            handler = track
        result = func(*args, **kwargs) if handler is None or is_idle() else handler(func, args, kwargs)
        if state.followers and not is_idle():
            for follower in state.followers:
                follower.follow(func, args, kwargs, result)
        return result


_MODE = _Mode()


def begin(observer: Observer) -> None:
    """Reports all attention calls that this thread makes to an observer, until `end`."""
    _INSTALLATION.enter(observer)
    STATE.observers.append(observer)
    if observer.follower is not None:
        STATE.followers.append(observer.follower)
    if STATE.mode is None:
        STATE.mode = _MODE
        return_to_mode([])


def end(observer: Observer) -> None:
    """Stops reporting calls to an observer, of this thread or of one that ended."""
    if observer in STATE.observers:
        STATE.observers.remove(observer)
        if observer.follower is not None:
            STATE.followers.remove(observer.follower)
    if not STATE.observers:
        leave_mode()
        STATE.mode = None
        STATE.tracked.clear()
        STATE.masks.clear()
        STATE.recurrences.clear()
        STATE.last_change = None
        STATE.returned.clear()
        STATE.padding.clear()
    _INSTALLATION.leave(observer)


class ObservingContext(Observer):
    """An observer that is a context, which can be open only once at a time.

    Attributes:
        function: the name of the function of `regard` that makes it.
    """

    function = ""

    def __init__(self, model: nn.Module):
        super().__init__(model)
        self._is_open = False
        self._thread = current_thread()

    def __enter__(self) -> Self:
        if self._is_open:
            raise ArgumentError(f"this context is open already; call regard.{self.function} again for another one")
        refuse_compiled(self.names.modules)
        begin(self)
        self._is_open, self._thread = True, current_thread()
        return self

    def _close(self) -> None:
        """Stops observing, if the context is open.

        Raises:
            ArgumentError: another thread, which still runs, opened it.
        """
        if not self._is_open:
            return
        if self._thread is not current_thread() and self._thread.is_alive():
            name = self._thread.name
            raise ArgumentError(f"regard.{self.function}: thread {name!r} opened this context; leave it in that thread")
        self._is_open = False
        end(self)


class _HasTorchFunction:
    """``has_torch_function`` that ignores this mode, as modules of PyTorch ask it.

    It equals PyTorch's function: compilers look functions up in tables, which may be filled while a model is watched.
    """

    def __call__(self, relevant_args: Any) -> bool:
        if torch.compiler.is_compiling() or STATE.mode is None:
            return HAS_TORCH_FUNCTION(relevant_args)
        if any(observer.is_changing for observer in STATE.observers):
            # A module of PyTorch asks this before it runs a kernel for the whole layer.
            names = sys._getframe(1).f_locals
            module = names.get("self")
            if any(observer.leaves_fast_path(module) for observer in STATE.observers):
                if isinstance(module, nn.TransformerEncoder):
                    _note_padding(module, names.get("src_key_padding_mask"), relevant_args)
                return True
        return without_mode(lambda: HAS_TORCH_FUNCTION(relevant_args))

    def __eq__(self, other: object) -> bool:
        return other is HAS_TORCH_FUNCTION or type(other) is type(self)

    def __hash__(self) -> int:
        return hash(HAS_TORCH_FUNCTION)


class _HasOtherOverrides(_HasTorchFunction):
    """Replaces ``has_torch_function`` of `torch.nn.functional`, which `multi_head_attention_forward` alone calls."""

    def __call__(self, relevant_args: Any) -> bool:
        return super().__call__(relevant_args) if STATE.is_opened else HAS_TORCH_FUNCTION(relevant_args)


def _note_padding(encoder: nn.TransformerEncoder, mask: Tensor | None, tensors: Any) -> None:
    """Notes the padding of an encoder that would pass nested tensors to its layers, and fill their padding with 0."""
    is_trained = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if mask is not None and not is_trained:
        STATE.padding[encoder.layers[-1]] = mask.bool()


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Sets a model's modules to evaluation mode within a context, and restores the mode of each afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@cache
def _reported(method: Function) -> Function:
    """Wraps a method that reorders the batch rows of a cache, to report the new order."""

    @wraps(method)
    def reorder(self: Any, index: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = method(self, index, *args, **kwargs)
        for observer in STATE.observers:
            observer.reordered(index)
        return result

    return reorder


@cache
def _reported_update(method: Function) -> Function:
    """Wraps a method that adds tokens to a cache, to report that the watched model uses it."""

    @wraps(method)
    def update(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_idle():
            frame = sys._getframe(1)
            for observer in STATE.observers:
                observer.cached(self, frame)
        return method(self, *args, **kwargs)

    return update


@cache
def _reported_crop(method: Function) -> Function:
    """Wraps a method that removes tokens from a cache, to report how many are left."""

    @wraps(method)
    def crop(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = int(self.get_seq_length())
        result = method(self, *args, **kwargs)
        for observer in STATE.observers:
            observer.cropped(self, before, int(self.get_seq_length()))
        return result

    return crop


_SDPA_NAME, _FLEX_NAME = "scaled_dot_product_attention", "flex_attention"
"""The names to replace: looked up once in each module of Python, then in those that had one and those of the model."""

_WRAPPED_NAMES: dict[str, tuple[tuple[str, str, Callable[[Any], Any]], ...]] = {
    # It compiles `flex_attention` once, for good, so that name stays unchanged.
    "transformers.integrations.flex_attention": (("", COMPILED_FLEX_NAME, watched_flex),),
    "transformers.configuration_utils": (("PreTrainedConfig", "_attn_implementation", ImplementationChoice),),
    "transformers.cache_utils": (
        ("Cache", "reorder_cache", _reported),
        ("Cache", "update", _reported_update),
        ("Cache", "crop", _reported_crop),
        ("EncoderDecoderCache", "reorder_cache", _reported),  # it has two of the others
    ),
}
"""Names of other libraries that are wrapped, by the module: the class ("": none), the name, and the wrapper."""

_UNSEARCHED_MODULES = ("torch._C", "torch._dynamo", "regard.watching")


class _Installation:
    """The names that are replaced as long as some thread watches a model."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._contexts, self._followers, self._changing = 0, 0, 0
        self._stance: Any = None
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._hook: Any = None
        self._end_hook: Any = None
        self._searched: dict[str, object] = {}
        self._imported: tuple[int, str] = (0, "")
        self._functions: list[dict[str, Any]] = []
        self._flex: list[dict[str, Any]] = []
        self._flex_function: Function | None = None
        self._wrapped: list[tuple[dict[str, Any] | type, str, Callable[[Any], Any]]] = []

    def enter(self, observer: Observer) -> None:
        """Replaces the names; those in the modules of Python that a model uses may have changed since the last time."""
        model, follows = observer.names, observer.follows_ends
        with self._lock:
            if observer.is_changing and self._changing == 0:
                self._stance = _uncompiled()
            self._changing += observer.is_changing
            self._contexts += 1
            if self._contexts == 1:
                LISTENERS.append(listen)
                self._replace(torch.overrides.__dict__, "has_torch_function", _HasTorchFunction())
                self._replace(F.__dict__, "has_torch_function", _HasOtherOverrides())
                self._replace(SequenceCache, "select", _reported(SequenceCache.select))
                self._hook = nn.modules.module.register_module_forward_pre_hook(_report_module)
            self._followers += follows
            if follows and self._followers == 1:
                self._end_hook = nn.modules.module.register_module_forward_hook(_report_end)
            used = model.files
            self._replace_names(used)
            self._replace_recurrences(used, list(model.modules.values()))

    def leave(self, observer: Observer) -> None:
        follows = observer.follows_ends
        with self._lock:
            self._contexts -= 1
            self._followers -= follows
            self._changing -= observer.is_changing
            if follows and self._followers == 0:
                self._end_hook.remove()
            if self._contexts == 0:
                self._hook.remove()
                for holder, name, original, replacement in reversed(self._replaced):
                    # Another library may have replaced the name since.
                    if _names_of(holder).get(name) is replacement:
                        _put(holder, name, original)
                self._replaced = []
                LISTENERS.remove(listen)
            if observer.is_changing and self._changing == 0:
                if self._stance is not None:
                    self._stance.__exit__(None, None, None)
                elif compiler := sys.modules.get("torch._dynamo"):
                    # What was compiled since was refused, and would stay uncompiled.
                    compiler.reset()

    def _replace(self, holder: dict[str, Any] | type, name: str, replacement: Any) -> None:
        self._replaced.append((holder, name, _names_of(holder)[name], replacement))
        _put(holder, name, replacement)

    def search(self, names: dict[str, Any]) -> None:
        """Replaces every name of a Python module that is bound to `scaled_dot_product_attention`."""
        with self._lock:
            if self._contexts:
                for name in [name for name, value in names.items() if value is SDPA and name != "SDPA"]:
                    self._replace(names, name, watched_sdpa)

    def _replace_names(self, used: set[str]) -> None:
        # A newly imported module becomes the last one.
        state = len(sys.modules), next(reversed(sys.modules))
        if state != self._imported:
            self._imported = state
            self._search_new()
        own = [_names_in(sys.modules.get(module)) for module in ("__main__", *used)]
        for names in (*self._functions, *own):
            if names.get(_SDPA_NAME) is SDPA:
                self._replace(names, _SDPA_NAME, watched_sdpa)
        function = self._flex_function
        if function is not None:
            for names in (*self._flex, *own):
                bound: Any = names.get(_FLEX_NAME)
                compiled = type(bound) is FunctionType and getattr(bound, "_torchdynamo_orig_callable", None)
                if bound is function or compiled is function:
                    self._replace(names, _FLEX_NAME, watched_flex(bound))
        for holder, name, wrapper in self._wrapped:
            original = _names_of(holder)[name]
            if not hasattr(original, "__wrapped__"):
                self._replace(holder, name, wrapper(original))

    def _replace_recurrences(self, used: set[str], modules: Iterable[nn.Module]) -> None:
        """Replaces the functions of linear recurrences in modules of Python, and where a model stores them itself."""
        kinds = {kind: _globals_of(kind) for kind in {type(module) for module in modules}}
        named = (_names_in(sys.modules.get(file)) for file in ("__main__", *used))
        holders = {id(names): names for names in (*named, *kinds.values()) if not RECURRENCES.keys().isdisjoint(names)}
        if not holders:
            return
        stored = [vars(module) for module in modules if id(kinds[type(module)]) in holders]
        for names in (*holders.values(), *stored):
            for name in recurrent_names(names):
                self._replace(names, name, watched_recurrence(names[name]))

    def _search_new(self) -> None:
        """Finds the names to replace in the modules that were imported since the last search."""
        for name, module in dict(sys.modules).items():
            if self._searched.get(name) is module or name.startswith(_UNSEARCHED_MODULES):
                continue
            self._searched[name] = module
            names = _names_in(module)
            if _SDPA_NAME in names and not name.startswith("torch."):
                self._functions.append(names)
            if name == "torch.nn.attention.flex_attention":
                self._flex_function = names.get(_FLEX_NAME)
            wrapped = [
                (holder, attribute, wrapper)
                for kind, attribute, wrapper in _WRAPPED_NAMES.get(name, ())
                # A class that lacks the name is of an unknown version: its replacement raises KeyError.
                if (holder := names.get(kind) if kind else names) and (kind or attribute in names)
            ]
            self._wrapped += wrapped
            if not wrapped and type(names.get(_FLEX_NAME)) is FunctionType:
                self._flex.append(names)


def _uncompiled() -> Any:
    """Makes compiled functions run uncompiled, since their code lacks the change; None: nothing is compiled yet.

    Raises:
        ArgumentError: compiled code runs.
    """
    if "torch._dynamo" not in sys.modules:
        return None  # its import takes seconds
    try:
        return torch.compiler.set_stance("force_eager")
    except RuntimeError:
        raise ArgumentError(
            "regard.intervene cannot be opened in a function that torch.compile compiles; open it around the function"
        ) from None


@cache
def _globals_of(kind: type[nn.Module]) -> dict[str, Any]:
    """Returns the names that the code of a module's own call uses."""
    return getattr(inspect.unwrap(kind.forward), "__globals__", {})


def _names_in(module: object) -> dict[str, Any]:
    """Returns the names of a module of Python; none if it is not imported."""
    return getattr(module, "__dict__", {})


def _names_of(holder: dict[str, Any] | type) -> Mapping[str, Any]:
    return holder if isinstance(holder, dict) else vars(holder)


def _put(holder: dict[str, Any] | type, name: str, value: Any) -> None:
    if isinstance(holder, dict):
        holder[name] = value
    else:
        setattr(holder, name, value)


_INSTALLATION = _Installation()


def _report_module(module: nn.Module, args: Any) -> None:
    if torch.compiler.is_compiling():
        is_idle()  # raises where attention is changed
        return
    for observer in STATE.observers:
        observer.ran(module, args)


def _report_end(module: nn.Module, args: Any, output: Any) -> Any:
    state = STATE
    if state.followers and not is_idle():
        for follower in state.followers:
            follower.ends(module, output)
    if module in state.padding:
        return output.masked_fill(state.padding.pop(module)[..., None], 0.0)
    if any(each.module is module for each in state.returned):
        own = [each for each in state.returned if each.module is module]
        state.returned = [each for each in state.returned if each.module is not module]
        return with_changed_weights(output, own)
    return None


OWN_HOOKS.update((_report_module, _report_end))
