"""Kernels: machine code that is compiled once for a machine, and kept.

It is kept in a folder of the user's cache (`cache`) that is named after all that the code depends on (`target`), so
code of another version or processor is never loaded. What is missing there is compiled by another process
(`compiling_process`): this one loads machine code and no compiler. A kernel that a call waits for is compiled here only
if the other process cannot be started or cannot store it.
"""

import logging
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache as cached

from regard.errors import BackendError
from regard.fork_lock import ForkLock
from regard.kernels.availability import must_wait, why_missing
from regard.kernels.cpu import cache
from regard.kernels.cpu.cache import DamagedFileError
from regard.kernels.cpu.compiling import NOT_LASTING, Source
from regard.kernels.cpu.compiling_process import BACKGROUND, FOREGROUND
from regard.kernels.cpu.machine_code import MachineCode
from regard.kernels.cpu.target import target

if why_missing() is not None:
    raise BackendError(f"there are no compiled kernels: {why_missing()}")

LOG = logging.getLogger("regard")

_COMPILER = ForkLock()
"""Held while LLVM links and Numba compiles in this process: a fork waits for it, so that a child can do both."""


class Kernel:
    """A function of one address, loaded when it is first wanted, and compiled where it is missing.

    Args:
        module: where the maker of its body is defined, by its full name.
        maker: its name there; called with the words, it gives the body, ``(address) -> None``, in the part of Python
            that Numba compiles. Every thread calls that with the address of the same arguments.
        words: what it is compiled for, words of letters, digits and underscores. The kernel is named after them.
    """

    def __init__(self, module: str, maker: str, *words: str):
        self.source = Source(module, maker, words)
        self.name = self.source.name
        self._address: int | None = None
        self._content: bytes | None = None  # of its file, once it was read and until it is linked
        self._failure: BackendError | None = None

    @property
    def is_loaded(self) -> bool:
        return self._address is not None

    @property
    def is_compiled(self) -> bool:
        """Whether it is loaded, or kept on disk, so that a call does not wait for a compiler."""
        if self._address is None and self._content is None:
            folder = cache.cache_folder()
            # In a folder that may not be looked into nothing exists; a path's own method would raise.
            if folder is not None and os.path.exists(path := self.source.path(folder)):
                with suppress(DamagedFileError):
                    self._content = cache.load(path, target())
        return self._address is not None or self._content is not None

    @property
    def address(self) -> int:
        """The address of the machine code."""
        return self.load() if self._address is None else self._address

    def load(self) -> int:
        """Load the machine code, and have it compiled if it is missing; its address.

        Two threads may load it at once: each gets an address of its own code, and both are good.

        Raises:
            BackendError: the kernel cannot be compiled.
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
        """The address of the code that the cache has; None where it has none, which is said."""
        folder = cache.cache_folder()
        where = "for this process only: no cache folder can be written" if folder is None else f"kept in {folder}"
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
        LOG.warning("compiling the CPU kernel %r for this machine (%s) ...", self.name, where)
        return None

    def _compile(self) -> int:
        """Have the kernel compiled by the worker, or compile it here if there is none; its address."""
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
                code, is_lasting = self.source.compile()
        except Exception as error:
            raise BackendError(
                f"the CPU kernel {self.name!r} cannot be compiled ({type(error).__name__}: {error}); "
                "choose another backend"
            ) from error
        folder = cache.cache_folder()
        if not is_lasting:
            _say_once(f"compiled kernels cannot be kept: {NOT_LASTING}")
        elif folder is not None:
            try:
                cache.store(self.source.path(folder), target(), code.content)
            except OSError as error:
                _say_once(f"compiled kernels cannot be kept in {folder}: {error.strerror or error}")
        with _COMPILER:
            return code.link()


def delay(kernels: Iterable[Kernel]) -> str | None:
    """Why a call would have to wait for one of these kernels, in words; None if all of them are compiled."""
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
    """Whether a caller that has another way may use these kernels: if they are compiled, or if it has to wait for them.

    Kernels that are missing are compiled in the background.
    """
    missing = [kernel for kernel in kernels if not kernel.is_compiled]
    if not missing or must_wait():
        return True
    request(missing)
    return False


def request(kernels: Iterable[Kernel], awaited: bool = False) -> None:
    """Have kernels compiled that are missing.

    Args:
        kernels: in the order in which they are wanted.
        awaited: whether a call is going to wait for them.
    """
    process = FOREGROUND if awaited else BACKGROUND
    for kernel in kernels:
        if not kernel.is_compiled:
            process.request(kernel.source)


@cached
def _say_once(message: str) -> None:
    LOG.warning("%s", message)
