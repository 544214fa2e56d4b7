"""Runs a task: measures the times, memory and errors of its implementations."""

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from bench.busy_core import TURN_SECONDS as BUSY_TURN_SECONDS
from bench.busy_core import busy_core
from bench.limits import Peaks, available_bytes
from bench.measurement import Measurement
from bench.memory import measure_memory
from bench.oracle import errors
from bench.quantity import in_bytes
from bench.record import TaskRecord
from bench.target import Target
from bench.task import Implementation, Inputs, Outputs, PreparedCall, Sizes, Task
from bench.timing import TimingBudget, time_interleaved
from regard.cli.peers import absence
from regard.kernels.availability import kernels_awaited

MEMORY_SECONDS = {"compile": 7.0, "keras": 6.0, "jax": 4.0}
"""Estimated seconds of a memory measurement, if it takes more than two seconds, mostly for imports."""

BUILD_SECONDS = {"compile": 5.0, "flex": 30.0, "keras": 4.0, "jax": 2.0}
"""Estimated seconds to import and to prepare an implementation, if that takes long."""

START_SECONDS = 1.5
"""Estimated seconds until a task's process has started."""

OnProgress = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Attributes:
        quick: whether to use small sizes and few runs.
        threads: number of threads of each implementation.
        memory: whether extra memory is measured, in separate processes.
        repeats: rounds of each interleaved timing; None: as many as fit into the time.
        memory_timeout: seconds after which a memory measurement is stopped.
        device, dtype: where the tasks are measured, as in `Target`.
    """

    quick: bool = False
    threads: int = 1
    memory: bool = True
    repeats: int | None = None
    memory_timeout: float = 900.0
    device: str = "cpu"
    dtype: str = "float32"

    @property
    def target(self) -> Target:
        """Where the tasks are measured."""
        return Target(self.device, self.dtype)

    def sizes(self, task: Task) -> Sizes:
        """The sizes of a task in this run."""
        return task.sized(self.quick, self.target.is_cpu)

    def inputs(self, task: Task) -> Inputs:
        """The inputs of a task, where they are measured."""
        return self.target.inputs(task.inputs(self.sizes(task)))

    @property
    def budget(self) -> TimingBudget:
        """The time for the interleaved timing of a task."""
        return TimingBudget.of(quick=self.quick, repeats=self.repeats)


def estimate(task: Task, options: Options) -> float:
    """Estimated seconds of a task."""
    implementations = [
        implementation for implementation in task.implementations if absence(implementation.column) is None
    ]
    # Small sizes end after the largest number of rounds, large sizes after each implementation's share of the time.
    seconds = START_SECONDS
    seconds += min(options.budget.seconds * 1.2, len(implementations) * options.budget.share) if task.timed else 0.0
    seconds += (
        sum(BUILD_SECONDS.get(implementation.column, 0.3) for implementation in implementations) if task.timed else 0.0
    )
    if options.memory or not task.timed:
        memory_measured = [
            implementation for implementation in implementations if implementation.memory_measured or not task.timed
        ]
        seconds += sum(MEMORY_SECONDS.get(implementation.column, 2.0) for implementation in memory_measured)
        seconds += 60.0 if task.long else 0.0
    return seconds


@kernels_awaited()
def run_task(task: Task, options: Options, peaks: Peaks, on_progress: OnProgress) -> TaskRecord:
    """Measure every implementation of a task.

    Args:
        task: the task.
        options: the options of the run.
        peaks: peak rates of the machine.
        on_progress: called with a description of each measurement before it starts.
    """
    results: dict[str, Measurement] = {}
    sizes = options.sizes(task)
    room = available_bytes(options.device) * 0.7
    wanted: list[Implementation] = []
    offered = [one for one in task.implementations if not options.target.lacks(one.column)]
    for implementation in offered:
        missing = absence(implementation.column)
        needed = 0.0 if implementation.bytes is None else implementation.bytes(sizes)
        blank = Measurement("measured", note=implementation.note, expected_bytes=needed or None)
        if missing is not None:
            results[implementation.column] = replace(blank, state="absent", reason=missing)
        elif needed > room:
            reason = f"would need about {in_bytes(needed)}; {in_bytes(room)} are available"
            results[implementation.column] = replace(blank, state="skipped", reason=reason)
        else:
            results[implementation.column] = blank
            wanted.append(implementation)
    backends = _backends(task, wanted, options)
    for column, backend in backends.items():
        results[column] = replace(results[column], backend=backend)
    if task.timed:
        _time(task, wanted, options, results, on_progress)
    if options.target.is_cpu and (options.memory or not task.timed):
        _measure_memory(task, wanted, options, results, on_progress)
    _rate(task, sizes, results)
    in_order = {implementation.column: results[implementation.column] for implementation in offered}
    return record_of(task, options, peaks, in_order)


def record_of(task: Task, options: Options, peaks: Peaks, results: dict[str, Measurement]) -> TaskRecord:
    """The record of a task with these results."""
    sizes = options.sizes(task)
    work = task.work(sizes)
    work = replace(work, bytes=work.bytes * options.target.item_bytes / 4)  # tasks count float32 numbers
    return TaskRecord(
        task.name, task.title.format(**sizes), task.group, task.about, dict(sizes), work, peaks.limit(work), results
    )


def _backends(task: Task, implementations: Sequence[Implementation], options: Options) -> dict[str, str]:
    asked = [implementation for implementation in implementations if implementation.backend is not None]
    if not asked:
        return {}
    inputs = options.inputs(task)
    with torch.set_grad_enabled(task.backward), options.target.created():
        return {
            implementation.column: implementation.backend(inputs)
            for implementation in asked
            if implementation.backend is not None
        }


def _time(
    task: Task,
    implementations: Sequence[Implementation],
    options: Options,
    results: dict[str, Measurement],
    on_progress: OnProgress,
) -> None:
    target = options.target
    measures_memory = options.memory and not target.is_cpu
    inputs = options.inputs(task)
    truth: Outputs = {}
    if task.oracle is not None:
        on_progress("float64 oracle")
        with target.created():
            truth = task.oracle(inputs)
    calls: dict[str, PreparedCall] = {}
    with torch.set_grad_enabled(task.backward):
        for implementation in implementations:
            on_progress(f"first run of {implementation.column}")
            prepared = _first(implementation, inputs, truth, results, target, measures_memory)
            if prepared is not None:
                calls[implementation.column] = prepared
        # The ratios are those to regard's time, so nothing is timed if regard failed.
        if "regard" in calls:
            run = {column: prepared.call for column, prepared in calls.items()}
            clocks = {column: prepared.seconds for column, prepared in calls.items() if prepared.seconds is not None}
            budget = replace(options.budget, turn=BUSY_TURN_SECONDS) if task.loaded else options.budget
            with busy_core() if task.loaded else nullcontext():
                timings = time_interleaved(run, budget, on_progress, clocks, target.wait)
            for column, timing in timings.items():
                results[column] = replace(results[column], seconds=timing.seconds, ratio=timing.ratio)
    calls.clear()
    gc.collect()


def _first(
    implementation: Implementation,
    inputs: Inputs,
    truth: Outputs,
    results: dict[str, Measurement],
    target: Target,
    measures_memory: bool,
) -> PreparedCall | None:
    """Prepare an implementation, run it once, and compare it with the oracle; None if it fails, which is recorded."""
    blank = results[implementation.column]
    try:
        began = time.perf_counter()
        with target.created():
            prepared = implementation.build(inputs)
        raw = target.finished(prepared.call)()
        first = time.perf_counter() - began
        found = errors(prepared.read(raw), truth, inputs.get("valid"))
        del raw
        extra = target.peak(prepared.call) if measures_memory else None
    except Exception as error:
        # Any error of a peer is recorded in its cell, and the other implementations are measured.
        results[implementation.column] = replace(blank, state="failed", reason=_said(error))
        return None
    results[implementation.column] = replace(blank, first=first, errors=found, extra_bytes=extra)
    return prepared


def _measure_memory(
    task: Task,
    implementations: Sequence[Implementation],
    options: Options,
    results: dict[str, Measurement],
    on_progress: OnProgress,
) -> None:
    for implementation in implementations:
        if results[implementation.column].state != "measured" or (task.timed and not implementation.memory_measured):
            continue
        name = implementation.column
        on_progress(f"memory of {name}")

        def progress(text: str, name: str = name) -> None:
            on_progress(f"{name}: {text}")

        found = measure_memory(
            task.name,
            name,
            quick=options.quick,
            threads=options.threads,
            limit=options.memory_timeout,
            progress=progress,
        )
        if found.reason:
            state = results[name].state if task.timed else "failed"
            results[name] = replace(results[name], state=state, reason=f"memory: {found.reason}")
            continue
        results[name] = replace(
            results[name], extra_bytes=found.extra, resident_bytes=found.resident, alone=found.seconds
        )


def _rate(task: Task, sizes: Any, results: dict[str, Measurement]) -> None:
    """Add the rate per second to each note, if the task counts something."""
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
