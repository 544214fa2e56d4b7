"""Whether compiled kernels are available, and which calls wait for them. Nothing here imports Numba."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

NUMBA = "numba>=0.60,<0.69"
"""What pip installs together with regard, wherever it has a wheel."""
_NUMBA = find_spec("numba") is not None


def why_missing() -> str | None:
    """Returns the reason why there are no compiled kernels; None if there are."""
    if not _NUMBA:
        return f"Numba is not installed (pip install '{NUMBA}')"
    return "Numba's compiler is switched off; unset NUMBA_DISABLE_JIT" if _is_switched_off() else None


def _is_switched_off() -> bool:
    """Whether Numba's settings switch its compiler off. Numba reads them once, when it is imported."""
    settings = getattr(sys.modules.get("numba"), "config", None)
    if settings is not None:
        return bool(settings.DISABLE_JIT)
    try:
        return bool(int(os.environ.get("NUMBA_DISABLE_JIT", "0")))
    except ValueError:
        # Numba warns and ignores the setting.
        return False


@cache
def is_slow_for_mkl() -> bool:
    """Whether the processor is AMD's and PyTorch's BLAS is Intel's MKL, which uses half of the vector width there."""
    import torch

    if why_missing() is not None or not torch.backends.mkl.is_available():
        return False
    from regard.kernels.cpu.target import is_made_by_amd

    return is_made_by_amd()


@cache
def multiplies_half_in_tiles() -> bool:
    """Whether the processor has matrix instructions for half precision (Intel's AMX), which PyTorch's kernels use."""
    import torch

    is_supported = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return is_supported is not None and bool(is_supported())


@cache
def multiplies_bfloat16() -> bool:
    """Whether the processor multiplies vectors of bfloat16 (AVX512_BF16), which the kernels of `regard.kernels.cpu`
    use."""
    import torch

    is_supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return is_supported is not None and bool(is_supported())


@cache
def microkernel_is_faster() -> bool:
    """Whether the microkernel of `regard.kernels.cpu` multiplies float32 matrices faster than PyTorch's BLAS.

    It does on AMD processors with AVX-512 if that BLAS is Intel's MKL, which uses 256-bit vectors there (on a Zen 4,
    attention took 0.83 to 0.98 of the time), and wherever PyTorch does not export its BLAS.
    """
    import torch

    if torch.backends.cpu.get_cpu_capability() != "AVX512" or why_missing() is not None:
        return False
    if is_slow_for_mkl():
        return True
    from regard.kernels.cpu.libraries import gemm_address

    return not gemm_address(torch.float32)


_WAITING: list[object] = []
"""One entry for each active `kernels_awaited` context, in any thread."""


@contextmanager
def kernels_awaited() -> Iterator[None]:
    """Returns a context in which ``backend="auto"`` waits for kernels that are not compiled, so that no bit depends on
    a race.

    It is meant for trainings, tests and measurements, and applies to all threads of the process.
    """
    _WAITING.append(None)
    try:
        yield
    finally:
        _WAITING.pop()


def must_wait() -> bool:
    """Whether a call waits for a kernel even though another backend could serve it.

    It does in `kernels_awaited`, under ``torch.use_deterministic_algorithms(True)``, and while PyTorch records for
    activation checkpointing (``use_reentrant=False``), whose second pass must run the same
    backend as the first one.
    """
    import torch

    from regard.tracing.transforms import has_saved_tensor_hooks

    return bool(_WAITING) or torch.are_deterministic_algorithms_enabled() or has_saved_tensor_hooks()
