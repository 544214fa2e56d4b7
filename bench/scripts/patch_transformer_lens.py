"""Patching and ablation beside TransformerLens: equal logits, and what both take at 2,048 tokens.

Both run a GPT-2 of transformers with the same random weights: regard runs it as it is (``sdpa``), TransformerLens a
copy of it behind its bridge, whose attention is eager. First every head is patched and switched off in turn, and the
logits of both are compared. Then each measures one head's patch (a clean run whose heads are kept, and a run with one
head of it) and the table of all heads, in turn in one process. Times are medians; of one thread, those of the
processor. Memory is the peak of a process of its own above its level before.

It needs an environment of its own with ``torch==2.13.0 transformers==5.24.0 transformer-lens==4.3.0`` and regard::

    python -m bench.scripts.patch_transformer_lens [--tokens 2048] [--layers 4] [--heads 8] [--width 256] [--repeats 5]
"""

import argparse
import copy
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
from torch import Tensor, nn
from transformer_lens import patching
from transformer_lens.model_bridge.sources import build_bridge_from_module
from transformers import GPT2Config, GPT2LMHeadModel

import regard
from bench.process_status import status

VOCABULARY = 1000
HOOKS = {"output": "z", "weights": "pattern", "values": "v"}
"""What is patched, and its name in TransformerLens."""
LIMIT = 1e-5
"""The largest difference of two logits that counts as equal, in float32."""


class Lens:
    """TransformerLens, with the memory of what it needs alone."""

    def __init__(self, model: nn.Module):
        self.model = build_bridge_from_module(copy.deepcopy(model), "GPT2LMHeadModel", hf_config=model.config).eval()

    def __call__(self, ids: Tensor) -> Tensor:
        return self.model(ids)

    def keep(self, ids: Tensor, what: str) -> object:
        hook = f"attn.hook_{HOOKS[what]}"
        return self.model.run_with_cache(ids, names_filter=lambda name: name.endswith(hook))[1]

    def patched(self, ids: Tensor, clean: object, what: str, layer: int, head: int) -> Tensor:
        name = f"blocks.{layer}.attn.hook_{HOOKS[what]}"

        def set_head(activation: Tensor, hook: object) -> Tensor:
            index = (slice(None), head) if what == "weights" else (slice(None), slice(None), head)
            activation[index] = clean[name][index]
            return activation

        return self.model.run_with_hooks(ids, fwd_hooks=[(name, set_head)])

    def ablated(self, ids: Tensor, what: str, layer: int, head: int) -> Tensor:
        name = f"blocks.{layer}.attn.hook_{HOOKS[what]}"

        def clear_head(activation: Tensor, hook: object) -> Tensor:
            activation[(slice(None), head) if what == "weights" else (slice(None), slice(None), head)] = 0.0
            return activation

        return self.model.run_with_hooks(ids, fwd_hooks=[(name, clear_head)])

    def table(self, clean: Tensor, corrupted: Tensor, what: str) -> Tensor:
        sweep = {
            "output": patching.get_act_patch_attn_head_out_all_pos,
            "weights": patching.get_act_patch_attn_head_pattern_all_pos,
            "values": patching.get_act_patch_attn_head_v_all_pos,
        }[what]
        return sweep(self.model, corrupted, self.keep(clean, what), lambda logits: metric(logits).mean())


class Regard:
    """The model as it is, under `regard.intervene`."""

    def __init__(self, model: nn.Module):
        self.model = model

    def __call__(self, ids: Tensor) -> Tensor:
        return self.model(ids).logits

    def keep(self, ids: Tensor, what: str) -> regard.watching.Watch:
        is_weights = what == "weights"
        with regard.watch(self.model, read=regard.Readings(), keep=is_weights, outputs=not is_weights) as seen:
            self.model(ids)
        return seen

    def patched(self, ids: Tensor, clean: regard.watching.Watch, what: str, layer: int, head: int) -> Tensor:
        with regard.intervene(self.model, regard.Change(what, clean, layer=layer, head=head)):
            return self(ids)

    def ablated(self, ids: Tensor, what: str, layer: int, head: int) -> Tensor:
        with regard.intervene(self.model, regard.Change(what, 0.0, layer=layer, head=head)):
            return self(ids)

    def table(self, clean: Tensor, corrupted: Tensor, what: str) -> Tensor:
        result = regard.patch(
            self.model, clean, corrupted, lambda output: metric(output.logits), what=what, progress=False
        )
        return result.metrics.mean(0)


TOOLS: dict[str, type[Regard] | type[Lens]] = {"regard": Regard, "TransformerLens": Lens}


def metric(logits: Tensor) -> Tensor:
    """A difference of logits at the last position."""
    return logits[:, -1, 0] - logits[:, -1, 1]


def subject(options: argparse.Namespace, tokens: int) -> tuple[nn.Module, Tensor, Tensor]:
    """The model, and clean and corrupted ids, which differ in a tenth of the tokens."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=max(tokens, 64), n_embd=options.width, n_layer=options.layers,
        n_head=options.heads, initializer_range=0.05,
    )  # fmt: skip
    clean = torch.randint(VOCABULARY, (1, tokens))
    corrupted = torch.where(torch.rand(1, tokens) < 0.1, torch.randint(VOCABULARY, (1, tokens)), clean)
    return GPT2LMHeadModel(config).eval(), clean, corrupted


def compare(options: argparse.Namespace) -> dict[str, float]:
    """The largest difference of the logits of both, over all heads; raises AssertionError if it is too large."""
    model, clean, corrupted = subject(options, 64)
    tools = [tool(model) for tool in TOOLS.values()]
    largest = {"no change": difference([tool(clean) for tool in tools])}
    for what in HOOKS:
        cleans = [tool.keep(clean, what) for tool in tools]
        for layer in range(options.layers):
            for head in range(options.heads):
                patched = [
                    tool.patched(corrupted, kept, what, layer, head) for tool, kept in zip(tools, cleans, strict=True)
                ]
                ablated = [tool.ablated(corrupted, what, layer, head) for tool in tools]
                for name, logits in ((f"{what} patched", patched), (f"{what} at 0", ablated)):
                    largest[name] = max(largest.get(name, 0.0), difference(logits))
        largest[f"{what}, table"] = difference([tool.table(clean, corrupted, what) for tool in tools])
    for name, value in largest.items():
        print(f"  {name:<18} {value:.1e}")
        assert value <= LIMIT, name
    return largest


def difference(results: list[Tensor]) -> float:
    return (results[0] - results[1].reshape(results[0].shape)).abs().max().item()


def work(tool: Regard | Lens, which: str, what: str, clean: Tensor, corrupted: Tensor) -> Callable[[], object]:
    """What is measured."""
    if which == "table":
        return lambda: tool.table(clean, corrupted, what)
    return lambda: tool.patched(corrupted, tool.keep(clean, what), what, layer=1, head=1)


def measure(options: argparse.Namespace, which: str, what: str) -> dict[str, float]:
    """Median seconds of each, run in turn."""
    model, clean, corrupted = subject(options, options.tokens)
    runs = {name: work(tool(model), which, what, clean, corrupted) for name, tool in TOOLS.items()}
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(1 if which == "table" else options.repeats):
        for name, run in runs.items():
            start = clock()
            run()
            times[name].append(clock() - start)
    return {name: statistics.median(taken) for name, taken in times.items()}


def peak_of(options: argparse.Namespace, tool: str, which: str, what: str) -> float:
    """MiB that a process takes at most above what it had before."""
    numbers = {name: getattr(options, name) for name in ("tokens", "layers", "heads", "width", "threads")}
    command = [sys.executable, __file__, "--peak", tool, which, what]
    command += [part for name, value in numbers.items() for part in (f"--{name}", str(value))]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout)


def print_peak(options: argparse.Namespace) -> None:
    name, which, what = options.peak
    model, clean, corrupted = subject(options, options.tokens)
    tool = TOOLS[name](model)
    work(tool, "one", what, clean[:, :64], corrupted[:, :64])()  # what belongs to a first call
    run = work(tool, which, what, clean, corrupted)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # from now on the peak is that of the run
    before = status("VmRSS")
    run()
    print((status("VmHWM") - before) / 2**20)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        print_peak(options)
        return
    print("largest difference of the logits, 64 tokens")
    report: dict[str, object] = {"differences": compare(options)}
    print(f"{options.tokens} tokens, {options.layers} layers × {options.heads} heads, {options.threads} threads")
    for which in ("one", "table"):
        for what in HOOKS:
            times = measure(options, which, what)
            peaks = {name: peak_of(options, name, which, what) for name in TOOLS}
            shares = [taken["regard"] / taken["TransformerLens"] for taken in (times, peaks)]
            report[f"{which} {what}"] = {"seconds": times, "peak MiB": peaks}
            for name in TOOLS:
                print(f"  {which:<5} {what:<7} {name:<15} {times[name]:8.2f} s {peaks[name]:8.1f} MiB")
            print(f"  {'':<13} {'share':<15} {shares[0]:8.2f}   {shares[1]:8.2f}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
