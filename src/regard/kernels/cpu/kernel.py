"""Kernels: machine code that is compiled once for a machine, and kept.

It is kept in a folder of the user's cache (`cache`) that is named after all that the code depends on (`target`), so
code of another version or processor is never found. Where no folder can be used, kernels are compiled once for each
process.

The compiler is loaded when a kernel has to be compiled, and not before: loading it takes longer than a usual call, and
more memory.
"""

import hashlib
import logging
import os
import time
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from regard.errors import BackendError
from regard.kernels.availability import LOCK, why_missing
from regard.kernels.cpu import cache as files
from regard.kernels.cpu.cache import DamagedFileError, MachineCode
from regard.kernels.cpu.compiling_process import CompilingProcess, spare_processors
from regard.kernels.cpu.object_code import link
from regard.kernels.cpu.target import KERNELS, target

if why_missing() is not None:
    raise BackendError(f"there are no compiled kernels: {why_missing()}")

LOG = logging.getLogger("regard")


MEANWHILE = 2
"""Kernels that another process compiles in about the time that the first one takes here. Further ones are not left to
it: this process compiles them faster, since kernels have parts in common."""


class Kernel:
    """A function of one address, loaded or compiled when it is first wanted.

    Args:
        module: where the maker of its body is defined, by its full name.
        maker: its name there; called with the words, it gives the body, ``(address) -> None``, in the part of Python
            that Numba compiles. Every thread calls that with the address of the same record.
        words: what it is compiled for, words of letters, digits and underscores. The kernel is named after them.
    """

    def __init__(self, module: str, maker: str, *words: str):
        self.name = "_".join((maker, *words))
        self.place = module, maker, *words
        self._address: int | None = None
        self._elsewhere: CompilingProcess | None = None
        # Machine code lives as long as its owner.
        self._owner: Any = None

    @property
    def is_loaded(self) -> bool:
        return self._address is not None

    @property
    def is_compiled(self) -> bool:
        """Whether it is loaded, or kept on disk."""
        folder = None if self.is_loaded else cache_folder()
        return self.is_loaded or (folder is not None and self._is_kept(folder))

    @property
    def address(self) -> int:
        """Of the machine code."""
        return self.load() if self._address is None else self._address

    def load(self) -> int:
        """Load the machine code, or compile it, unless that is done; its address."""
        with LOCK:
            if self._address is None:
                self._address, self._owner = self._load_or_compile()
            return self._address

    def _load_or_compile(self) -> tuple[int, Any]:
        """The address of the machine code, and its owner."""
        if self._elsewhere is not None:
            self._elsewhere.wait_for(self.name)
        folder = cache_folder()
        if folder is None:
            LOG.warning(
                "compiling the CPU kernel %r for this machine (for this process only: no cache folder can be written) "
                "...",
                self.name,
            )
            return self._compile()
        path = self._path(folder)
        try:
            found = files.load(path, target())
            if found is not None:
                return link(MachineCode.from_content(found))
        except (DamagedFileError, RuntimeError) as error:
            LOG.warning("the cached kernel %s is damaged (%s): compiling it again ...", path, error)
        else:
            LOG.warning("compiling the CPU kernel %r for this machine (kept in %s) ...", self.name, folder)
        return self._compile(path)

    def _is_missing(self, folder: Path) -> bool:
        return not self.is_loaded and self._elsewhere is None and not self._is_kept(folder)

    def _is_kept(self, folder: Path) -> bool:
        # In a folder that may not be looked into nothing exists; a path's own method would raise.
        return os.path.exists(self._path(folder))

    def _path(self, folder: Path) -> Path:
        return folder / f"{self.name}-{self._fingerprint()}.kernel"

    def _fingerprint(self) -> str:
        """What tells the kernel from all others of the same target."""
        module = self.place[0]
        source = b""
        if not module.startswith(f"{KERNELS}."):
            spec = find_spec(module)
            assert spec is not None, module
            assert spec.origin is not None, module
            source = Path(spec.origin).read_bytes()
        return hashlib.sha256(repr((self.place, source)).encode()).hexdigest()[:16]

    def _compile(self, path: Path | None = None) -> tuple[int, Any]:
        """Compile the kernel, and store it if there is a path."""
        started = time.monotonic()
        from regard.kernels.cpu.bodies.compiler import compiled

        module, maker, *words = self.place
        code = compiled(getattr(import_module(module), maker)(*words), self.name)
        LOG.warning("compiled %r in %.1f s", self.name, time.monotonic() - started)
        if path is not None and code.found is None:
            _say_once("compiled kernels cannot be kept: with Numba's settings, they hold addresses of this process")
        elif path is not None and code.found is not None:
            try:
                files.store(path, target(), code.found.content)
            except OSError as error:
                _say_once(f"compiled kernels cannot be kept in {path.parent}: {error.strerror or error}")
        return code.address, code.owner


def compile_together(first: Kernel, *others: Kernel) -> None:
    """Compile a kernel here, and meanwhile others that are missing in other processes, as far as there are processors.

    Where that is not possible, or the first one is there, nothing is done: each kernel is compiled when it is wanted.

    Args:
        first: takes the longest of those that are wanted at once.
        others: in the order in which they are wanted.
    """
    folder, spare = cache_folder(), spare_processors()
    if folder is None or not spare or not first._is_missing(folder) or not files.is_writable(folder):
        return
    with LOCK:
        missing = [kernel for kernel in others if kernel._is_missing(folder)]
        for start in range(0, len(missing), MEANWHILE)[:spare]:
            _compile_elsewhere(missing[start : start + MEANWHILE], folder)
        if missing:
            first.load()


def _compile_elsewhere(kernels: Sequence[Kernel], folder: Path) -> None:
    """Start a process that compiles these kernels."""
    try:
        process = CompilingProcess([kernel.place for kernel in kernels])
    except (OSError, ValueError) as error:
        LOG.debug("no process can be started that compiles kernels: %s", error)
        return
    for kernel in kernels:
        kernel._elsewhere = process
    names = ", ".join(repr(kernel.name) for kernel in kernels)
    LOG.warning("compiling for this machine in another process: %s (kept in %s) ...", names, folder)


@cache
def cache_folder() -> Path | None:
    """Where machine code is kept; None if nothing can be."""
    return files.open_folder(hashlib.sha256(target()).hexdigest()[:16])


@cache
def _say_once(message: str) -> None:
    LOG.warning("%s", message)
