"""Compiling kernels once for a machine: how, what the machine code depends on, and what is said while it lasts.

Machine code is kept in a folder of the user's cache (`cache`) that is named after all that the code depends on, so code
of another version or processor is never found. Where no folder can be used, kernels are compiled once for each process.
"""

import gc
import hashlib
import inspect
import logging
import platform
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import binding as llvm
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys

from regard.errors import BackendError
from regard.kernels.availability import why_missing
from regard.kernels.cpu.cache import DamagedFileError, MachineCode, load, open_folder, store
from regard.kernels.cpu.parts import ARITHMETIC, KernelCompiler

if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise BackendError(f"there are no compiled kernels: {why_missing()}")

LOG = logging.getLogger("regard")

_LOCK = threading.RLock()

_SETTINGS = (
    "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "ENABLE_AVX", "CPU_NAME", "CPU_FEATURES", "USING_SVML", "BOUNDSCHECK",
    "DEBUGINFO_DEFAULT", "EXTEND_VARIABLE_LIFETIMES", "LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS", "DEBUG_NRT",
    "NRT_STATS",
)  # fmt: skip
"""What a user may set in Numba that changes machine code."""


class Kernel:
    """A function of one address, compiled when it is first wanted.

    Args:
        body: ``(address) -> None``, in the part of Python that Numba compiles; every thread calls it with the address
            of the same parameters. What it encloses must be numbers, strings, types and functions.
    """

    def __init__(self, body: Callable[[int], None]):
        self.name = body.__name__
        self._body = body
        self._address: int | None = None
        # Machine code lives as long as its owner.
        self._owner: Any = None

    @property
    def address(self) -> int:
        """Of the machine code."""
        if self._address is None:
            with _LOCK:
                if self._address is None:
                    self._address = self._load_or_compile()
        return self._address

    def _load_or_compile(self) -> int:
        folder = cache_folder()
        if folder is None:
            LOG.warning(
                "compiling the CPU kernel %r for this machine (for this process only: no cache folder can be written) "
                "...",
                self.name,
            )
            return self._compile()
        key = hashlib.sha256(_identity(self._body).encode()).hexdigest()[:16]
        path = folder / f"{re.sub(r'[^a-zA-Z0-9]', '_', self.name)}-{key}.kernel"
        try:
            found = load(path, target())
            if found is not None:
                return self._link(MachineCode.from_content(found))
        except (DamagedFileError, RuntimeError) as error:
            LOG.warning("the cached kernel %s is damaged (%s): compiling it again ...", path, error)
        else:
            LOG.warning("compiling the CPU kernel %r for this machine (kept in %s) ...", self.name, folder)
        return self._compile(path)

    def _compile(self, path: Path | None = None) -> int:
        """Compile the kernel, and store it if there is a path."""
        started = time.monotonic()
        signature: Any = numba.types.void(numba.types.int64)
        options = {"error_model": "numpy", "fastmath": ARITHMETIC, "pipeline_class": KernelCompiler}
        with _collection_paused():
            compiled: Any = numba.cfunc(signature, **options)(self._body)
        LOG.warning("compiled %r in %.1f s", self.name, time.monotonic() - started)
        library = compiled._library
        if path is not None and library.has_dynamic_globals:
            _say_once("compiled kernels cannot be kept: with Numba's settings, they hold addresses of this process")
        elif path is not None:
            try:
                store(path, target(), MachineCode(compiled.native_name, library._get_compiled_object()).content)
            except OSError as error:
                _say_once(f"compiled kernels cannot be kept in {path.parent}: {error.strerror or error}")
        self._owner = compiled
        return compiled.address

    def _link(self, found: MachineCode) -> int:
        """Make stored machine code ready to run."""
        # What kernels call of Numba's own, such as its memory allocation, has to be known before they are linked.
        rtsys.initialize(cpu_target.target_context)
        triple = llvm.Target.from_triple(llvm.get_process_triple())
        # An engine for each kernel, since parts of different kernels may have the same name.
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), triple.create_target_machine())
        engine.add_object_file(llvm.ObjectFileRef.from_data(found.code))
        engine.finalize_object()
        address = engine.get_function_address(found.symbol)
        if not address:
            raise RuntimeError(f"it has no function {found.symbol!r}")
        self._owner = engine
        return address


@contextmanager
def _collection_paused() -> Iterator[None]:
    """Leave reference cycles where they are: a compiler makes millions of objects, and looking through them all again
    and again takes a sixth of its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@cache
def cache_folder() -> Path | None:
    """Where machine code is kept; None if nothing can be."""
    return open_folder(hashlib.sha256(target()).hexdigest()[:16])


@cache
def _say_once(message: str) -> None:
    LOG.warning("%s", message)


_LASTING = (int, float, str, bytes, type, np.generic, np.dtype, np.ufunc, numba.types.Type, BuiltinFunctionType)
"""Types of values that look the same in every process."""


def _identity(value: Any) -> str:
    """What tells a kernel, or a part of one, from others of the same sources: its place in them, and what it encloses.

    Raises:
        TypeError: it encloses something that has no lasting name.
    """
    function = inspect.unwrap(value) if callable(value) else value
    if isinstance(function, FunctionType):
        enclosed = [cell.cell_contents for cell in function.__closure__ or ()] + list(function.__defaults__ or ())
        place = f"{function.__module__} {function.__qualname__} {function.__code__.co_firstlineno}"
        return f"{place} {function.__code__.co_code.hex()} {_identity(tuple(enclosed))}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_identity, value))})"
    if value is None or isinstance(value, _LASTING):
        return f"{type(value).__qualname__} {value!r}"
    raise TypeError(f"a kernel encloses numbers, strings, types and functions; got {value!r}")


def _sources() -> bytes:
    kernels = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for source in sorted(kernels.rglob("*.py")):
        digest.update(f"{source.relative_to(kernels)}\0".encode())
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.digest()


# Taken before any kernel is imported: sources that are edited later are not those that this process compiles.
_SOURCES = _sources()


def target() -> bytes:
    """Everything that machine code depends on: the sources, the compiler and its settings, and the processor."""
    try:
        features = llvm.get_host_cpu_features().flatten()
    except RuntimeError:
        # As Numba does where LLVM cannot tell.
        features = ""
    versions = sys.implementation.cache_tag, platform.python_version(), numba.__version__, llvmlite.__version__
    machine = sys.platform, platform.machine(), llvm.get_process_triple(), llvm.get_host_cpu_name(), features
    settings = [str(getattr(numba.config, name, None)) for name in _SETTINGS]
    return repr((versions, np.__version__, machine, settings, _SOURCES)).encode()
