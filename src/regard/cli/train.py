"""``regard train``: a group with one command for each task."""

import typer

from regard.cli.train_translate import command as translate

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
app.command("translate")(translate)


@app.callback()
def train() -> None:
    """Train a model on your own data."""
