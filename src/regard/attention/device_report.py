"""The comparison of every backend with the specification on one device: ``regard doctor --device``.

Each kind of call is tried as `regard.attention.trials` tries it before a first call, and a larger problem of the kind
is timed. It needs PyTorch alone, and runs without the command line's packages, too (without a name: on the CPU)::

    python -m regard.attention.device_report cuda
"""

import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from regard.attention.backends.backend import Backend
from regard.attention.call_kinds import CallKind
from regard.attention.execution import BACKENDS
from regard.attention.planner import Candidates, first_choice
from regard.attention.problem import Problem
from regard.attention.trials import no_trials, surroundings, verify
from regard.shapes.checks import usable_device

SECONDS = 55.0
"""Time after which no further kind is tried, unless another limit is given."""

LENGTH = 2048
"""Number of keys of the calls that are timed; a quarter of it on a CPU, and an eighth of that for other scores than
inner products."""

REPETITIONS = 3

RECURRENT = (
    ("DecayedProduct of 1", 67), ("DecayedProduct of 64", 193), ("DeltaProduct", 66),
    ("DeltaProduct of DecayedProduct of 1", 69),
)  # fmt: skip
"""Primitives whose prepared queries have more columns than a head's 64 features."""


@dataclass(frozen=True)
class Row:
    """One backend on one kind of call.

    Attributes:
        is_chosen: whether ``"auto"`` would take it for the call that is timed, if there were no trials.
        difference: the largest difference from the float64 specification, in units of the largest expected element.
        objection: why the backend is declined on this device; None if it is right.
        milliseconds: time of the larger call, forward and, if a gradient is wanted, backward; NaN if it failed.
    """

    kind: CallKind
    backend: str
    is_chosen: bool
    difference: float
    objection: str | None
    milliseconds: float

    def __str__(self) -> str:
        outcome = "right" if self.objection is None else f"WRONG: {self.objection}"
        arrow = "→" if self.is_chosen else " "
        return f"  {arrow} {self.backend:<10} {self.difference:>9.1e} {self.milliseconds:>10.3f} ms  {outcome}"


def kinds(dtypes: tuple[str, ...] = ("bfloat16", "float32", "float16")) -> list[CallKind]:
    """Returns the kinds of calls that are compared, the most usual ones first."""
    plain = CallKind("bfloat16", gradient=True)
    usual = [
        plain,
        *(plain._replace(mask=mask, layout="permuted") for mask in ("none", "causal")),
        plain._replace(mask="causal", layout="permuted", gradient=False),
        plain._replace(mask="causal", dim=128, value_dim=128),
        *(plain._replace(mask=mask, grouped=True) for mask in ("none", "causal")),
        *(plain._replace(mask=mask, value_dim=48) for mask in ("none", "causal")),
        plain._replace(mask="causal at the end"),
        plain._replace(mask="causal at the end", grouped=True, layout="permuted", gradient=False),
        *(plain._replace(mask=mask, few=True, grouped=True, gradient=False) for mask in ("none", "Lengths")),
        *(plain._replace(mask=mask) for mask in ("Lengths", "window", "Keep", "causal with empty rows")),
        *(plain._replace(bias=bias, mask="causal") for bias in ("Alibi", "TensorBias", "TensorBias gradient")),
        *(plain._replace(modifiers=(modifier,), mask="causal") for modifier in ("Cap", "function")),
        plain._replace(normalizer="softmax + sink", mask="causal"),
    ]
    other = [
        *(plain._replace(normalizer=normalizer) for normalizer in ("entmax 2", "entmax 1.5", "sigmoid")),
        plain._replace(normalizer="entmax 1.5", mask="window"),
        *(plain._replace(primitive="TanhSum", mask=mask) for mask in ("none", "Lengths")),
        plain._replace(primitive="TanhSum", normalizer="entmax 1.5"),
        plain._replace(primitive="ReluSum"),
        plain._replace(normalizer="ratio", mask="causal"),
        *(plain._replace(normalizer="identity", mask="causal", primitive=name, dim=dim) for name, dim in RECURRENT),
    ]
    return [kind._replace(dtype=dtype) for dtype in dtypes for kind in (*usual, *other)]


def compared(device: torch.device, kind: CallKind, compiles: bool) -> list[Row]:
    """Returns a row for each backend that runs calls of a kind on a device.

    Args:
        compiles: whether backends run that have to compile a kernel first; the others run if it is False.
    """
    with torch.set_grad_enabled(kind.gradient):
        small = kind.problem(device)
        large = kind.problem(device, length=timed_length(device) // (1 if kind.primitive == "InnerProduct" else 8))
        assert small is not None
        assert large is not None
        with no_trials():
            chosen = first_choice(Candidates(large, BACKENDS, waits=True))
        able = [backend for backend in BACKENDS.values() if backend.declines(small) is None]
        able = [backend for backend in able if _is_late(backend, small) == compiles]
    rows = []
    for backend in able:
        with torch.set_grad_enabled(kind.gradient):
            trial = verify(backend, small)
        if trial is not None:
            milliseconds = _milliseconds(backend, large, kind)
            rows.append(Row(kind, backend.name, backend is chosen, trial.difference, trial.objection, milliseconds))
    return rows


def _is_late(backend: Backend, problem: Problem) -> bool:
    return backend.delay(problem) is not None


def timed_length(device: torch.device) -> int:
    """Returns the number of keys of the calls that are timed."""
    return LENGTH // 4 if device.type == "cpu" else LENGTH


def _milliseconds(backend: Backend, problem: Problem, kind: CallKind) -> float:
    """Returns the median time of a call; NaN if the backend declines it or fails."""
    inputs = [tensor for tensor in (problem.query, problem.key, problem.value) if tensor.requires_grad]

    def run() -> float:
        _synchronize(problem.query.device)
        start = time.perf_counter()
        # A new problem, since one remembers what its score prepared.
        output = backend.run(replace(problem))
        if inputs:
            torch.autograd.grad(output, inputs, torch.ones_like(output))
        _synchronize(problem.query.device)
        return 1e3 * (time.perf_counter() - start)

    try:
        with torch.set_grad_enabled(kind.gradient):
            if backend.declines(problem) is not None:
                return torch.nan
            run()  # compiles and allocates what the call needs
            return statistics.median(run() for _ in range(REPETITIONS))
    except RuntimeError:
        return torch.nan


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize()


def rows(device: torch.device, seconds: float = SECONDS) -> Iterator[Row]:
    """Yields the rows of all kinds until the time is over, and says on stderr how far it is.

    Kernels that have to be compiled, which takes seconds each, come after all that are ready.
    """
    start = time.monotonic()
    every = [(kind, compiles) for compiles in (False, True) for kind in kinds()]
    for number, (kind, compiles) in enumerate(every):
        elapsed = time.monotonic() - start
        if elapsed > seconds:
            untried = len(every) - number
            print(f"{untried} of {len(every)} kinds were not tried in {seconds:g} s", file=sys.stderr, flush=True)
            return
        estimate = f"about {elapsed / number * (len(every) - number):.0f} s left; " if number else ""
        line = f"{number + 1}/{len(every)} {kind}; {estimate}it ends after {seconds:g} s"
        print(line, file=sys.stderr, flush=True)
        yield from compared(device, kind, compiles)


def report(name: str, seconds: float = SECONDS) -> int:
    """Prints the table of a device.

    Args:
        seconds: time after which no further kind is tried.

    Returns:
        The exit code: 1 if a result differs that ``"auto"`` would take if there were no trials, else 0.
    """
    device = usable_device(name, with_elements=True)
    print(" · ".join(f"{key} {value}" for key, value in surroundings(device).items()))
    print(
        f"kind, backend (→: what auto takes), largest difference, time at {timed_length(device):,} keys, outcome",
        flush=True,
    )
    wrong, printed = 0, None
    for row in rows(device, seconds):
        if row.kind != printed:
            print(row.kind)
            printed = row.kind
        print(row, flush=True)
        wrong += row.is_chosen and row.objection is not None
    print(f"{wrong} kinds of calls differ on the backend that auto takes" if wrong else "every choice of auto is right")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(report(sys.argv[1] if len(sys.argv) > 1 else "cpu"))
