"""Compiling a kernel's body."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
from numba.core import errors as numba_errors

from regard.kernels.cpu.bodies.parts import ARITHMETIC, KernelCompiler
from regard.kernels.cpu.machine_code import MachineCode

errors: Any = numba_errors


def compiled(body: Callable[[int], None], name: str) -> tuple[MachineCode, bool]:
    """Compiles a body, ``(address) -> None``, under a name.

    Returns:
        The code, and whether other processes can use it.
    """
    body.__name__ = name
    signature: Any = numba.types.void(numba.types.int64)
    options = {"error_model": "numpy", "fastmath": ARITHMETIC, "pipeline_class": KernelCompiler}
    with _collection_paused(), _plain_messages():
        function: Any = numba.cfunc(signature, **options)(body)
    library = function._library
    return MachineCode(function.native_name, library._get_compiled_object()), not library.has_dynamic_globals


@contextmanager
def _collection_paused() -> Iterator[None]:
    """Pauses garbage collection: a compiler creates millions of objects, and traversing them takes a sixth of its
    time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _PlainScheme(errors._ColorScheme):
    """Messages without colours."""

    def _unchanged(self, message: str) -> str:
        return message

    code = errmsg = filename = indicate = highlight = reset = _unchanged


@contextmanager
def _plain_messages() -> Iterator[None]:
    """Switches colours off: Numba writes a message for each overload that does not fit, and if `colorama` is
    installed, colouring these takes a twentieth of a compilation's time."""
    scheme = errors.termcolor()
    errors._termcolor_inst = _PlainScheme()
    try:
        yield
    finally:
        errors._termcolor_inst = scheme
