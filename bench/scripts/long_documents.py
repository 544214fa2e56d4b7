"""A training step of a text classifier over long documents, against plain PyTorch with a dense mask.

    python -m bench.scripts.long_documents --length 16384 --threads 2

The model is a Transformer whose tokens see a window and some global tokens (Beltagy et al. 2020, section 3.1), and the
mean of its annotations. The rival has the same parameters in `torch.nn.TransformerEncoder`, whose attention is
`scaled_dot_product_attention` with the mask as a tensor ``[length, length]``. Both are measured as they are and with
activation checkpointing of every layer (Chen et al. 2016), ours with its feedforward network in chunks of rows. Each
runs in a process of its own, which gives large blocks back to the system when they are freed, as `regard train` does
with ``--activation-checkpointing``.

One step is the forward and backward pass and AdamW's step. Extra memory is the peak of the first step at full length
above what the process held before it made the batch and the mask; times are taken in turns. Linux only.
"""

import argparse
import gc
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from bench.process_status import status
from regard.models import TextClassifier, TextClassifierConfig
from regard.shapes.grid import Grid
from regard.training.resident_memory import return_large_blocks

VOCABULARY, LABELS = 8000, 2
MODELS = ("regard", "regard, checkpointing", "plain", "plain, checkpointing")
WARM_LENGTH = 1024
"""Tokens of the step that loads the libraries and compiles the kernels."""


class PlainClassifier(nn.Module):
    """`torch.nn.TransformerEncoder` between an embedding with sinusoidal positions and the mean of its annotations.

    Args:
        model: whose configuration it has, and whose parameters are copied.
        length: tokens of the longest text.
        checkpointing: whether each layer's activations are computed again in the backward pass.
    """

    positions: Tensor

    def __init__(self, model: TextClassifier, length: int, checkpointing: bool):
        super().__init__()
        self.checkpointing = checkpointing
        config, dim = model.config, model.config.hidden
        layer = nn.TransformerEncoderLayer(
            dim, config.heads, config.feedforward or 4 * dim, config.dropout, config.activation, batch_first=True,
            norm_first=True,
        )  # fmt: skip
        self.embedding = nn.Embedding(config.vocabulary, dim)
        self.encoder = nn.TransformerEncoder(layer, config.layers, nn.LayerNorm(dim), enable_nested_tensor=False)
        self.output = nn.Linear(dim, config.labels)
        angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, dim, 2) / dim)
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1))
        self.mask = model.mask
        ours = model.state_dict()
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(ours[name.replace("embedding.", "input.embedding.")])

    def forward(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """The logits of texts ``[batch, length]``, whose tokens do not see what is ``hidden [length, length]``."""
        embedded = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        embedded = embedded + self.positions[: tokens.shape[1]]
        return self.output(self.encode(embedded, hidden).mean(1))

    def encode(self, rows: Tensor, hidden: Tensor) -> Tensor:
        """The annotations of embedded texts ``[batch, length, dim]``."""
        if not self.checkpointing:
            return self.encoder(rows, mask=hidden)
        for layer in self.encoder.layers:
            rows = checkpoint(layer, rows, hidden, use_reentrant=False)
        return self.encoder.norm(rows)

    def hidden(self, length: int) -> Tensor:
        """The mask of a text, True for pairs that are not seen."""
        assert self.mask is not None
        return ~self.mask.dense(Grid.whole(1, 1, length, length))[0, 0]


class Training:
    """The training of one model on one batch of texts."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        checkpointing = options.serve.endswith("checkpointing")
        torch.manual_seed(7)
        ours = TextClassifier(
            TextClassifierConfig(
                VOCABULARY,
                LABELS,
                architecture="transformer",
                hidden=options.dim,
                layers=options.layers,
                heads=options.heads,
                window=options.window,
                global_tokens=options.global_tokens,
                pooling="mean",
                dropout=0.0,
                word_dropout=0.0,
                activation_checkpointing=checkpointing,
                feedforward_chunk=options.feedforward_chunk if checkpointing else 0,
            )
        )
        plain = options.serve.startswith("plain")
        self.model = PlainClassifier(ours, options.length, checkpointing) if plain else ours
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-5)

    def prepare(self, length: int) -> None:
        """Make the batch, and the mask if it is a tensor."""
        generator = torch.Generator().manual_seed(length)
        self.tokens = torch.randint(VOCABULARY, (self.options.batch, length), generator=generator)
        self.labels = torch.arange(self.options.batch) % LABELS
        plain = isinstance(self.model, PlainClassifier)
        self.other = self.model.hidden(length) if plain else torch.full((self.options.batch,), length)

    def step(self) -> float:
        """One training step; its loss."""
        found = self.model(self.tokens, self.other)
        loss = F.cross_entropy(found if isinstance(found, Tensor) else found.logits, self.labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def serve(options: argparse.Namespace) -> None:
    """The process of one model: prints the first step's extra bytes and loss, then for each line the seconds of one."""
    torch.set_num_threads(options.threads)
    return_large_blocks()
    training = Training(options)
    training.prepare(min(WARM_LENGTH, options.length))
    training.step()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = status("VmRSS")
    training.prepare(options.length)
    loss = training.step()
    print(status("VmHWM") - before, loss, flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        training.step()
        print(time.perf_counter() - started, flush=True)


class Rival:
    """One process, and what was measured in it."""

    def __init__(self, name: str):
        self.process = subprocess.Popen(
            [sys.executable, __file__, *sys.argv[1:], "--serve", name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        extra, loss = self._answer().split()
        self.extra, self.loss, self.seconds = int(extra), float(loss), list[float]()

    def step(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        self.seconds.append(float(self._answer()))

    def _answer(self) -> str:
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("a process ended before it answered; its error stands above")
        return answer


def main() -> None:
    options = _arguments()
    if options.serve:
        serve(options)
        return
    rivals = {name: Rival(name) for name in MODELS}
    for turn in range(options.steps):
        for name in MODELS[:: 1 if turn % 2 else -1]:
            rivals[name].step()
    mask = f"window {options.window} + {options.global_tokens} global"
    layers = f"{options.layers} layers of {options.heads} heads × {options.dim // options.heads}"
    print(f"{options.batch} × {options.length:,} tokens, {mask}, {layers}, {options.threads} threads\n")
    print("| | s a step, median | least | extra memory, MiB | first loss |\n|---|---|---|---|---|")
    for name, rival in rivals.items():
        times = f"{statistics.median(rival.seconds):.3f} | {min(rival.seconds):.3f}"
        print(f"| {name} | {times} | {rival.extra / 2**20:,.0f} | {rival.loss:.6f} |")
    print("\n| ratio | time | memory |\n|---|---|---|")
    for ours in MODELS[:2]:
        for plain in MODELS[2:]:
            here, there = rivals[ours], rivals[plain]
            ratios = [theirs / own for own, theirs in zip(here.seconds, there.seconds, strict=True)]
            print(f"| {plain} / {ours} | {statistics.median(ratios):.1f} | {there.extra / here.extra:.1f} |")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=16384, help="tokens of a text (default: 16384)")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--window", type=int, default=256, help="tokens that are seen on each side (default: 256)")
    parser.add_argument("--global-tokens", type=int, default=1, help="first tokens that all see (default: 1)")
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument(
        "--feedforward-chunk", type=int, default=1024, help="rows, ours with checkpointing (default: 1024)"
    )
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each (default: 3)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--serve", choices=MODELS, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
