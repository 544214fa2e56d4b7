"""One-line messages for mistakes in options: which option, what was expected, what was passed."""

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cyclopts import CycloptsError
from cyclopts import exceptions as mistakes

from regard.errors import ArgumentError
from regard.names.old_names import COMMANDS_ELSEWHERE, REPLACED_OPTIONS, TASKS_ELSEWHERE, in_minutes, unknown_name
from regard.training.sections import kind_name

TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", Path: "a path"}
"""Python type → its name in messages."""


@contextmanager
def options_named(options: Mapping[str, str]) -> Iterator[None]:
    """Replaces the names of arguments or configuration fields in the message of an ArgumentError by the names of their
    options."""
    try:
        yield
    except ArgumentError as error:
        if "--" in str(error):  # The message names options already.
            raise
        names = "|".join(map(re.escape, sorted(options, key=len, reverse=True)))
        # Words in quotation marks are values of the user.
        text = re.sub(rf"(?<!['\w-])({names})(?!['\w-])", lambda match: options[match[0]], str(error), count=1)
        pattern = rf"\b(needs|with|divide|and|that) ({names})(?!['\w-])"
        text = re.sub(pattern, lambda match: f"{match[1]} {options[match[2]]}", text)
        raise ArgumentError(text) from error


def message(error: CycloptsError) -> str:
    """Returns the message for an error of Cyclopts: what is wrong, where, and what to do."""
    match error:
        case mistakes.CoercionError(token=token) if token is not None:
            name = token.keyword or _name(error)
            anew = REPLACED_OPTIONS.get(f"{name} {token.value}")
            if anew is not None:
                return f"{name} {token.value} is now {anew}"
            hint = in_minutes(name, token.value)
            return f"{name} must be {kind_name(error.target_type, TYPE_NAMES)}; it is {token.value!r}{hint}"
        case mistakes.ValidationError(exception_message=reason):
            return f"{_name(error)} {reason}"
        case mistakes.UnknownOptionError(token=token, argument_collection=arguments):
            name = (token.keyword or token.value).split("=")[0]
            known = [field_of(name) for argument in arguments for name in argument.names if name.startswith("--")]
            if name in REPLACED_OPTIONS:
                return f"{name} is now {REPLACED_OPTIONS[name]}"
            spell = option if name.startswith("--") else str
            return f"{unknown_name('option', field_of(name), known, spell)}; see {_command(error)} --help"
        case mistakes.UnknownCommandError(unused_tokens=tokens):
            assert tokens is not None
            from regard.tasks.registry import task_elsewhere

            known = [name for name in error.app or () if not name.startswith("-")]
            is_task = (error.command_chain or ()) == ("train",)
            here = (TASKS_ELSEWHERE if is_task else COMMANDS_ELSEWHERE).get(tokens[0].lower())
            hint = _nearest(tokens[0], known) if here is None else f"; here it is {here}"
            if not error.command_chain and task_elsewhere(tokens[0]) is not None:
                hint = "; it is a task, which regard train, evaluate and predict have"
            if is_task and os.path.exists(tokens[0]):
                hint = "; the name of a task is before the data"
            return f"there is no command {_command(error)} {tokens[0]!r}{hint} (known: {', '.join(known)})"
        case mistakes.UnusedCliTokensError(unused_tokens=tokens):
            assert tokens is not None
            return f"{_command(error)} does not know what to do with {tokens[0]!r}; see {_command(error)} --help"
        case mistakes.MissingArgumentError(keyword=keyword, argument=argument):
            name = keyword or _name(error)
            if argument is not None and argument.tokens:
                name = argument.tokens[-1].keyword or name
            if not name.startswith("-"):
                return f"{name} is missing; see {_command(error)} --help"
            return f"{name} needs a value; see {_command(error)} --help"
        case mistakes.RepeatArgumentError(token=token):
            return f"{token.keyword} is given more than once; give it once"
    return str(error)


def option(name: str) -> str:
    """Returns the option of a field: ``--learning-rate`` for ``learning_rate``."""
    return f"--{name.replace('_', '-')}"


def field_of(option: str) -> str:
    """Returns the field of an option: ``learning_rate`` for ``--learning-rate``."""
    return option.removeprefix("--").replace("-", "_") if option.startswith("--") else option


def _name(error: CycloptsError) -> str:
    argument = error.argument
    if argument is None:
        return _command(error)
    typed = next((token.keyword for token in argument.tokens if token.keyword), None)
    return typed or argument.name


def _command(error: CycloptsError) -> str:
    return " ".join(("regard", *(error.command_chain or ())))


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Returns the command, the task or the option of which this may be a misspelling; None if it is like none."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


def _nearest(name: str, known: list[str]) -> str:
    nearest = nearest_name(name, known)
    return f"; did you mean {nearest}?" if nearest else ""
