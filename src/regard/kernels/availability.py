"""What there is here for compiled kernels. Asking imports nothing."""

import platform
from importlib.util import find_spec
from pathlib import Path

import torch

_NUMBA = find_spec("numba") is not None


def why_missing() -> str | None:
    """Why there are no compiled kernels; None if there are."""
    return None if _NUMBA else "Numba is not installed (pip install 'regard[cpu]')"


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
