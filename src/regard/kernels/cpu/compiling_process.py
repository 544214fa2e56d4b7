"""The process that compiles this process's kernels: a worker at low priority, started when a kernel is missing.

Where a call waits for a kernel, a worker at the caller's own priority compiles it: on a busy machine a low one would
hardly ever run. A worker is told each kernel that is missing, and compiles one after the other. It has a lifetime of
its own: it ends when it has compiled what it was asked for and this process has ended, or a while after the last
request. So a process that ends while something compiles ends at once, and the kernel is there the next time.

A kernel that could not be compiled is not requested again, and the reason is logged once.
"""

import json
import logging
import os
import subprocess
import sys
import threading
from contextlib import suppress

from regard.errors import BackendError
from regard.fork_lock import ForkLock
from regard.kernels.cpu import cache
from regard.kernels.cpu.compiling import Source

LOG = logging.getLogger("regard")

LONGEST = 600.0
"""Seconds after which a kernel is no longer waited for; it takes a few, and more on a busy machine."""

_PROGRAM = "regard.kernels.cpu.compiling"


class CompilingProcess:
    """What this process knows of a worker.

    Args:
        niceness: by how much the worker's priority is below this process's.

    Attributes:
        failures: reasons why kernels were not compiled, by their names.
        crashes: names of those at which the worker ended.
        start_failure: why no process can be started; None if nothing is known against it.
    """

    start_failure: str | None = None

    def __init__(self, niceness: int) -> None:
        self._niceness = niceness
        self._lock = ForkLock()
        self.forget()
        if hasattr(os, "register_at_fork"):  # Windows has no fork
            # The worker answers the process that started it.
            os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Know of no worker."""
        CompilingProcess.start_failure = None
        self.failures: dict[str, str] = {}
        self.crashes: set[str] = set()
        self._process: subprocess.Popen[str] | None = None
        self._pending: dict[str, tuple[Source, threading.Event]] = {}

    def obstacle(self) -> str | None:
        """Why no worker can compile anything; None if one can."""
        if CompilingProcess.start_failure is not None:
            return CompilingProcess.start_failure
        if not os.path.basename(sys.executable or "").lower().startswith(("python", "pypy")):
            return "there is no Python interpreter to start a process with that compiles kernels"
        folder = cache.cache_folder()
        if folder is None or not cache.is_writable(folder):
            return "no folder can be written for compiled kernels; set REGARD_CACHE to one of your own"
        return None

    def is_compiling(self, name: str) -> bool:
        """Whether a kernel was asked for, and is not there yet."""
        return name in self._pending

    def request(self, source: Source) -> threading.Event | None:
        """Ask the worker to compile a kernel, unless that was done; what tells that it has answered.

        Returns:
            None if the kernel cannot be compiled there.
        """
        with self._lock:
            if source.name in self._pending:
                return self._pending[source.name][1]
            if source.name in self.failures or self.obstacle() is not None:
                return None
            self._pending[source.name] = source, threading.Event()
            answered = self._pending[source.name][1]
            if self._niceness:  # a call that waits has said so
                LOG.info("compiling the CPU kernel %r in another process ...", source.name)
            self._send([source])
            return answered

    def compile(self, source: Source) -> str | None:
        """Have a kernel compiled, and wait for it; why it was not, or None if it was.

        Raises:
            BackendError: the worker ended or hung while it compiled the kernel, as this process would, too.
        """
        answered = self.request(source)
        if answered is not None and not answered.wait(LONGEST):
            raise BackendError(f"the process that compiles kernels did not answer for {LONGEST:.0f} s")
        if source.name in self.crashes:
            raise BackendError(f"the CPU kernel {source.name!r} was not compiled: {self.failures[source.name]}")
        return self.failures.get(source.name) or (self.obstacle() if answered is None else None)

    def wait(self) -> None:
        """Wait until every kernel that was asked for is compiled or has failed."""
        for _, answered in list(self._pending.values()):
            answered.wait(LONGEST)

    def _send(self, sources: list[Source]) -> None:
        """Tell the worker these kernels; start it if there is none."""
        try:
            if self._process is None:
                process = _started(self._niceness)
                try:
                    threading.Thread(target=self._listen, args=(process,), daemon=True).start()
                except RuntimeError:  # there are too many threads, or Python is about to end
                    process.kill()
                    process.communicate()
                    raise
                self._process = process
            assert self._process.stdin is not None
            for source in sources:
                print(json.dumps([source.module, source.maker, *source.words]), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            pass  # it has just ended; the listener goes on with what it left
        except (OSError, ValueError, RuntimeError) as error:
            if CompilingProcess.start_failure is None:
                CompilingProcess.start_failure = f"no process can be started that compiles kernels: {error}"
                LOG.warning("%s", CompilingProcess.start_failure)
            for source in sources:
                self._answer(source.name)

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        """Take the worker's answers until it has ended; then go on with what it left."""
        answers = 0
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                try:
                    name, failure, seconds = json.loads(line)
                except (ValueError, TypeError):
                    continue  # a line that is no answer
                answers += 1
                if failure is not None:
                    self._fail(name, failure)
                else:
                    LOG.debug("compiled the CPU kernel %r in %.1f s", name, seconds)
                self._answer(name)
        code = process.wait()
        assert process.stdin is not None
        with self._lock:
            with suppress(OSError):  # of lines that were not read
                process.stdin.close()
            if self._process is not process:
                return  # after a fork, or `forget`
            self._process = None
            left = [source for source, _ in self._pending.values()]
            if left and (code or not answers):
                self.crashes.add(left[0].name)
                self._fail(left[0].name, f"the process that compiles kernels ended (exit code {code})")
                self._answer(left.pop(0).name)
            if left:
                self._send(left)

    def _fail(self, name: str, reason: str) -> None:
        self.failures[name] = reason
        LOG.warning("the CPU kernel %r was not compiled: %s", name, reason)

    def _answer(self, name: str) -> None:
        entry = self._pending.pop(name, None)
        if entry is not None:
            entry[1].set()


def _started(niceness: int) -> "subprocess.Popen[str]":
    """A new worker. It finds modules where this process finds them, and nowhere else."""
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path if isinstance(path, str))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", _PROGRAM, str(niceness)],
        env=os.environ | {"PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # A terminal's Ctrl-C is for this process alone.
        start_new_session=True,
        creationflags=sum(
            getattr(subprocess, name, 0)
            for name in (
                "CREATE_NO_WINDOW",
                "CREATE_NEW_PROCESS_GROUP",
                *("BELOW_NORMAL_PRIORITY_CLASS",) * (niceness > 0),
            )
        ),
    )


BACKGROUND = CompilingProcess(niceness=10)
"""The worker for kernels that no call waits for."""

FOREGROUND = CompilingProcess(niceness=0)
"""The worker for kernels that a call waits for."""
