"""What there is here for compiled kernels. Asking imports nothing."""

import os
import platform
import sys
from importlib.util import find_spec
from pathlib import Path

import torch

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


def _maker() -> str:
    """The processor's maker, as it names itself; empty if that can't be read."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("vendor_id")), "")


_WIDE: bool | None = None


def wider_than_blas() -> bool:
    """Whether this processor has 512-bit vectors that MKL, PyTorch's BLAS on x86, leaves unused: AMD's do."""
    global _WIDE
    if _WIDE is None:
        wide = torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.backends.mkl.is_available()
        _WIDE = wide and "AMD" in _maker()
    return _WIDE
