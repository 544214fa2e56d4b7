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
    """Compile a body, ``(address) -> None``, under a name.

    Returns:
        the code, and whether it is good for other processes than this one.
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
    """Leave reference cycles where they are: a compiler makes millions of objects, and looking through them all again
    and again takes a sixth of its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Plain(errors._ColorScheme):
    """Messages as they are."""

    def _same(self, message: str) -> str:
        return message

    code = errmsg = filename = indicate = highlight = reset = _same


@contextmanager
def _plain_messages() -> Iterator[None]:
    """Numba tries function after function, and writes a message for each that does not fit. Where `colorama` is
    installed, their colours take a twentieth of a compilation's time."""
    before = errors.termcolor()
    errors._termcolor_inst = _Plain()
    try:
        yield
    finally:
        errors._termcolor_inst = before
