"""The module of the watched model that owns an attention call: its name, its layer, and the kind of its keys.

A layer of `regard.nn` names itself in its call. The owner of any other call is the innermost module of the model that
is the first argument of a function on the stack. So the name is right for `forward`, for other methods (a decoder's
cached step), and for functions that take the module, as Hugging Face's attention functions do; no module needs a hook,
which would switch PyTorch's fast paths off.
"""

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.errors import KindError
from regard.watching.families import (
    CROSS_ARGUMENTS,
    CROSS_SIBLINGS,
    PACKING_FUNCTION,
    SELF_ARGUMENTS,
    Mechanism,
    head_count,
    is_cross_name,
    looks_like_attention,
    mechanism_of,
)

_CALLS = frozenset({nn.Module._call_impl.__code__, nn.Module._wrapped_call_impl.__code__})
"""The code that runs when a module is called."""

CODES_LIMIT = 4096
"""The most functions whose parameters are cached."""


class Owner(NamedTuple):
    """The module that owns an attention call.

    Attributes:
        name: the module's name in the model; ``""`` is the model itself.
        cross: whether its arguments or its name say that it attends to another sequence.
        packed: whether Hugging Face passes the heads of a group as queries, as for a single token.
        groups: the number of query heads that share keys, if the module declares it, else 1.
        heads: the number of query heads, if the module declares it.
        mechanism: the module's mechanism besides multi-head attention; None: no such one.
    """

    name: str
    module: nn.Module
    cross: bool = False
    packed: bool = False
    groups: int = 1
    heads: int | None = None
    mechanism: Mechanism | None = None


class ModuleNames:
    """The names of a model's modules, also by the ``id`` of each, their owners and their layers."""

    def __init__(self, model: nn.Module):
        self.model = model
        self.modules = dict(model.named_modules())
        self.names = {id(module): name for name, module in self.modules.items()}
        self._layers = _layers_of_names(tuple(self.modules))
        self._owners: dict[tuple[str, bool, bool], Owner] = {}
        self._is_cross: dict[str, bool] = {}

    @property
    def files(self) -> set[str]:
        """The names of the Python modules that define the classes of the model."""
        return {file for kind in {type(module) for module in self.modules.values()} for file in _files_of_class(kind)}

    def attention(self, frame: FrameType | None) -> Owner | None:
        """Returns the innermost module on the stack that is named as attention; None if there is none."""
        return self.owner(frame, looks_like_attention)

    def announced(self, layer: nn.Module) -> Owner | None:
        """Returns the owner of a call that names its layer of regard; None if that is not a part of the model."""
        name = self.names.get(id(layer))
        return None if name is None else self._owner(name, layer, self._is_cross_module(name, layer))

    def owner(self, frame: FrameType | None, suits: Callable[[nn.Module], bool] | None = None) -> Owner | None:
        """Returns the owner of a call that a frame makes; None if no module that ``suits`` is on the stack."""
        packed = is_foreign = False
        while frame is not None:
            code = frame.f_code
            if code.co_name == PACKING_FUNCTION:
                packed = packed or _is_packed(frame)
            parameters = _parameters(code)
            if parameters.module is not None:
                variables = frame.f_locals
                module = variables.get(parameters.module)
                name = self.names.get(id(module))
                if name is None:
                    is_foreign = is_foreign or isinstance(module, nn.Module)
                elif isinstance(module, nn.Module) and (suits is None or suits(module)):
                    if is_foreign and not self._runs(frame):
                        return None
                    cross = self._is_cross_module(name, module) or _takes_other_keys(
                        module, frame, parameters, variables
                    )
                    return self._owner(name, module, cross, packed)
            frame = frame.f_back
        return None

    def _runs(self, frame: FrameType | None) -> bool:
        """Whether a module of the model is called on the stack; a method, as ``generate``, may call another model."""
        while frame is not None:
            if frame.f_code in _CALLS and id(frame.f_locals.get("self")) in self.names:
                return True
            frame = frame.f_back
        return False

    def _owner(self, name: str, module: nn.Module, cross: bool, packed: bool = False) -> Owner:
        owner = self._owners.get((name, cross, packed))
        if owner is None:
            groups = _attribute(module, "num_key_value_groups", 1)
            groups = groups if isinstance(groups, int) else 1
            owner = Owner(name, module, cross, packed, groups, head_count(module), mechanism_of(module))
            self._owners[name, cross, packed] = owner
        return owner

    def _is_cross_module(self, name: str, module: nn.Module) -> bool:
        """Whether a module's name or an attribute says that it attends to another sequence."""
        is_cross = self._is_cross.get(name)
        if is_cross is None:
            layer, dot, own = name.rpartition(".")
            sibling = CROSS_SIBLINGS.get(own)
            is_cross = (
                is_cross_name(name)
                or (sibling is not None and f"{layer}{dot}{sibling}" in self.modules)
                or _attribute(module, "is_cross_attention", False) is True
            )
            self._is_cross[name] = is_cross
        return is_cross

    def layer(self, name: str) -> int:
        """Returns the number of the layer that a module belongs to, from 0.

        It is the number in the module's name that differs between modules of the same pattern (``layers.3.attn``). If
        several numbers differ, it is the module's rank among them; without a number it is 0.
        """
        return self._layers.number(name)


class _LayerNumbers:
    """The layers of all modules of a model, by their names."""

    def __init__(self, names: tuple[str, ...]):
        self._layers: dict[str, int] = {}
        self._numbers: dict[str, list[tuple[int, ...]]] = {}
        for name in names:
            self._numbers.setdefault(_pattern(name), []).append(_integers(name))

    def number(self, name: str) -> int:
        if name not in self._layers:
            self._layers[name] = self._number(name)
        return self._layers[name]

    def _number(self, name: str) -> int:
        own, alike = _integers(name), self._numbers.get(_pattern(name), [])
        differing = [index for index in range(len(own)) if len({numbers[index] for numbers in alike}) > 1]
        if len(differing) == 1:
            return own[differing[0]]
        if differing:
            return sorted(alike).index(own)
        return own[0] if own else 0


_layers_of_names = lru_cache(maxsize=8)(_LayerNumbers)
"""The layers of modules of these names, cached for all contexts of a model."""


def _attribute(module: nn.Module, name: str, default: object) -> object:
    """Returns an attribute without the search of parameters, buffers and modules, which is slow for a missing one."""
    if type(module).__getattr__ is not nn.Module.__getattr__:
        return getattr(module, name, default)
    return getattr(module, name) if hasattr(type(module), name) else vars(module).get(name, default)


@cache
def _files_of_class(kind: type) -> frozenset[str]:
    return frozenset(base.__module__ for base in kind.__mro__)


def _pattern(name: str) -> str:
    return ".".join("#" if part.isdigit() else part for part in name.split("."))


def _integers(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split(".") if part.isdigit())


class _FunctionParameters(NamedTuple):
    """The parameters of a function that matter here.

    Attributes:
        module: the first parameter, if its name is that of a module.
        of_keys: parameters that may carry the keys of another sequence.
    """

    code: CodeType
    module: str | None
    of_keys: frozenset[str]


_CACHED_PARAMETERS: dict[int, _FunctionParameters] = {}
"""By the ``id`` of the code, which the value keeps alive; hashing a code would take longer than all other work."""


def _parameters(code: CodeType) -> _FunctionParameters:
    parameters = _CACHED_PARAMETERS.get(id(code))
    if parameters is None:
        if len(_CACHED_PARAMETERS) >= CODES_LIMIT:
            _CACHED_PARAMETERS.clear()
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        first = names[0] if code.co_argcount and names[0] in SELF_ARGUMENTS else None
        of_keys = (*CROSS_ARGUMENTS, "key", "keys") if code.co_name == "forward" else CROSS_ARGUMENTS
        parameters = _CACHED_PARAMETERS[id(code)] = _FunctionParameters(
            code, first, frozenset(of_keys).intersection(names)
        )
    return parameters


def _takes_other_keys(
    module: nn.Module, frame: FrameType, parameters: _FunctionParameters, variables: dict[str, Any]
) -> bool:
    """Whether the arguments of a module's own method say that it attends to another sequence.

    The frame, with its parameters and variables, is that of the method or of a function that it calls with the module.
    """
    above: FrameType | None = frame
    while parameters.module != "self":
        above = above.f_back
        if above is None:
            return False
        parameters, variables = _parameters(above.f_code), above.f_locals
    of_keys = parameters.of_keys
    if not of_keys or variables.get("self") is not module:
        return False
    if any(variables.get(argument) is not None for argument in of_keys if argument not in ("key", "keys")):
        return True
    query, key, value = (variables.get(name, variables.get(f"{name}s")) for name in ("query", "key", "value"))
    if not {"key", "keys"} & of_keys or query is key or not isinstance(query, Tensor) or not isinstance(key, Tensor):
        return False
    # Tensors of four axes differ in self-attention too: with a cache there are more keys than queries.
    return query.dim() == key.dim() < 4 and (key is value or query.shape != key.shape)


def _is_packed(frame: FrameType) -> bool:
    """Whether `PACKING_FUNCTION` reshaped a single query's heads to a group's queries."""
    variables = frame.f_locals
    groups = getattr(variables.get("module"), "num_key_value_groups", 1)
    query = variables.get("query")
    return variables.get("q_length") == 1 and groups > 1 and isinstance(query, Tensor) and query.shape[2] == groups


def without_ancestors(names: Iterable[str]) -> list[str]:
    """Returns the names that are no ancestor of another one, in their order."""
    names = list(names)
    return [name for name in names if not any(other.startswith(f"{name}.") for other in names)]


def refuse_compiled(modules: dict[str, nn.Module]) -> None:
    """Raises KindError if `torch.compile` or TorchScript compiled the model or one of its modules."""
    for name, module in modules.items():
        # `getattr` would search three dictionaries for an attribute that a module does not have.
        own = vars(module)
        is_original = isinstance(own["_modules"].get("_orig_mod"), nn.Module)
        if is_original:
            how, advice = "by torch.compile", "; watch and call the original module, which is its attribute _orig_mod"
        elif isinstance(module, torch.jit.ScriptModule):
            how, advice = "by TorchScript", ""
        elif own.get("_compiled_call_impl") is not None:
            how = f"({type(module).__name__}.compile() was called)"
            advice = "; watch a copy that is not compiled"
        else:
            continue
        named = f"module {name!r}" if name else "the model"
        raise KindError(f"model: {named} is compiled {how}, so its attention calls cannot be seen{advice}")
