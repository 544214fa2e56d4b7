"""The options that the user typed, as opposed to those with their default value."""

import math
import re
import typing
from contextvars import ContextVar
from typing import Any

from cyclopts import UNSET, App, ArgumentCollection

from regard.cli.option_types import LARGEST_INTEGER
from regard.errors import ArgumentError

MAY_BE_EMPTY = ("--title", "--logger")
"""Options for which an empty text means none."""

WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
"""An integer as Python reads it."""

_TYPED_OPTIONS: ContextVar[tuple[str, ...]] = ContextVar("typed options", default=())


def remember_typed_options(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Records the names of the options that the user typed; Cyclopts calls it after reading the arguments. Raises
    ArgumentError if a text is empty or contains a NUL character, which no file name can contain; or a number is not
    finite, not an integer although it must be, or too large to be stored."""
    typed = [argument for argument in arguments if argument.tokens and argument.name.startswith("--")]
    for argument in typed:
        for token in argument.tokens:
            if token.implicit_value is UNSET:
                _check(token.keyword or argument.name, token.value, (argument.hint, *typing.get_args(argument.hint)))
    _TYPED_OPTIONS.set(tuple(argument.name for argument in typed))


def _check(name: str, text: str, kinds: tuple[Any, ...]) -> None:
    if text == "" and name not in MAY_BE_EMPTY:
        raise ArgumentError(f"{name} is empty; give it a value, or leave it out")
    if "\0" in text:
        raise ArgumentError(f"{name} must not have a NUL character; it is {text!r}")
    if int in kinds:  # Cyclopts would round 1.5.
        if not WHOLE_NUMBER.fullmatch(text):
            raise ArgumentError(f"{name} must be a whole number; it is {text!r}")
        if len(text) > 30 or abs(int(text)) > LARGEST_INTEGER:
            raise ArgumentError(f"{name} must be at most {LARGEST_INTEGER:,}; it is {text}")
    elif float in kinds and not _is_finite(text):
        raise ArgumentError(f"{name} must be a finite number; it is {text!r}")


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return True  # Cyclopts reports that it is not a number.


def typed_options() -> tuple[str, ...]:
    """Returns the options that the user typed for the current command, e.g. ``("--dim", "--seed")``."""
    return _TYPED_OPTIONS.get()
