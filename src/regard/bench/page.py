"""The record as a page of Markdown: docs/performance.md is made by this, and by nobody's hand."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from regard.bench.cells import (
    NOT_OFFERED,
    bars_of,
    columns,
    failures,
    memory_and_error,
    notes,
    time_cell,
    verdict_words,
)  # fmt: skip
from regard.bench.columns import COLUMNS
from regard.bench.quantity import in_bytes, in_count, in_seconds
from regard.bench.record import Record, TaskRecord

INTRODUCTION = """\
# How fast, and how near to the limit

Made by `regard bench --page` from one run; every number of this page was measured in it, side by side. All contenders
get the same float32 numbers and the same number of threads, and run in turn, round by round in changing order; a cell
gives the median of one call, half the interquartile range in percent of it, and how many times the time of regard that
is (the median over rounds that both ran). In regard's column stands the backend that `regard.plan` names. The error is
the largest difference from the same formula in float64, over outputs, readings and gradients. Extra memory is the
highest resident memory of a fresh process above what it had before the call. {dash} marks what a contender does not
offer. The columns "regard on …" are no rivals: they are regard's own backends, each named, so that the choice which
`auto` makes in regard's column can be seen to be right or wrong.
""".replace("{dash}", NOT_OFFERED)

LIMITS = """\
The **limit** of a task is the time in which this machine could do the operations that the task needs, whoever runs it:
their numbers over the peaks above, of multiply-adds, reciprocals, exponentials or bytes, whichever takes longest: the
units for them may all be busy at once, so a limit is hardly reached where a task needs several. The peaks are the best
of many runs of PyTorch's own operations (a large matrix product, a convolution, `exp`, `exp2`, `reciprocal`, a large
copy) and of compiled loops on numbers in a first cache.
"""

REPEAT = """\
## Repeat it

```
pip install 'regard[bench,cpu,pictures]'
regard bench --json bench.json --page performance.md --pictures pictures
regard bench --long --task observe-long
regard bench --compare bench.json
```

`regard bench --list` names the tasks, `--task` takes some of them, `--quick` small sizes of them, and `--from` makes
this page again from a JSON file without measuring anything. A peer that is not installed is named as absent.
"""


def page(record: Record, pictures: Sequence[tuple[str, str]] = ()) -> str:
    """The page.

    Args:
        record: what was measured.
        pictures: title and address, relative to the page, of the scaling curves.
    """
    parts = [INTRODUCTION, _machine(record)]
    rows = [task for task in record.tasks if bars_of(record, task)]
    if rows:
        parts += ["## What must be reached\n", _bars(record, rows)]
    for group, found in groupby(record.tasks, key=lambda task: task.group):
        tasks = list(found)
        parts += [f"## {group}\n", _times(tasks), _memory(tasks), *_remarks(tasks)]
    parts += ["## The physical limit\n", LIMITS, _limits(record.tasks)]
    if pictures:
        parts.append("## Over the length\n")
        parts += [f"![{title}]({address})\n" for title, address in pictures]
        stopped = [
            f"- {curve.name}, {COLUMNS[column]}: {reason}"
            for curve in record.curves
            for column, reason in curve.stopped.items()
        ]
        if stopped:
            parts.append("Where a line ends early:\n\n" + "\n".join(stopped) + "\n")
    lines = failures(record.tasks)
    if lines:
        parts.append("## Not measured\n\n" + "\n".join(f"- {line}" for line in lines) + "\n")
    return "\n".join([*parts, REPEAT])


def _machine(record: Record) -> str:
    machine, peaks = record.machine, record.peaks
    versions = ", ".join(f"{name} {found}" for name, found in record.versions.items() if found)
    lines = [
        f"- {machine['cpu']}, {machine['threads']} of {machine['cpus']} CPUs, {machine['system']}; {record.date}",
        f"- {versions}",
        f"- peaks a second: {in_count(peaks.multiply_adds)} multiply-adds, {in_count(peaks.exponentials)} "
        f"exponentials, {in_count(peaks.reciprocals)} reciprocals, {in_count(peaks.bytes)} bytes copied",
        *(f"- {COLUMNS[column]} is **absent**: {reason}" for column, reason in record.absent.items()),
    ]
    if record.quick:
        lines.append("- **small sizes** (`--quick`): bars are not judged")
    if not record.complete:
        lines.append("- **interrupted**: not every task was measured")
    return "\n".join(lines) + "\n"


def _bars(record: Record, tasks: Sequence[TaskRecord]) -> str:
    rows = [
        (task.title, str(bar), bar.limit(bar.least), "" if bar.aim is None else bar.limit(bar.aim), verdict.shown,
         verdict_words(verdict) if verdict.met is not False else f"**{verdict_words(verdict)}**")
        for task in tasks
        for bar, verdict in bars_of(record, task)
    ]  # fmt: skip
    return _table(("task", "regard", "at least", "aim", "measured", ""), rows)


def _times(tasks: Sequence[TaskRecord]) -> str:
    present = columns(tasks)
    rows = [
        (task.title, *("<br>".join(line for line in time_cell(task.results.get(name)) if line) for name in present))
        for task in tasks
    ]
    return _table(("time of a call", *(COLUMNS[name] for name in present)), rows)


def _memory(tasks: Sequence[TaskRecord]) -> str:
    present = columns(tasks)
    rows = [
        (task.title, *("<br>".join(memory_and_error(task.results.get(name))) for name in present)) for task in tasks
    ]
    return _table(("extra memory, error", *(COLUMNS[name] for name in present)), rows)


def _limits(tasks: Sequence[TaskRecord]) -> str:
    rows = []
    for task in tasks:
        work, fraction = task.work, task.fraction("regard")
        best = max(
            ((task.fraction(name) or 0.0, COLUMNS[name]) for name in task.results if name != "regard"),
            default=(0.0, ""),
        )
        rows.append((
            task.title, in_count(work.multiply_adds), in_count(work.reciprocals), in_count(work.exponentials),
            in_bytes(work.bytes), in_seconds(task.limit), f"{100 * fraction:.0f} %" if fraction else NOT_OFFERED,
            f"{100 * best[0]:.0f} % ({best[1]})" if best[0] else NOT_OFFERED,
        ))  # fmt: skip
    header = ("task", "multiply-adds", "reciprocals", "exponentials", "bytes", "limit", "regard reaches", "best other")
    counted = "\n".join(
        f"- {'; '.join(titles)}: {said}." for said, titles in _by_words(tasks).items() if said
    )  # fmt: skip
    return _table(header, rows) + "\nHow the operations are counted:\n\n" + counted + "\n"


def _by_words(tasks: Iterable[TaskRecord]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for task in tasks:
        found.setdefault(task.work.said, []).append(task.name)
    return found


def _remarks(tasks: Sequence[TaskRecord]) -> list[str]:
    lines = [f"- {task.name}: {task.about}" for task in tasks if task.about]
    lines += [f"- {line}" for line in notes(tasks)]
    return ["\n".join(lines) + "\n"] if lines else []


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_line(header), _line(["---"] * len(header)), *(_line(row) for row in rows)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
