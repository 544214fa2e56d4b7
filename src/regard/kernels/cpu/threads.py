"""Running a kernel on all threads that PyTorch would use, and on no others.

PyTorch keeps OpenMP threads, which go on spinning for a while after their work is done. Other threads beside them would
share the processors with those spinning ones. So kernels run on PyTorch's own threads, entered through the C interface
of the OpenMP library that PyTorch brought along; where that is not found, on plain Python threads.

Every thread calls the kernel with the same parameters, among them a counter: each takes the next task until none is
left. A task writes nothing that another one reads or writes, so results don't depend on who does what.
"""

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from regard.kernels.cpu.kernel import Kernel

SERIAL_WORK = 1 << 17
"""Below this number of elementary operations, waking other threads costs more than it saves."""


def run(kernel: Kernel, parameters: int, tasks: int, work: float) -> None:
    """Run a kernel and wait until its tasks are done; the interpreter is free meanwhile.

    Args:
        kernel: takes tasks from the counter in its parameters.
        parameters: their address.
        tasks: how many there are.
        work: a rough number of elementary operations.
    """
    threads = min(torch.get_num_threads(), tasks) if work >= SERIAL_WORK else 1
    if threads <= 1:
        function_at(kernel.address)(parameters)
        return
    enter = openmp()
    if enter is not None:
        enter(kernel.address, parameters, threads, 0)
        return
    call = function_at(kernel.address)
    others = [threading.Thread(target=call, args=(parameters,)) for _ in range(threads - 1)]
    for thread in others:
        thread.start()
    call(parameters)
    for thread in others:
        thread.join()


@cache
def function_at(address: int) -> Callable[[int], None]:
    """A kernel's machine code as a function; it runs without the interpreter's lock."""
    return ctypes.CFUNCTYPE(None, ctypes.c_int64)(address)


@cache
def openmp() -> Callable[[int, int, int, int], None] | None:
    """``GOMP_parallel(function, data, threads, flags)`` of the library that PyTorch itself runs on; None without one.

    It is the entry that compilers generate calls to for ``#pragma omp parallel``: GCC's library defines it, LLVM's and
    Intel's offer it for compatibility.
    """
    enter = symbol("GOMP_parallel") if torch.backends.openmp.is_available() else None
    if enter is None:
        return None
    enter.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    enter.restype = None
    return enter


@cache
def symbol(name: str):  # type: ignore[no-untyped-def]
    """A C function of PyTorch's CPU library or of those it is linked with; None if there is none."""
    library = _library()
    return None if library is None else getattr(library, name, None)


@cache
def _library() -> ctypes.CDLL | None:
    folder = Path(torch.__file__).parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib", "torch_cpu.dll"):
        if (folder / name).exists():
            try:
                return ctypes.CDLL(str(folder / name))
            except OSError:
                return None
    return None
