"""The command that was meant in place of a refused one, which is printed below the message.

Mistakes are corrected one after the other, as their messages say, until the command line accepts the arguments; where
one cannot be corrected, there is no such command.
"""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import CycloptsError
from cyclopts import exceptions as mistakes

from regard.cli.option_errors import field_of, nearest_name, option
from regard.errors import ArgumentError, ColumnError, RegardError
from regard.names.old_names import COMMANDS_ELSEWHERE, suggested_name
from regard.tasks import registry

if TYPE_CHECKING:
    from cyclopts import App

MOST_MISTAKES = 10
"""Mistakes that are corrected in one command."""

POSITIONAL_ARGUMENTS = {
    "evaluate": {
        "run": 1,
        "model": 1,
        **dict.fromkeys(("data", "test", "file", "input", "csv", "dataset", "test_file"), 2),
    },
    "predict": {"run": 1, "model": 1, **dict.fromkeys(("text", "sentence", "input", "inputs"), 2)},
}
"""Command → an option that it does not have → the argument without a name that is meant, by its place."""


class CorrectedError(ArgumentError):
    """An error after which a command is shown that is right, as in a shell; a line for each if one of several is
    meant."""

    def __init__(self, message: str, command: str = ""):
        super().__init__(message)
        self.command = command


def corrected_command(arguments: Sequence[str], error: CycloptsError, app_of: "Callable[[Sequence[str]], App]") -> str:
    """Returns the command that was meant; "" if that is not known."""
    typed: list[str] | None = list(arguments)
    for _ in range(MOST_MISTAKES):
        typed = _corrected(typed, error)
        if typed is None:
            return ""
        try:
            app_of(typed).parse_args(typed, exit_on_error=False, print_error=False)
        except CycloptsError as following:
            if isinstance(following.__cause__, RegardError):
                return ""
            error = following
        except RegardError:
            return ""
        else:
            return _line([*typed, *_column_options(typed)])
    return ""


def command_with_columns(arguments: Sequence[str], columns: Mapping[str, str]) -> str:
    """Returns the command that names these columns, by the fields of their options; "" if there is nothing to name."""
    typed = list(arguments)
    for field in columns:
        name = option(field)
        if name in typed:
            index = typed.index(name)
            del typed[index : index + 2]
        typed = [one for one in typed if not one.startswith(f"{name}=")]
    named = [part for field, column in columns.items() for part in (option(field), column)]
    return _line([*typed, *named]) if columns else ""


def command_with_file(arguments: Sequence[str], folder: str, file: str) -> str:
    """Returns the command that names a file where the arguments name its folder; "" if they do not."""
    typed, own = [], os.path.relpath(file, folder)
    for one in arguments:
        name, equals, value = one.partition("=") if one.startswith("--") else ("", "", one)
        is_folder = bool(value) and os.path.abspath(value) == os.path.abspath(folder)
        typed.append(f"{name}{equals}{os.path.join(value, own)}" if is_folder else one)
    return _line(typed) if typed != list(arguments) else ""


def _line(arguments: Sequence[str]) -> str:
    """Returns the command, if a terminal shows all of it."""
    line = shlex.join(["regard", *arguments])
    return line if line.isprintable() else ""


def _corrected(typed: list[str], error: CycloptsError) -> list[str] | None:
    """Returns the arguments without one mistake; None if it cannot be corrected."""
    match error:
        case mistakes.UnknownOptionError(token=token, argument_collection=arguments):
            name = (token.keyword or token.value).split("=")[0]
            known = [field_of(name) for argument in arguments for name in argument.names if name.startswith("--")]
            return _with_option(typed, name, known)
        case mistakes.UnknownCommandError(unused_tokens=tokens) if tokens:
            return _with_command(typed, tokens[0], [name for name in error.app or () if not name.startswith("-")])
        case mistakes.UnusedCliTokensError(unused_tokens=tokens) if tokens and typed[0] == "train":
            return _with_second_file(typed, tokens[0])
    return None


def _with_option(typed: list[str], name: str, known: Sequence[str]) -> list[str] | None:
    index = next((number for number, one in enumerate(typed) if one.split("=")[0] == name), None)
    if index is None or not name.startswith("--"):
        return None
    _, equals, value = typed[index].partition("=")
    field = field_of(name)
    position = POSITIONAL_ARGUMENTS.get(typed[0], {}).get(field)
    if position is not None and (equals or index + 1 < len(typed)):
        value, end = (value, index + 1) if equals else (typed[index + 1], index + 2)
        rest = typed[:index] + typed[end:]
        if typed[0] == "predict" and position == 2 and os.path.exists(value):
            return [*rest, "--file", value]
        return [*rest[:1], value, *rest[1:]] if position == 1 else [*rest, value]
    here = suggested_name(field, known)
    if here is None:
        return None
    return [*typed[:index], f"{option(here)}{equals}{value}", *typed[index + 1 :]]


def _with_command(typed: list[str], unknown: str, known: Sequence[str]) -> list[str] | None:
    """Returns the arguments with a command, or a task, that exists."""
    if typed[:1] == [unknown]:
        if (task := registry.task_elsewhere(unknown)) is not None:
            return ["train", task, *typed[1:]]
        command = COMMANDS_ELSEWHERE.get(unknown.lower()) or nearest_name(unknown, known)
        return None if command is None else [command, *typed[1:]]
    if typed[:2] != ["train", unknown]:
        return None
    task = registry.task_elsewhere(unknown) or nearest_name(unknown, registry.names())
    if task is not None:
        return ["train", task, *typed[2:]]
    if os.path.exists(unknown):
        from regard.tasks.guessed_task import guessed_task

        task = guessed_task(Path(unknown))
    return None if task is None else ["train", task, *typed[1:]]


def _with_second_file(typed: list[str], second: str) -> list[str] | None:
    """Returns the arguments of a training with a second file, which may be aligned with the first, or other data."""
    from regard.data.tables import READERS

    if len(typed) < 3 or typed[2].startswith("-") or not os.path.exists(second):
        return None
    rest = list(typed)
    rest.remove(second)
    first, name = Path(typed[2]), Path(second).stem.lower()
    if first.suffix.lower() not in READERS and Path(second).suffix.lower() not in READERS and first.is_file():
        return [*rest[:2], "--train", f"{first},{second}", *rest[3:]]
    part = "validation" if any(word in name for word in ("val", "dev")) else "test"
    return None if option(part) in rest else [*rest, option(part), second]


def _column_options(typed: Sequence[str]) -> list[str]:
    """Returns the options of the columns of a training's table that cannot be told without them."""
    named = typed[typed.index("--train") + 1 :] if "--train" in typed else typed[2:3]
    if typed[0] != "train" or not named or typed[1] not in registry.BUILT_IN_TASKS:
        return []
    from regard.data.column_roles import choose_columns

    task = registry.find(typed[1])
    if any(option(field) in typed for field in task.data_config.columns):
        return []
    source = task.input  # pyright: ignore[reportAttributeAccessIssue]
    try:
        records = source.open_table(named[0])
        if records is not None:
            choose_columns(records, source.column_roles(), say=lambda _: None)
    except ColumnError as error:
        return [part for field, column in error.columns.items() for part in (option(field), column)]
    except RegardError:
        return []
    return []
