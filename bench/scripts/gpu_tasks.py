"""Every task on an accelerator: trains, resumes, predicts and is watched there, on its own generated corpus.

Each case is a small run of `regard.train` of 12 steps. Its line says ``ok`` or the fault with the end of its traceback,
how often a training step waited for the device (lines of regard with the number of waits), and how far a resumed run is
from an uninterrupted one. A fault ends its case and no other.

    python -m bench.scripts.gpu_tasks [--accelerator gpu] [--seconds 85] [--only translate segment]
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch

STEPS, SAVED = 12, 4
"""Steps of a run, and the step after which it is copied to be resumed."""

HELD_OUT = 12
"""Examples of the validation part and of the test part of a generated corpus."""

SETTLED = 3
"""Steps at the start of a process's run that may wait: libraries are loaded and memory is taken there."""

TEXT = {"tokenizer": "word", "vocabulary": 200}
TINY = {"embedding": 16, "hidden": 16}
HEADS = {"architecture": "transformer", "hidden": 32, "heads": 2, "feedforward": 40}
LAYERS = {"encoder_layers": 1, "decoder_layers": 1}
TRANSLATE = {"bundled": 150, "validation_pairs": 8, "tokens_per_batch": 150, **TEXT}
SUMMARIZE = {"bundled": 60, "validation_articles": 4, "tokens_per_batch": 120}
CAPTION = {"bundled": 30, "batch_size": 5, "max_length": 9, "grid": 8, "stages": 2, "jitter": 0.1, "zoom": 0.1}
SOUND = {"rate": 8000, "bands": 12, "convolutions": 1, "channels": 2}
PYRAMID = {**SOUND, "pyramid_layers": 1}
SPEECH = {"bundled": 30, "batch_size": 5, "tokenizer": "word", "max_length": 8}
CASES: dict[str, dict[str, Any]] = {
    "translate": {**TRANSLATE, **TINY, "scheduled_sampling": 0.2},
    "translate transformer": {**TRANSLATE, **HEADS, "precision": "bf16-mixed"},
    "language": {"bundled": 60, "validation_tokens": 50, "tokenizer": "char", "context": 16, "layers": 1, "hidden": 32,
                 "heads": 2, "batch_size": 4, "steps_per_epoch": 6},
    "classify": {"bundled": 120, "batch_size": 20, "vocabulary": 200, "class_weights": "balanced", **TINY},
    "classify transformer": {"bundled": 120, "batch_size": 20, "vocabulary": 200, **HEADS, "precision": "16-mixed"},
    "summarize": {**SUMMARIZE, **TINY},
    "summarize transformer": {**SUMMARIZE, **HEADS, **LAYERS},
    "caption": {**CAPTION, **TINY},
    "caption hard": {**CAPTION, **TINY, "attention": "hard"},
    "images": {"bundled": 60, "batch_size": 6, "architecture": "cnn", "gate": "cbam", "grid": 16, "stages": 1,
               "flip": True},
    "images vit": {"bundled": 60, "batch_size": 6, "architecture": "vit", "hidden": 32, "heads": 2, "layers": 2},
    "segment": {"bundled": 30, "batch_size": 5, "channels": 4, "levels": 3, "blocks": 1, "decoder_channels": 8},
    "transcribe": {**SPEECH, **PYRAMID, **TINY, "decoder_hidden": 16, "score_features": 8},
    "transcribe transformer": {**SPEECH, **SOUND, **HEADS, **LAYERS},
    "sounds": {"bundled": 60, "batch_size": 10, **PYRAMID, "hidden": 16},
}  # fmt: skip
"""Name → options of its run; the task is the first word of the name."""

SEARCHED = {"translate", "summarize", "caption", "transcribe"}
"""Tasks whose predictions are searched for by a beam."""


class Waits:
    """Counts the synchronizations of training steps by the line of regard that causes them.

    Attributes:
        lines: file and line → synchronizations.
        steps: steps that were counted.
    """

    def __init__(self, gpu: bool):
        self.gpu, self.lines, self.steps = gpu, Counter[str](), 0

    def add(self, message: Any, *others: Any, **options: Any) -> None:
        if "called a synchroniz" in str(message):
            self.lines[_own_line()] += 1

    def __str__(self) -> str:
        if not self.gpu:
            return "waits not counted"
        each = sum(self.lines.values()) / max(1, self.steps)
        return f"{each:.2f} waits a step" + "".join(f" {line}×{n}" for line, n in self.lines.most_common(6))


def _own_line() -> str:
    """The innermost line of regard on the stack, or else the innermost one of PyTorch."""
    frames = [frame for frame in traceback.extract_stack() if __file__ not in frame.filename]
    own = [frame for frame in frames if "regard" in frame.filename] or frames
    return f"{'/'.join(own[-1].filename.split('/')[-2:])}:{own[-1].lineno}"


def training_loops() -> Any:
    """The class of all training loops, whose methods are replaced here."""
    from regard.training.loop import TrainingLoop

    return TrainingLoop


@contextmanager
def counted(waits: Waits, copy_to: Path) -> Iterator[None]:
    """Counts the waits of training steps, and copies the run folder when its checkpoint of step `SAVED` is there."""
    loops = training_loops()
    take_step, save = loops._take_step, loops._save_checkpoint

    def step(loop: Any, batch: Any) -> None:
        counts = waits.gpu and loop.progress.step >= SETTLED
        if counts:
            waits.steps += 1
            torch.cuda.set_sync_debug_mode("warn")
        try:
            take_step(loop, batch)
        finally:
            if counts:
                torch.cuda.set_sync_debug_mode("default")

    def saved(loop: Any) -> None:
        save(loop)
        if loop.progress.step == SAVED and not copy_to.exists():
            shutil.copytree(loop.folder.path, copy_to)

    loops._take_step, loops._save_checkpoint = step, saved
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = waits.add
            yield
    finally:
        loops._take_step, loops._save_checkpoint = take_step, save


def last_weights(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of the last checkpoint of a run."""
    from regard.training.checkpoints import list_checkpoints, load_checkpoint

    return load_checkpoint(list_checkpoints(folder / "checkpoints")[-1])["state_dict"]


def resumed_difference(task: Any, whole: Path, part: Path) -> float:
    """Resumes the copy of a run, and compares its last weights with those of the run itself."""
    from regard.training.reporter import SilentReporter
    from regard.training.run import train_run
    from regard.training.run_folder import RunFolder

    folder = RunFolder.open(part)
    train_run(task, folder.read_config(task), folder, resume=True, reporter=SilentReporter())
    first, second = last_weights(whole), last_weights(part)
    return max(float((first[name].double() - second[name].double()).abs().max()) for name in first)


def inputs_of(run: Any, folder: Path) -> list[Any]:
    """Two inputs of the generated test part."""
    kind, corpus = run.task.input_kind, folder / "corpus"
    if kind == "image":
        return [str(path) for path in sorted(corpus.glob("test-*.png"))[:2]]
    if kind == "sound":
        return [str(path) for path in sorted((corpus / "sounds").glob("test-*.wav"))[:2]]
    return ["the old man sees a red house", "a film without a dull minute"]


def run_case(name: str, accelerator: str, home: Path, waits: Waits) -> str:
    """Trains, resumes, loads, predicts, evaluates and watches one case; returns what it found."""
    import regard
    from regard.tasks import registry

    task, device = name.split()[0], "cuda" if accelerator == "gpu" else "cpu"
    corpus: Any = registry.find(task)
    corpus.input.generated.validation = corpus.input.generated.test = HELD_OUT
    whole, part = home / f"{name.replace(' ', '-')}", home / f"{name.replace(' ', '-')}-resumed"
    options = {"epochs": 100, "checkpoint_steps": SAVED, "validate_every": STEPS, "patience": 1, "threads": 2}
    with counted(waits, part), ended_after(STEPS):
        run = cast(Any, regard.train)(
            task, run=whole, quiet=True, device=device, accelerator=accelerator, **options, **CASES[name]
        )
    with ended_after(STEPS):
        difference = resumed_difference(registry.find(task), whole, part)
    inputs = inputs_of(run, whole)
    search = {"beam": 2} if task in SEARCHED else {"tokens": 12, "temperature": 0.0} if task == "language" else {}
    there = run.predict(inputs, **search)
    here = regard.load(whole).predict(inputs, **search)
    same = sum(str(one.answer) == str(other.answer) for one, other in zip(there, here, strict=True))
    run.evaluate(limit=6)
    if task == "translate":
        run.predict(inputs, samples=3)
        run.predict(inputs, beam=1)
    calls = len(watched(run, inputs))
    for one in there:
        run.document(one)
        run.attended(one)
    return f"resumed differs by {difference:.1e} · {same}/{len(here)} predictions as on a CPU · {calls} calls watched"


@contextmanager
def ended_after(steps: int) -> Iterator[None]:
    """A training ends after so many steps, as if its epochs were over."""
    loops = training_loops()
    reason = loops.reason_to_end

    def reason_to_end(loop: Any) -> str:
        return f"{steps} steps are done" if loop.progress.step >= steps else reason(loop)

    loops.reason_to_end = reason_to_end
    try:
        yield
    finally:
        loops.reason_to_end = reason


def watched(run: Any, inputs: list[Any]) -> list[Any]:
    """The calls of attention while the model reads inputs, with all that a watch can read."""
    import regard
    from regard.errors import UnseenError

    read = regard.Readings(entropy=True, peak=True, top_k=2, received=True, distance=True, weights=True)
    task = run.task.name
    options = {"beam": 1} if task in SEARCHED else {"tokens": 3} if task == "language" else {}
    try:
        with regard.watch(run.model, read=read, keep=True) as seen:
            run.predict(inputs[:1], **options)
    except UnseenError:  # a model without attention
        return []
    for call in seen.calls:
        assert call.entropy is not None
        assert call.entropy.device.type == "cpu"
        assert call.tiles is not None
        call.tiles[0].tile((0, 1), (0, 1))
        call.visible()
    return seen.calls


def language_model(accelerator: str) -> str:
    """Watching, surveying, ablating and attributing an encoder of PyTorch's own parts on the device."""
    import regard
    from regard.watching import flow, logit_contributions, rollout

    device = "cuda" if accelerator == "gpu" else "cpu"
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 40, batch_first=True)
    body = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.body, self.output = torch.nn.Embedding(50, 32), body, torch.nn.Linear(32, 50)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            mask = torch.nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
            return self.output(self.body(self.embedding(ids), mask=mask, is_causal=True))

    model = Model().to(device).eval()
    ids = torch.arange(14, device=device).view(2, 7)
    tokens = [str(number) for number in range(7)]
    with torch.no_grad():
        read = regard.Readings(entropy=True, weights=True)
        with regard.watch(model, read=read, norms=True, outputs=True, keep=True) as seen:
            model(ids)
        records = seen.records(tokens)
        rollout(records)
        flow(records)
        seen.calls[0].weighted_norms()
        logit_contributions(model, seen.calls[0], [1, 2], unembedding=model.output.weight)
        with regard.watching.ablate(model, layer=0, head=1, how="mean"):
            model(ids)
        regard.View(seen, tokens, example=0).to_html()
        regard.watching.survey(model, [[1, 2, 3, 4], [4, 3, 2, 1, 5]])
        observed = regard.observe(*(torch.randn(1, 2, 5, 8, device=device) for _ in range(3)), read=read)
        regard.View(observed, range(5)).to_html()
    return f"{len(seen.calls)} calls"


def attempt(name: str, action: Callable[[], str], suffix: Callable[[], str] = str) -> bool:
    """Runs one case and prints its line; returns whether it is sound."""
    began = time.monotonic()
    try:
        text, sound = f"ok · {action()}", True
    except BaseException as error:
        lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
        text, sound = "FAULT\n    " + "\n    ".join(lines[-14:]), False
        if isinstance(error, KeyboardInterrupt):
            raise
    print(f"{name}: {time.monotonic() - began:.1f} s · {suffix()} · {text}", flush=True)
    return sound


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accelerator", default="gpu", choices=("gpu", "cpu"))
    parser.add_argument("--seconds", type=float, default=85.0, help="no case begins later")
    parser.add_argument("--only", nargs="*", default=[], help="names of cases, or of tasks")
    arguments = parser.parse_args()
    began, sound = time.monotonic(), []
    home = Path(tempfile.mkdtemp(prefix="gpu-tasks-"))
    os.environ["HF_DATASETS_CACHE"] = str(home / "cache")
    os.environ["HF_HUB_OFFLINE"] = "1"
    gpu = arguments.accelerator == "gpu"
    name = torch.cuda.get_device_name() if gpu and torch.cuda.is_available() else "CPU"
    print(f"{name} · torch {torch.__version__} · Python {sys.version.split()[0]}", flush=True)
    only = set(arguments.only)
    actions: dict[str, Callable[[], str]] = {"watch": lambda: language_model(arguments.accelerator)}
    if not only or "watch" in only:
        sound.append(attempt("watch", actions["watch"]))
    for case in CASES:
        if only and not only & {case, case.split()[0]}:
            continue
        if time.monotonic() - began > arguments.seconds:
            print(f"{case}: not run, no time is left", flush=True)
            continue
        waits = Waits(gpu)
        action = lambda case=case, waits=waits: run_case(case, arguments.accelerator, home, waits)  # noqa: E731
        sound.append(attempt(case, action, lambda waits=waits: str(waits)))
    print(f"{sum(sound)} of {len(sound)} sound · {time.monotonic() - began:.0f} s", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    return int(not all(sound))


if __name__ == "__main__":
    sys.exit(main())
