"""Runs tasks one after the other and gathers what they give into a record."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from regard.bench.limits import Peaks, available_bytes
from regard.bench.measurement import Measurement
from regard.bench.memory import measure_memory
from regard.bench.oracle import errors
from regard.bench.peers import absence
from regard.bench.quantity import in_bytes
from regard.bench.record import TaskRecord
from regard.bench.task import Contender, Inputs, Outputs, Task
from regard.bench.timing import Pace, race

MEMORY_SECONDS = {"compile": 7.0, "keras": 6.0, "jax": 4.0}
"""About what a process of its own takes where that is more than two seconds, most of it for imports."""

BUILD_SECONDS = {"compile": 5.0, "keras": 1.0}
"""About what it takes until a contender can run, where that is long."""

SAY = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How a run is made.

    Attributes:
        quick: small sizes and few runs.
        threads: of everyone.
        memory: whether extra memory is measured in processes of their own.
        repeats: rounds of each race; None: as many as fit into the time.
        patience: seconds that a process of its own may take.
    """

    quick: bool = False
    threads: int = 1
    memory: bool = True
    repeats: int | None = None
    patience: float = 900.0

    @property
    def pace(self) -> Pace:
        """How long the races are."""
        return Pace.of(quick=self.quick, repeats=self.repeats)


def estimate(task: Task, options: Options) -> float:
    """Seconds that a task takes, roughly."""
    contenders = [contender for contender in task.contenders if absence(contender.column) is None]
    # Small sizes end at the most rounds, large ones with everyone's share.
    seconds = min(options.pace.seconds * 1.2, len(contenders) * options.pace.share) if task.timed else 0.0
    seconds += sum(BUILD_SECONDS.get(contender.column, 0.3) for contender in contenders) if task.timed else 0.0
    if options.memory or not task.timed:
        weighed = [contender for contender in contenders if contender.weighed or not task.timed]
        seconds += sum(MEMORY_SECONDS.get(contender.column, 2.0) for contender in weighed)
        seconds += 60.0 if task.long else 0.0
    return seconds


def run_task(task: Task, options: Options, peaks: Peaks, say: SAY) -> TaskRecord:
    """Measure every contender of a task.

    Args:
        task: the row.
        options: how.
        peaks: of the machine.
        say: told what is going on.
    """
    results: dict[str, Measurement] = {}
    sizes = task.sized(options.quick)
    room = available_bytes() * 0.7
    wanted: list[Contender] = []
    for contender in task.contenders:
        missing = absence(contender.column)
        needed = 0.0 if contender.bytes is None else contender.bytes(sizes)
        blank = Measurement("measured", note=contender.note, expected_bytes=needed or None)
        if missing is not None:
            results[contender.column] = replace(blank, state="absent", reason=missing)
        elif needed > room:
            reason = f"would need about {in_bytes(needed)}; {in_bytes(room)} can be spared"
            results[contender.column] = replace(blank, state="skipped", reason=reason)
        else:
            results[contender.column] = blank
            wanted.append(contender)
    backends = _backends(task, wanted, sizes)
    for column, backend in backends.items():
        results[column] = replace(results[column], backend=backend)
    if task.timed:
        _time(task, wanted, options, results, say)
    if options.memory or not task.timed:
        _weigh(task, wanted, options, results, say)
    _rate(task, sizes, results)
    work = task.work(sizes)
    in_order = {contender.column: results[contender.column] for contender in task.contenders}
    return TaskRecord(
        task.name, task.title.format(**sizes), task.group, task.about, dict(sizes), work, peaks.limit(work), in_order
    )


def _backends(task: Task, contenders: Sequence[Contender], sizes: Any) -> dict[str, str]:
    asked = [contender for contender in contenders if contender.backend is not None]
    if not asked:
        return {}
    inputs = task.inputs(sizes)
    with torch.set_grad_enabled(task.backward):
        return {contender.column: contender.backend(inputs) for contender in asked if contender.backend is not None}


def _time(
    task: Task, contenders: Sequence[Contender], options: Options, results: dict[str, Measurement], say: SAY
) -> None:
    inputs = task.inputs(task.sized(options.quick))
    truth: Outputs = {}
    if task.oracle is not None:
        say("float64 oracle")
        truth = task.oracle(inputs)
    calls: dict[str, Callable[[], Any]] = {}
    with torch.set_grad_enabled(task.backward):
        for contender in contenders:
            say(f"first run of {contender.column}")
            call = _first(contender, inputs, truth, results)
            if call is not None:
                calls[contender.column] = call
        # Without regard there is nothing to compare with, and the times would be ratios to somebody else.
        if "regard" in calls:
            for column, timing in race(calls, options.pace, say).items():
                results[column] = replace(results[column], seconds=timing.seconds, ratio=timing.ratio)
    calls.clear()
    gc.collect()


def _first(
    contender: Contender, inputs: Inputs, truth: Outputs, results: dict[str, Measurement]
) -> Callable[[], Any] | None:
    """Build a contender, run it once, and hold it against the oracle; None if it fails, which is recorded."""
    blank = results[contender.column]
    try:
        began = time.perf_counter()
        ready = contender.build(inputs)
        raw = ready.call()
        first = time.perf_counter() - began
        found = errors(ready.read(raw), truth, inputs.get("valid"))
    except Exception as error:
        # Whatever a peer raises belongs into its cell; the other cells are measured all the same.
        results[contender.column] = replace(blank, state="failed", reason=_said(error))
        return None
    results[contender.column] = replace(blank, first=first, errors=found)
    return ready.call


def _weigh(
    task: Task, contenders: Sequence[Contender], options: Options, results: dict[str, Measurement], say: SAY
) -> None:
    for contender in contenders:
        if results[contender.column].state != "measured" or (task.timed and not contender.weighed):
            continue
        name = contender.column
        say(f"memory of {name}")

        def progress(done: int, parts: int, name: str = name) -> None:
            say(f"{name}: {done} of {parts}")

        found = measure_memory(
            task.name, name, quick=options.quick, threads=options.threads, limit=options.patience, progress=progress
        )
        if found.reason:
            state = results[name].state if task.timed else "failed"
            results[name] = replace(results[name], state=state, reason=f"memory: {found.reason}")
            continue
        results[name] = replace(
            results[name], extra_bytes=found.extra, resident_bytes=found.resident, alone=found.seconds
        )


def _rate(task: Task, sizes: Any, results: dict[str, Measurement]) -> None:
    """Add to each note how much was got through in a second, where the task counts something."""
    if task.counted is None:
        return
    what, count = task.counted
    for column, found in results.items():
        if found.seconds:
            rate = f"{count(sizes) / found.seconds.median:,.0f} {what} a second"
            results[column] = replace(found, note=f"{found.note}; {rate}" if found.note else rate)


def _said(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:300]
