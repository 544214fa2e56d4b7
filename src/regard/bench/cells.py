"""A measurement in few characters: what the terminal and the page both show."""

from collections.abc import Iterable, Sequence

from regard.bench.bar import Bar, Verdict
from regard.bench.columns import COLUMNS
from regard.bench.measurement import Measurement
from regard.bench.quantity import in_bytes, in_seconds, three_digits
from regard.bench.record import Record, TaskRecord
from regard.bench.tasks import TASKS

NOT_OFFERED = "—"
"""The cell of a contender that has no such operation."""


def columns(tasks: Sequence[TaskRecord]) -> list[str]:
    """The columns that any of these rows has, in their order."""
    return [column for column in COLUMNS if any(column in task.results for task in tasks)]


def time_cell(found: Measurement | None) -> list[str]:
    """Lines of a cell: median ± half the interquartile range, ratio to regard, or why there is none."""
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
    """Extra memory of a call; empty where it was not measured."""
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


def bars_of(record: Record, task: TaskRecord) -> list[tuple[Bar, Verdict]]:
    """The demands on this row, each with its verdict. Demands are those of this version, also for older records."""
    known = {task.name: task for task in TASKS}
    bars = known[task.name].bars if task.name in known else ()
    return [(bar, bar.judge(task.results, quick=record.quick)) for bar in bars]


def verdict_words(verdict: Verdict) -> str:
    """``aim met``, ``met``, or how far it is short."""
    if verdict.met is None:
        return verdict.shortfall or "not known"
    if verdict.aim_met:
        return "aim met"
    return "met" if verdict.met else f"short: {verdict.shortfall}"


def memory_and_error(found: Measurement | None) -> list[str]:
    """Lines of a cell: extra memory, and the largest error."""
    lines = [line for line in (memory_cell(found), error_cell(found)) if line not in ("", NOT_OFFERED)]
    return lines or [NOT_OFFERED]


def failures(tasks: Sequence[TaskRecord]) -> list[str]:
    """A line for everything that failed, was skipped, or whose memory could not be measured; one for each reason."""
    return _gathered(
        (COLUMNS[column], task.name, found.reason)
        for task in tasks
        for column, found in task.results.items()
        if found.reason and found.state != "absent"
    )


def notes(tasks: Sequence[TaskRecord]) -> list[str]:
    """A line for every note that contenders are to be read with."""
    return _gathered(
        (COLUMNS[column], task.name, found.note)
        for task in tasks
        for column, found in task.results.items()
        if found.note
    )


def _gathered(found: Iterable[tuple[str, str, str]]) -> list[str]:
    """(contender, task, words) → a line for each contender and words, with all its tasks."""
    names: dict[tuple[str, str], list[str]] = {}
    for contender, task, words in found:
        names.setdefault((contender, words), []).append(task)
    return [f"{contender} ({', '.join(tasks)}): {words}" for (contender, words), tasks in names.items()]
