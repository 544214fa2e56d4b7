"""A process that keeps one core busy, as other work on a machine does."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

TURN_SECONDS = 0.1
"""Least duration of a turn on a busy machine: many time slices of the system. A thread that has just slept gets a core
before others, so short turns would hide the load."""

_PROGRAM = """
import os, sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {int(sys.argv[1])})
while True:
    pass
"""


@contextmanager
def busy_core() -> Iterator[None]:
    """Keeps the last core that this process may use busy, by another process of the same priority."""
    core = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    with subprocess.Popen([sys.executable, "-c", _PROGRAM, str(core)]) as busy:
        try:
            time.sleep(0.2)
            yield
        finally:
            busy.kill()
