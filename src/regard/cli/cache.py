"""``regard cache``: prints where compiled kernels are stored, removes them, or compiles the usual ones in advance."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import Parameter

import regard
from regard.errors import BackendError, DataError
from regard.kernels.availability import kernels_awaited, why_missing

if TYPE_CHECKING:
    from regard.normalizers import NormalizerName

NORMALIZERS: "tuple[NormalizerName, ...]" = ("softmax", "sparsemax", "entmax15")
"""The normalizers for which kernels are compiled in advance, with both primitives."""

SECONDS_OF_STEP = 5.0
"""Approximate time of a step that compiles a kernel, used until a step is measured."""


Precision = Literal["float32", "float64"]


@Parameter(name="*")
@dataclass(frozen=True)
class CacheOptions:
    """The options of ``regard cache``."""

    clear: bool = False
    """Remove all compiled kernels, of every version of regard."""
    warm: bool = False
    """Compile all usual kernels now; an interrupted --warm continues the next time."""
    dtype: Literal["float32", "float64", "all"] = "float32"
    """With --warm: the dtype to compile for."""


def command(*, options: CacheOptions = CacheOptions()) -> None:
    """Print where compiled CPU kernels are stored, their number and size; remove them; or compile them in advance."""
    if options.clear:
        _clear()
    if options.clear and not options.warm:
        return

    missing = why_missing()
    if missing is not None:
        raise BackendError(f"there are no compiled kernels: {missing}")
    if options.warm:
        _warm(["float32", "float64"] if options.dtype == "all" else [options.dtype])
    for name, value in inspect().items():
        print(f"{name:<8} {value}")


def inspect() -> dict[str, str]:
    """Returns the output of ``regard cache``: name → value."""
    from regard.kernels.cpu import cache

    folder = cache.cache_folder()
    kernels = {} if folder is None else cache.files_of(folder)
    others = [cache.files_of(other) for other in cache.all_folders() if other != folder]
    usable = "yes"
    if folder is None:
        usable = "no: no folder can be written; set REGARD_CACHE to one of your own that can"
    elif not cache.is_writable(folder):
        usable = "for reading: the folder cannot be written"
    entries = {"folder": "none" if folder is None else str(folder), "kernels": _amount(kernels), "usable": usable}
    if others:
        count = f"{len(others)} folder{'s' * (len(others) != 1)}"
        entries["others"] = f"{_amount(*others)} in {count} of other versions or processors"
    return entries


def _amount(*kernels: dict[Path, int]) -> str:
    sizes = [size for some in kernels for path, size in some.items() if path.suffix == ".kernel"]
    return _size(len(sizes), sum(sizes))


def _size(count: int, size: int) -> str:
    return f"{count} ({size / 1e6:.1f} MB)" if size else f"{count}"


def _clear() -> None:
    from regard.kernels.cpu import cache

    try:
        count, size = cache.clear()
    except OSError as error:
        raise DataError(f"cannot remove {error.filename}: {error.strerror or error}") from error
    print(f"removed  {_size(count, size)}")


def _warm(precisions: list[Precision]) -> None:
    """Runs a tiny problem of every usual kind, so that its kernels are compiled and stored."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from regard.kernels.cpu import cache
    from regard.kernels.cpu.compiling_process import FOREGROUND

    folder = cache.cache_folder()
    if folder is None or not cache.is_writable(folder):
        raise DataError("compiled kernels cannot be kept anywhere; set REGARD_CACHE to a folder of your own")
    steps = [step for precision in precisions for step in problems(precision)]
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )  # fmt: skip
    # Steps whose kernels are kept already take no time and say nothing about the others.
    compiling: list[float] = []
    try:
        with (
            kernels_awaited(),
            Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress,
        ):
            row = progress.add_task("", total=len(steps), left=_left(compiling, len(steps)))
            for number, (name, run) in enumerate(steps, 1):
                progress.update(row, description=name)
                before, started = len(cache.files_of(folder)), time.monotonic()
                run()
                if len(cache.files_of(folder)) > before:
                    compiling.append(time.monotonic() - started)
                left = _left(compiling, len(steps) - number)
                progress.update(row, advance=1, left=left)
                if not sys.stderr.isatty():
                    print(f"{number}/{len(steps)} {name}; {left}", file=sys.stderr, flush=True)
            # Kernels that other sizes of these problems need.
            FOREGROUND.wait()
    except KeyboardInterrupt:
        print("interrupted; kernels compiled so far are kept, and the next --warm goes on", file=sys.stderr, flush=True)
        sys.exit(130)


def _left(compiling: list[float], steps: int) -> str:
    """Returns an upper bound of the remaining time, as if every remaining step had to compile kernels."""
    seconds = steps * (sum(compiling) / len(compiling) if compiling else SECONDS_OF_STEP)
    return "at most about " + (f"{seconds / 60:.0f} min left" if seconds > 90 else f"{seconds:.0f} s left")


def problems(dtype: Precision) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yields tiny problems that need every usual kernel, each with its name."""
    import torch

    from regard.scores import ScaledDot, Score

    kind = getattr(torch, dtype)
    dim, heads = 3, 2

    def inputs() -> list[torch.Tensor]:
        return [torch.ones(1, heads, length, dim, dtype=kind).requires_grad_() for length in (5, 7, 7)]

    def score_of(additive: bool) -> Score:
        return regard.scores.Additive(torch.ones(dim, dtype=kind).requires_grad_()) if additive else ScaledDot()

    def attend(additive: bool, normalizer: "NormalizerName") -> None:
        score = score_of(additive)
        for mask in (None, regard.masks.window(2, 1)):
            output = regard.attend(*inputs(), score=score, normalizer=normalizer, mask=mask, backend="cpu")
            output.sum().backward()

    def observe(additive: bool, normalizer: "NormalizerName") -> None:
        read = regard.Readings(entropy=True, peak=True, top_k=2, received=True, distance=True, weights=True)
        score = score_of(additive)
        regard.observe(*inputs(), read=read, score=score, normalizer=normalizer, backend="cpu")
        # Statistics alone of more queries than a few have a kernel of their own.
        many = [torch.ones(1, heads, 17, dim, dtype=kind)] * 3
        regard.observe(*many, read=regard.Readings(entropy=True), score=score, normalizer=normalizer, backend="cpu")

    def look(additive: bool, normalizer: "NormalizerName") -> None:
        layer = regard.nn.Attention(normalizer=normalizer)
        if additive:
            layer = regard.nn.Attention.create("additive", dim, dim, dim, normalizer=normalizer)
        layer = layer.to(kind)
        memory = layer.remember(torch.ones(1, 7, dim, dtype=kind).requires_grad_())
        context, _ = layer(torch.ones(1, dim, dtype=kind).requires_grad_(), memory)
        context.sum().backward()

    def normalize() -> None:
        # Fewer scores are normalized without a kernel.
        scores = torch.zeros(31, 1009, dtype=kind).requires_grad_()
        for alpha in (2.0, 1.5):
            regard.normalizers.entmax(alpha)(scores).sum().backward()

    def train() -> None:
        encoder = regard.nn.TransformerEncoder.create(1, regard.nn.LayerConfig(8, 2, 8)).to(kind)
        encoder(torch.zeros(1, 3, 8, dtype=kind), lengths=torch.tensor([2])).sum().backward()

    def recur() -> None:
        score = regard.scores.DeltaRule("dot", torch.ones(1, heads, 7, dtype=kind))
        query, key, value = inputs()
        arguments = {"score": score, "normalizer": "identity", "mask": "causal", "backend": "linear"}
        regard.attend(query, key, value, **arguments).sum().backward()

    for additive in (False, True):
        for normalizer in NORMALIZERS:
            for verb in (attend, observe, look):
                # Bound now: the loop goes on before the step runs.
                name = f"{dtype} {'additive' if additive else 'inner product'} {normalizer} {verb.__name__}"
                yield name, lambda verb=verb, additive=additive, normalizer=normalizer: verb(additive, normalizer)
    yield f"{dtype} rows", normalize
    if dtype == "float32":
        yield f"{dtype} linear time", recur
    yield f"{dtype} training", train
