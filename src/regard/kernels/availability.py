"""What there is here for compiled kernels, and who waits until they are compiled. Asking does not import Numba."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

_NUMBA = find_spec("numba") is not None


def why_missing() -> str | None:
    """Why there are no compiled kernels; None if there are."""
    if not _NUMBA:
        return "Numba is not installed (pip install 'regard[cpu]')"
    return "Numba is told not to compile; unset NUMBA_DISABLE_JIT" if _compiles_nothing() else None


def _compiles_nothing() -> bool:
    """Whether Numba's settings switch its compiler off; they are read when Numba is imported, and not again."""
    settings = getattr(sys.modules.get("numba"), "config", None)
    if settings is not None:
        return bool(settings.DISABLE_JIT)
    try:
        return bool(int(os.environ.get("NUMBA_DISABLE_JIT", "0")))
    except ValueError:
        # Numba warns and goes on.
        return False


@cache
def is_slow_for_mkl() -> bool:
    """Whether this is a processor of AMD and PyTorch's BLAS is Intel's MKL, which uses half of its vectors there."""
    import torch

    if why_missing() is not None or not torch.backends.mkl.is_available():
        return False
    from regard.kernels.cpu.target import is_made_by_amd

    return is_made_by_amd()


@cache
def multiplies_half_in_tiles() -> bool:
    """Whether the processor has matrix instructions for half precision (Intel's AMX), which PyTorch's kernels use."""
    import torch

    has = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return has is not None and bool(has())


@cache
def microkernel_is_faster() -> bool:
    """Whether the microkernel of `regard.kernels.cpu` multiplies float32 matrices faster than PyTorch's BLAS.

    It does on AMD's processors with AVX-512 where that BLAS is Intel's MKL, which uses vectors of 256 bits there (on a
    Zen 4 attention took 0.83 to 0.98 of the time), and wherever PyTorch does not export its BLAS.
    """
    import torch

    if torch.backends.cpu.get_cpu_capability() != "AVX512" or why_missing() is not None:
        return False
    if is_slow_for_mkl():
        return True
    from regard.kernels.cpu.libraries import gemm_address

    return not gemm_address(torch.float32)


_WAITING: list[object] = []
"""An entry for each context of `kernels_awaited` that is active, in any thread."""


@contextmanager
def kernels_awaited() -> Iterator[None]:
    """In this context ``backend="auto"`` waits for a kernel that is not compiled, so that no bit depends on a race.

    For trainings, tests and measurements. It holds for all threads of the process.
    """
    _WAITING.append(None)
    try:
        yield
    finally:
        _WAITING.pop()


def must_wait() -> bool:
    """Whether a call that could do without a kernel has to wait until it is compiled.

    That is so in `kernels_awaited`, under ``torch.use_deterministic_algorithms(True)``, and while PyTorch records for
    activation checkpointing (``use_reentrant=False``), whose second pass must run what the first one ran.
    """
    import torch

    if _WAITING or torch.are_deterministic_algorithms_enabled():
        return True
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None  # pyright: ignore[reportAttributeAccessIssue]
