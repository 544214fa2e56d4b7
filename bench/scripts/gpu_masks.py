"""Masked attention on an accelerator: the backends tiled, sdpa and flex, forward, and forward + backward.

A window of 256 keys, packed causal documents, and a causal mask with ALiBi. Times are medians between events of the
device (of the host's clock on a CPU). The first call of a case is shown apart: it includes the compilation of flex. The
error is the largest difference from the output of the first backend, divided by the largest output. A backend that
cannot run a case has its reason in place of numbers.

    python -m bench.scripts.gpu_masks [--lengths 4096 16384] [--heads 16] [--dim 64] [--repeats 15] [--seconds 1]
        [--backends tiled sdpa flex] [--json masks.json]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import regard
from regard import masks
from regard.errors import BackendError

DOCUMENTS = 8
"""Number of packed documents, of equal lengths."""

CASES: dict[str, Callable[[int, torch.device], dict[str, Any]]] = {
    "window 256": lambda length, device: {"mask": masks.window(256, 0)},
    "documents": lambda length, device: {
        "mask": masks.documents(torch.arange(length, device=device) * DOCUMENTS // length) & masks.causal()
    },
    "causal, alibi": lambda length, device: {"mask": masks.causal(), "bias": "alibi"},
}


def clock(device: torch.device) -> Callable[[], Callable[[], float]]:
    """Returns a function that starts a measurement, and returns the function that ends it and gives milliseconds."""

    def on_host() -> Callable[[], float]:
        start = time.perf_counter()
        return lambda: 1e3 * (time.perf_counter() - start)

    def on_device() -> Callable[[], float]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()

        def stop() -> float:
            end.record()
            end.synchronize()
            return start.elapsed_time(end)

        return stop

    return on_device if device.type == "cuda" else on_host


def timed(call: Callable[[], object], device: torch.device, repeats: int, seconds: float) -> float:
    """Returns the median of the milliseconds of a call.

    Args:
        call: what is measured.
        device: where it runs.
        repeats: the largest number of calls.
        seconds: no call begins after so long; there is at least one.
    """
    start, times, begin = clock(device), [], time.perf_counter()
    while not times or (len(times) < repeats and time.perf_counter() - begin < seconds):
        stop = start()
        call()
        times.append(stop())
    return statistics.median(times)


def measured(
    backend: str, inputs: list[Tensor], arguments: dict[str, Any], repeats: int, seconds: float
) -> tuple[dict[str, float | str], Tensor | None]:
    """Returns the numbers of one backend in one case, and its output."""
    device = inputs[0].device
    grad_output = torch.randn_like(inputs[0])

    def forward() -> Tensor:
        return regard.attend(*inputs, backend=backend, **arguments)

    def both() -> Tensor:
        output = forward()
        torch.autograd.grad(output, inputs, grad_output)
        return output.detach()

    stop = clock(device)()
    try:
        output = both()
    except BackendError as error:
        return {"reason": str(error)}, None
    found: dict[str, float | str] = {"first": stop()}
    before = 0
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    found["both"] = timed(both, device, repeats, seconds)
    if device.type == "cuda":
        found["MiB"] = (torch.cuda.max_memory_allocated(device) - before) / 2**20
    found["forward"] = timed(forward, device, repeats, seconds)
    return found, output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[4096, 16384])
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--backends", nargs="+", default=["tiled", "sdpa", "flex"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, bfloat16, {options.heads} heads of {options.dim}")
    row = "{:<14} {:>7} {:<6} {:>11} {:>11} {:>11} {:>9} {:>9}"
    print(row.format("case", "length", "", "forward ms", "+ backward", "first ms", "MiB", "error"), flush=True)
    results: list[dict[str, Any]] = []
    for length in options.lengths:
        for case, make in CASES.items():
            torch.manual_seed(0)
            shape = 1, options.heads, length, options.dim
            inputs = [torch.randn(shape, device=device, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
            expected: Tensor | None = None
            for backend in options.backends:
                arguments = make(length, device)
                found, output = measured(backend, inputs, arguments, options.repeats, options.seconds)
                results.append({"case": case, "length": length, "backend": backend, **found})
                if output is None:
                    print(f"{case:<14} {length:>7} {backend:<6} {found['reason']}", flush=True)
                    continue
                expected = output if expected is None else expected
                error = float((output - expected).abs().max() / expected.abs().max())
                results[-1]["error"] = error
                memory = f"{found['MiB']:.0f}" if "MiB" in found else "—"
                numbers = (f"{found[column]:.3g}" for column in ("forward", "both", "first"))
                print(row.format(case, length, backend, *numbers, memory, f"{error:.1e}"), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({"device": name, "torch": torch.__version__, "results": results}, indent=2))


if __name__ == "__main__":
    main()
