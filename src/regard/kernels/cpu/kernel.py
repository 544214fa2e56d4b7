"""Kernels: machine code that is compiled once for a machine, and stored.

It is stored in a folder of the user's cache (`cache`) whose name identifies all that the code depends on (`target`), so
that code of another version or processor is never loaded. Another process (`compiling_process`) compiles the missing
kernels: this process loads machine code, and no compiler. It compiles a kernel that a call waits for only if the other
process cannot be started or cannot store it.
"""

import logging
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache as cached

from regard.errors import BackendError
from regard.files.fork_lock import ForkLock
from regard.kernels.availability import must_wait, why_missing
from regard.kernels.cpu import cache
from regard.kernels.cpu.cache import DamagedFileError
from regard.kernels.cpu.compiling import NOT_PORTABLE, KernelSource
from regard.kernels.cpu.compiling_process import BACKGROUND, FOREGROUND
from regard.kernels.cpu.machine_code import MachineCode
from regard.kernels.cpu.target import target

if why_missing() is not None:
    raise BackendError(f"there are no compiled kernels: {why_missing()}")

LOG = logging.getLogger("regard")

_COMPILER = ForkLock()
"""Locked while LLVM links or Numba compiles in this process. A fork waits for it, so that a child can do both."""


class Kernel:
    """A function of one address, loaded on first use, and compiled if it is missing.

    Args:
        module: full name of the module that defines the maker of the kernel's body.
        maker: name of the maker; called with the words, it returns the body, ``(address) -> None``, in the subset of
            Python that Numba compiles. Every thread calls the body with the address of the same arguments.
        words: what the kernel is specialized for: words, after which it is named, or a program in JSON.
    """

    def __init__(self, module: str, maker: str, *words: str):
        self.source = KernelSource(module, maker, words)
        self.name = self.source.name
        self._address: int | None = None
        self._content: bytes | None = None  # the content of its file, from reading until linking
        self._failure: BackendError | None = None

    @property
    def is_compiled(self) -> bool:
        """Whether the kernel is loaded, or stored on disk, so that a call does not wait for a compiler."""
        if self._address is None and self._content is None:
            folder = cache.cache_folder()
            # In an unreadable folder no file exists for `os.path.exists`; a path's own method would raise.
            if folder is not None and os.path.exists(path := self.source.path(folder)):
                with suppress(DamagedFileError):
                    self._content = cache.load(path, target())
        return self._address is not None or self._content is not None

    @property
    def address(self) -> int:
        """The address of the machine code."""
        return self.load() if self._address is None else self._address

    def load(self) -> int:
        """Loads the machine code, compiled first if it is missing, and returns its address.

        If two threads load it at once, each links code of its own, and both addresses are valid.
        """
        if self._failure is not None:
            raise self._failure
        address = self._load_stored()
        self._content = None
        if address is None:
            try:
                address = self._compile()
            except BackendError as error:
                self._failure = error
                raise
        self._address = address
        return address

    def _load_stored(self) -> int | None:
        """Returns the address of the code in the cache; if there is none, logs that and returns None."""
        folder = cache.cache_folder()
        storage = "for this process only: no cache folder is writable" if folder is None else f"stored in {folder}"
        if folder is not None:
            path = self.source.path(folder)
            try:
                content = self._content or cache.load(path, target())
                if content is not None:
                    with _COMPILER:
                        return MachineCode.from_content(content).link()
            except (DamagedFileError, RuntimeError) as error:
                LOG.warning("the cached kernel %s is damaged (%s): compiling it again ...", path, error)
                return None
        LOG.warning("compiling the CPU kernel %r for this machine (%s) ...", self.name, storage)
        return None

    def _compile(self) -> int:
        """Has a worker compile the kernel, or compiles it here if there is none; returns its address."""
        started = time.monotonic()
        failure = FOREGROUND.compile(self.source)
        address = None if failure is not None else self._load_stored()
        if address is None:
            address = self._compile_here()
        LOG.warning("compiled %r in %.1f s", self.name, time.monotonic() - started)
        return address

    def _compile_here(self) -> int:
        try:
            with _COMPILER:
                code, is_portable = self.source.compile()
        except Exception as error:
            raise BackendError(
                f"the CPU kernel {self.name!r} cannot be compiled ({type(error).__name__}: {error}); "
                "choose another backend"
            ) from error
        folder = cache.cache_folder()
        if not is_portable:
            _warn_once(f"compiled kernels cannot be stored: {NOT_PORTABLE}")
        elif folder is not None:
            try:
                cache.store(self.source.path(folder), target(), code.content)
            except OSError as error:
                _warn_once(f"compiled kernels cannot be stored in {folder}: {error.strerror or error}")
        with _COMPILER:
            return code.link()


def delay(kernels: Iterable[Kernel]) -> str | None:
    """Returns the reason why a call would have to wait for one of these kernels; None if all are compiled."""
    missing = [kernel for kernel in kernels if not kernel.is_compiled]
    if not missing:
        return None
    if any(process.is_compiling(kernel.name) for kernel in missing for process in (BACKGROUND, FOREGROUND)):
        return "'cpu' is being compiled"
    failures = [BACKGROUND.failures[kernel.name] for kernel in missing if kernel.name in BACKGROUND.failures]
    obstacle = failures[0] if failures else BACKGROUND.obstacle()
    if obstacle is not None:
        return f"its kernels cannot be compiled in the background: {obstacle}"
    return "'cpu' has to be compiled; the first call starts that in the background"


def are_usable(kernels: Iterable[Kernel]) -> bool:
    """Whether a caller with an alternative may use these kernels: they are compiled, or it has to wait for them.

    Missing kernels are compiled in the background.
    """
    missing = [kernel for kernel in kernels if not kernel.is_compiled]
    if not missing or must_wait():
        return True
    request(missing)
    return False


def request(kernels: Iterable[Kernel], awaited: bool = False) -> None:
    """Has the missing ones of these kernels compiled.

    Args:
        awaited: whether a call is going to wait for them.
    """
    process = FOREGROUND if awaited else BACKGROUND
    for kernel in kernels:
        if not kernel.is_compiled:
            process.request(kernel.source)


@cached
def _warn_once(message: str) -> None:
    LOG.warning("%s", message)
