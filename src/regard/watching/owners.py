"""Which module of the watched model an attention call belongs to: its name, its layer, and what it attends to.

The owner of a call is the innermost module of the model that is the first argument of a function on the stack. So the
name is right for `forward`, for other methods (a decoder's cached step), and for functions that get the module, as
Hugging Face's attention functions do; no hook on a module is needed, which would switch PyTorch's fast paths off.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import FrameType

from torch import Tensor, nn

CROSS_NAMES = re.compile(
    r"cross|enc_?dec_?att|encoder_?att|multihead_attn|src_att|memory_att|context_att", re.IGNORECASE
)
"""Names of modules that attend to another sequence than their own."""

CROSS_ARGUMENTS = ("key_value_states", "encoder_hidden_states", "cross_attention_states", "memory", "context")
"""Arguments that such modules get their keys by."""

SELF_ARGUMENTS = frozenset({"self", "module", "model", "layer", "block", "attn", "mod", "m"})
"""First parameters of functions that get a module."""


@dataclass(frozen=True, eq=False)
class Owner:
    """Whose attention call it is.

    Attributes:
        name: the module's name in the model; ``""`` is the model itself.
        module: the module.
        cross: whether its arguments or its name say that it attends to another sequence.
        packed: whether Hugging Face put the heads of a group in the place of queries, as for a single token.
    """

    name: str
    module: nn.Module
    cross: bool = False
    packed: bool = False


@dataclass(eq=False)
class ModuleNames:
    """The modules of a model by their identity, and their layers.

    Attributes:
        model: the model.
        modules: its modules by their names.
        names: the name of each module, by its ``id``.
    """

    model: nn.Module
    modules: dict[str, nn.Module] = field(init=False)
    names: dict[int, str] = field(init=False)

    @property
    def files(self) -> set[str]:
        """Names of the Python modules in which the classes of the model are."""
        classes = {type(module) for module in self.modules.values()}
        return {base.__module__ for kind in classes for base in kind.__mro__}

    def __post_init__(self) -> None:
        self.modules = dict(self.model.named_modules())
        self.names = {id(module): name for name, module in self.modules.items()}
        self._layers: dict[str, int] = {}
        self._numbers: dict[str, list[tuple[int, ...]]] = {}
        for name in self.names.values():
            self._numbers.setdefault(_pattern(name), []).append(_integers(name))

    def owner(self, frame: FrameType | None) -> Owner | None:
        """The owner of a call that was made in this frame; None if no module of the model is on the stack."""
        packed = False
        while frame is not None:
            code = frame.f_code
            if code.co_name == "sdpa_attention_forward":
                packed = packed or _is_packed(frame)
            if code.co_argcount and code.co_varnames[0] in SELF_ARGUMENTS:
                module = frame.f_locals.get(code.co_varnames[0])
                name = self.names.get(id(module))
                if name is not None and isinstance(module, nn.Module):
                    return Owner(name, module, self._attends_elsewhere(name, module, frame), packed)
            frame = frame.f_back
        return None

    def _attends_elsewhere(self, name: str, module: nn.Module, frame: FrameType) -> bool:
        parts = name.split(".")
        if any(CROSS_NAMES.search(part) for part in parts[-2:]) or getattr(module, "is_cross_attention", False) is True:
            return True
        # The arguments are those of the module's own method: a function that gets the module may lie below it.
        while frame is not None and frame.f_code.co_varnames[:1] != ("self",):
            if frame.f_back is None:
                return False
            frame = frame.f_back
        if frame.f_locals.get("self") is not module:
            return False
        given = frame.f_locals
        if any(given.get(argument) is not None for argument in CROSS_ARGUMENTS if _is_argument(frame, argument)):
            return True
        query, key, value = (given.get(argument) for argument in ("query", "key", "value"))
        if frame.f_code.co_name != "forward" or not _is_argument(frame, "key"):
            return False
        if not isinstance(query, Tensor) or not isinstance(key, Tensor) or query is key:
            return False
        # Four axes are heads, which differ in self-attention too: those of a cache are more than the query's.
        return query.dim() == key.dim() < 4 and (key is value or query.shape != key.shape)

    def layer(self, name: str) -> int:
        """The number of the layer that a module belongs to, from 0.

        It is the number in the module's name that tells modules of the same pattern apart (``layers.3.attn``). Where
        several numbers do, it is the module's place among them; without a number it is 0.
        """
        if name not in self._layers:
            self._layers[name] = self._find_layer(name)
        return self._layers[name]

    def _find_layer(self, name: str) -> int:
        own, alike = _integers(name), self._numbers.get(_pattern(name), [])
        differing = [place for place in range(len(own)) if len({numbers[place] for numbers in alike}) > 1]
        if len(differing) == 1:
            return own[differing[0]]
        if differing:
            return sorted(alike).index(own)
        return own[0] if own else 0


def _pattern(name: str) -> str:
    return ".".join("#" if part.isdigit() else part for part in name.split("."))


def _integers(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split(".") if part.isdigit())


def _is_argument(frame: FrameType, name: str) -> bool:
    code = frame.f_code
    return name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _is_packed(frame: FrameType) -> bool:
    """Whether ``sdpa_attention_forward`` of Hugging Face reshaped a single query's heads to a group's queries."""
    given = frame.f_locals
    groups = getattr(given.get("module"), "num_key_value_groups", 1)
    query = given.get("query")
    return given.get("q_length") == 1 and groups > 1 and isinstance(query, Tensor) and query.shape[2] == groups


def looks_like_attention(module: nn.Module) -> bool:
    """Whether a module's class is named as attention."""
    return isinstance(module, nn.MultiheadAttention) or bool(
        re.search(r"attention|attn", type(module).__name__, re.IGNORECASE)
    )


def without_ancestors(names: Iterable[str]) -> list[str]:
    """The names that are no ancestor of another one, in their order."""
    given = list(names)
    return [name for name in given if not any(other.startswith(f"{name}.") for other in given)]
