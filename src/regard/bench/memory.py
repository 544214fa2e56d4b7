"""The most memory that one call takes, measured in a fresh process.

``python -m regard.bench.memory TASK COLUMN`` is that process; `measure_memory` starts it. Resident memory is what the
kernel says it is; its high-water mark is put back before the call where the kernel allows that (Linux).
"""

import argparse
import contextlib
import ctypes
import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from regard.bench.task import Contender, Task
from regard.bench.tasks import TASKS

ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_TOP_PAD_": "65536"}
"""So that what was freed before the call has gone back to the kernel, and what the call takes is seen."""


@dataclass(frozen=True)
class Footprint:
    """What a process of its own found.

    Attributes:
        extra: bytes at the highest above what was there before the call; None if that is not known.
        resident: bytes of the whole process at the highest, from the call on.
        seconds: of the call.
        reason: why nothing is known.
    """

    extra: int | None = None
    resident: int | None = None
    seconds: float | None = None
    reason: str = ""


def measure_memory(
    task: str, column: str, *, quick: bool, threads: int, limit: float,
    progress: Callable[[int, int], None] | None = None,
) -> Footprint:  # fmt: skip
    """Run one contender of one task in a process of its own.

    Args:
        task, column: who runs what.
        quick: whether with the small sizes.
        threads: of PyTorch, and of peers that can be told.
        limit: seconds after which the process is ended.
        progress: told parts done and all parts, by tasks that say so.

    Returns:
        What it found, or the reason why it failed or was ended.
    """
    command = [sys.executable, "-m", "regard.bench.memory", task, column, "--threads", str(threads)]
    with subprocess.Popen(
        command + ["--quick"] * quick,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": str(threads)},
    ) as process:
        overdue = threading.Event()

        def end() -> None:
            overdue.set()
            process.kill()

        timer = threading.Timer(limit, end)
        timer.start()
        try:
            last, output = _listen(process, progress)
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    if overdue.is_set():
        return Footprint(reason=f"took longer than {limit:.0f} s")
    if process.returncode < 0:
        return Footprint(reason=f"was ended by signal {-process.returncode} (out of memory?)")
    if process.returncode:
        return Footprint(reason=last)
    return Footprint(**json.loads(output.strip().splitlines()[-1]))


def _listen(process: "subprocess.Popen[str]", progress: Callable[[int, int], None] | None) -> tuple[str, str]:
    """What the process says until it ends: its last line of complaint, and its output."""
    assert process.stderr is not None
    assert process.stdout is not None
    last = ""
    for line in process.stderr:
        if line.startswith("progress "):
            if progress is not None:
                done, parts = map(int, line.split()[1:3])
                progress(done, parts)
        elif line.strip():
            last = line.strip()
    return last, process.stdout.read()


def footprint(task: Task, contender: Contender, *, quick: bool) -> Footprint:
    """Measure in this process, which should be a fresh one."""
    with torch.set_grad_enabled(task.backward):
        if contender.column == "compile":
            # Compiled for these very shapes: the compiler's own memory is not the task's.
            warm = None
        else:
            # The small sizes load libraries and compile kernels.
            warm = contender.build(task.inputs(task.quick))
            with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stderr(nowhere):
                warm.call()
        inputs = task.inputs(task.sized(quick))
        ready = contender.build(inputs)
        if warm is None or _other_backend(task, contender, quick):
            ready.call()
        del warm
        gc.collect()
        _trim()
        put_back = _put_back()
        before = _status("VmRSS")
        began = time.perf_counter()
        result = ready.call()
        seconds = time.perf_counter() - began
        highest = _status("VmHWM") if put_back else max(_most_so_far(), before)
        del result
    return Footprint(max(0, highest - before), highest, seconds)


def _other_backend(task: Task, contender: Contender, quick: bool) -> bool:
    """Whether the small sizes ran on another backend, and so have warmed up the wrong one."""
    if contender.backend is None or quick:
        return False
    return contender.backend(task.inputs(task.quick)) != contender.backend(task.inputs(task.sizes))


def _put_back() -> bool:
    """Put the high-water mark back to what is resident now; whether the kernel did."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        return True
    except OSError:
        return False


def _status(name: str) -> int:
    """A line of /proc/self/status in bytes; where there is none, what the process has had at most."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return _most_so_far()


def _most_so_far() -> int:
    # A system without this module does not say how much memory a process has: the reason that is then reported.
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _trim() -> None:
    """Give freed memory back to the kernel, where the C library can."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def main() -> None:
    """The fresh process: print a `Footprint` as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task")
    parser.add_argument("column")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    task = {task.name: task for task in TASKS}[given.task]
    found = footprint(task, task.contender(given.column), quick=given.quick)
    print(json.dumps(found.__dict__))


if __name__ == "__main__":
    main()
