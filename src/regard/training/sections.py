"""The sections of a configuration: frozen dataclasses that are built from the content of a file."""

import dataclasses
import json
import reprlib
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar

from regard.configuration.options import is_union, option_fields, option_types
from regard.errors import MissingPartError, RunError
from regard.names.old_names import in_minutes, suggestion

T = TypeVar("T")

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "null"}
"""Python type → its name in a message about a file."""


class _Short(reprlib.Repr):
    """Shortens the text of values from a file, in which lists can be nested and numbers can have any length."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 3, 120, 120

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() < 200 else f"a number of {x.bit_length():,} bits"


def shown(value: object) -> str:
    """Returns the text of a value for a message, shortened if it is long."""
    return _Short().repr(value)


def build_section(kind: type[T], content: object, where: str) -> T:
    """Returns the dataclass ``kind`` with these fields, as plain values; a missing field has its default. An int is
    accepted for a float; no other type for another. Raises RunError if a field is unknown, missing, or of a wrong type,
    and ArgumentError if the dataclass refuses a value; ``where`` is the file and the section, for messages."""
    fields = checked_fields(kind, content, where)
    for field in option_fields(kind):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in fields:
            raise RunError(f"{where} has no field {field.name!r}")
    return kind(**fields)


def checked_fields(kind: type[Any], content: object, where: str) -> dict[str, Any]:
    """Returns some of the fields of a section; raises RunError if one is unknown, or of a wrong type. Arguments as
    `build_section`."""
    with MissingPartError.instead("pydantic", "train"):
        from pydantic import ConfigDict, TypeAdapter, ValidationError
    if not isinstance(content, dict):
        raise RunError(f"{where} must be a mapping of fields; it is {shown(content)}")
    hints = option_types(kind)
    for name, value in content.items():
        if name not in hints:
            hint = suggestion(str(name), hints, shown)
            raise RunError(f"{where} has a field {shown(name)} that this version of regard doesn't know{hint}")
        if type(value) is int and abs(value) >= 1 << 63:
            raise RunError(f"{where}.{name} must be below 2⁶³; it is {shown(value)}")
        try:
            TypeAdapter(hints[name], config=ConfigDict(strict=True)).validate_python(value)
        except ValidationError:
            type_name, hint = kind_name(hints[name], _KINDS), in_minutes(name, value)
            raise RunError(f"{where}.{name} must be {type_name}; it is {shown(value)}{hint}") from None
    return content


def record_of(kind: type[T], content: object) -> T:
    """Returns the dataclass that the content of a JSON file holds; raises ValueError if a field is unknown, missing, or
    of another type."""
    with MissingPartError.instead("pydantic", "train"):
        from pydantic import TypeAdapter, ValidationError
    if not isinstance(content, dict) or content.keys() != {field.name for field in dataclasses.fields(kind)}:  # pyright: ignore[reportArgumentType]
        raise ValueError("a field is missing or unknown")
    try:
        return TypeAdapter(kind).validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'])):.200}: {first['msg']}") from error


def kind_name(hint: Any, names: Mapping[Any, str]) -> str:
    """Returns the name of a type for a message: ``a whole number`` for int, ``a number or null`` for float | None;
    without a name in ``names`` for ``NoneType``, None is no part of a union."""
    if typing.get_origin(hint) is Annotated:
        return kind_name(typing.get_args(hint)[0], names)
    if is_union(hint):
        parts = [part for part in typing.get_args(hint) if part is not type(None) or part in names]
        return " or ".join(dict.fromkeys(kind_name(part, names) for part in parts))
    if typing.get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, typing.get_args(hint)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "one of " + ", ".join(str(member.value) for member in hint)
    return names.get(hint, getattr(hint, "__name__", str(hint)))
