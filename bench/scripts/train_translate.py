"""Training speed of the translators against the same models in plain PyTorch, and the time of each part.

    python -m bench.scripts.train_translate --train PATH --source-column de --target-column en --lowercase

Each kind of attention is trained twice: by regard, and by `torch.nn.LSTM` with eager attention
(`bench.plain.translator`) or by `torch.nn.Transformer` (`bench.plain.transformer`), from the same
weights. Batches are of sentences of similar lengths, as in a training; with `--ragged`, of sentences of all lengths.
All models are trained on the same batches in turn, so that changes of the machine's speed affect all of them. The
speeds are medians over batches, and the ratios are medians of the ratios for the same batch. Before the measurement,
the losses of both models are compared.

With `--against joeynmt` the rival is JoeyNMT's model of the same sizes (`bench/scripts/joeynmt_translator.py`), from
weights of its own.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from bench.plain.transformer import PlainTransformer
from bench.plain.translator import SMOOTHING, PlainTranslator
from regard.data.text.batches import PairBatch, encode_pairs, pair_batches
from regard.data.text.generated import write_corpus
from regard.data.text.sources import open_pairs
from regard.data.text.tokenizers import Tokenizer
from regard.models import RecurrentTranslator, TransformerTranslator, TranslatorConfig

KINDS = {
    "none": {"attention": "none"},
    "bahdanau": {"attention": "bahdanau"},
    "luong-dot": {"attention": "luong", "score": "dot", "input_feeding": False},
    "luong-general": {"attention": "luong", "input_feeding": False},
    "luong-dot, input feeding": {"attention": "luong", "score": "dot"},
    "luong-general, input feeding": {"attention": "luong"},
    "hard": {"attention": "hard"},
    "transformer": None,
}
LOSS_TOLERANCE = {"32": 1e-4, "bf16": 2e-2}


class Trainee:
    """One model, its optimizer, and the seconds of each part of its steps.

    Args:
        model: the model.
        loss: its training loss of a batch.
        precision: ``"32"`` or ``"bf16"`` (autocast).
    """

    def __init__(self, model: nn.Module, loss: Callable[[PairBatch], Tensor], precision: str):
        self.model = model.train()
        self.loss = loss
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        self.bfloat16 = precision == "bf16"
        self.seconds: list[float] = []
        self.parts = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}

    def first_loss(self, batch: PairBatch) -> float:
        """The loss without dropout."""
        self.model.eval()
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16):
            found = float(self.loss(batch))
        self.model.train()
        return found

    def step(self, batch: PairBatch) -> None:
        """One training step."""
        marks = [time.perf_counter()]
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16):
            loss = self.loss(batch)
        marks.append(time.perf_counter())
        loss.backward()
        marks.append(time.perf_counter())
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        marks.append(time.perf_counter())
        for part, (start, stop) in zip(self.parts, itertools.pairwise(marks), strict=True):
            self.parts[part] += stop - start
        self.seconds.append(marks[-1] - marks[0])

    def restart(self) -> None:
        """Discard the measurements of the warm-up."""
        self.seconds.clear()
        self.parts.update(dict.fromkeys(self.parts, 0.0))

    def operators(self, batch: PairBatch, top: int = 8) -> list[tuple[str, float]]:
        """The operators with the most time in a step, forward and backward, and their fractions of the time."""
        with profile(activities=[ProfilerActivity.CPU]) as recorded:
            for _ in range(3):
                self.step(batch)
        events = sorted(recorded.key_averages(), key=lambda event: -event.self_cpu_time_total)
        total = sum(event.self_cpu_time_total for event in events)
        return [(event.key.removeprefix("aten::"), event.self_cpu_time_total / total) for event in events[:top]]


def make_pair(kind: str, sizes: dict[str, int], arguments: argparse.Namespace, precision: str) -> dict[str, Trainee]:
    """Our model and its rival; the plain one has the same first weights."""
    torch.manual_seed(1)
    options = KINDS[kind]
    if options is None:
        ours = TransformerTranslator(
            TranslatorConfig(
                **sizes, architecture="transformer", hidden=arguments.hidden,
                heads=arguments.heads, feedforward=arguments.feedforward,
                encoder_layers=arguments.layers, decoder_layers=arguments.layers, dropout=0.1,
            )
        )  # fmt: skip
        rival = None if arguments.against == "joeynmt" else PlainTransformer.like(ours)
    else:
        ours = RecurrentTranslator(
            TranslatorConfig(**sizes, **options, embedding=arguments.embedding, hidden=arguments.hidden, dropout=0.3)
        )
        rival = None if arguments.against == "joeynmt" else PlainTranslator.like(ours)
    if rival is None:
        from bench.scripts.joeynmt_translator import JoeyTranslator

        rival = JoeyTranslator(ours.config, SMOOTHING)

    def our_loss(batch: PairBatch) -> Tensor:
        sides = batch.source, batch.source_lengths, batch.target, batch.target_lengths
        return ours.loss(*sides, label_smoothing=SMOOTHING).total

    return {"regard": Trainee(ours, our_loss, precision), arguments.against: Trainee(rival, rival.loss, precision)}


def main() -> None:
    arguments = _arguments()
    loader, sizes = _data(arguments)
    batches = list(itertools.islice(loader, arguments.warmup + arguments.batches))
    record = {
        "torch": torch.__version__,
        "batches": arguments.batches,
        "tokens_per_batch": arguments.tokens_per_batch,
        **{name: value for name, value in vars(arguments).items() if isinstance(value, int)},
        **sizes,
        "measured": [],
    }
    print(f"{arguments.batches} batches, vocabulary {sizes['target_vocabulary']}, torch {torch.__version__}\n")
    rival = {"plain": "plain PyTorch", "joeynmt": "JoeyNMT"}[arguments.against]
    header = ["model", "precision", "threads", "target tokens/s", rival, "ratio", "quartiles"]
    for row in (header, ["---"] * len(header)):
        print("| " + " | ".join(row) + " |", flush=True)
    for precision, threads in itertools.product(arguments.precision, arguments.threads):
        torch.set_num_threads(threads)
        pairs = {name: make_pair(name, sizes, arguments, precision) for name in arguments.kinds or KINDS}
        if arguments.against == "plain":
            _compare_losses(pairs, batches[0], LOSS_TOLERANCE[precision])
        _train_in_turn(pairs, batches, arguments.warmup)
        for name, pair in pairs.items():
            found = _figures(pair, batches[arguments.warmup :])
            if arguments.operators:
                found["operators"] = {side: one.operators(batches[-1]) for side, one in pair.items()}
            record["measured"].append({"model": name, "precision": precision, "threads": threads, **found})
            low, middle, high = found["ratio_quartiles"]
            speeds = (f"{found['tokens_per_second'][side]:,.0f}" for side in ("regard", arguments.against))
            row = [name, precision, str(threads), *speeds, f"{middle:.2f}", f"{low:.2f}–{high:.2f}"]
            print("| " + " | ".join(row) + " |", flush=True)
    for one in record["measured"]:
        print(f"\n{one['model']}, {one['precision']}, {one['threads']} threads")
        for side, parts in one["parts"].items():
            print(f"  {side}: " + ", ".join(f"{part} {1e3 * seconds:.0f} ms" for part, seconds in parts.items()))
        for side, operators in one.get("operators", {}).items():
            print(f"  {side}: " + ", ".join(f"{operator} {share:.0%}" for operator, share in operators))
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


def _compare_losses(pairs: dict[str, dict[str, Trainee]], batch: PairBatch, tolerance: float) -> None:
    for name, pair in pairs.items():
        ours, plain = (one.first_loss(batch) for one in pair.values())
        if abs(ours - plain) > tolerance * abs(plain):
            raise SystemExit(f"{name}: the models differ: the loss of regard is {ours}, of plain PyTorch {plain}")


def _train_in_turn(pairs: dict[str, dict[str, Trainee]], batches: list[PairBatch], warmup: int) -> None:
    for number, batch in enumerate(batches):
        trainees = [trainee for pair in pairs.values() for trainee in pair.values()]
        if number == warmup:
            for trainee in trainees:
                trainee.restart()
        for pair in pairs.values():
            # Each model of a pair goes first every other time.
            for trainee in list(pair.values())[:: 1 if number % 2 else -1]:
                trainee.step(batch)


def _figures(pair: dict[str, Trainee], batches: list[PairBatch]) -> dict:
    rates = {
        side: [batch.target_tokens / seconds for batch, seconds in zip(batches, one.seconds, strict=True)]
        for side, one in pair.items()
    }
    ratios = [ours / rival for ours, rival in zip(*rates.values(), strict=True)]
    return {
        "tokens_per_second": {side: statistics.median(found) for side, found in rates.items()},
        "ratio_quartiles": statistics.quantiles(ratios, n=4),
        "parts": {
            side: {part: seconds / len(batches) for part, seconds in one.parts.items()} for side, one in pair.items()
        },
    }


def _data(arguments: argparse.Namespace) -> tuple[Iterable[PairBatch], dict[str, int]]:
    path, columns = arguments.train, (arguments.source_column, arguments.target_column)
    if path is None:
        path = write_corpus(arguments.scratch, {"train": 20_000}, seed=1)["train"]
        columns = ("english", "spanish")
    pairs = open_pairs(path, *columns, lowercase=arguments.lowercase)
    tokenizers = [Tokenizer.train(pairs[side], size=arguments.vocabulary) for side in ("source", "target")]
    encoded = encode_pairs(pairs, *tokenizers, max_length=100)
    sizes = {"source_vocabulary": len(tokenizers[0]), "target_vocabulary": len(tokenizers[1])}
    if arguments.ragged:
        return _ragged_batches(encoded, arguments.tokens_per_batch), sizes
    return pair_batches(encoded, arguments.tokens_per_batch, seed=1), sizes


def _ragged_batches(encoded: Any, tokens: int) -> Iterator[PairBatch]:
    """Batches of pairs in a random order, whose target tokens without padding are about as many as asked for."""
    order = iter(torch.randperm(len(encoded), generator=torch.Generator().manual_seed(1)).tolist())
    while True:
        pairs, size = [], 0
        while size < tokens:
            pairs.append(encoded[next(order)])
            size += pairs[-1]["target_length"] + 2
        yield PairBatch.of([pair["source"] for pair in pairs], [pair["target"] for pair in pairs])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", help="pairs, as for `regard train translate`; default: the bundled corpus")
    parser.add_argument("--source-column", default="source")
    parser.add_argument("--target-column", default="target")
    parser.add_argument("--lowercase", action="store_true")
    parser.add_argument("--vocabulary", type=int, default=8000, help="tokens of each side")
    parser.add_argument("--embedding", type=int, default=256, help="features")
    parser.add_argument("--hidden", type=int, default=512, help="features")
    parser.add_argument("--heads", type=int, default=8, help="transformer: heads")
    parser.add_argument("--feedforward", type=int, default=2048, help="transformer: units")
    parser.add_argument("--layers", type=int, default=6, help="transformer: layers of each side")
    parser.add_argument("--ragged", action="store_true", help="batches of sentences of all lengths")
    parser.add_argument("--tokens-per-batch", type=int, default=2000, help="target tokens, padding included")
    parser.add_argument("--batches", type=int, default=20, help="measured batches")
    parser.add_argument("--warmup", type=int, default=3, help="batches before the measured ones")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, help="default: all")
    parser.add_argument("--against", choices=("plain", "joeynmt"), default="plain", help="the rival")
    parser.add_argument("--precision", nargs="+", choices=("32", "bf16"), default=["32", "bf16"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--operators", action="store_true", help="name the operators that take most time")
    parser.add_argument("--scratch", type=Path, default=Path("build/bench"), help="where the bundled corpus is written")
    parser.add_argument("--json", type=Path, help="write the results into this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
