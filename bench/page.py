"""The record as a page of Markdown; it generates docs/en/understand/performance.md."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from bench.cells import (
    NOT_OFFERED,
    columns,
    failures,
    memory_and_error,
    notes,
    outcome_text,
    requirements_of,
    shortfalls,
    time_cell,
)  # fmt: skip
from bench.columns import COLUMNS
from bench.quantity import in_bytes, in_count, in_seconds
from bench.record import Record, TaskRecord

NOT_EXPLAINED = "What limits it was not profiled."
"""Where a task has no text on what limits it."""

INTRODUCTION = """\
# Performance and physical limits

`regard bench --page` generated this page from one run, which measured every number on it. Each task runs in a process
of its own. All implementations get the same float32 numbers and the same number of threads, and run in turn, in another
order in each round. A cell gives the median time of a call, half the interquartile range in percent of the median, and
the ratio to regard's time (the median over the rounds in which both ran). Regard's column names the backend that
`regard.plan` gives. The error is the largest difference from the same formula in float64, over outputs, readings and
gradients. Extra memory is the peak resident memory of a fresh process minus its memory before the call. {dash} marks an
operation that an implementation does not have. The columns "regard on …" are regard's own backends, selected by name;
they show whether the choice of `auto` in regard's column is right.
""".replace("{dash}", NOT_OFFERED)

LIMITS = """\
The **limit** of a task is the least time that its operations need on this machine: the numbers of multiply-adds,
reciprocals, exponentials and bytes are divided by the peaks above, and the largest of the four times is the limit. The
machine can do these operations at the same time, but a task that needs several kinds rarely reaches its limit. The
peaks are the best of many runs of PyTorch's own operations (a large matrix product, a convolution, `exp`, `exp2`,
`reciprocal`, a large copy) and of compiled loops on numbers in the L1 cache.
"""

SHORTFALLS = """\
How far each task is short in this run, what limits it, and what was tried. The shares of the time come from profiles on
an AMD EPYC with two CPUs.
"""

REPEAT = """\
## How to repeat the measurement

In a clone of the repository:

```
pip install --editable '.[bench,pictures]'
regard bench --json bench.json --page performance.md --pictures pictures
regard bench --long --task observe-long
regard bench --compare bench.json
```

`regard bench --list` prints the names of the tasks, `--task` selects tasks, `--quick` selects small sizes, and `--from`
generates this page from a JSON file without measuring. The page names peers that are not installed as absent.
"""


def page(record: Record, pictures: Sequence[tuple[str, str]] = ()) -> str:
    """The page as Markdown.

    Args:
        record: the record.
        pictures: title and path, relative to the page, of each scaling curve.
    """
    parts = [INTRODUCTION, _machine(record)]
    rows = [task for task in record.tasks if requirements_of(record, task)]
    if rows:
        parts += ["## Requirements\n", _requirements(record, rows), *_shortfalls(record)]
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
        *([f"- {machine['accelerator']}, {machine['dtype']}"] if "accelerator" in machine else []),
        f"- {machine['cpu']}, {machine['threads']} of {machine['cpus']} CPUs, {machine['system']}; {record.date}",
        f"- {versions}",
        f"- peaks a second: {in_count(peaks.multiply_adds)} multiply-adds, {in_count(peaks.exponentials)} "
        f"exponentials, {in_count(peaks.reciprocals)} reciprocals, {in_count(peaks.bytes)} bytes copied",
        *(f"- {COLUMNS[column]} is **absent**: {reason}" for column, reason in record.absent.items()),
    ]
    if record.quick:
        lines.append("- **small sizes** (`--quick`): requirements are not checked")
    if not record.complete:
        lines.append("- **interrupted**: not every task was measured")
    return "\n".join(lines) + "\n"


def _requirements(record: Record, tasks: Sequence[TaskRecord]) -> str:
    rows = [
        (task.title, str(requirement), requirement.limit(requirement.threshold),
         "" if requirement.aim is None else requirement.limit(requirement.aim), outcome.shown,
         outcome_text(outcome) if outcome.met is not False else f"**{outcome_text(outcome)}**")
        for task in tasks
        for requirement, outcome in requirements_of(record, task)
    ]  # fmt: skip
    return _table(("task", "regard", "at least", "aim", "measured", ""), rows)


def _shortfalls(record: Record) -> list[str]:
    """The section on requirements that are not met; nothing if all are."""
    by_words: dict[str, list[str]] = {}
    for task, short, words in shortfalls(record):
        by_words.setdefault(words, []).append(f"- **{task.name}**: {'; '.join(short)}.")
    if not by_words:
        return []
    parts = ["\n".join(lines) + f"\n\n{words or NOT_EXPLAINED}\n" for words, lines in by_words.items()]
    return ["### Requirements that are not met\n", SHORTFALLS, *parts]


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
        if not task.limit:
            continue
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
