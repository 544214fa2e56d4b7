"""The texts of a dataclass's fields: the docstrings below them."""

import dataclasses
import functools
import inspect
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=type[Any])


def field_texts(kind: type[Any]) -> dict[str, str]:
    """Returns the text of each field of a dataclass and of its bases: the docstring below it, in one paragraph."""
    return {name: text for base in reversed(kind.__mro__[:-1]) for name, text in _texts_of_class(base).items()}


@functools.cache
def _texts_of_class(kind: type[Any]) -> dict[str, str]:
    """Returns the texts in the source of one class, which takes milliseconds to read."""
    from docstring_parser import parse_from_object

    parameters = parse_from_object(kind).params
    return {one.arg_name: " ".join((one.description or "").split()) for one in parameters}


class _WithFields:
    """The docstring of a dataclass, followed by the texts of its fields, which are read when it is shown."""

    def __init__(self, text: str | None):
        self._text, self._is_read = text, False

    def __get__(self, instance: object, owner: type[Any]) -> str | None:
        # `dataclass` asks whether there is a docstring before it has made the class, and `field_texts` asks for it too.
        if self._is_read or "__match_args__" not in vars(owner):
            return self._text
        self._is_read = True
        try:
            texts = field_texts(owner)
        finally:
            self._is_read = False
        lines = [f"    {field.name}: {texts.get(field.name, '')}" for field in dataclasses.fields(owner)]
        return "\n".join([inspect.cleandoc(self._text or ""), "", "Attributes:", *lines])


def shows_fields(kind: Kind) -> Kind:
    """Decorates a dataclass, so that its docstring, and so ``help()``, has the texts below its fields."""
    setattr(kind, "__doc__", _WithFields(vars(kind).get("__doc__")))  # noqa: B010  a docstring is declared as a string
    return kind
