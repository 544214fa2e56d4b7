"""Compiling a kernel, and the process that does it: ``python -m regard.kernels.cpu.compiling NICENESS``.

The process reads one kernel from each line of its input, compiles it, stores it in the cache, and answers with a line
(see `regard.kernels.cpu.compiling_process`). It imports Numba, and no PyTorch.
"""

import hashlib
import json
import os
import queue
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from regard.kernels.cpu import cache
from regard.kernels.cpu.machine_code import MachineCode
from regard.kernels.cpu.target import KERNELS, target

IDLE = 20.0
"""Seconds after which the process ends if no other kernel is requested: until then kernels share compiled parts."""


class Source(NamedTuple):
    """A kernel's source: what it is compiled from.

    Attributes:
        module: where the maker of its body is defined, by its full name.
        maker: its name there.
        words: what it is compiled for, words of letters, digits and underscores.
    """

    module: str
    maker: str
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """The kernel's name."""
        return "_".join((self.maker, *self.words))

    def path(self, folder: Path) -> Path:
        """The kernel's file, whose name tells it from all others of the same target."""
        text = b""
        if not self.module.startswith(f"{KERNELS}."):
            spec = find_spec(self.module)
            assert spec is not None, self.module
            assert spec.origin is not None, self.module
            text = Path(spec.origin).read_bytes()
        key = hashlib.sha256(repr(((self.module, self.maker, *self.words), text)).encode()).hexdigest()[:16]
        return folder / f"{self.name}-{key}.kernel"

    def compile(self) -> tuple[MachineCode, bool]:
        """Compile the kernel in this process.

        Returns:
            the code, and whether other processes can use it: with some of Numba's settings it holds addresses of this
            one.
        """
        from regard.kernels.cpu.bodies.compiler import compiled

        return compiled(getattr(import_module(self.module), self.maker)(*self.words), self.name)


NOT_LASTING = "with Numba's settings, they hold addresses of the process that compiled them"
"""Why some kernels cannot be stored."""


def compile_and_store(source: Source) -> None:
    """Compile a kernel and store it in the cache, unless it is there.

    Raises:
        RuntimeError: it cannot be stored; the message says why.
        OSError: likewise.
    """
    folder = cache.cache_folder()
    if folder is None:
        raise RuntimeError("no cache folder can be written")
    path = source.path(folder)
    try:
        if cache.load(path, target()) is not None:
            return
    except cache.DamagedFileError:
        pass  # it is replaced
    code, is_lasting = source.compile()
    if not is_lasting:
        raise RuntimeError(f"compiled kernels cannot be kept: {NOT_LASTING}")
    cache.store(path, target(), code.content)


def _serve() -> None:
    """Compile what the input's lines say until it ends, or nothing was said for a while.

    The argument says by how much its priority is below that of the process that started it.
    """
    if hasattr(os, "nice"):
        os.nice(int(sys.argv[1]))
    # Only answers go to the output; whatever a library prints goes to the error output.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=IDLE)
        except queue.Empty:
            break
        if not line:
            break
        module, maker, *words = json.loads(line)
        source, started, failure = Source(module, maker, tuple(words)), time.monotonic(), None
        try:
            compile_and_store(source)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        # Where the process that asked has ended, what it asked for serves the next one.
        with suppress(OSError):
            print(json.dumps([source.name, failure, time.monotonic() - started]), file=answers, flush=True)
    # Taking all modules down takes longer than a small kernel to load, and somebody may wait.
    os._exit(0)


def _read_lines(lines: "queue.Queue[str]") -> None:
    for line in sys.stdin:
        lines.put(line)
    lines.put("")


if __name__ == "__main__":
    _serve()
