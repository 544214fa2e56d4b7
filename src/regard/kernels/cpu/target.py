"""All that machine code depends on: sources, compiler, settings and processor, without importing Numba."""

import hashlib
import os
import platform
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

KERNELS = "regard.kernels"
"""The package whose sources together identify its kernels; a kernel of another package is identified by its file."""

SOURCES = (
    "kinds.py", "cpu/kernel_arguments.py", "cpu/linear_arguments.py", "cpu/linear_layout.py", "cpu/column_arguments.py",
    "cpu/row_operations.py", "cpu/sizes.py", "cpu/bodies",
)  # fmt: skip
"""The sources of kernel bodies. Launching and compiling may change without recompiling any kernel."""

_SETTINGS = (
    "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "ENABLE_AVX", "CPU_NAME", "CPU_FEATURES", "BOUNDSCHECK", "DEBUGINFO",
    "DISABLE_INTEL_SVML", "EXTEND_VARIABLE_LIFETIMES", "LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS", "DEBUG_NRT",
    "NRT_STATS", "LLVM_PASS_TIMINGS",
)  # fmt: skip
"""Numba's settings that change machine code."""

_SETTINGS_FILE = ".numba_config.yaml"
"""Numba reads this file in the working folder."""

_CPUINFO = Path("/proc/cpuinfo")

_PROCESSOR_FIELDS = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
)  # fmt: skip
"""Lines of ``/proc/cpuinfo`` that identify a processor, on x86 and on ARM."""


def target() -> bytes:
    """Returns everything that machine code depends on."""
    versions = sys.implementation.cache_tag, platform.python_version(), *_versions()
    machine = sys.platform, platform.machine(), processor()
    settings = [os.environ.get(f"NUMBA_{name}") for name in _SETTINGS]
    try:
        settings.append(Path(_SETTINGS_FILE).read_text("utf-8", "replace"))
    except OSError:
        settings.append(None)
    return repr((versions, machine, settings, _SOURCES)).encode()


@cache
def _versions() -> tuple[str, ...]:
    return tuple(version(package) for package in ("numba", "llvmlite", "numpy"))


@cache
def processor() -> tuple[str, ...]:
    """Returns what identifies this processor: the system's description, or else the compiler's."""
    try:
        first = _CPUINFO.read_text().split("\n\n", 1)[0]
    except OSError:
        first = ""
    parts = [line.partition(":") for line in first.splitlines()]
    description = {name.strip(): value.strip() for name, _, value in parts if name.strip() in _PROCESSOR_FIELDS}
    if "flags" in description or "Features" in description:
        return tuple(f"{name}: {value}" for name, value in description.items())
    from llvmlite import binding as llvm

    try:
        features = llvm.get_host_cpu_features().flatten()
    except RuntimeError:
        # LLVM does not know this processor; Numba does the same.
        features = ""
    return llvm.get_host_cpu_name(), features


def is_made_by_amd() -> bool:
    """Whether the vendor is AMD, or for lack of a vendor, the compiler calls the microarchitecture a Zen."""
    return any(line == "vendor_id: AuthenticAMD" or line.startswith("znver") for line in processor())


def _sources() -> bytes:
    kernels = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for name in SOURCES:
        for source in sorted((kernels / name).rglob("*.py")) or [kernels / name]:
            digest.update(f"{source.relative_to(kernels)}\0".encode())
            digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.digest()


# Computed before any kernel is imported: this process does not compile sources that are edited later.
_SOURCES = _sources()
