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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attention.listeners import LISTENERS
from regard.nn.key_values import KeyValueCache
from regard.watching.handlers import HANDLERS, listen, watched_flex, watched_sdpa
from regard.watching.thread_state import SDPA, STATE, Function, Observer, without_mode

HAS_TORCH_FUNCTION = torch.overrides.has_torch_function


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


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Tell an observer of all attention calls that this thread makes."""
    _INSTALLATION.enter(observer.names.files)
    STATE.observers.append(observer)
    try:
        if STATE.mode is None:
            STATE.mode = _Mode()
            torch._C._push_on_torch_function_stack(STATE.mode)
        yield
    finally:
        STATE.observers.remove(observer)
        if not STATE.observers:
            without_mode(lambda: None, put_back=False)
            STATE.mode, STATE.softmax = None, None
            STATE.products.clear()
            STATE.masks.clear()
        _INSTALLATION.leave()


@wraps(HAS_TORCH_FUNCTION)
def _has_torch_function(relevant_args: Any) -> bool:
    if torch.compiler.is_compiling() or STATE.mode is None:
        return HAS_TORCH_FUNCTION(relevant_args)
    return without_mode(lambda: HAS_TORCH_FUNCTION(relevant_args))


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
        self._imported: tuple[int, str] = (0, "")
        self._places: set[str] = set()

    def enter(self, used: Iterable[str]) -> None:
        """Install what is not installed yet.

        Args:
            used: names of Python modules whose names may have changed since another context.
        """
        with self._lock:
            self._contexts += 1
            if self._contexts == 1:
                LISTENERS.append(listen)
                self._replace(torch.overrides.__dict__, "has_torch_function", _has_torch_function)
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
                LISTENERS.remove(listen)

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
        new: set[str] = set()
        # A module that is imported becomes the last one.
        state = len(sys.modules), next(reversed(sys.modules))
        if state != self._imported:
            new, self._imported = sys.modules.keys() - self._searched, state
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
                self._replace(names, "compile_friendly_flex_attention", watched_flex(wrapped))
        elif flex_function is not None:
            given: Any = names.get("flex_attention")
            if given is flex_function or getattr(given, "_torchdynamo_orig_callable", None) is flex_function:
                self._replace(names, "flex_attention", watched_flex(given))
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
