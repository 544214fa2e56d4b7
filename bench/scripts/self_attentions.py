"""Every self-attention by name, trained with the same budget: a language model and a translator, as two tables.

    python -m bench.scripts.self_attentions FOLDER --train train.txt --validation val.txt [--minutes 10]

The language model reads characters of the text; the translator the generated corpus. Each training is a process with
one thread, and its minutes are those of the processor, so that other work on the machine takes nothing from it. A
training that FOLDER has the results of is not repeated: an interrupted command goes on where it was. The names with the
five best results of a task are trained with two seeds more.
"""

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from regard.nn.attention_names import CLASSES

NAMES = ("multihead", *CLASSES)
SEEDS = (1, 2, 3)
BEST = 5
SHARED: dict[str, Any] = {
    "heads": 4,
    "schedule": "inverse_sqrt",
    "warmup": 200,
    "epochs": 1000,
    "patience": 0,
    "threads": 1,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "language": {
        "tokenizer": "char", "hidden": 128, "layers": 4, "context": 128, "batch_size": 16, "learning_rate": 3e-3,
        "dropout": 0.0, "validate_every": 500, "validation_tokens": 20000,
    },
    "translate": {
        "bundled": 40000, "tokenizer": "word", "vocabulary": 4000, "architecture": "transformer", "hidden": 128,
        "feedforward": 512, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.1, "tokens_per_batch": 1000,
        "learning_rate": 2e-3, "validate_every": 500, "validation_pairs": 100,
    },
}  # fmt: skip
MEASURES = {"language": ("bits a byte", "bits_per_byte", min), "translate": ("BLEU", "bleu", max)}


def names(task: str) -> list[str]:
    """The names that a task takes: an encoder reads in both directions, which some recurrences cannot."""
    return [name for name in NAMES if task == "language" or name == "multihead" or not CLASSES[name].is_causal]


def train_one(folder: Path, task: str, name: str, seed: int, arguments: argparse.Namespace) -> None:
    """Train and measure one model in this process, and write its results."""
    import regard
    from regard.training import loop

    loop.time = SimpleNamespace(monotonic=time.process_time)  # pyright: ignore[reportAttributeAccessIssue]
    data = (arguments.train, arguments.validation) if task == "language" else (None, None)
    run = folder / f"{task}-{name}-{seed}"
    shutil.rmtree(run, ignore_errors=True)  # of a training that was interrupted
    train: Any = regard.train
    trained = train(
        task, data[0], validation=data[1], run=run, self_attention=name, seed=seed, max_minutes=arguments.minutes,
        **SHARED, **OPTIONS[task],
    )  # fmt: skip
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    evaluation = trained.evaluate(str(arguments.validation) if task == "language" else "bundled").to_dict()
    header, *rows = (run / "metrics.csv").read_text().split()
    last: dict[str, str] = dict(zip(header.split(","), rows[-1].split(","), strict=True))
    results = {
        "metrics": last, "evaluation": evaluation, "memory": memory,
        "parameters": sum(parameter.numel() for parameter in trained.model.parameters()),
    }  # fmt: skip
    run.with_suffix(".json").write_text(json.dumps(results))


def results(folder: Path, task: str, name: str, seed: int) -> dict[str, Any] | None:
    """The results of a training, if it is over."""
    path = folder / f"{task}-{name}-{seed}.json"
    return json.loads(path.read_text()) if path.exists() else None


def measured(folder: Path, task: str, name: str) -> list[float]:
    """The measure of a task after each seed."""
    found = (results(folder, task, name, seed) for seed in SEEDS)
    return [one["evaluation"][MEASURES[task][1]] for one in found if one is not None]


def best(folder: Path, task: str) -> list[str]:
    """The names with the best results of the first seed."""
    first = {name: results(folder, task, name, SEEDS[0]) for name in names(task)}
    field, better = MEASURES[task][1:]
    found = {name: one["evaluation"][field] for name, one in first.items() if one is not None}
    return sorted(found, key=lambda name: found[name], reverse=better is max)[:BEST]


def table(folder: Path, task: str) -> str:
    """The results of a task in Markdown, the best first."""
    label, _, better = MEASURES[task]
    rows = {name: (results(folder, task, name, SEEDS[0]), measured(folder, task, name)) for name in names(task)}
    found = sorted(
        ((name, one, all_) for name, (one, all_) in rows.items() if one),
        key=lambda row: statistics.fmean(row[2]), reverse=better is max,
    )  # fmt: skip
    lines = [f"| self-attention | {label} | steps | tokens/s | parameters | memory, MiB |", "| --- " * 6 + "|"]
    for name, one, values in found:
        cell = ", ".join(f"{value:.3f}" if better is min else f"{value:.2f}" for value in values)
        last = one["metrics"]
        speed = float(last["tokens_per_second"])
        lines.append(
            f"| {name} | {cell} | {int(last['step']):,} | {speed:,.0f} | {one['parameters']:,} | {one['memory']:,} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the runs and their results")
    parser.add_argument("--train", type=Path, required=True, help="text that the language model learns")
    parser.add_argument("--validation", type=Path, required=True, help="text that it is measured on")
    parser.add_argument("--minutes", type=float, default=10, help="minutes of the processor of a training")
    parser.add_argument("--one", help="TASK:NAME:SEED: this training only")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.one:
        task, name, seed = arguments.one.split(":")
        train_one(arguments.folder, task, name, int(seed), arguments)
        return

    def run(task: str, name: str, seed: int) -> None:
        if results(arguments.folder, task, name, seed) is None:
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "bench.scripts.self_attentions",
                    *sys.argv[1:],
                    "--one",
                    f"{task}:{name}:{seed}",
                ],
                check=True,
            )

    for task in OPTIONS:
        for name in names(task):
            run(task, name, SEEDS[0])
        for seed in SEEDS[1:]:
            for name in best(arguments.folder, task):
                run(task, name, seed)
        print(f"\n{task}\n\n{table(arguments.folder, task)}", flush=True)


if __name__ == "__main__":
    main()
