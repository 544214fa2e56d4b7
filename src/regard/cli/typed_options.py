"""Which options the user typed, as opposed to those that have their default value."""

from contextvars import ContextVar

from cyclopts import UNSET, App, ArgumentCollection

from regard.errors import ArgumentError

MAY_BE_EMPTY = ("--title", "--logger")
"""Options whose empty text says that there is none."""

_TYPED: ContextVar[tuple[str, ...]] = ContextVar("typed options", default=())


def remember_typed_options(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Note the names of the options that the user typed. Cyclopts calls it after it has read the arguments.

    Args:
        app: the command line.
        commands: the names of the command.
        arguments: the options of the command, each with what the user typed for it.

    Raises:
        ArgumentError: an option has an empty text, or one with a NUL character, which no file's name can have.
    """
    typed = [argument for argument in arguments if argument.tokens and argument.name.startswith("--")]
    for argument in typed:
        for token in argument.tokens:
            name = token.keyword or argument.name
            if token.value == "" and token.implicit_value is UNSET and name not in MAY_BE_EMPTY:
                raise ArgumentError(f"{name} is empty; give it a value, or leave it out")
            if "\0" in token.value:
                raise ArgumentError(f"{name} must not have a NUL character; it is {token.value!r}")
    _TYPED.set(tuple(argument.name for argument in typed))


def typed_options() -> tuple[str, ...]:
    """The options that the user typed for the command that runs, e.g. ``("--dim", "--seed")``."""
    return _TYPED.get()
