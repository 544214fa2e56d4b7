"""``regard bench``: measures regard's backends and the installed peers on this machine."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from regard.cli.option_types import between
from regard.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from bench.record import Record
    from bench.runner import Options
    from bench.task import Task


@Parameter(name="*", group=Group.create_ordered("What is measured"))
@dataclass(frozen=True)
class Selection:
    """Which tasks are measured, or which record is read."""

    task: list[str] | None = None
    """Only this task, or the tasks of a pattern such as 'score-*'; may be repeated. See --list."""
    long: bool = False
    """Also run the tasks that take minutes."""
    lengths: bool = False
    """Also measure the scaling curves, for lengths from 64 to 65,536."""
    listing: Annotated[bool, Parameter(name="--list")] = False
    """Print the names of the tasks and exit."""
    stored: Annotated[Path | None, Parameter(name="--from")] = None
    """Do not measure; read this JSON file of an earlier run."""


@Parameter(name="*", group=Group.create_ordered("How"))
@dataclass(frozen=True)
class Method:
    """How the tasks are measured."""

    quick: bool = False
    """Small sizes and few runs, to see whether everything works. Requirements are not checked."""
    threads: Annotated[int | None, Parameter(validator=between(1, 1024))] = None
    """Number of threads of each implementation. Default: PyTorch's own number."""
    repeats: Annotated[int | None, Parameter(validator=between(1, 1_000_000))] = None
    """Rounds of each interleaved timing. Default: as many as fit into some seconds, at least 7."""
    memory: Annotated[bool, Parameter(negative="--no-memory")] = True
    """Measure extra memory, in separate processes."""
    device: str = "cpu"
    """Measure on this accelerator instead: cuda or xpu. Sizes are larger, and requirements are not checked."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Numbers of the inputs, on an accelerator."""


@Parameter(name="*", group=Group.create_ordered("Where it goes"))
@dataclass(frozen=True)
class Destination:
    """Where the results are written."""

    json: Path | None = None
    """Write the record into this file."""
    resume: bool = False
    """Continue the run that ended before its end, whose record --json names: nothing is measured twice."""
    page: Path | None = None
    """Write a page of Markdown."""
    pictures: Path | None = None
    """Draw the scaling curves into this folder; implies --lengths, except with --from."""
    compare: Path | None = None
    """Also print ratios to this JSON file of an earlier run."""


def command(
    *, selection: Selection = Selection(), method: Method = Method(), destination: Destination = Destination()
) -> None:
    """Measure regard and every installed peer: time, memory, error, and the physical limit.

    regard bench --quick --task additive

    regard bench --json bench.json --page performance.md --pictures pictures

    regard bench --device cuda --dtype bfloat16

    regard bench --from bench.json --page performance.md
    """
    from bench.tasks import TASKS

    if selection.listing:
        for known in TASKS:
            print(f"{known.name:<28} {known.title.format(**known.sizes)}{'  (--long)' if known.long else ''}")
        return
    from bench.record import Record
    from bench.report import comparison, print_report

    old = None if destination.compare is None else Record.load(destination.compare)
    for path in (destination.json, destination.page):
        if path is not None and not path.absolute().parent.is_dir():
            raise DataError(f"cannot write {path}: there is no folder {path.parent}")
    if selection.stored is not None:
        measuring = selection.task or selection.lengths or selection.long
        if measuring or method.quick or method.threads or method.repeats:
            raise ArgumentError("--from does not measure; leave out --task, --quick, --threads, --repeats and so on")
        record = Record.load(selection.stored)
    else:
        record = _measure(selection, method, destination)
    print_report(record)
    if old is not None:
        from rich.console import Console

        Console(width=None if os.isatty(1) else 170).print(comparison(old, record))
    _write(record, destination)
    if selection.stored is None and not record.complete:
        sys.exit(130)


def _measure(selection: Selection, method: Method, destination: Destination) -> "Record":
    """Run the tasks and curves; an interrupt ends the run and keeps the results so far."""
    import torch

    from bench.limits import accelerator_peaks, measure_peaks
    from bench.record import Record, describe_machine
    from bench.runner import Options
    from bench.target import Target
    from bench.tasks import find

    target = Target(method.device, method.dtype)
    target.check()
    tasks = find(selection.task, long=selection.long)
    if not target.is_cpu:
        if selection.lengths or destination.pictures is not None:
            raise ArgumentError("curves are measured on the CPU; leave out --lengths and --pictures")
        elsewhere = [task.name for task in tasks if task.large is None]
        if selection.task and elsewhere:
            raise ArgumentError(f"measured on the CPU alone: {', '.join(elsewhere)}; leave them out, or --device")
        tasks = [task for task in tasks if task.large is not None]
    if not method.memory and any(not task.timed for task in tasks if selection.task):
        untimed = next(task.name for task in tasks if not task.timed)
        raise ArgumentError(f"task {untimed!r} measures memory only; leave out --no-memory")
    if method.threads is not None:
        torch.set_num_threads(method.threads)
    options = Options(
        quick=method.quick, threads=torch.get_num_threads(), memory=method.memory, repeats=method.repeats,
        device=method.device, dtype=method.dtype,
    )  # fmt: skip
    tasks = [task for task in tasks if task.timed or method.memory]
    if destination.resume:
        record = _resumed(destination.json, method.quick, describe_machine(target))
    elif target.is_cpu:
        record = Record(method.quick, measure_peaks(quick=method.quick))
    else:
        peaks = accelerator_peaks(target, quick=method.quick)
        record = Record(method.quick, peaks, machine=describe_machine(target))
    try:
        _run(tasks, options, selection.lengths or destination.pictures is not None, record, destination.json)
        record.complete = True
    except KeyboardInterrupt:
        print("interrupted; what was measured so far is kept", file=sys.stderr)
    return record


def _resumed(path: Path | None, quick: bool, machine: dict[str, object]) -> "Record":
    """Returns the record of a run that ended before its end, on this machine, with these versions and options.

    Raises:
        ArgumentError: no record is named, or it is one of another machine, of other versions or options.
        DataError: the file is no record.
    """
    from bench.record import Record, describe_versions

    if path is None:
        raise ArgumentError("--resume continues the run of a record; name it: --json PATH")
    record = Record.load(path)
    here = {"sizes": quick, **machine, **describe_versions()}
    there = {"sizes": record.quick, **record.machine, **record.versions}
    other = next((name for name in {**here, **there} if here.get(name) != there.get(name)), None)
    if other is not None:
        raise ArgumentError(
            f"{path} cannot be continued: {other} was {there.get(other)!r}, and is {here.get(other)!r}; measure anew"
        )
    return record


def _run(tasks: "list[Task]", options: "Options", curves: bool, record: "Record", json: Path | None) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from bench.curves import all_curves, measure_curve
    from bench.runner import estimate
    from bench.task_process import run_alone

    measured = {result.name for result in record.tasks}
    tasks = [task for task in tasks if task.name not in measured]
    drawn = {result.name for result in record.curves}
    selected_curves = [curve for curve in all_curves() if curve.name not in drawn] if curves else []
    console = Console(stderr=True)
    estimates = [estimate(task, options) for task in tasks] + [5.0 if options.quick else 60.0] * len(selected_curves)
    what = f"{len(tasks)} tasks" + (f" and {len(selected_curves)} curves" if selected_curves else "")
    print(f"{what}: {_lasting(sum(estimates))}", file=sys.stderr, flush=True)
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
                print(f"{name} done; {budget.left()}", file=sys.stderr, flush=True)

        for task in tasks:
            record.tasks.append(run_alone(task, options, record.peaks, on_progress(task.name)))
            done(task.name)
            if json is not None:
                # Saved after every task, so that a crash does not lose the results.
                record.save(json)
        for curve in selected_curves:
            record.curves.append(measure_curve(curve, on_progress(curve.name), quick=options.quick))
            done(curve.name)
            if json is not None:
                record.save(json)


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


def _write(record: "Record", destination: Destination) -> None:
    from bench.page import page as make_page

    json, page, pictures = destination.json, destination.page, destination.pictures
    if json is not None:
        record.save(json)
        print(f"numbers: {json}", file=sys.stderr, flush=True)
    drawn = []
    if pictures is not None:
        from bench.curves import draw
        from regard.pictures import save

        if not record.curves:
            print("no curves were measured: nothing to draw", file=sys.stderr, flush=True)
        try:
            pictures.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"cannot make the folder {pictures}: {error.strerror or error}") from error
        for curve in record.curves:
            path = save(draw(curve), pictures / f"curve-{curve.name}.png")
            drawn.append((curve.title, path))
            print(f"picture: {path}", file=sys.stderr, flush=True)
    if page is not None:
        links = [(title, os.path.relpath(path, page.absolute().parent).replace(os.sep, "/")) for title, path in drawn]
        try:
            page.write_text(make_page(record, links), encoding="utf-8")
        except OSError as error:
            raise DataError(f"cannot write {page}: {error.strerror or error}") from error
        print(f"page: {page}", file=sys.stderr, flush=True)
