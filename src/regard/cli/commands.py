"""The commands of ``regard`` by name, each imported when it is called."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

COMMANDS = {
    "demo": "regard.cli.demo:command",
    "explain": "regard.cli.explain:command",
    "train": "regard.cli.train:app",
    "evaluate": "regard.cli.evaluate:command",
    "predict": "regard.cli.predict:command",
    "bench": "regard.cli.bench:command",
    "cache": "regard.cli.cache:command",
    "doctor": "regard.cli.doctor:command",
}


class LazyGroup(TyperGroup):
    """A group that imports the module of a command when the command is called or the help lists it."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].split(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            group = get_command(found)
            group.name = cmd_name
            return group
        if not callable(found) or hasattr(found, "make_context"):
            return found
        wrapped = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        wrapped.command(cmd_name, no_args_is_help=False)(found)
        return get_command(wrapped)


app = typer.Typer(
    cls=LazyGroup, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


@app.callback(invoke_without_command=True)
def regard(
    ctx: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version and stop.")
) -> None:
    """Every attention mechanism: exact, fast, trainable and visible."""
    if version:
        from regard import __version__

        typer.echo(f"regard {__version__}")
        raise typer.Exit()
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
