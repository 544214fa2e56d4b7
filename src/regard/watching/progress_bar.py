"""The progress of a measurement that runs a model many times."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


@contextmanager
def progress_bar(shown: bool) -> "Iterator[Progress]":
    """Shows a count with the remaining time, on standard error, where that is a terminal or a notebook."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn()
    console = Console(stderr=True)
    hidden = not (shown and (console.is_terminal or console.is_jupyter))
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        yield bar
