"""Running a module of the benchmark in a process of its own, which prints its progress and its result."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROGRESS = "progress "
"""What a line of the standard error begins with that tells the progress."""

PATIENCE = 5.0
"""Seconds in which an interrupted process ends by itself, and the processes that it started with it."""


class Ended(NamedTuple):
    """How a process ended.

    Attributes:
        output: what it printed on its standard output.
        reason: why it gave no result; empty if it gave one.
    """

    output: str = ""
    reason: str = ""


def tell_progress(text: str) -> None:
    """Tell the process that started this one."""
    print(f"{PROGRESS}{text}", file=sys.stderr, flush=True)


def _import_path() -> dict[str, str]:
    """The module path of a process that imports this package, which is not installed."""
    root = str(Path(__file__).resolve().parents[1])
    return {"PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), root]))}


def run_process(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None, limit: float | None = None,
    progress: Callable[[str], object] | None = None,
) -> Ended:  # fmt: skip
    """Run ``python -m module`` and wait for its end.

    Args:
        module: name of the module.
        arguments: of its command line.
        environment: variables that it gets beside this process's.
        limit: seconds after which it is killed; None: never.
        progress: called with each text that it tells by `tell_progress`.
    """
    # A file takes any amount of output while the standard error is read.
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output,
        subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, **_import_path(), **(environment or {})},
        ) as process,
    ):
        overdue = threading.Event()

        def end() -> None:
            overdue.set()
            process.kill()

        timer = threading.Timer(threading.TIMEOUT_MAX if limit is None else limit, end)
        timer.daemon = True
        timer.start()
        try:
            last = _follow(process, progress)
            code = process.wait()
        except BaseException:
            _interrupt(process)
            raise
        finally:
            timer.cancel()
        output.seek(0)
        printed = output.read()
    if overdue.is_set():
        return Ended(reason=f"took longer than {limit:.0f} s")
    if code < 0:
        return Ended(reason=f"was ended by signal {-code} (out of memory?)")
    return Ended(printed, "" if code == 0 else last or f"ended with exit code {code}")


def _follow(process: "subprocess.Popen[str]", progress: Callable[[str], object] | None) -> str:
    """Hand on the progress until the process closes its standard error; the last other line."""
    assert process.stderr is not None
    last = ""
    for line in process.stderr:
        if line.startswith(PROGRESS):
            if progress is not None:
                progress(line.removeprefix(PROGRESS).rstrip("\n"))
        elif line.strip():
            last = line.strip()
    return last


def _interrupt(process: "subprocess.Popen[str]") -> None:
    with suppress(OSError, ValueError):  # where there is no such signal
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=PATIENCE)
    process.kill()
