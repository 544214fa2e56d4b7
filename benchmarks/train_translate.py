"""Training speed of the recurrent translator, with and without attention, and the time of each part.

    python benchmarks/train_translate.py --train PATH --source-column de --target-column en --lowercase

All models are trained on the same batches in turn, so that changes of the machine's speed affect all of them. The
speeds are medians over batches, and the ratios are medians of the ratios for the same batch.
"""

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from regard.data.text.batches import BatchLoader, PairBatch, encode_pairs
from regard.data.text.generated import write_corpus
from regard.data.text.sources import open_pairs
from regard.data.text.tokenizers import Tokenizer
from regard.models.translator import RecurrentTranslator, TranslatorConfig

MODELS = {
    "none": {"attention": "none"},
    "bahdanau": {"attention": "bahdanau"},
    "luong-general, input feeding": {"attention": "luong"},
    "luong-general": {"attention": "luong", "input_feeding": False},
}
PARTS = ("encoder", "decoder", "attention", "loss", "backward", "optimizer")


class Trainee:
    """One model, its optimizer, and the seconds of each part of its steps."""

    def __init__(self, config: TranslatorConfig, precision: str):
        torch.manual_seed(1)
        self.model = RecurrentTranslator(config).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.bfloat16 = precision == "bf16"
        self.seconds: list[float] = []
        self.parts: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self._time_module("encoder", self.model.encoder)
        if hasattr(self.model.decoder, "attention"):
            self._time_module("attention", self.model.decoder.attention)

    def _time_module(self, part: str, module: torch.nn.Module) -> None:
        started: list[float] = []
        module.register_forward_pre_hook(lambda *_: started.append(time.perf_counter()))

        def stop(*_: object) -> None:
            self.parts[part] += time.perf_counter() - started.pop()

        module.register_forward_hook(stop)

    def step(self, batch: PairBatch) -> float:
        """One training step; returns its seconds."""
        marks = [time.perf_counter()]
        model = self.model
        inside = self.parts["encoder"] + self.parts["attention"]
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16):
            state = model.start(model.encode(batch.source, batch.source_lengths))
            decoded = model.decoder.decode(batch.target[:, :-1], state)
            marks.append(time.perf_counter())
            inside = self.parts["encoder"] + self.parts["attention"] - inside
            loss = _loss(model, decoded.readout, batch)
        marks.append(time.perf_counter())
        loss.backward()
        marks.append(time.perf_counter())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        self.optimizer.step()
        marks.append(time.perf_counter())
        spans = [after - before for before, after in itertools.pairwise(marks)]
        self.parts["decoder"] += spans[0] - inside
        for part, span in zip(("loss", "backward", "optimizer"), spans[1:], strict=True):
            self.parts[part] += span
        self.seconds.append(marks[-1] - marks[0])
        return self.seconds[-1]

    def restart(self) -> None:
        """Discard the measurements of the warm-up."""
        self.seconds.clear()
        self.parts.update(dict.fromkeys(PARTS, 0.0))


def _loss(model: RecurrentTranslator, readout: torch.Tensor, batch: PairBatch) -> torch.Tensor:
    from regard.models.vocabulary_loss import vocabulary_loss

    labels = batch.target[:, 1:]
    counted = torch.arange(labels.shape[1]) < (batch.target_lengths - 1)[:, None]
    output = model.decoder.output
    targets = labels.masked_fill(~counted, -1).flatten()
    found = vocabulary_loss(readout.flatten(0, 1), output.weight, output.bias, targets, label_smoothing=0.1, ignore=-1)
    return found.total / counted.sum()


def main() -> None:
    arguments = _arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    loader, sizes = _data(arguments)
    config = {"embedding_dim": arguments.embedding, "hidden_dim": arguments.hidden, "dropout": 0.3, **sizes}
    trainees = {name: Trainee(TranslatorConfig(**config, **kind), arguments.precision) for name, kind in MODELS.items()}
    batches = list(itertools.islice(iter(loader), arguments.warmup + arguments.batches))
    for number, batch in enumerate(batches):
        if number == arguments.warmup:
            for trainee in trainees.values():
                trainee.restart()
        for trainee in trainees.values():
            trainee.step(batch)
    measured = batches[arguments.warmup :]
    rates = {
        name: [batch.target_tokens / seconds for batch, seconds in zip(measured, trainee.seconds, strict=True)]
        for name, trainee in trainees.items()
    }
    record = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "precision": arguments.precision,
        "batches": len(measured),
        "tokens_per_batch": arguments.tokens_per_batch,
        **config,
        "models": {},
    }
    print(
        f"{len(measured)} batches of about {arguments.tokens_per_batch} tokens, {torch.get_num_threads()} threads, "
        f"{arguments.precision}, vocabulary {sizes['target_vocabulary']}, torch {torch.__version__}\n"
    )
    header = ["model", "target tokens/s", "quartiles", "of none", *PARTS]
    rows = []
    for name, trainee in trainees.items():
        low, middle, high = statistics.quantiles(rates[name], n=4)
        ratio = statistics.median(a / b for a, b in zip(rates[name], rates["none"], strict=True))
        total = sum(trainee.parts.values())
        shares = {part: spent / total for part, spent in trainee.parts.items()}
        operators = _operators(trainee, measured[0]) if arguments.operators else []
        record["models"][name] = {
            "tokens_per_second": middle, "quartiles": [low, high], "ratio_to_none": ratio, "shares": shares,
            "operators": operators,
        }  # fmt: skip
        shown = [f"{shares[part]:.0%}" if shares[part] else "-" for part in PARTS]
        rows.append([name, f"{middle:,.0f}", f"{low:,.0f}–{high:,.0f}", f"{ratio:.2f}", *shown])
    for row in (header, ["---"] * len(header), *rows):
        print("| " + " | ".join(row) + " |")
    for name, found in record["models"].items():
        if found["operators"]:
            print(f"\n{name}: " + ", ".join(f"{operator} {share:.0%}" for operator, share in found["operators"]))
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


def _operators(trainee: Trainee, batch: PairBatch, top: int = 8) -> list[tuple[str, float]]:
    """The operators with the most time in a step, forward and backward, and their fractions of the time."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        for _ in range(3):
            trainee.step(batch)
    events = sorted(recorded.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    return [(event.key.removeprefix("aten::"), event.self_cpu_time_total / total) for event in events[:top]]


def _data(arguments: argparse.Namespace) -> tuple[BatchLoader, dict[str, int]]:
    path, columns = arguments.train, (arguments.source_column, arguments.target_column)
    if path is None:
        path = write_corpus(arguments.scratch, {"train": 20_000}, seed=1)["train"]
        columns = ("english", "spanish")
    pairs = open_pairs(path, *columns, lowercase=arguments.lowercase)
    tokenizers = [Tokenizer.train(pairs[side], size=arguments.vocabulary) for side in ("source", "target")]
    encoded = encode_pairs(pairs, *tokenizers, max_length=100)
    loader = BatchLoader(encoded, arguments.tokens_per_batch, seed=1)
    return loader, {"source_vocabulary": len(tokenizers[0]), "target_vocabulary": len(tokenizers[1])}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", help="pairs, as for `regard train translate`; default: the bundled corpus")
    parser.add_argument("--source-column", default="source")
    parser.add_argument("--target-column", default="target")
    parser.add_argument("--lowercase", action="store_true")
    parser.add_argument("--vocabulary", type=int, default=8000, help="tokens of each side")
    parser.add_argument("--embedding", type=int, default=256, help="features")
    parser.add_argument("--hidden", type=int, default=512, help="features")
    parser.add_argument("--tokens-per-batch", type=int, default=2000, help="target tokens, padding included")
    parser.add_argument("--batches", type=int, default=20, help="measured batches")
    parser.add_argument("--warmup", type=int, default=3, help="batches before the measured ones")
    parser.add_argument("--precision", choices=("32", "bf16"), default="32")
    parser.add_argument("--threads", type=int, default=0, help="0: PyTorch's own number")
    parser.add_argument("--operators", action="store_true", help="name the operators that take most time")
    parser.add_argument("--scratch", type=Path, default=Path("build/bench"), help="where the bundled corpus is written")
    parser.add_argument("--json", type=Path, help="write the results into this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
