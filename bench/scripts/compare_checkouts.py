"""The tasks of ``regard bench`` on the packages of two checkouts, side by side: is anything slower than before?

    python -m bench.scripts.compare_checkouts OLD/src NEW/src --threads 2 --task 'normalizer-*'

Each checkout runs in a process of its own. For each task the processes take turns, a short measurement each, so that
changes of the machine's speed affect both; the ratio is the median of the ratios of neighbouring measurements, with its
quartiles. Only regard's own implementation of a task is measured.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

SPAN = 0.01
"""Seconds of one measurement, at least: short calls are repeated."""

WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that wait leave the processors to the other checkout, whose turn it is."""


def serve(threads: int) -> None:
    """The process of one checkout: answers each line ``task calls`` with the seconds of a call."""
    import torch

    from bench.tasks import TASKS

    try:
        from regard.kernels.availability import kernels_awaited
    except ImportError:  # an older checkout, which always waits for its kernels
        from contextlib import nullcontext as kernels_awaited

    torch.set_num_threads(threads)
    tasks = {task.name: task for task in TASKS}
    prepared = None, None
    for line in sys.stdin:
        name, calls = line.split()
        with torch.set_grad_enabled(tasks[name].backward), kernels_awaited():
            if prepared[0] != name:
                torch.manual_seed(0)
                own = tasks[name].implementations[0]
                prepared = name, own.build(tasks[name].inputs(tasks[name].sizes)).call
            call = prepared[1]
            started = time.perf_counter()
            for _ in range(int(calls)):
                call()
            print((time.perf_counter() - started) / int(calls), flush=True)


class Checkout:
    """One process, with the sources of one checkout and, where it has one, with its own benchmark."""

    def __init__(self, source: Path, threads: int):
        path = os.pathsep.join(map(str, [source, source.parent, Path(__file__).resolve().parents[2]]))
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", "--threads", str(threads)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path} | WAITING,
        )  # fmt: skip

    def seconds(self, task: str, calls: int) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{task} {calls}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"a checkout ended while it measured {task}; its error stands above")
        return float(answer)


def compare(old: Checkout, new: Checkout, task: str, budget: float) -> str:
    """A row of the table: median seconds of both, and the ratio."""
    for checkout in (old, new):
        checkout.seconds(task, 3)
    once = min(old.seconds(task, 1) for _ in range(3))
    calls = max(1, round(SPAN / once))
    rounds = max(7, min(60, round(budget / (2 * calls * once))))
    times: dict[Checkout, list[float]] = {old: [], new: []}
    for number in range(rounds):
        for checkout in (old, new) if number % 2 else (new, old):
            times[checkout].append(checkout.seconds(task, calls))
    ratios = [after / before for before, after in zip(times[old], times[new], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    before, after = (1e6 * statistics.median(times[checkout]) for checkout in (old, new))
    return f"| {task} | {before:.1f} | {after:.1f} | {middle:.2f} | {low:.2f}–{high:.2f} | {rounds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, metavar="SRC", help="the folder src of each checkout")
    parser.add_argument("--task", action="append", help="a task, or a pattern; may be repeated (default: all)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each process (default: 2)")
    parser.add_argument("--budget", type=float, default=4.0, help="seconds for each task, about (default: 4)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.threads)
        return
    if len(options.checkouts) != 2 or not all((source / "regard").is_dir() for source in options.checkouts):
        parser.error("name two folders src, the old one first; each must hold the package regard")
    from bench.tasks import find

    old, new = (Checkout(source.absolute(), options.threads) for source in options.checkouts)
    print("| task | old, µs | new, µs | ratio | quartiles | rounds |\n|---|---|---|---|---|---|")
    for task in find(options.task, long=False):
        if task.timed:
            print(compare(old, new, task.name, options.budget), flush=True)


if __name__ == "__main__":
    main()
