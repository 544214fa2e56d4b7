"""Workers: processes that compile this process's kernels, at low priority, started when a kernel is missing.

If a call waits for a kernel, a worker at the caller's own priority compiles it: on a busy machine, one at low priority
would hardly ever run. A worker compiles the requested kernels one after the other. It ends when this process has ended
and all requests are served, or some time after the last request. So a process that ends while a kernel is being
compiled ends at once, and the kernel is available the next time.

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
from regard.files.fork_lock import ForkLock
from regard.kernels.cpu import cache
from regard.kernels.cpu.compiling import KernelSource

LOG = logging.getLogger("regard")

TIMEOUT = 600.0
"""Seconds after which a call stops waiting for a kernel, which usually takes a few."""

_PROGRAM = "regard.kernels.cpu.compiling"


class CompilingProcess:
    """The state of a worker as this process knows it.

    Args:
        niceness: the worker's niceness relative to this process.

    Attributes:
        crashes: names of the kernels at which the worker crashed.
        start_failure: why no worker can be started; None if no attempt has failed.
    """

    start_failure: str | None = None

    def __init__(self, niceness: int) -> None:
        self._niceness = niceness
        self._lock = ForkLock()
        self.forget()
        if hasattr(os, "register_at_fork"):  # Windows has no fork
            # A worker answers only the process that started it.
            os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Forgets the worker and all its kernels."""
        CompilingProcess.start_failure = None
        self.failures: dict[str, str] = {}
        self.crashes: set[str] = set()
        self._process: subprocess.Popen[str] | None = None
        self._pending: dict[str, tuple[KernelSource, threading.Event]] = {}

    def obstacle(self) -> str | None:
        """Returns the reason why no worker can compile anything; None if one can."""
        if CompilingProcess.start_failure is not None:
            return CompilingProcess.start_failure
        if not os.path.basename(sys.executable or "").lower().startswith(("python", "pypy")):
            return "there is no Python interpreter to start a compiling process with"
        folder = cache.cache_folder()
        if folder is None or not cache.is_writable(folder):
            return "no folder for compiled kernels is writable; set REGARD_CACHE to one of your own"
        return None

    def is_compiling(self, name: str) -> bool:
        """Whether a kernel was requested and is not finished."""
        return name in self._pending

    def request(self, source: KernelSource) -> threading.Event | None:
        """Asks the worker to compile a kernel, unless it was asked already.

        Returns:
            The event that is set when the worker has answered; None if a worker cannot compile the kernel.
        """
        with self._lock:
            if source.name in self._pending:
                return self._pending[source.name][1]
            if source.name in self.failures or self.obstacle() is not None:
                return None
            self._pending[source.name] = source, threading.Event()
            answered = self._pending[source.name][1]
            if self._niceness:  # a call that waits has logged this
                LOG.info("compiling the CPU kernel %r in another process ...", source.name)
            self._send([source])
            return answered

    def compile(self, source: KernelSource) -> str | None:
        """Has a kernel compiled, and waits for it.

        Returns:
            The reason why it was not compiled; None if it was.

        Raises:
            BackendError: the worker crashed or hung while it compiled the kernel; this process would, too.
        """
        answered = self.request(source)
        if answered is not None and not answered.wait(TIMEOUT):
            raise BackendError(f"the process that compiles kernels did not answer for {TIMEOUT:.0f} s")
        if source.name in self.crashes:
            raise BackendError(f"the CPU kernel {source.name!r} was not compiled: {self.failures[source.name]}")
        return self.failures.get(source.name) or (self.obstacle() if answered is None else None)

    def wait(self) -> None:
        """Waits until every requested kernel is compiled or has failed."""
        for _, answered in list(self._pending.values()):
            answered.wait(TIMEOUT)

    def _send(self, sources: list[KernelSource]) -> None:
        """Sends these kernels to the worker; starts one if there is none."""
        try:
            if self._process is None:
                process = _start_process(self._niceness)
                try:
                    threading.Thread(target=self._listen, args=(process,), daemon=True).start()
                except RuntimeError:  # too many threads, or the interpreter is shutting down
                    process.kill()
                    process.communicate()
                    raise
                self._process = process
            assert self._process.stdin is not None
            for source in sources:
                print(json.dumps([source.module, source.maker, *source.words]), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            pass  # it has just ended; the listener sends what is pending to a new one
        except (OSError, ValueError, RuntimeError) as error:
            if CompilingProcess.start_failure is None:
                CompilingProcess.start_failure = f"no compiling process can be started: {error}"
                LOG.warning("%s", CompilingProcess.start_failure)
            for source in sources:
                self._answer(source.name)

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        """Reads the worker's answers until it ends; then sends what is pending to a new one."""
        answers = 0
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                if self._process is not process:
                    continue  # after `forget`: kernels of the same names may be pending at another worker
                try:
                    name, failure, seconds = json.loads(line)
                except (ValueError, TypeError):
                    continue  # the line is not an answer
                answers += 1
                if failure is not None:
                    self._fail(name, failure)
                else:
                    LOG.debug("compiled the CPU kernel %r in %.1f s", name, seconds)
                self._answer(name)
        code = process.wait()
        assert process.stdin is not None
        with self._lock:
            with suppress(OSError):  # unread lines may be left in the pipe
                process.stdin.close()
            if self._process is not process:
                return  # after a fork, or `forget`
            self._process = None
            pending = [source for source, _ in self._pending.values()]
            if pending and (code or not answers):
                self.crashes.add(pending[0].name)
                self._fail(pending[0].name, f"the process that compiles kernels ended (exit code {code})")
                self._answer(pending.pop(0).name)
            if pending:
                self._send(pending)

    def _fail(self, name: str, reason: str) -> None:
        self.failures[name] = reason
        LOG.warning("the CPU kernel %r was not compiled: %s", name, reason)

    def _answer(self, name: str) -> None:
        entry = self._pending.pop(name, None)
        if entry is not None:
            entry[1].set()


def _start_process(niceness: int) -> "subprocess.Popen[str]":
    """Starts a worker, which finds modules exactly where this process finds them."""
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path if isinstance(path, str))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", _PROGRAM, str(niceness)],
        env=os.environ | {"PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # Ctrl-C in a terminal must not reach the worker.
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
