"""What machine code depends on: its sources, the compiler and its settings, the processor; without importing Numba."""

import hashlib
import os
import platform
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

KERNELS = "regard.kernels"
"""The package whose kernels are told by their sources together; a kernel of another package counts by its own file."""

SOURCES = (
    "kinds.py", "cpu/kernel_arguments.py", "cpu/sizes.py", "cpu/bodies",
)  # fmt: skip
"""What bodies of kernels are made of. Launching and compiling may change without compiling anything again."""

_SETTINGS = (
    "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "ENABLE_AVX", "CPU_NAME", "CPU_FEATURES", "BOUNDSCHECK", "DEBUGINFO",
    "DISABLE_INTEL_SVML", "EXTEND_VARIABLE_LIFETIMES", "LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS", "DEBUG_NRT",
    "NRT_STATS", "LLVM_PASS_TIMINGS",
)  # fmt: skip
"""What a user may set in Numba that changes machine code."""

_SETTINGS_FILE = ".numba_config.yaml"
"""Numba reads it in the working folder."""

_CPUINFO = Path("/proc/cpuinfo")

_OF_A_PROCESSOR = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
)  # fmt: skip
"""Lines of Linux's description of a processor that tell which one it is, on x86 and on ARM."""


def target() -> bytes:
    """Everything that machine code depends on."""
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
    """What tells this processor from others: by its system's description, else by the compiler's."""
    try:
        first = _CPUINFO.read_text().split("\n\n", 1)[0]
    except OSError:
        first = ""
    parts = [line.partition(":") for line in first.splitlines()]
    description = {name.strip(): value.strip() for name, _, value in parts if name.strip() in _OF_A_PROCESSOR}
    if "flags" in description or "Features" in description:
        return tuple(f"{name}: {value}" for name, value in description.items())
    from llvmlite import binding as llvm

    try:
        features = llvm.get_host_cpu_features().flatten()
    except RuntimeError:
        # As Numba does where LLVM cannot tell.
        features = ""
    return llvm.get_host_cpu_name(), features


def is_made_by_amd() -> bool:
    """By its vendor's name, or where there is only the compiler's description, by that of its design."""
    return any(line == "vendor_id: AuthenticAMD" or line.startswith("znver") for line in processor())


def _sources() -> bytes:
    kernels = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for name in SOURCES:
        for source in sorted((kernels / name).rglob("*.py")) or [kernels / name]:
            digest.update(f"{source.relative_to(kernels)}\0".encode())
            digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.digest()


# Taken before any kernel is imported: sources that are edited later are not those that this process compiles.
_SOURCES = _sources()
