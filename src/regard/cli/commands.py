"""The commands of ``regard``; each is imported when it is called or when the help lists it."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App, CycloptsError, Parameter

from regard import __version__
from regard.cli.option_errors import message
from regard.cli.typed_options import remember_typed_options
from regard.errors import ColumnError, FolderError, RegardError

if TYPE_CHECKING:
    from regard.training.task import Task

COMMANDS = {
    "demo": "command",
    "explain": "command",
    "train": "app",
    "evaluate": "make_command",
    "predict": "make_command",
    "push": "command",
    "export": "command",
    "view": "command",
    "serve": "command",
    "bench": "command",
    "cache": "command",
    "doctor": "command",
}
"""Command, in the order of the help → attribute of the module ``regard.cli.<name>``: a function, a group of commands,
or a function that creates the command for a task."""


def default_text(value: object) -> str | None:
    """Returns the text of a default in the help; None where it is off or empty, which the help omits."""
    return None if value is False or value is None or value == "" else str(value)


def build(arguments: Sequence[str]) -> App:
    """Builds the command line for these arguments, importing only the module of their command, or all for the help."""
    app = App(
        name="regard",
        help="Every attention mechanism: exact, fast, trainable and visible.",
        version=f"regard {__version__}",
        help_flags=("-h", "--help"),
        version_flags="--version",
        # Markup would remove [words] in brackets from the help.
        help_format="plaintext",
        default_parameter=Parameter(negative_bool=(), negative_iterable=(), show_default=default_text),
        config=remember_typed_options,
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )
    for order, (name, attribute) in enumerate(COMMANDS.items()):
        is_called = bool(arguments) and arguments[0] == name
        if is_called or not arguments or arguments[0] in app.help_flags:
            command = getattr(import_module(f"regard.cli.{name}"), attribute)
            if attribute == "make_command":
                command = command(_task_of(arguments))
            app.command(command, name=name)
            app[name].sort_key = order
        else:
            app.command(f"regard.cli.{name}:{attribute}", name=name, sort_key=order)
    return app


def _task_of(arguments: Sequence[str]) -> "Task":
    """Returns the task of the run among the arguments, or the task of translation if there is none."""
    from regard.tasks import registry
    from regard.training.hub import is_hub_address
    from regard.training.run_folder import RunFolder

    for argument in arguments[1:]:
        if is_hub_address(argument) or (Path(argument) / "config.yaml").is_file():
            return registry.of_run(RunFolder.open(argument))
    return registry.find("translate")


def call(arguments: Sequence[str]) -> None:
    """Runs the command of these arguments, and exits; raises ArgumentError if a command or an option does not exist, or
    a value has the wrong type, and any RegardError of the command."""
    app = build(arguments)
    try:
        app(list(arguments))
    except (CycloptsError, ColumnError, FolderError) as error:
        if isinstance(error, CycloptsError) and isinstance(error.__cause__, RegardError):
            raise error.__cause__ from None
        raise _with_command(arguments, error) from None


def _with_command(arguments: Sequence[str], error: Exception) -> RegardError:
    """Returns an error with the command that was meant, or with those that may be meant."""
    from regard.cli.corrected_command import CorrectedError, command_with_columns, command_with_file, corrected_command

    if isinstance(error, ColumnError):
        commands = [command_with_columns(arguments, one) for one in error.choices]
        return CorrectedError(str(error), "\n".join(filter(None, commands)))
    if isinstance(error, FolderError):
        return CorrectedError(str(error), command_with_file(arguments, error.folder, error.file))
    assert isinstance(error, CycloptsError)
    return CorrectedError(message(error), corrected_command(arguments, error, build))
