"""The fields of scores, normalizers, masks and biases: all that makes one, declared once, where its class begins.

::

    class Band(Mask, fields=("before", "after", "align", "offset")):

Fields are the arguments of the constructor, in its order, and attributes of the same names. What can be told of any
part follows from them: its text, which parts it contains, which masks are equal, its kind
(`regard.attention.kinds`), its encoding for operators (`regard.attention.encoding`), and the tensors that a backward
pass may read again (`regard.tracing.versions`).
"""

from collections.abc import Callable, Iterator
from inspect import Parameter, signature
from operator import is_
from typing import Any, ClassVar

from torch import Tensor, nn

from regard.errors import KindError
from regard.summaries import parameter_summary
from regard.tracing.module_calls import Module

FIELDS: dict[type, tuple[str, ...]] = {
    nn.Linear: ("weight", "bias"),
    nn.Tanh: (),
    nn.Conv1d: ("weight", "bias", "stride", "padding", "dilation"),
}
"""The fields of each class that declares them, and of the modules of PyTorch that a part may contain.

A subclass of such a class is not in it unless it declares its own, since its methods may read more."""


class Declared:
    """A class whose objects are made of the fields that it declares, and whose methods depend on nothing else.

    Only classes of regard declare fields. A user's class declares none: its tensors are found by reflection
    (`regard.tracing.versions`), and it has neither a kind nor an encoding, since its methods may read what no field
    holds. Nor do the classes of regard that are a user's function, or whose effect depends on a module's training mode.
    """

    declared_fields: ClassVar[tuple[str, ...]]
    """The entry of `FIELDS`, where `regard.tracing.versions` reads it."""

    def __init_subclass__(cls, fields: tuple[str, ...] | None = None, **options: object) -> None:
        super().__init_subclass__(**options)
        if fields is not None:
            if not cls.__module__.startswith("regard."):
                raise KindError(f"only classes of regard declare fields; {cls.__name__} is of {cls.__module__}")
            FIELDS[cls] = cls.declared_fields = fields

    @classmethod
    def of_fields(cls, *fields: Any) -> Any:
        """Returns the object with these fields."""
        return cls(*fields)


class DeclaredModule(Declared, Module):
    """A module that declares fields."""

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={_text(value)}" for name, value, _ in shown_fields(self))


def declaring_class(part: object) -> Any:
    """Returns the class of a part, or the nearest base of it, that declares fields; None if there is none."""
    return next((base for base in type(part).__mro__ if base in FIELDS), None)


def shown_fields(part: object) -> Iterator[tuple[str, Any, bool]]:
    """Yields the fields that a text shows: name, value, and whether the constructor needs it.

    A field that is None, a module, or what the constructor takes by default is not shown.
    """
    declaring = declaring_class(part)
    parameters = signature(declaring.__init__).parameters if declaring else {}
    for name in FIELDS.get(declaring, ()):
        value, default = getattr(part, name), parameters[name].default
        if not (value is None or isinstance(value, nn.Module) or (not isinstance(value, Tensor) and value == default)):
            yield name, value, default is Parameter.empty


def _text(value: object) -> str:
    return parameter_summary(value) if isinstance(value, (float, Tensor)) else repr(value)


def set_field(module: nn.Module, name: str, value: Tensor | float | None, persistent: bool = False) -> None:
    """Makes a tensor, a number or None an attribute of a module.

    An ``nn.Parameter`` is registered, and is therefore learned. Any other tensor becomes a buffer, without a copy: it
    moves with the module, and gradients flow through it to its origin.

    Args:
        name: the attribute's name.
        persistent: whether a buffer is saved with the module.
    """
    if isinstance(value, nn.Parameter):
        module.register_parameter(name, value)
    elif isinstance(value, Tensor):
        module.register_buffer(name, value, persistent=persistent)
    else:
        setattr(module, name, None if value is None else float(value))


def replaced(part: Any, **fields: Any) -> Any:
    """Returns a part with other values of some fields."""
    declaring = declaring_class(part)
    return declaring.of_fields(*[fields.get(name, getattr(part, name)) for name in FIELDS[declaring]])


def with_parts(part: Any, function: Callable[[Any], Any]) -> Any:
    """Returns a part with ``function`` of each part in it; the part itself if that changes none of them."""
    declaring = declaring_class(part)
    fields = [getattr(part, name) for name in FIELDS.get(declaring, ())]
    changed = [_with_function(field, function) for field in fields]
    return part if all(map(is_, changed, fields)) else declaring.of_fields(*changed)


def _with_function(field: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(field, Declared):
        return function(field)
    if isinstance(field, (tuple, nn.ModuleList)):
        items = [_with_function(item, function) for item in field]
        return field if all(map(is_, items, field)) else items
    return field
