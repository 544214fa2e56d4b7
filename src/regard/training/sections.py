"""Sections of a configuration: frozen dataclasses whose fields are checked, and built from the content of a file."""

import dataclasses
import types
import typing
from typing import Any, Literal, TypeVar, Union

from regard.errors import ArgumentError, RunError, UnknownNameError

T = TypeVar("T")

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "null"}


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


def check_probabilities(section: Any, *names: str) -> None:
    """Raise ArgumentError if one of these fields is not in [0, 1)."""
    for name in names:
        if not 0 <= getattr(section, name) < 1:
            raise ArgumentError(f"{name} must be in [0, 1); it is {getattr(section, name)}")


def build_section(kind: type[T], content: object, where: str) -> T:
    """The section with these fields; a field that is not there has its default.

    Args:
        kind: the dataclass.
        content: the fields by name, as plain values. An int is accepted for a float; no other type for another.
        where: the file and the section, for messages.

    Raises:
        RunError: a field is unknown, missing, or of a wrong type.
        ArgumentError: the dataclass refuses a value.
    """
    if not isinstance(content, dict):
        raise RunError(f"{where} must be a mapping; it is {type(content).__name__}")
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # pyright: ignore[reportArgumentType]
    for name, value in content.items():
        if name not in fields:
            raise RunError(f"{where} has a field {name!r} that this version of regard doesn't know")
        if not _fits(value, hints[name]):
            raise RunError(f"{where}.{name} must be {_described(hints[name])}; it is {value!r}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in content:
            raise RunError(f"{where} has no field {name!r}")
    return kind(**content)


def _choices(hint: Any) -> tuple[Any, ...]:
    # The values of a Literal, or of a union of Literals and None; () for other types.
    if typing.get_origin(hint) is Literal:
        return typing.get_args(hint)
    if _is_union(hint):
        parts = [(None,) if part is type(None) else _choices(part) for part in typing.get_args(hint)]
        return sum(parts, ()) if all(parts) and len(parts) > 1 and any(part != (None,) for part in parts) else ()
    return ()


def _fits(value: object, hint: Any) -> bool:
    if _is_union(hint):
        return any(_fits(value, part) for part in typing.get_args(hint))
    if typing.get_origin(hint) is Literal:  # an unknown choice is left to `check_choices`, which names the nearest
        return type(value) in {type(choice) for choice in typing.get_args(hint)}
    if isinstance(value, bool) or hint is bool:
        return isinstance(value, bool) and hint is bool
    if hint is float:
        return isinstance(value, (int, float))
    return isinstance(value, hint)


def _described(hint: Any) -> str:
    if _is_union(hint):
        return " or ".join(_described(part) for part in typing.get_args(hint))
    if typing.get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, typing.get_args(hint)))
    return _KINDS.get(hint, getattr(hint, "__name__", str(hint)))


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (Union, types.UnionType)
