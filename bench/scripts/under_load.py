"""Attention on a machine of which one core is busy: regard and PyTorch's kernels with two threads, in turn.

Another process of the same priority runs a loop that never ends, pinned to one of the cores. A ratio below 1 says that
regard falls behind PyTorch under this load; the columns without load are measured in the same process before.

    python -m bench.scripts.under_load [--rows dense causal ...] [--turns 8] [--threads 2]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

import regard
from bench.busy_core import busy_core
from regard import masks, scores
from regard.kernels.availability import kernels_awaited

TURN_SECONDS = 0.25
"""Least duration of a turn: many time slices of the system."""


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        size: batch, heads, queries, keys, dim.
        options: those of `regard.attend`.
        rival: the rival's call, which gets query, key, value; None: PyTorch's kernel without a mask.
        gradient: whether the backward pass is measured too.
    """

    size: tuple[int, int, int, int, int]
    options: dict[str, Any] = {}  # noqa: RUF012
    rival: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None
    gradient: bool = False


def causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Calls PyTorch's kernel with a causal mask."""
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def banded(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Calls PyTorch's kernel with a window of 512 keys as a dense mask."""
    seen = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril().triu(-512)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=seen)


def additive(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Calculates additive attention as it is written."""
    hidden = torch.tanh(query[:, :, :, None] + key[:, :, None])
    return (hidden.sum(-1)).softmax(-1) @ value


ROWS = {
    "dense": Row((1, 8, 1024, 1024, 64)),
    "causal": Row((1, 8, 1024, 1024, 64), {"mask": masks.causal()}, causal),
    "causal 2 heads": Row((1, 2, 1024, 1024, 64), {"mask": masks.causal()}, causal),
    "causal 256": Row((1, 8, 256, 256, 64), {"mask": masks.causal()}, causal),
    "causal 256, backward": Row((1, 8, 256, 256, 64), {"mask": masks.causal()}, causal, gradient=True),
    "window": Row((1, 4, 4096, 4096, 64), {"mask": masks.window(512, 0)}, banded),
    "additive": Row((1, 4, 256, 256, 64), {"score": scores.Additive(torch.ones(64))}, additive),
    "dense, backward": Row((1, 8, 1024, 1024, 64), gradient=True),
    "causal, backward": Row((1, 8, 1024, 1024, 64), {"mask": masks.causal()}, causal, gradient=True),
    "window, backward": Row((1, 4, 4096, 4096, 64), {"mask": masks.window(512, 0)}, banded, gradient=True),
    "decode": Row((1, 8, 1, 8192, 128)),
    "small": Row((1, 8, 64, 64, 64)),
}


def calls(row: Row, backend: str) -> dict[str, Callable[[], object]]:
    """Returns the two calls of a row."""
    torch.manual_seed(0)
    batch, heads, queries, keys, dim = row.size
    inputs = [torch.randn(batch, heads, length, dim) for length in (queries, keys, keys)]
    grad_output = torch.randn(batch, heads, queries, dim)
    if row.gradient:
        inputs = [tensor.requires_grad_() for tensor in inputs]
    rival = row.rival or F.scaled_dot_product_attention

    def run(attend: Callable[..., Tensor]) -> object:
        output = attend(*inputs)
        return torch.autograd.grad(output, inputs, grad_output) if row.gradient else output

    own = lambda *tensors: regard.attend(*tensors, **row.options, backend=backend)  # noqa: E731
    return {"regard": lambda: run(own), "PyTorch": lambda: run(rival)}


def measure(functions: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Returns the milliseconds of each function, the mean of the calls of several turns.

    A turn calls one function again and again: a thread that has slept gets a core before one that has not. Times under
    load have long tails, which belong to what a call takes.
    """
    seconds, calls = dict.fromkeys(functions, 0.0), dict.fromkeys(functions, 0)
    for _ in range(turns):
        for name, function in functions.items():
            time.sleep(0.002)
            start = now = time.perf_counter()
            while now - start < TURN_SECONDS:
                function()
                calls[name] += 1
                now = time.perf_counter()
            seconds[name] += now - start
    return {name: 1e3 * seconds[name] / calls[name] for name in functions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--backend", default="auto")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    functions = {name: calls(ROWS[name], options.backend) for name in options.rows}
    with kernels_awaited():
        for both in functions.values():
            for function in both.values():
                function()
                function()
        print(f"{'':<22}{'alone':>26}{'one core busy':>30}")
        print(f"{'milliseconds':<22}{'regard':>9}{'PyTorch':>9}{'ratio':>8}{'regard':>13}{'PyTorch':>9}{'ratio':>8}")
        for name, both in functions.items():
            found = [measure(both, 3)]
            with busy_core():
                found.append(measure(both, options.turns))
            line = f"{name:<22}"
            for taken in found:
                own, rival = taken["regard"], taken["PyTorch"]
                line += f"{own:>9.2f}{rival:>9.2f}{rival / own:>8.2f}" + " " * 4
            print(line, flush=True)


if __name__ == "__main__":
    main()
