"""Encodes scores, normalizers, masks and biases as a text and lists of tensors and numbers, which an operator can take.

`encode` turns an object into a Python literal: a tuple of the name of its class and its fields, with the index of each
tensor in the list. `decode` creates the object again, in any process. Objects that contain functions have no text.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from torch import SymInt, Tensor, nn
from torch.fx.experimental.proxy_tensor import _AttrProxy

from regard import biases, masks, normalizers, scores  # noqa: F401 (their classes declare fields)
from regard.fields import FIELDS, Declared


@dataclass
class Parts:
    """The tensors and numbers that a text refers to by their index.

    Attributes:
        numbers, integers: the numbers, which a compiler may leave symbolic.
        foreign: returns a text of an object that has none otherwise; None: there is none.
    """

    tensors: list[Tensor] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    integers: list[int] = field(default_factory=list)
    foreign: Callable[[Any], str] | None = None


def encode(value: Any, parts: Parts | None) -> str | None:
    """Returns the text of a value; None if the value has none, or contains one that has none, such as a function.

    Args:
        value: an object of a class in `FIELDS`, a tensor, None, a bool, a number, a text, or a sequence of these.
        parts: gets the tensors and numbers; None if there are no tensors and numbers stay in the text.
    """
    if value is None or isinstance(value, (bool, str)) or (parts is None and isinstance(value, (int, float))):
        return repr(value)
    if isinstance(value, (int, SymInt)) and parts is not None:
        parts.integers.append(cast(int, value))
        return f"('integer', {len(parts.integers) - 1})"
    if isinstance(value, float) and parts is not None:
        parts.numbers.append(value)
        return f"('number', {len(parts.numbers) - 1})"
    if isinstance(value, Tensor) and parts is not None:
        parts.tensors.append(value)
        return f"('tensor', {len(parts.tensors) - 1})"
    if isinstance(value, (tuple, list, nn.ModuleList)):
        name, items = "sequence", [encode(item, parts) for item in value]
    elif (kind := _class_of(value)) is nn.Sequential:
        name, items = "Sequential", [encode(item, parts) for item in cast(nn.Sequential, value)]
    elif kind in FIELDS:
        name, items = kind.__name__, [encode(getattr(value, field), parts) for field in FIELDS[kind]]
    elif parts is not None and parts.foreign is not None:
        return parts.foreign(value)
    else:
        return None
    text = repr(name)
    for item in items:
        if item is None:
            return None
        text += ", " + item
    return f"({text},)"


def _class_of(value: Any) -> type:
    """Returns the class of an object; for a submodule that ``torch.export`` wrapped, the class of the submodule."""
    return type(cast(Any, value).get_base()) if isinstance(value, _AttrProxy) else type(value)


def decode(text: str, parts: Parts) -> Any:
    """Returns the value of a text that refers to these tensors and numbers."""
    return _build(_parsed(text), parts)


@cache
def _parsed(text: str) -> Any:
    return ast.literal_eval(text)


def _build(node: Any, parts: Parts) -> Any:
    if not isinstance(node, tuple):
        return node
    name, *items = node
    if name == "tensor":
        return parts.tensors[items[0]]
    if name == "number":
        return float(parts.numbers[items[0]])
    if name == "integer":
        return parts.integers[items[0]]
    values = [_build(item, parts) for item in items]
    return values if name == "sequence" else _CONSTRUCTORS[name](*values)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    return _with_tensors(layer, weight=weight, bias=bias)


def _convolution(weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any) -> nn.Conv1d:
    out_channels, in_channels, width = weight.shape
    layer = nn.Conv1d(
        in_channels, out_channels, width, tuple(stride), padding if isinstance(padding, str) else tuple(padding),
        tuple(dilation), bias=bias is not None, device="meta",
    )  # fmt: skip
    return _with_tensors(layer, weight=weight, bias=bias)


def _with_tensors(module: Any, **tensors: Tensor | None) -> Any:
    """Replaces a module's parameters by tensors, which get gradients."""
    for name, tensor in tensors.items():
        if tensor is not None:
            del module._parameters[name]
            setattr(module, name, tensor)
    return module


_CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    **{kind.__name__: kind.of_fields for kind in FIELDS if issubclass(kind, Declared)},
    "BatchInteger": lambda value: value,
    "Sequential": nn.Sequential,
    "Linear": _linear,
    "Tanh": nn.Tanh,
    "Conv1d": _convolution,
}
