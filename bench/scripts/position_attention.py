"""Position attention over feature maps, forward and backward: `regard.nn.NonLocal` beside an eager non-local block.

The eager block is the one of Wang et al. 2018 written with matrices: θ, φ and g, then ``softmax(θ φᵀ) g``. Both blocks
have the same weights, and their outputs and gradients are compared before anything is measured. They run in turn in
one process; times are medians of the wall clock, and of the processor's time, which other processes disturb less. The
memory is the peak of a process of its own above its level before the call. A size whose matrices do not fit into the
memory that is available is not run eagerly, and the report says how much it would need.

    python -m bench.scripts.position_attention [--sizes 60x80 90x120] [--channels 64] [--repeats 5] [--json FILE]
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from bench.process_status import status
from regard.nn import NonLocal

MATRICES = 3
"""Matrices of positions × positions that the eager block holds at once in its backward pass: the weights, their
gradient and that of the scores."""

MEBIBYTE = 1 << 20


class EagerNonLocal(NonLocal):
    """The same block with the matrix of weights."""

    def forward(self, features: Tensor) -> Tensor:
        batch, _, height, width = features.shape
        query = self.query(features).flatten(2).transpose(1, 2)  # B N D
        key = self.key(features).flatten(2)  # B D N
        value = self.value(features).flatten(2).transpose(1, 2)
        mixed = torch.softmax(query @ key, dim=-1) @ value
        return features + self.output(mixed.transpose(1, 2).reshape(batch, self.hidden, height, width))


KINDS: dict[str, type[NonLocal]] = {"regard": NonLocal, "eager": EagerNonLocal}


def prepared(kind: str, channels: int, height: int, width: int) -> Callable[[], list[Tensor]]:
    """One forward and backward pass of a block; gives its output and gradients."""
    torch.manual_seed(0)
    block = KINDS[kind](channels, zero=False)
    features = torch.randn(1, channels, height, width, requires_grad=True)

    def run() -> list[Tensor]:
        output = block(features)
        tensors = [features, *block.parameters()]
        return [output.detach(), *torch.autograd.grad(output.square().mean(), tensors)]

    return run


def measured(runs: dict[str, Callable[[], list[Tensor]]], repeats: int) -> dict[str, dict[str, float]]:
    """Median seconds of each, run in turn."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter(), time.process_time()
            run()
            taken[name].append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return {
        name: {
            "seconds": statistics.median(wall for wall, _ in pairs),
            "processor_seconds": statistics.median(processor for _, processor in pairs),
        }
        for name, pairs in taken.items()
    }


def same(runs: dict[str, Callable[[], list[Tensor]]]) -> None:
    """Raise AssertionError unless all blocks give the same output and gradients."""
    results = [run() for run in runs.values()]
    for one in results[1:]:
        torch.testing.assert_close(one, results[0], atol=1e-5, rtol=1e-3)


def peak_of(kind: str, options: argparse.Namespace, size: str) -> float:
    """Bytes that one pass takes at most, above what the process had."""
    command = [sys.executable, __file__, "--peak", kind, "--sizes", size, "--channels", str(options.channels)]
    command += ["--threads", str(options.threads)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return float(found.stdout.split()[-1])


def print_peak(kind: str, channels: int, height: int, width: int) -> None:
    prepared(kind, channels, 4, 4)()  # what belongs to a first call
    prepared(kind, channels, 30, 40)()
    run = prepared(kind, channels, height, width)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # from now on the peak is that of the run
    before = status("VmRSS")
    run()
    print(status("VmHWM") - before)


def available() -> int:
    """Bytes of memory that can be had without swapping."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("MemAvailable:")))


def compare(size: str, options: argparse.Namespace) -> dict[str, object]:
    """The figures of one size."""
    height, width = map(int, size.split("x"))
    needed = MATRICES * 4 * (height * width) ** 2
    fits = needed < 0.8 * available()
    names = list(KINDS) if fits else ["regard"]
    runs = {name: prepared(name, options.channels, height, width) for name in names}
    same(runs)
    found = measured(runs, options.repeats if height * width <= 20_000 else min(options.repeats, 2))
    runs.clear()
    print(f"{height} × {width} = {height * width:,} positions, {options.channels} channels, {options.threads} threads")
    for name in names:
        found[name]["peak_bytes"] = peak_of(name, options, size)
        times = f"{found[name]['seconds']:9.3f} s  {found[name]['processor_seconds']:9.3f} s of the processor"
        print(f"  {name:<7} {times}  {found[name]['peak_bytes'] / MEBIBYTE:10.1f} MiB")
    result: dict[str, object] = {"channels": options.channels, "threads": options.threads, **found}
    if fits:
        ours, eager = found["regard"], found["eager"]
        ratios = {key: eager[key] / ours[key] for key in ours}
        print(
            f"  regard: {ratios['seconds']:.2f}× as fast ({ratios['processor_seconds']:.2f}× by the processor's time), "
            f"{100 / ratios['peak_bytes']:.2f} % of the memory"
        )
        result["ratios"] = ratios
    else:
        share = 100 * found["regard"]["peak_bytes"] / needed
        print(
            f"  eager   does not fit: its {MATRICES} matrices alone need {needed / MEBIBYTE:,.0f} MiB, and "
            f"{available() / MEBIBYTE:,.0f} MiB are available; regard takes {share:.2f} % of that"
        )
        result["eager_needs_bytes"] = needed
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["60x80", "90x120", "180x240"])
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        print_peak(options.peak, options.channels, *map(int, options.sizes[0].split("x")))
        return
    report = {size: compare(size, options) for size in options.sizes}
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
