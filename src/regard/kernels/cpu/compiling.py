"""Compiling a kernel, and the process that does it: ``python -m regard.kernels.cpu.compiling NICENESS``.

The process reads one kernel from each line of its input, compiles it, stores it in the cache, and answers with a line
(see `regard.kernels.cpu.compiling_process`). It imports Numba, but not PyTorch.
"""

import hashlib
import json
import os
import queue
import re
import sys
import threading
import time
from contextlib import nullcontext, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from regard.kernels.cpu import cache
from regard.kernels.cpu.machine_code import MachineCode
from regard.kernels.cpu.target import KERNELS, target

IDLE_SECONDS = 20.0
"""Seconds without a request after which the process ends. Until then, kernels share compiled parts."""

_WORD = re.compile(r"\w+")


class KernelSource(NamedTuple):
    """The source of a kernel."""

    module: str
    maker: str
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """The kernel's name; a word that is not one of letters, digits and underscores has a digest in it."""
        words = (
            word if _WORD.fullmatch(word) else hashlib.sha256(word.encode()).hexdigest()[:16] for word in self.words
        )
        return "_".join((self.maker, *words))

    def path(self, folder: Path) -> Path:
        """Returns the kernel's file, whose name is unique among all kernels for the same target."""
        module_source = b""
        if not self.module.startswith(f"{KERNELS}."):
            spec = find_spec(self.module)
            assert spec is not None, self.module
            assert spec.origin is not None, self.module
            module_source = Path(spec.origin).read_bytes()
        key = hashlib.sha256(repr(((self.module, self.maker, *self.words), module_source)).encode()).hexdigest()[:16]
        return folder / f"{self.name}-{key}.kernel"

    def compile(self) -> tuple[MachineCode, bool]:
        """Compiles the kernel in this process.

        Returns:
            The code, and whether other processes can use it: with some of Numba's settings it contains addresses of
            this process.
        """
        from regard.kernels.cpu.bodies.compiler import compiled

        return compiled(getattr(import_module(self.module), self.maker)(*self.words), self.name)


NOT_PORTABLE = "with Numba's settings, they contain addresses of the process that compiled them"
"""Why some kernels cannot be stored."""


def compile_and_store(source: KernelSource) -> None:
    """Compiles a kernel and stores it in the cache, unless it is stored already.

    Raises:
        RuntimeError, OSError: the kernel cannot be stored; the message says why.
    """
    folder = cache.cache_folder()
    if folder is None:
        raise RuntimeError("no cache folder is writable")
    path = source.path(folder)
    try:
        if cache.load(path, target()) is not None:
            return
    except cache.DamagedFileError:
        pass  # the file is replaced below
    code, is_portable = source.compile()
    if not is_portable:
        raise RuntimeError(f"compiled kernels cannot be stored: {NOT_PORTABLE}")
    cache.store(path, target(), code.content)


def _serve() -> None:
    """Compiles the kernels that the input's lines name, until the input ends or no request has come for `IDLE_SECONDS`
    seconds.

    The command line's argument is the niceness relative to the process that started this one.
    """
    if hasattr(os, "nice"):
        os.nice(int(sys.argv[1]))
    # Only answers go to stdout; whatever a library prints goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            break
        if not line:
            break
        module, maker, *words = json.loads(line)
        source, started, failure = KernelSource(module, maker, tuple(words)), time.monotonic(), None
        try:
            # No call waits for a kernel at low priority, and another process may be compiling the same one.
            with cache.one_process(cache.cache_folder()) if int(sys.argv[1]) else nullcontext():
                compile_and_store(source)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        # If the requesting process has ended, the kernel serves the next one.
        with suppress(OSError):
            print(json.dumps([source.name, failure, time.monotonic() - started]), file=answers, flush=True)
    # A regular exit takes longer than loading a small kernel, and a process may be waiting.
    os._exit(0)


def _read_lines(lines: "queue.Queue[str]") -> None:
    for line in sys.stdin:
        lines.put(line)
    lines.put("")


if __name__ == "__main__":
    _serve()
