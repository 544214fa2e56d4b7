"""Resident memory of a training of the recurrent translator, part by part.

    python -m bench.scripts.train_memory --train PATH --validation PATH --source-column de --target-column en

Each kind of attention is trained in a new process, as `regard train translate` trains it. A row of the output is the
resident memory in MiB after one part: the imports, the data, the model, the first steps, each later hundred steps and
each validation; the last column is the peak within that part. The memory is read from /proc (Linux).
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

KINDS = {
    "none": {"attention": "none"},
    "bahdanau": {"attention": "bahdanau"},
    "luong-general": {"attention": "luong", "input_feeding": False},
    "luong-general, input feeding": {"attention": "luong"},
    "hard": {"attention": "hard"},
}


class Sampler:
    """Samples the resident memory of this process, and prints it and its peak at the end of each part."""

    def __init__(self) -> None:
        self.peak = 0
        threading.Thread(target=self._sample, daemon=True).start()

    def end(self, part: str) -> None:
        """The part is over."""
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        figures = [int(status[name].split()[0]) // 1024 for name in ("VmRSS", "RssAnon", "RssFile")]
        print(f"| {part} | " + " | ".join(map(str, [*figures, max(self.peak, figures[0])])) + " |", flush=True)
        self.peak = 0

    def _sample(self) -> None:
        while True:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.peak = max(self.peak, pages * 4096 >> 20)
            time.sleep(0.02)


def train_one(arguments: argparse.Namespace) -> None:
    """Train one kind in this process."""
    sampler = Sampler()
    print("| after | resident | anonymous | files | peak |\n| --- | --- | --- | --- | --- |")
    import torch  # noqa: F401

    sampler.end("import torch")
    import datasets  # noqa: F401
    import lightning.pytorch  # noqa: F401

    sampler.end("import Lightning and datasets")
    from regard.tasks.registry import find
    from regard.tasks.translate import TranslateData, TranslationTrainingConfig, TranslatorConfig
    from regard.training.config import RunConfig
    from regard.training.reporter import SilentReporter
    from regard.training.run import train_run
    from regard.training.run_folder import RunFolder

    class Reporter(SilentReporter):
        steps = 0

        def start(self, fraction: float) -> None:
            sampler.end("data and model")

        def step(self, fraction: float, text: str) -> None:
            self.steps += 1
            if self.steps in (1, 10) or self.steps % 50 == 0:
                sampler.end(f"step {self.steps}")

        def print_line(self, text: str) -> None:
            if text.startswith("step "):
                sampler.end(f"validation, step {self.steps + 1}")

    data = TranslateData(
        train=arguments.train, validation=arguments.validation, source_column=arguments.source_column,
        target_column=arguments.target_column, lowercase=arguments.lowercase, vocabulary=arguments.vocabulary,
    )  # fmt: skip
    training = TranslationTrainingConfig(
        epochs=arguments.epochs, precision=arguments.precision, threads=arguments.threads, accelerator="cpu",
        validate_every=arguments.validate_every,
    )  # fmt: skip
    config = RunConfig("translate", data, TranslatorConfig(**KINDS[arguments.kind]), training)
    with tempfile.TemporaryDirectory() as folder:
        train_run(find("translate"), config, RunFolder.create(Path(folder) / "run"), reporter=Reporter())


def main() -> None:
    arguments = _arguments()
    if arguments.kind:
        train_one(arguments)
        return
    for kind in KINDS:
        print(f"\n{kind}, {arguments.precision}, {arguments.threads} threads\n", flush=True)
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--kind", kind], check=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True, help="pairs, as for `regard train translate`")
    parser.add_argument("--validation", required=True)
    parser.add_argument("--source-column", default="source")
    parser.add_argument("--target-column", default="target")
    parser.add_argument("--lowercase", action="store_true")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--validate-every", type=int, default=0, help="steps; 0: each epoch")
    parser.add_argument("--precision", choices=("32", "bf16-mixed"), default="bf16-mixed")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, help="default: all, each in a process of its own")
    return parser.parse_args()


if __name__ == "__main__":
    main()
