"""Times ``triton`` against its rivals on a GPU, one row as soon as it is known.

Each row is one problem. The rivals take turns in one run, and the medians of CUDA's events are compared: milliseconds
of a forward pass, and of a forward and a backward pass, and the peak of memory beyond the inputs. A rival that fails or
needs too much memory says so in its place. ``--seconds`` limits the whole; ``--tiny`` proves on a CPU, in Triton's
interpreter, that the script runs.

    python -m bench.scripts.gpu_kernels --seconds 60
"""

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

import regard
from regard import masks, scores

Rival = Callable[[Tensor, Tensor, Tensor], Tensor]


class Row(NamedTuple):
    """One problem and who runs it, ``triton`` first.

    Attributes:
        name: what is computed.
        sizes: batch, heads, length and dim of queries, keys and values.
        dtype: of the inputs.
        rivals: by name.
    """

    name: str
    sizes: tuple[int, int, int, int]
    dtype: torch.dtype
    rivals: dict[str, Rival]


def by(backend: str, **arguments: object) -> Rival:
    return lambda query, key, value: regard.attend(query, key, value, backend=backend, **arguments)  # type: ignore[arg-type]


def observed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    read = regard.Readings(entropy=True, peak=True, received=True)
    return regard.observe(query, key, value, read=read, backend="triton").output


def additive_eagerly(weight: Tensor) -> Rival:
    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        hidden = torch.tanh(query[..., :, None, :].float() + key[..., None, :, :].float())
        return (hidden @ weight).softmax(-1).to(value.dtype) @ value

    return run


def entmax15_eagerly(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Peters, Niculae & Martins 2019, algorithm 2, with a sort, as plain PyTorch."""
    half = (query @ key.transpose(-1, -2)).float() * (0.5 / query.shape[-1] ** 0.5)
    half = half - half.amax(-1, keepdim=True)
    ordered = half.sort(-1, descending=True).values
    count = torch.arange(1, half.shape[-1] + 1, device=half.device, dtype=half.dtype)
    mean, square = ordered.cumsum(-1) / count, ordered.square().cumsum(-1) / count
    spread = ((1 - count * (square - mean.square())) / count).clamp(min=0)
    thresholds = mean - spread.sqrt()
    support = (thresholds <= ordered).sum(-1, keepdim=True)
    weights = (half - thresholds.gather(-1, support - 1)).clamp(min=0).square()
    return weights.to(value.dtype) @ value


def sparsemax_eagerly(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Martins & Astudillo 2016, algorithm 1, as plain PyTorch."""
    whole = (query @ key.transpose(-1, -2)).float() * query.shape[-1] ** -0.5
    ordered = whole.sort(-1, descending=True).values
    count = torch.arange(1, whole.shape[-1] + 1, device=whole.device, dtype=whole.dtype)
    sums = ordered.cumsum(-1) - 1
    support = (count * ordered > sums).sum(-1, keepdim=True)
    weights = (whole - sums.gather(-1, support - 1) / support).clamp(min=0)
    return weights.to(value.dtype) @ value


def entmax15_by_adasplash() -> dict[str, Rival]:
    """AdaSplash (Gonçalves, Treviso & Martins 2025), if it is installed."""
    try:
        from adasplash import adasplash  # pyright: ignore[reportMissingImports]
    except ImportError:
        return {}
    return {"adasplash": lambda query, key, value: adasplash(query, key, value, alpha=1.5, is_causal=False)}


def rows(device: str, tiny: bool) -> Iterator[Row]:
    """Yields the problems, the most telling ones first."""
    halves = (torch.float32,) if tiny else (torch.bfloat16,)
    both = halves if tiny else (torch.bfloat16, torch.float32)
    heads, dim = (2, 16) if tiny else (16, 64)
    weight = torch.randn(dim, device=device) / dim**0.5
    for length in (64,) if tiny else (1024, 2048, 4096):
        additive = {"triton": by("triton", score=scores.Additive(weight))}
        if length <= 2048:
            additive["eager"] = additive_eagerly(weight)
            if not tiny:
                additive["compiled"] = torch.compile(additive_eagerly(weight), dynamic=False)
        yield Row("additive", (1, 2 if tiny else 4, length, dim), halves[0], additive)
    for length in (64,) if tiny else (4096, 16384):
        sizes, dense = (1, heads, length, dim), length <= 4096
        for dtype in both if dense else halves:
            for name, eager in (("entmax15", entmax15_eagerly), ("sparsemax", sparsemax_eagerly)):
                rivals = {"triton": by("triton", normalizer=name)} | ({"eager": eager} if dense else {})
                if name == "entmax15" and dtype == torch.bfloat16:
                    rivals |= entmax15_by_adasplash()
                yield Row(name, sizes, dtype, rivals)
            yield Row("plain", sizes, dtype, {"triton": by("triton"), "sdpa": F.scaled_dot_product_attention})
            yield Row("causal", sizes, dtype, {
                "triton": by("triton", mask=masks.causal()),
                "sdpa": lambda query, key, value: F.scaled_dot_product_attention(query, key, value, is_causal=True),
            })  # fmt: skip
            yield Row("observe", sizes, dtype, {"triton": observed, "sdpa": F.scaled_dot_product_attention})
    for length in (64,) if tiny else (16384, 65536):
        sizes = (1, heads, length, dim)
        flex = () if tiny else ("flex",)
        window = masks.window(length // 16, 0)
        yield Row("window", sizes, halves[0], {name: by(name, mask=window) for name in ("triton", *flex)})
        ids = torch.arange(length, device=device) * 8 // length
        for name, mask in (("documents", masks.documents(ids.cpu())), ("device ids", masks.documents(ids))):
            yield Row(name, sizes, halves[0], {"triton": by("triton", mask=mask)})
    if not tiny:
        yield Row("observe", (1, 1, 1_000_000, dim), torch.bfloat16, {"triton": observed})


class Timer:
    """Times calls on a device by its events, or on a CPU by its clock."""

    def __init__(self, device: str):
        self.on_gpu = device == "cuda"

    def milliseconds(self, call: Callable[[], object]) -> float:
        if not self.on_gpu:
            begin = time.perf_counter()
            call()
            return 1e3 * (time.perf_counter() - begin)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    def peak(self, call: Callable[[], object]) -> float:
        """Returns the MiB that a call allocates beyond what there was."""
        if not self.on_gpu:
            return 0.0
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20


def call_of(rival: Rival, inputs: list[Tensor], pull: Tensor | None) -> Callable[[], object]:
    """Returns a forward pass, or with the gradient of the output both passes."""
    if pull is None:

        def forward() -> None:
            with torch.no_grad():
                rival(*inputs)

        return forward
    return lambda: torch.autograd.grad(rival(*inputs), inputs, pull)


def measure(row: Row, device: str, timer: Timer, repeats: int) -> str:
    """Returns the line of one problem."""
    torch.manual_seed(0)
    inputs = [torch.randn(row.sizes, device=device, dtype=row.dtype, requires_grad=True) for _ in range(3)]
    pull = torch.randn(row.sizes, device=device, dtype=row.dtype)
    parts = []
    for gradient in (None, pull) if row.sizes[2] < 1_000_000 else (None,):
        calls, failures = {}, {}
        for name, rival in row.rivals.items():
            call = call_of(rival, inputs, gradient)
            try:
                call()
                calls[name] = (call, timer.peak(call))
            except Exception as error:  # a rival may fail in any way, and the others are measured
                failures[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:70]}"
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(repeats):
            for name, (call, _) in calls.items():
                times[name].append(timer.milliseconds(call))
        own = median(times["triton"]) if "triton" in times else None
        for name in row.rivals:
            if name in failures:
                parts.append(f"{name} failed ({failures[name]})")
                continue
            taken = median(times[name])
            ratio = "" if name == "triton" or own is None else f" ({taken / own:.2f}x)"
            parts.append(f"{name} {taken:.3f} ms {calls[name][1]:.0f} MiB{ratio}")
        parts.append("|")
    return f"{row.name:10} {row.sizes[2]:6} {str(row.dtype)[6:]:9} " + "  ".join(parts[:-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="no row begins after this time")
    parser.add_argument("--tiny", action="store_true", help="small sizes, on a CPU in Triton's interpreter")
    parser.add_argument("--only", default="", help="names of rows, separated by commas")
    options = parser.parse_args()
    device = "cpu" if options.tiny else "cuda"
    begin = time.perf_counter()
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if device == 'cuda' else 'interpreter'}")
    print("row        length dtype     forward | forward + backward; (n x): times the time of triton", flush=True)
    timer, chosen = Timer(device), set(filter(None, options.only.split(",")))
    for row in rows(device, options.tiny):
        if chosen and row.name not in chosen:
            continue
        if time.perf_counter() - begin > options.seconds:
            print("the time is over", flush=True)
            break
        print(measure(row, device, timer, 1 if options.tiny else 7), flush=True)


if __name__ == "__main__":
    main()
