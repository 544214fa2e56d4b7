"""Detects in-place changes of tensors that a backward pass reads again but autograd did not save.

A backward pass that recomputes a part of the forward pass (`tiled`, activation checkpointing, masks that become dense a
slice at a time) reads the inputs of that part again. Autograd detects a change only in saved tensors; `Versions`
detects it in all others.
"""

from collections import deque
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from regard.errors import BackendError

_PLAIN_TYPES = (str, bytes, int, float, complex, type(None))
_NUMBERS = (int, float, complex)
_CONTAINERS = (list, tuple, set, frozenset, deque)
_CONTENTS = ("_parameters", "_buffers", "_modules")
_BOOKKEEPING = vars(nn.Module()).keys() - set(_CONTENTS)
"""Attributes that PyTorch gives every module, such as its hooks."""

_LIBRARIES = frozenset({"torch", "numpy", "regard"})
"""Packages whose functions read no tensors from global variables."""


class Versions:
    """Records the version counters of tensors, which every in-place change increments.

    Args:
        owners: argument name, for the message → a tensor or an object that holds tensors (`tensors_of`).
    """

    def __init__(self, **owners: object):
        self._versions = [
            (name, tensor, tensor._version)
            for name, owner in owners.items()
            for tensor in tensors_of(owner)
            # Inference tensors have no versions.
            if not tensor.is_inference()
        ]

    def forget_changed(self) -> None:
        """Drops the tensors that the forward pass itself has changed, such as a module's running statistics."""
        self._versions = [entry for entry in self._versions if entry[1]._version == entry[2]]

    def check(self) -> None:
        """Raises BackendError if a tensor was changed in place."""
        for name, tensor, version in self._versions:
            if tensor._version != version:
                raise BackendError(
                    f"a tensor of {name}, of shape {list(tensor.shape)}, was changed in place after the forward pass, "
                    "and the backward pass reads it again: change a copy, or call backward() before the change"
                )


def tensors_of(owner: object) -> list[Tensor]:
    """Returns the tensors that an object holds in containers, in attributes, and in the variables of its functions.

    A part of regard contributes the fields that its class declares (`regard.fields`); anything else is searched.
    A function captures the variables of enclosing functions, its defaults, and the global variables that it names. A
    captured object contributes the attributes that the function names, directly or in a method that it names, or all
    attributes if it names none. Running statistics of normalization layers do not count, since layers update them.
    """
    return [leaf for leaf in leaves_of(owner) if isinstance(leaf, Tensor)]


def leaves_of(owner: object) -> list[Tensor | FunctionType | float | complex]:
    """Returns the tensors, functions and numbers that an object holds, found as `tensors_of` says."""
    leaves: dict[int, Tensor | FunctionType | float | complex] = {}
    seen: dict[int, object] = {}
    pending: list[tuple[Any, frozenset[str]]] = [(owner, frozenset())]
    while pending:
        value, names = pending.pop()
        if isinstance(value, (Tensor, *_NUMBERS)):
            leaves[id(value)] = value
        elif id(value) not in seen and not isinstance(value, _PLAIN_TYPES):
            # A reference keeps the id from being reused.
            seen[id(value)] = value
            if isinstance(value, FunctionType):
                leaves[id(value)] = value
            pending.extend(_contents(value, names))
    return list(leaves.values())


def _contents(value: Any, names: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """Yields the contents of an object, each with the attribute names that the function that captured it reads."""
    kind = type(value)
    fields = vars(kind).get("declared_fields")  # `regard.fields.Declared`
    if fields is not None and not any(map(callable, vars(value).values())):
        # An object with a function or a method of its own may read more than its fields.
        yield from ((getattr(value, name), frozenset[str]()) for name in fields)
    elif isinstance(value, dict):
        # A copy, since another thread, or the end of an object that is a weak key, may change the dictionary meanwhile;
        # it makes no object for each pair, so that nothing ends while it is made.
        yield from ((item, names) for pair in dict.copy(value).items() for item in pair)
    elif isinstance(value, _CONTAINERS):
        yield from ((item, names) for item in value)
    elif isinstance(value, partial):
        yield from ((item, names) for item in (value.func, value.args, value.keywords))
    elif isinstance(value, MethodType):
        yield value.__func__, names
        yield value.__self__, frozenset(_names_in(value.__func__))
    elif isinstance(value, FunctionType):
        yield from _captured(value)
    elif isinstance(value, nn.Module):
        state = {key: item for key, item in vars(value).items() if key not in _BOOKKEEPING}
        for contents in _CONTENTS:
            state |= state.pop(contents)
        if isinstance(value, _NormBase):
            state = {key: item for key, item in state.items() if key not in value._buffers}
        # A submodule is called as a whole, so all of its attributes count.
        yield from ((item, frozenset[str]()) for item in _named(value, state, names))
    elif isinstance(value, (type, ModuleType)):
        yield from ((item, names) for name, item in vars(value).items() if name in names and isinstance(item, Tensor))
    else:
        state = dict(getattr(value, "__dict__", {}))
        for base in type(value).__mro__:
            slots = base.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                if hasattr(value, slot):
                    state[slot] = getattr(value, slot)
        yield from ((item, names) for item in _named(value, state, names))


def _named(owner: object, state: dict[str, Any], names: frozenset[str]) -> Iterator[Any]:
    """Yields the attributes with these names, or that methods of these names read, or all if there are none."""
    reached, pending = set(names), list(names)
    while pending:
        member = getattr(type(owner), pending.pop(), None)
        function = member.fget if isinstance(member, property) else member
        if isinstance(function, FunctionType):
            more = _names_in(function) - reached
            reached |= more
            pending.extend(more)
    chosen = reached & state.keys()
    yield from (item for name, item in state.items() if not chosen or name in chosen)


def _captured(function: FunctionType) -> Iterator[tuple[Any, frozenset[str]]]:
    """Yields the objects that a function reads besides its arguments."""
    library = str(function.__module__).partition(".")[0]
    if library in ("torch", "numpy"):
        return
    compiled = vars(function).get("_torchdynamo_orig_callable")
    if compiled is not None:
        yield compiled, frozenset[str]()
        return
    names = frozenset(_names_in(function))
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents, names
        except ValueError:  # a variable that has no value yet
            continue
    yield from ((value, names) for value in (function.__defaults__, function.__kwdefaults__, vars(function)))
    if library in _LIBRARIES:
        return
    for name in names & function.__globals__.keys():
        value = function.__globals__[name]
        elsewhere = isinstance(value, FunctionType) and str(value.__module__).partition(".")[0] != library
        if not elsewhere:
            yield value, names


def _names_in(function: FunctionType) -> set[str]:
    """Returns the names of global variables and attributes in a function and in the functions defined inside it."""
    names: set[str] = set()
    pending = [function.__code__]
    while pending:
        code = pending.pop()
        names.update(code.co_names)
        pending.extend(part for part in code.co_consts if isinstance(part, CodeType))
    return names
