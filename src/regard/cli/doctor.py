"""``regard doctor``: what is installed, which backends run, and why others do not; the comparison on a device."""

import importlib.metadata
import json
import os
import platform
import re
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Annotated, Any, cast

from cyclopts import Parameter

import regard
from regard.cli.peers import PEER_PACKAGES, absence, version
from regard.errors import ArgumentError, RegardError
from regard.kernels.availability import microkernel_is_faster, why_missing

DEVELOPERS = ("bench", "docs", "dev")
"""Extras that are only of use in a checkout."""


@Parameter(name="*")
@dataclass(frozen=True)
class DoctorOptions:
    """The options of ``regard doctor``."""

    device: str | None = None
    """Compare every backend with the specification on this device (cuda, mps, xpu, cpu), and time it; the exit code is
    1 if a result differs that "auto" would take."""
    seconds: float = 55.0
    """With --device: the time after which no further kind of call is tried."""


def command(
    *,
    options: DoctorOptions = DoctorOptions(),
    as_json: Annotated[bool, Parameter(name="--json", help="Print one JSON object, not a table.")] = False,
) -> None:
    """Print versions, backends (and why one is missing), threads, devices and optional parts."""
    if options.device is not None:
        if as_json:
            raise ArgumentError("--json prints what is installed, and --device a comparison: give one of them")
        from regard.attention.device_report import report

        sys.exit(report(options.device, options.seconds))
    sections = inspect()
    if as_json:
        print(json.dumps(sections, indent=2, ensure_ascii=False))
        return
    for section, entries in sections.items():
        print(section)
        for name, value in entries.items():
            print(f"  {name:<14} {value}")


def inspect() -> dict[str, dict[str, str]]:
    """Returns the output of ``regard doctor``: section → name → result."""
    import torch

    from regard.attention.execution import BACKENDS

    without_numba = why_missing()
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    versions = {
        "regard": regard.__version__,
        "python": f"{platform.python_version()} ({platform.system()} {platform.machine()})",
        "torch": torch.__version__,
        "numba": without_numba or importlib.metadata.version("numba"),
    }
    machine = {
        "cpus": f"{os.cpu_count()}",
        "torch threads": f"{torch.get_num_threads()} (change with --threads or OMP_NUM_THREADS)",
        "accelerator": "none; everything runs on the CPU" if device is None else _device_name(device),
        "kernel cache": _kernel_cache(),
        "float32 products": _products(),
    }
    return {
        "versions": versions,
        "machine": machine,
        "backends": {name: _try_backend(name) for name in BACKENDS},
        "optional parts": {
            **{name: _version(name, extra) for name, extra in optional_parts().items()},
            "bench peers": _peers(),
        },
    }


def optional_parts() -> dict[str, str]:
    """Returns each optional package and the extra of regard that installs it, as the installed package says."""
    requirements = importlib.metadata.requires("regard") or ()
    matches = [re.match(r"([\w.-]+).*;.*extra == ['\"]([\w-]+)['\"]", requirement) for requirement in requirements]
    parts = [one.groups() for one in matches if one is not None and one[1] != "regard"]
    extras: dict[str, str] = {}
    for name, extra in parts:
        if extra not in DEVELOPERS:
            extras.setdefault(name, extra)  # of transformers, which the exports need as well, its own extra
    return extras


def _version(name: str, extra: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return f"missing: pip install 'regard[{extra}]'"


def _peers() -> str:
    """Returns the peers that the benchmark can measure, in one line."""
    installed = [
        f"{peer.distribution} {version(name)}" for name, peer in PEER_PACKAGES.items() if absence(name) is None
    ]
    absent = [peer.distribution for name, peer in PEER_PACKAGES.items() if absence(name) is not None]
    missing = [f"missing: {', '.join(absent)} (pip install 'regard[bench]')"] if absent else []
    return "; ".join([", ".join(installed)] * bool(installed) + missing)


def _kernel_cache() -> str:
    """Returns the folder of compiled kernels, or why there is none."""
    missing = why_missing()
    if missing is not None:
        return f"not used: {missing}"
    from regard.kernels.cpu.cache import cache_folder, is_writable

    folder = cache_folder()
    if folder is None:
        return 'no folder can be written: "auto" serves without compiled kernels; set REGARD_CACHE to a writable folder'
    return f"{folder} ({'writable' if is_writable(folder) else 'read only'})"


def _products() -> str:
    """Returns the name of the routine that multiplies matrices within kernels."""
    missing = why_missing()
    if missing is not None:
        return f"not used: {missing}"
    if microkernel_is_faster():
        return "the microkernel (faster here than the BLAS of this PyTorch)"
    return "PyTorch's BLAS"


def _device_name(device: object) -> str:
    import torch

    count = torch.accelerator.device_count()
    name = torch.cuda.get_device_name(0) if torch.cuda.is_available() else str(device)
    return f"{count} × {name}"


def _try_backend(name: str) -> str:
    """Returns whether the backend runs here, and the median time of a small causal call with all threads."""
    import torch

    query = torch.ones(1, 8, 512, 64)

    def seconds() -> float:
        start = time.perf_counter()
        regard.attend(query, query, query, mask=regard.masks.causal(), backend=cast(Any, name))
        return time.perf_counter() - start

    try:
        seconds()  # compiles what the call needs
    except RegardError as error:
        return f"missing: {error}"
    return f"available ({1e3 * statistics.median(seconds() for _ in range(5)):.3g} ms for 8 heads × 512 causal tokens)"
