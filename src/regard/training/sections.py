"""Sections of a configuration: frozen dataclasses that are built from the content of a file, and their checks."""

import dataclasses
import difflib
import math
import reprlib
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, Union

from regard.errors import ArgumentError, MissingPartError, RunError, UnknownNameError

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


def check_choices(section: Any) -> None:
    """Raise UnknownNameError if a field whose type is a ``Literal`` has another value."""
    for name, hint in typing.get_type_hints(type(section)).items():
        known = _choices(hint)
        if known and getattr(section, name) not in known:
            raise UnknownNameError(name, getattr(section, name), [choice for choice in known if choice is not None])


def check_at_least(section: Any, least: float, *names: str) -> None:
    """Raise ArgumentError if one of these fields is smaller than ``least``, or NaN."""
    for name in names:
        if not getattr(section, name) >= least:
            raise ArgumentError(f"{name} must be at least {least}; it is {getattr(section, name)}")


def check_between(section: Any, low: float, high: float, *names: str) -> None:
    """Raise ArgumentError if one of these fields is not from ``low`` to ``high``, or NaN."""
    for name in names:
        if not low <= getattr(section, name) <= high:
            raise ArgumentError(f"{name} must be from {low:,} to {high:,}; it is {getattr(section, name)}")


def check_finite(section: Any) -> None:
    """Raise ArgumentError if a field is infinite or NaN."""
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ArgumentError(f"{field.name} must be a finite number; it is {value}")


def check_probabilities(section: Any, *names: str) -> None:
    """Raise ArgumentError if one of these fields is not in [0, 1)."""
    for name in names:
        if not 0 <= getattr(section, name) < 1:
            raise ArgumentError(f"{name} must be in [0, 1); it is {getattr(section, name)}")


def build_section(kind: type[T], content: object, where: str) -> T:
    """Returns the section with these fields; a missing field has its default.

    Args:
        kind: the dataclass.
        content: the fields by name, as plain values. An int is accepted for a float; no other type for another.
        where: the file and the section, for messages.

    Raises:
        RunError: a field is unknown, missing, or of a wrong type.
        ArgumentError: the dataclass refuses a value.
    """
    fields = checked_fields(kind, content, where)
    for field in dataclasses.fields(kind):  # pyright: ignore[reportArgumentType]
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in fields:
            raise RunError(f"{where} has no field {field.name!r}")
    return kind(**fields)


def checked_fields(kind: type[Any], content: object, where: str) -> dict[str, Any]:
    """Returns some of the fields of a section from a file, after a check of their names and types.

    Args:
        kind: the dataclass.
        content: the fields by name, as plain values. An int is accepted for a float; no other type for another.
        where: the file and the section, for messages.

    Raises:
        RunError: a field is unknown, or of a wrong type.
    """
    try:
        from pydantic import ConfigDict, TypeAdapter, ValidationError
    except ImportError as error:
        raise MissingPartError("pydantic", "train") from error
    if not isinstance(content, dict):
        raise RunError(f"{where} must be a mapping of fields; it is {shown(content)}")
    hints = {field.name: hint for field, hint in _fields(kind)}
    for name, value in content.items():
        if name not in hints:
            nearest = difflib.get_close_matches(shown(name), hints, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise RunError(f"{where} has a field {shown(name)} that this version of regard doesn't know{hint}")
        if type(value) is int and abs(value) >= 1 << 63:
            raise RunError(f"{where}.{name} must be below 2⁶³; it is {shown(value)}")
        try:
            TypeAdapter(hints[name], config=ConfigDict(strict=True)).validate_python(value)
        except ValidationError:
            raise RunError(f"{where}.{name} must be {kind_name(hints[name], _KINDS)}; it is {shown(value)}") from None
    return content


def _fields(kind: type[Any]) -> list[tuple["dataclasses.Field[Any]", Any]]:
    hints = typing.get_type_hints(kind)
    return [(field, hints[field.name]) for field in dataclasses.fields(kind)]


def _choices(hint: Any) -> tuple[Any, ...]:
    # The values of a Literal, or of a union of Literals and None; () for other types.
    if typing.get_origin(hint) is Literal:
        return typing.get_args(hint)
    if _is_union(hint):
        parts = [(None,) if part is type(None) else _choices(part) for part in typing.get_args(hint)]
        return sum(parts, ()) if all(parts) and len(parts) > 1 and any(part != (None,) for part in parts) else ()
    return ()


def kind_name(hint: Any, names: Mapping[Any, str]) -> str:
    """Returns the name of a type for a message: ``a whole number`` for int, ``a number or null`` for float | None.

    Args:
        hint: the type.
        names: type → its name. Without a name for ``NoneType``, None is no part of a union.
    """
    if typing.get_origin(hint) is Annotated:
        return kind_name(typing.get_args(hint)[0], names)
    if _is_union(hint):
        parts = [part for part in typing.get_args(hint) if part is not type(None) or part in names]
        return " or ".join(dict.fromkeys(kind_name(part, names) for part in parts))
    if typing.get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, typing.get_args(hint)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "one of " + ", ".join(str(member.value) for member in hint)
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (Union, types.UnionType)
