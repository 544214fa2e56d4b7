"""A process that compiles kernels which are wanted later, while this one compiles the kernel that is wanted first.

Numba compiles one function after the other, on one processor. Started with ``python -m``, this module compiles what
its input lists, and prints the name of each kernel when it is in the cache.
"""

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

LONGEST = 120.0
"""Seconds after which a process is no longer waited for; a kernel takes a few."""

Place = tuple[str, ...]
"""What makes a kernel: the module and the name of the maker of its body, and its words."""


def spare_processors() -> int:
    """How many processors there are besides this process's own; 0 if there is no interpreter to start on them."""
    name = os.path.basename(sys.executable or "").lower()
    return _processors() - 1 if name.startswith(("python", "pypy")) else 0


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class CompilingProcess:
    """A process that compiles kernels, one after the other. It ends when this one ends by itself.

    Args:
        places: of the kernels, in the order in which they are wanted.

    Raises:
        OSError, ValueError: no process can be started.
    """

    def __init__(self, places: Sequence[Place]):
        # It finds modules where this process finds them, and nowhere else.
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path if isinstance(path, str))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            env=os.environ | {"PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # What goes wrong here goes wrong in this process too, which says so.
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._owner = os.getpid()
        self._compiled: set[str] = set()
        self._has_ended = False
        self._news = threading.Condition()
        atexit.register(self._end)
        assert self._process.stdin is not None
        with suppress(OSError), self._process.stdin as given:
            # One line: its end is seen also where another process holds this pipe, since it was forked just now.
            print(json.dumps(places), file=given)
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_for(self, name: str) -> None:
        """Return when the kernel of this name is compiled, or is not going to be compiled there."""
        if os.getpid() != self._owner:
            return  # after a fork: what the process says is for another one
        with self._news:
            self._news.wait_for(lambda: self._has_ended or name in self._compiled, LONGEST)

    def _listen(self) -> None:
        """Take down what is compiled, until the process has ended."""
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                with self._news:
                    self._compiled.add(line.strip())
                    self._news.notify_all()
        self._process.wait()
        atexit.unregister(self._end)
        with self._news:
            self._has_ended = True
            self._news.notify_all()

    def _end(self) -> None:
        if os.getpid() == self._owner and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _compile_listed() -> None:
    from regard.kernels.cpu.kernel import Kernel

    for module, maker, *words in json.loads(sys.stdin.readline()):
        kernel = Kernel(module, maker, *words)
        kernel.load()
        print(kernel.name, flush=True)
    # Taking all modules down takes longer than a small kernel to load, and somebody waits.
    os._exit(0)


if __name__ == "__main__":
    _compile_listed()
