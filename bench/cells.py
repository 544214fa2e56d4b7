"""The cells of the benchmark's tables, for the terminal and the page."""

from collections.abc import Iterable, Sequence

from bench.columns import COLUMNS
from bench.measurement import Measurement
from bench.quantity import in_bytes, in_seconds, three_digits
from bench.record import Record, TaskRecord
from bench.requirement import Outcome, Requirement
from bench.tasks import TASKS

NOT_OFFERED = "—"
"""The cell of an implementation that does not have the operation."""


def columns(tasks: Sequence[TaskRecord]) -> list[str]:
    """The columns that at least one of these tasks has, in their order."""
    return [column for column in COLUMNS if any(column in task.results for task in tasks)]


def time_cell(found: Measurement | None) -> list[str]:
    """Lines of a cell: median, half the interquartile range, and ratio to regard's time; or the state."""
    if found is None:
        return [NOT_OFFERED]
    if found.state != "measured":
        return [found.state]
    if found.seconds is None:
        return [NOT_OFFERED] if found.alone is None else [f"{in_seconds(found.alone)} once"]
    half = (found.seconds.upper - found.seconds.lower) / 2
    spread = f"±{100 * half / found.seconds.median:.0f} %" if found.seconds.runs > 1 else "1 run"
    lines = [in_seconds(found.seconds.median), spread]
    if found.backend:
        return [*lines, found.backend]
    return [*lines, f"{three_digits(found.ratio)}×" if found.ratio else ""]


def memory_cell(found: Measurement | None) -> str:
    """Extra memory of a call; empty if it was not measured."""
    if found is None:
        return NOT_OFFERED
    if found.extra_bytes is not None:
        return in_bytes(found.extra_bytes)
    if found.state == "skipped" and found.expected_bytes:
        return f"about {in_bytes(found.expected_bytes)}, not run"
    return found.state if found.state != "measured" else ""


def error_cell(found: Measurement | None) -> str:
    """The largest error of all outputs."""
    if found is None or found.state != "measured" or not found.errors:
        return NOT_OFFERED
    values = list(found.errors.values())
    if any(value is None for value in values):
        return "not finite"
    return f"{max(value for value in values if value is not None):.0e}"


def requirements_of(record: Record, task: TaskRecord) -> list[tuple[Requirement, Outcome]]:
    """The requirements of a task, each with its outcome: those of this version, also for older records.

    On an accelerator there are none.
    """
    known = {task.name: task for task in TASKS}
    is_known = task.name in known and "accelerator" not in record.machine
    requirements = known[task.name].requirements if is_known else ()
    return [
        (requirement, requirement.check(task.results, limit=task.limit, quick=record.quick))
        for requirement in requirements
    ]


def shortfalls(record: Record) -> list[tuple[TaskRecord, list[str], str]]:
    """Of each task that is short of a requirement: how far, for each such requirement, and what limits it."""
    known = {task.name: task for task in TASKS}
    found = []
    for task in record.tasks:
        short = [
            f"{requirement}: {outcome.shown}, required {requirement.limit(requirement.threshold)}, {outcome.shortfall}"
            for requirement, outcome in requirements_of(record, task)
            if outcome.met is False
        ]
        if short:
            found.append((task, short, known[task.name].limited_by))
    return found


def outcome_text(outcome: Outcome) -> str:
    """``aim met``, ``met``, or the shortfall."""
    if outcome.met is None:
        return outcome.shortfall or "not known"
    if outcome.aim_met:
        return "aim met"
    return "met" if outcome.met else f"short: {outcome.shortfall}"


def memory_and_error(found: Measurement | None) -> list[str]:
    """Lines of a cell: extra memory and largest error."""
    lines = [line for line in (memory_cell(found), error_cell(found)) if line not in ("", NOT_OFFERED)]
    return lines or [NOT_OFFERED]


def failures(tasks: Sequence[TaskRecord]) -> list[str]:
    """A line for each reason why an implementation failed, was skipped, or has no memory measurement."""
    return _gathered(
        (COLUMNS[column], task.name, found.reason)
        for task in tasks
        for column, found in task.results.items()
        if found.reason and found.state != "absent"
    )


def notes(tasks: Sequence[TaskRecord]) -> list[str]:
    """A line for each note on an implementation."""
    return _gathered(
        (COLUMNS[column], task.name, found.note)
        for task in tasks
        for column, found in task.results.items()
        if found.note
    )


def _gathered(found: Iterable[tuple[str, str, str]]) -> list[str]:
    """(implementation, task, text) → a line for each implementation and text, with all its tasks."""
    names: dict[tuple[str, str], list[str]] = {}
    for implementation, task, words in found:
        names.setdefault((implementation, words), []).append(task)
    return [f"{implementation} ({', '.join(tasks)}): {words}" for (implementation, words), tasks in names.items()]
