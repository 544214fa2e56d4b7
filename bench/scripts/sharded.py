"""Attention over sequences that lie in pieces on several processes: is it exact, what does it cost, what does it send?

    python -m bench.scripts.sharded [--processes 4] [--part table long bytes balance peer] [--length 1048576]

Starts gloo processes of one thread each on this machine and prints Markdown:

table    the largest difference from one process, by score, normalizer, mask, bias, dropout and reading, on 2, 3 and 4
         processes: a sample of the grid of ``tests/support/cases.py`` that has each pair of values
long     sequences of a million keys: time and memory of each process
bytes    what the processes hand to torch.distributed, beside what `regard.plan` says
balance  pairs that each process computes, with contiguous shards and with `Shards.balanced`
peer     PyTorch's ``context_parallel`` on the same inputs

Times are CPU seconds of the process that takes most: the processes may have fewer cores than there are. Linux only.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

import torch

from covering import pairwise
from process_groups import ProcessGroup
from sharded_laws import ALL_NORMALIZERS, ALL_SCORES, BIASES, MASKS, ORDERS, READ

PARTS = "bench.scripts.sharded_parts"
"""The module whose functions the processes call."""

PROCESSES = (2, 3, 4)
"""Of the table."""

GRID = {
    "score": list(ALL_SCORES), "normalizer": list(ALL_NORMALIZERS), "mask": list(MASKS), "bias": list(BIASES),
    "key heads": [1, 3], "order": list(ORDERS), "dropout": [0.0], "processes": list(PROCESSES),
}  # fmt: skip
DROPPED = {
    **GRID, "score": ["scaled_dot", "dot", "general", "additive", "distance"],
    "normalizer": ["softmax", "sink", "sparsemax", "entmax15", "sigmoid"], "dropout": [0.3],
    "bias": [name for name in BIASES if name not in ("shaw", "dense_sum")],
}  # fmt: skip
"""Cases that the compiled loops of one process run, which drop the same weights."""
READINGS = {
    "reading": list(READ), "normalizer": ["softmax", "sparsemax", "sigmoid", "top_k"], "mask": list(MASKS),
    "order": list(ORDERS), "processes": list(PROCESSES),
}  # fmt: skip
DTYPES = ("float64", "float32")

Worst = dict[tuple[str, str], dict[str, float]]
"""The largest difference by (kind, name) and by column."""


def table(options: argparse.Namespace) -> None:
    """Prints the largest differences from one process."""
    worst: Worst = defaultdict(lambda: defaultdict(float))
    groups = {processes: ProcessGroup(processes) for processes in PROCESSES}
    cases = [
        *((row, _case) for row in (*_sample(GRID), *_sample(DROPPED))),
        *((row, _reading) for row in _sample(READINGS)),
    ]
    for number, ((row, compare), dtype) in enumerate(product(cases, DTYPES)):
        if number % 100 == 0:
            print(f"{number} of {len(cases) * len(DTYPES)}", file=sys.stderr, flush=True)
        found = compare(groups[row["processes"]], row, dtype)
        for kind, name in row.items():
            if compare is _case or kind == "reading":
                for column, difference in found.items():
                    worst[kind, name][column] = max(worst[kind, name][column], difference)
    for group in groups.values():
        group.close()
    print(f"{len(cases) * len(DTYPES):,} cases\n")
    columns = [f"{dtype} {what}" for dtype in DTYPES for what in ("output", "gradient")]
    kinds = [*GRID, "reading"]
    rows = [
        [kind, str(name), *(f"{found[column]:.0e}" if column in found else "" for column in columns)]
        for (kind, name), found in sorted(worst.items(), key=lambda item: kinds.index(item[0][0]))
    ]
    _print_table(["", "", *columns], rows)


def _sample(axes: dict[str, list]) -> list[dict[str, Any]]:
    rows = [dict(zip(axes, row, strict=True)) for row in pairwise(list(axes.values()))]
    # A share of a sum needs positive scores.
    return [row | {"score": "features"} if row["normalizer"] == "ratio" else row for row in rows]


def _case(group: ProcessGroup, row: dict[str, Any], dtype: str) -> dict[str, float]:
    arguments = [row[kind] for kind in GRID if kind != "processes"]
    output, gradient = zip(*group.call("sharded_laws", "case", *arguments, dtype), strict=True)
    return {f"{dtype} output": max(output), f"{dtype} gradient": max(gradient)}


def _reading(group: ProcessGroup, row: dict[str, Any], dtype: str) -> dict[str, float]:
    arguments = [row[kind] for kind in READINGS if kind != "processes"]
    return {f"{dtype} output": max(group.call("sharded_laws", "readings", *arguments, dtype))}


def long(options: argparse.Namespace) -> None:
    """Prints time and memory of long sequences."""
    rows = []
    cases = [
        ("window", "observe", options.length, options.length),
        ("causal", "observe", min(2048, options.length), options.length),
        ("window", "attend, gradients", options.length // 8, options.length // 8),
        ("causal", "attend, gradients", options.length // 64, options.length // 64),
    ]
    with closing(ProcessGroup(options.processes)) as group:
        for mask, what, queries, keys in cases:
            found = group.call(PARTS, "long_call", mask, what, queries, keys)
            print(mask, what, queries, keys, found, file=sys.stderr, flush=True)
            memory = " · ".join(f"{each['memory'] / 2**20:.0f}" for each in found)
            rows.append([
                mask, what, f"{queries:,}", f"{keys:,}", f"{max(each['seconds'] for each in found):.0f}",
                f"{found[0]['share'] / 2**20:.0f}", memory,
                f"{max(each['difference'] for each in found):.0e}",
            ])  # fmt: skip
    print(f"{options.processes} processes, one head of 64 features, float32\n")
    _print_table(
        ["mask", "call", "queries", "keys", "CPU s", "share of the inputs, MiB",
         "peak of each process, MiB", "difference of sampled rows"], rows,
    )  # fmt: skip


def sent_bytes(options: argparse.Namespace) -> None:
    """Prints bytes sent, counted and planned."""
    rows = []
    with closing(ProcessGroup(options.processes)) as group:
        for normalizer in ("softmax", "sigmoid", "hard", "entmax15", "top_k", "over_queries"):
            for mask in ("none", "causal", "window"):
                found = group.call(PARTS, "count_bytes", normalizer, mask, 1024)
                counted, planned = ([each[name] for each in found] for name in ("counted", "planned"))
                whole = [sum(each) for each in zip(*counted, strict=True)]
                said = [sum(each) for each in zip(*planned, strict=True)]
                rows.append([
                    normalizer, mask, found[0]["way"], f"{whole[0]:,}", f"{said[0]:,}", f"{whole[1]:,}", f"{said[1]:,}",
                    "yes" if counted == planned else "no",
                ])  # fmt: skip
    print(f"{options.processes} processes together, 1,024 queries and keys, 2 heads of 64, float32\n")
    _print_table(
        ["normalizer", "mask", "way", "forward, bytes", "planned", "backward, bytes", "planned",
         "equal on each process"], rows,
    )  # fmt: skip


def balance(options: argparse.Namespace) -> None:
    """Prints how much more than the mean the busiest process computes."""
    rows = []
    with closing(ProcessGroup(options.processes)) as group:
        for mask in ("causal", "window", "prefix", "documents", "causal documents"):
            contiguous, balanced = group.call(PARTS, "imbalances", mask, 65536)[0]
            rows.append([mask, *(f"{each['imbalance']:.1%}" for each in (contiguous, balanced)),
                         str(balanced["pieces"]), f"{contiguous['sent']:,}", f"{balanced['sent']:,}"])  # fmt: skip
    print(f"{options.processes} processes, 65,536 tokens\n")
    _print_table(
        ["mask", "contiguous: busiest over mean", "balanced: busiest over mean", "pieces of a process",
         "contiguous: bytes sent forward", "balanced: bytes sent forward"], rows,
    )  # fmt: skip


def peer(options: argparse.Namespace) -> None:
    """Prints PyTorch's context_parallel beside regard."""
    rows = []
    for queries, keys, mask in ((1024, 1024, "causal"), (1021, 1021, "causal"), (1024, 1024, "none"),
                                (512, 1024, "none"), (1024, 1024, "window")):  # fmt: skip
        for name in ("context_parallel", "regard"):
            found = _peer_call(options, name, mask, queries, keys)
            numbers = [found, "", ""]
            if not isinstance(found, str):
                output, gradient, seconds = (
                    max(each[what] for each in found) for what in ("output", "gradient", "seconds")
                )
                numbers = [f"{output:.1e}", f"{gradient:.1e}", f"{seconds:.2f}"]
            rows.append([f"{queries:,} × {keys:,}", mask, name, *numbers])
    print(f"{options.processes} processes, 2 heads of 64, float32, forward and backward, PyTorch {torch.__version__}\n")
    _print_table(["queries × keys", "mask", "", "output: difference from one process", "gradients", "CPU s"], rows)


def _peer_call(options: argparse.Namespace, *arguments: object) -> list[dict[str, float]] | str:
    """What each process measured, or why there is nothing; a group that failed or does not answer is used no more."""
    group = ProcessGroup(options.processes)
    for pipe in group.pipes:
        pipe.send((PARTS, "peer_call", arguments))
    answers = [pipe.recv() if pipe.poll(options.limit) else ("", {"error": f"no answer in {options.limit} s"})
               for pipe in group.pipes]  # fmt: skip
    for process in group.processes:
        process.kill()
    errors = [error or found["error"] for error, found in answers]
    return next(filter(None, errors), "") or [found for _, found in answers]


def _print_table(columns: list[str], rows: Iterable[list[str]]) -> None:
    for row in (columns, ["---"] * len(columns), *rows):
        print(f"| {' | '.join(row)} |")
    print(flush=True)


RUNS = {"table": table, "long": long, "bytes": sent_bytes, "balance": balance, "peer": peer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=4, help="of all parts but the table (default: 4)")
    parser.add_argument("--part", nargs="+", choices=RUNS, default=list(RUNS), help="default: all")
    parser.add_argument("--limit", type=int, default=240, help="seconds that a peer may take (default: 240)")
    parser.add_argument("--length", type=int, default=1 << 20, help="keys of the long sequences (default: 1048576)")
    options = parser.parse_args()
    for part in options.part:
        print(f"## {part}\n", flush=True)
        RUNS[part](options)


if __name__ == "__main__":
    main()
