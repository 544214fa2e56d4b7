"""The record as tables in a terminal: times, memory, errors, limits and requirements."""

from itertools import groupby

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench.cells import (
    NOT_OFFERED,
    columns,
    failures,
    memory_and_error,
    notes,
    outcome_text,
    requirements_of,
    time_cell,
)  # fmt: skip
from bench.columns import COLUMNS
from bench.quantity import in_count, in_seconds, three_digits
from bench.record import Record, TaskRecord

WIDEST = 170
"""Characters of a line if the output is not a terminal."""


def print_report(record: Record, console: Console | None = None) -> None:
    """Print a record."""
    shown = console or Console()
    if console is None and not shown.is_terminal:
        shown = Console(width=WIDEST)
    shown.print(report(record))


def report(record: Record) -> RenderableType:
    """All tables of a record."""
    parts: list[RenderableType] = [heading(record)]
    for group, rows in groupby(record.tasks, key=lambda task: task.group):
        tasks = list(rows)
        parts += [Text(f"\n{group}", style="bold"), _times(tasks), _memory(tasks)]
    if any(requirements_of(record, task) for task in record.tasks):
        parts += [Text("\nRequirements", style="bold"), _requirements(record)]
    for title, lines in (("Notes", notes(record.tasks)), ("Not measured", failures(record.tasks))):
        if lines:
            parts += [Text(f"\n{title}", style="bold"), Text("\n".join(lines))]
    if not record.complete:
        parts.append(Text("\nInterrupted: the other tasks were not measured.", style="yellow"))
    return Group(*parts)


def heading(record: Record) -> Text:
    """Machine, versions, peak rates and absent peers."""
    machine, peaks = record.machine, record.peaks
    accelerator = f"{machine['accelerator']}, {machine['dtype']}\n" if "accelerator" in machine else ""
    versions = ", ".join(f"{name} {found}" for name, found in record.versions.items() if found)
    absent = "; ".join(f"{COLUMNS[column]} is absent: {reason}" for column, reason in record.absent.items())
    return Text(
        f"{accelerator}"
        f"{machine['cpu']}, {machine['threads']} of {machine['cpus']} CPUs, {machine['system']}; {record.date}"
        f"{'; quick: small sizes' if record.quick else ''}\n"
        f"{versions}\n"
        f"Peaks a second: {in_count(peaks.multiply_adds)} multiply-adds, {in_count(peaks.exponentials)} exponentials, "
        f"{in_count(peaks.reciprocals)} reciprocals, {in_count(peaks.bytes)} bytes copied"
        + (f"\n{absent}" if absent else "")
    )


def _times(tasks: list[TaskRecord]) -> Table:
    present = columns(tasks)
    table = Table("task", *(COLUMNS[column] for column in present), "limit", show_lines=True, padding=(0, 1))
    for task in tasks:
        cells = ["\n".join(line for line in time_cell(task.results.get(column)) if line) for column in present]
        fraction = task.fraction("regard")
        reached = f"\nregard at {100 * fraction:.0f} %" if fraction else ""
        table.add_row(
            Text(f"{task.title}\n{task.name}"), *cells, f"{in_seconds(task.limit)}{reached}" if task.limit else ""
        )
    return table


def _memory(tasks: list[TaskRecord]) -> Table:
    present = columns(tasks)
    table = Table("extra memory, error", *(COLUMNS[column] for column in present), padding=(0, 1))
    for task in tasks:
        table.add_row(task.name, *("\n".join(memory_and_error(task.results.get(column))) for column in present))
    return table


def _requirements(record: Record) -> Table:
    table = Table("task", "regard must be", "at least", "aim", "measured", "outcome")
    for task in record.tasks:
        for requirement, outcome in requirements_of(record, task):
            style = {True: "green", False: "red", None: "dim"}[outcome.met]
            table.add_row(
                task.name, str(requirement), requirement.limit(requirement.threshold),
                "" if requirement.aim is None else requirement.limit(requirement.aim), outcome.shown,
                Text(outcome_text(outcome), style=style),
            )  # fmt: skip
    return table


def comparison(old: Record, new: Record) -> RenderableType:
    """New times divided by old times, for each task and implementation of both records; below 1 is faster."""
    present = columns(new.tasks)
    table = Table("new / old", *(COLUMNS[column] for column in present))
    before = {task.name: task for task in old.tasks}
    for task in new.tasks:
        if task.name not in before or dict(before[task.name].sizes) != dict(task.sizes):
            continue
        cells = []
        for column in present:
            pair = [side.results.get(column) for side in (before[task.name], task)]
            seconds = [found.seconds.median if found and found.seconds else None for found in pair]
            ratio = seconds[1] / seconds[0] if seconds[0] and seconds[1] else None
            cells.append(NOT_OFFERED if ratio is None else f"{three_digits(ratio)}×")
        table.add_row(task.name, *cells)
    same = all(old.machine[name] == new.machine[name] for name in ("cpu", "threads"))
    warning = "" if same else "\nThe records come from different machines or numbers of threads."
    return Group(Text(f"\nAgainst {old.date} (regard {old.versions['regard']}){warning}", style="bold"), table)
