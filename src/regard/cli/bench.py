"""``regard bench``: measures regard's backends and the installed peers on this machine."""

# ruff: noqa: E501  # an option a line, however long its help

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from regard.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from regard.bench.record import Record
    from regard.bench.runner import Options
    from regard.bench.task import Task

WHAT, HOW, WHERE = "What is measured", "How", "Where it goes"


def command(
    task: Annotated[list[str] | None, Option(help="Only this task, or the tasks of a pattern such as 'score-*'; may be repeated. See --list.", rich_help_panel=WHAT)] = None,
    long: Annotated[bool, Option("--long", help="Also run the tasks that take minutes.", rich_help_panel=WHAT)] = False,
    lengths: Annotated[bool, Option("--lengths", help="Also measure the scaling curves, for lengths from 64 to 65,536.", rich_help_panel=WHAT)] = False,
    listing: Annotated[bool, Option("--list", help="Print the names of the tasks and exit.", rich_help_panel=WHAT)] = False,
    stored: Annotated[Path | None, Option("--from", help="Do not measure; read this JSON file of an earlier run.", rich_help_panel=WHAT)] = None,
    quick: Annotated[bool, Option("--quick", help="Small sizes and few runs, to see whether everything works. Requirements are not checked.", rich_help_panel=HOW)] = False,
    threads: Annotated[int | None, Option(min=1, help="Number of threads of each implementation. Default: PyTorch's own number.", rich_help_panel=HOW)] = None,
    repeats: Annotated[int | None, Option(min=1, help="Rounds of each interleaved timing. Default: as many as fit into some seconds, at least 7.", rich_help_panel=HOW)] = None,
    memory: Annotated[bool, Option("--memory/--no-memory", help="Measure extra memory, in separate processes.", rich_help_panel=HOW)] = True,
    json: Annotated[Path | None, Option(help="Write the record into this file.", rich_help_panel=WHERE)] = None,
    page: Annotated[Path | None, Option(help="Write a page of Markdown.", rich_help_panel=WHERE)] = None,
    pictures: Annotated[Path | None, Option(help="Draw the scaling curves into this folder; implies --lengths, except with --from.", rich_help_panel=WHERE)] = None,
    compare: Annotated[Path | None, Option(help="Also print ratios to this JSON file of an earlier run.", rich_help_panel=WHERE)] = None,
) -> None:  # fmt: skip
    """Measure regard and every installed peer: time, memory, error, and the physical limit.

    regard bench --quick --task additive

    regard bench --json bench.json --page performance.md --pictures pictures

    regard bench --from bench.json --page performance.md
    """
    from regard.bench.tasks import TASKS, find

    if listing:
        for known in TASKS:
            typer.echo(f"{known.name:<28} {known.title.format(**known.sizes)}{'  (--long)' if known.long else ''}")
        return
    from regard.bench.record import Record
    from regard.bench.report import comparison, print_report

    old = None if compare is None else Record.load(compare)
    for path in (json, page):
        if path is not None and not path.absolute().parent.is_dir():
            raise DataError(f"cannot write {path}: there is no folder {path.parent}")
    if stored is not None:
        if task or quick or threads or repeats or lengths or long:
            raise ArgumentError("--from does not measure; leave out --task, --quick, --threads, --repeats and so on")
        record = Record.load(stored)
    else:
        chosen = find(task, long=long)
        curves = lengths or pictures is not None
        if not memory and any(not one.timed for one in chosen if task):
            untimed = next(one.name for one in chosen if not one.timed)
            raise ArgumentError(f"task {untimed!r} measures memory only; leave out --no-memory")
        record = _measure(chosen, quick, threads, repeats, memory, curves, json)
    print_report(record)
    if old is not None:
        from rich.console import Console

        Console(width=None if os.isatty(1) else 170).print(comparison(old, record))
    _write(record, json, page, pictures)
    if stored is None and not record.complete:
        raise typer.Exit(130)


def _measure(
    tasks: "list[Task]", quick: bool, threads: int | None, repeats: int | None, memory: bool, curves: bool,
    json: Path | None,
) -> "Record":  # fmt: skip
    """Run the tasks and curves; an interrupt ends the run and keeps the results so far."""
    import torch

    from regard.bench.limits import measure_peaks
    from regard.bench.record import Record
    from regard.bench.runner import Options

    if threads is not None:
        torch.set_num_threads(threads)
    options = Options(quick=quick, threads=torch.get_num_threads(), memory=memory, repeats=repeats)
    tasks = [task for task in tasks if task.timed or memory]
    record = Record(quick, measure_peaks(quick=quick))
    try:
        _run(tasks, options, curves, record, json)
        record.complete = True
    except KeyboardInterrupt:
        typer.echo("interrupted; what was measured so far is kept", err=True)
    return record


def _run(tasks: "list[Task]", options: "Options", curves: bool, record: "Record", json: Path | None) -> None:
    import sys

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from regard.bench.curves import all_curves, measure_curve
    from regard.bench.runner import estimate, run_task

    selected_curves = all_curves() if curves else ()
    console = Console(stderr=True)
    estimates = [estimate(task, options) for task in tasks] + [5.0 if options.quick else 60.0] * len(selected_curves)
    what = f"{len(tasks)} tasks" + (f" and {len(selected_curves)} curves" if selected_curves else "")
    typer.echo(f"{what}: {_lasting(sum(estimates))}", err=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
        row = progress.add_task("", total=len(estimates), left="")
        budget = _Remaining(estimates)

        def on_progress(name: str) -> Callable[[str], None]:
            return lambda text: progress.update(row, description=f"{name}: {text}", left=budget.left())

        def done(name: str) -> None:
            budget.done()
            progress.update(row, advance=1, left=budget.left())
            if not sys.stderr.isatty():
                typer.echo(f"{name} done; {budget.left()}", err=True)

        for task in tasks:
            record.tasks.append(run_task(task, options, record.peaks, on_progress(task.name)))
            done(task.name)
            if json is not None:
                # Saved after every task, so that a crash does not lose the results.
                record.save(json)
        for curve in selected_curves:
            record.curves.append(measure_curve(curve, on_progress(curve.name), quick=options.quick))
            done(curve.name)


class _Remaining:
    """How long the rest will take: the estimates of what is left, corrected by how wrong they were so far."""

    def __init__(self, estimates: list[float]):
        import time

        self._now = time.perf_counter
        self._began = self._now()
        self._estimates = estimates
        self._done = 0

    def done(self) -> None:
        self._done += 1

    def left(self) -> str:
        before, after = sum(self._estimates[: self._done]), sum(self._estimates[self._done :])
        wrong = (self._now() - self._began) / before if before else 1.0
        seconds = after * wrong
        return f"{_lasting(seconds)} left"


def _lasting(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds > 90 else f"about {seconds:.0f} s"


def _write(record: "Record", json: Path | None, page: Path | None, pictures: Path | None) -> None:
    from regard.bench.page import page as make_page

    if json is not None:
        record.save(json)
        typer.echo(f"numbers: {json}", err=True)
    drawn = []
    if pictures is not None:
        from regard.bench.curves import draw
        from regard.pictures import save

        if not record.curves:
            typer.echo("no curves were measured: nothing to draw", err=True)
        try:
            pictures.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"cannot make the folder {pictures}: {error.strerror or error}") from error
        for curve in record.curves:
            path = save(draw(curve), pictures / f"curve-{curve.name}.png")
            drawn.append((curve.title, path))
            typer.echo(f"picture: {path}", err=True)
    if page is not None:
        links = [(title, os.path.relpath(path, page.absolute().parent).replace(os.sep, "/")) for title, path in drawn]
        try:
            page.write_text(make_page(record, links), encoding="utf-8")
        except OSError as error:
            raise DataError(f"cannot write {page}: {error.strerror or error}") from error
        typer.echo(f"page: {page}", err=True)
