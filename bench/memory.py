"""The peak memory of a call, measured in a fresh process.

``python -m bench.memory TASK COLUMN`` is that process; `measure_memory` starts it. The operating system reports
the resident memory; on Linux its peak value is reset before the call.
"""

import argparse
import contextlib
import ctypes
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from bench.own_process import run_process
from bench.process_status import status
from bench.task import Implementation, Task
from bench.tasks import TASKS
from regard.kernels.availability import kernels_awaited

ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_TOP_PAD_": "65536"}
"""Settings of the C library: freed memory returns to the operating system and is not counted as the call's."""


@dataclass(frozen=True)
class Footprint:
    """The memory of a call, measured in a separate process.

    Attributes:
        extra: peak memory minus the memory before the call, in bytes; None: not measured.
        resident: peak memory of the process during the call, in bytes.
        seconds: duration of the call.
        reason: why it was not measured.
    """

    extra: int | None = None
    resident: int | None = None
    seconds: float | None = None
    reason: str = ""


def measure_memory(
    task: str, column: str, *, quick: bool, threads: int, limit: float,
    progress: Callable[[str], object] | None = None,
) -> Footprint:  # fmt: skip
    """Run one implementation of one task in a separate process.

    Args:
        task: name of the task.
        column: column of the implementation.
        quick: whether to use the small sizes.
        threads: number of threads.
        limit: seconds after which the process is killed.
        progress: called with what the task tells of its progress.

    Returns:
        the memory, or the reason why it was not measured.
    """
    ended = run_process(
        __name__,
        *(task, column, "--threads", str(threads)),
        *["--quick"] * quick,
        environment={**ENVIRONMENT, "OMP_NUM_THREADS": str(threads)},
        limit=limit,
        progress=progress,
    )
    if ended.reason:
        return Footprint(reason=ended.reason)
    return Footprint(**json.loads(ended.output.splitlines()[-1]))


@kernels_awaited()
def footprint(task: Task, implementation: Implementation, *, quick: bool) -> Footprint:
    """Measure in this process, which should be a fresh one."""
    with torch.set_grad_enabled(task.backward):
        if implementation.column == "compile":
            # The compiler compiles for these shapes; its own memory must not be counted, so it is called below.
            warm = None
        else:
            # A call with the small sizes loads the libraries and compiles the kernels.
            warm = implementation.build(task.inputs(task.quick))
            with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stderr(nowhere):
                warm.call()
        inputs = task.inputs(task.sized(quick))
        prepared = implementation.build(inputs)
        if warm is None or _other_backend(task, implementation, quick):
            prepared.call()
        del warm
        gc.collect()
        _trim()
        peak_reset = _reset_peak()
        before = _status("VmRSS")
        began = time.perf_counter()
        result = prepared.call()
        seconds = time.perf_counter() - began
        highest = _status("VmHWM") if peak_reset else max(_peak_so_far(), before)
        del result
    return Footprint(max(0, highest - before), highest, seconds)


def _other_backend(task: Task, implementation: Implementation, quick: bool) -> bool:
    """Whether the small sizes run on another backend, so that the backend of the task is not warmed up."""
    if implementation.backend is None or quick:
        return False
    return implementation.backend(task.inputs(task.quick)) != implementation.backend(task.inputs(task.sizes))


def _reset_peak() -> bool:
    """Set the peak of the resident memory to its present value; whether the operating system did so."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        return True
    except OSError:
        return False


def _status(name: str) -> int:
    """A line of /proc/self/status in bytes; if there is no such file, the peak memory of the process."""
    try:
        return status(name)
    except OSError:
        return _peak_so_far()


def _peak_so_far() -> int:
    # On a system without this module the import error becomes the reason why memory was not measured.
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _trim() -> None:
    """Return freed memory to the operating system, if the C library can."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def main() -> None:
    """The main function of the separate process: print a `Footprint` as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task")
    parser.add_argument("column")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    task = {task.name: task for task in TASKS}[given.task]
    found = footprint(task, task.implementation(given.column), quick=given.quick)
    print(json.dumps(found.__dict__))


if __name__ == "__main__":
    main()
