"""``regard predict``: the predictions of a trained run, and its attention weights."""

import dataclasses
import inspect
import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from regard.cli.config_options import field_names, options_of, panel, signature
from regard.cli.option_errors import options_named
from regard.cli.option_types import Run, Threads, use_threads
from regard.errors import ArgumentError, DataError, RegardError, RunError
from regard.files.regular import LARGEST_DATA, LARGEST_TEXT, open_regular
from regard.training.signal_handler import advising

if TYPE_CHECKING:
    from regard.tasks.prediction_inputs import Numbered
    from regard.training.results import Prediction
    from regard.training.task import Task, Trained

LEAST_AT_ONCE, BATCHES_AT_ONCE = 256, 8
"""Inputs of a block, which are predicted before the next one, and batches of it, whichever are more."""


MOST_RUNS = 5
"""Runs that a message names."""


@dataclass(frozen=True)
class PredictionOptions:
    """The source of the inputs, and the form of the outputs."""

    file: Path | None = None
    """Text file (UTF-8), one input a line; table (.csv, .tsv, .jsonl, .json, .parquet), whose column of inputs is read;
    or folder of files, each an input."""
    column: str | None = None
    """Column of the inputs in a table. Default: that of the training, or the only one that can be meant."""
    json: bool = False
    """Print one JSON object a line, for each answer: row, input, output, probability or score, and what else the task
    gives, e.g. a translation's weights, [target][source]."""
    output: Path | None = None
    """Write a table (.tsv, .csv) or JSON objects (.jsonl), a row for each answer, into this file and print nothing.
    The same command continues one that was stopped."""
    pictures: Path | None = None
    """Folder for a picture of each prediction. Default: no pictures."""
    threads: Threads = 0
    """CPU threads; 0: PyTorch's own number."""
    device: str = "cpu"
    """cpu, cuda, cuda:1, mps, ..."""


Sentences = Annotated[
    list[str] | None, Parameter(help="Inputs, e.g. sentences. Default: the lines of --file or of standard input.")
]


def make_command(task: "Task") -> Callable[..., None]:
    """Returns the function that Cyclopts calls for ``regard predict`` on a run of this task."""

    def command(run, sentences=None, **options) -> None:
        inputs = PredictionOptions(
            **{name: options.pop(name) for name in field_names(PredictionOptions) if name in options}
        )
        _predict(task, run, sentences, inputs, options)

    positional = [
        inspect.Parameter("run", inspect.Parameter.POSITIONAL_ONLY, annotation=Run),
        inspect.Parameter("sentences", inspect.Parameter.POSITIONAL_ONLY, default=None, annotation=Sentences),
    ]
    panels = [
        panel(f"Task {task.name}", task.prediction_config),
        panel("Inputs and outputs", PredictionOptions, spellings={"output": ("--output", "-o")}),
    ]
    command.__signature__ = signature(panels, positional)
    command.__doc__ = """Apply a trained run to inputs: typed ones, lines of a file, rows of a table, files of a folder.

    A typed input is shown with its answer, how sure the model is, and what it attended to. A line or a row gives one
    line, or as many as --n-best says.

    The options depend on the task of the run.
    """
    return command


def _predict(
    task: "Task", run: str, sentences: list[str] | None, inputs: PredictionOptions, fields: dict[str, Any]
) -> None:
    from regard.training.results import answer_rows
    from regard.training.run_folder import RunFolder

    use_threads(inputs.threads)
    try:
        folder = RunFolder.open(run)
    except RunError as error:
        raise _with_runs(error, run, sentences or []) from error
    if sentences and len(sentences) == 1 and inputs.file is None and _is_text_file(task, sentences[0]):
        print(f"regard: {sentences[0]} is read as a file, the same as --file {sentences[0]}", file=sys.stderr)
        sentences, inputs = None, dataclasses.replace(inputs, file=Path(sentences[0]))
    if inputs.pictures is not None:
        if inputs.output is not None:
            raise ArgumentError("--output and --pictures exclude each other; give one of them")
        _require_folder(inputs.pictures)
    if inputs.json and inputs.output is not None and inputs.output.suffix in (".tsv", ".csv"):
        raise ArgumentError(
            f"--json prints JSON, and --output writes a table into {inputs.output}; for JSON in a file write "
            f"--output {inputs.output.with_suffix('.jsonl')}"
        )
    with options_named({"device": "--device", **options_of(task.prediction_config)}):
        options = task.prediction_config(**fields)
        trained = task.load(folder, inputs.device)
        if inputs.output and inputs.file and inputs.output.exists() and inputs.output.samefile(inputs.file):
            raise ArgumentError(f"--output and --file are the same file, {inputs.file}; give another --output")
        read = read_inputs(trained, sentences, inputs.file, inputs.column)
        if inputs.output is not None:
            _write_predictions(trained, read, options, inputs.output)
            return
        blocks = _predicted(trained, read.inputs, options)
        predictions = [one for block in blocks for one in block]
        pictures = [] if inputs.pictures is None else trained.draw(predictions, inputs.pictures)
    for line in trained.remarks(predictions, options):
        print(f"regard: {line}", file=sys.stderr)
    for line in _count_lines(_counted(predictions, options), len(predictions)):
        print(line, file=sys.stderr)
    ranked = is_ranked(options)
    if inputs.json:
        for row in answer_rows(predictions, ranked, read.numbers, details=True):
            print(json.dumps(row, ensure_ascii=False))
    elif sentences:
        print_reports(trained, predictions, ranked)
    else:
        for prediction in predictions:
            for one in prediction.n_best:
                print("\n".join(one.lines()))
    for path in pictures:
        print(f"picture: {path}", file=sys.stderr)


def _with_runs(error: RunError, run: str, sentences: list[str]) -> RegardError:
    """Returns the error of a run that does not exist, with the command that was meant, from what was typed for the run
    and after it."""
    from regard.cli.corrected_command import CorrectedError

    if os.path.exists(run) or "no run folder" not in str(error) or _is_run(Path("runs", run)):
        return error  # which names the folder of a run whose name was typed
    if sentences and _is_run(Path(sentences[0])):
        command = shlex.join(["regard", "predict", *sentences])
        return CorrectedError(f"{error}; the run is the first argument, and its task is known", command)
    runs = [path for path in sorted(Path("runs").glob("*"), key=os.path.getmtime, reverse=True) if _is_run(path)]
    if not runs:
        return error
    named = ", ".join(map(str, runs[:MOST_RUNS])) + (", ..." if len(runs) > MOST_RUNS else "")
    command = shlex.join(["regard", "predict", str(runs[0]), *(sentences or [run])])
    return CorrectedError(f"{error}; the runs here are {named}", command)


def _is_run(path: Path) -> bool:
    from regard.training.run_folder import RunFolder

    return RunFolder(path).config.is_file()


def _is_text_file(task: "Task", text: str) -> bool:
    """Whether a typed text is the name of a file of texts."""
    from regard.data.tables import READERS

    return task.input_kind == "text" and text.lower().endswith((*READERS, ".txt")) and os.path.isfile(text)


def _block_size(options: Any) -> int:
    return max(LEAST_AT_ONCE, BATCHES_AT_ONCE * getattr(options, "batch_size", 1))


def _predicted(trained: "Trained", sources: list[Any], options: Any, done: int = 0) -> "Iterator[Sequence[Prediction]]":
    """Yields the predictions, one block after the other, from the input number ``done`` on, with which a block begins.
    What is drawn at random may depend on the other inputs of a block, so the blocks are the same wherever the
    predictions go."""
    size = _block_size(options)
    for first in range(done, len(sources), size):
        yield trained.predict_part(sources[first : first + size], first, options)


def _counted(predictions: "Sequence[Prediction]", options: Any) -> Counter[str]:
    """Counts the answers, or inputs, that are not as expected, under the remark that is made about them."""
    n_best = getattr(options, "n_best", 1)
    return Counter(
        {
            "answers are empty": sum(one.is_empty for one in predictions),
            f"inputs have fewer than {n_best} different answers": sum(len(one.n_best) < n_best for one in predictions),
        }
    )


def _count_lines(counts: Counter[str], inputs: int) -> list[str]:
    return [f"regard: {count} of {inputs:,} {what}" for what, count in counts.items() if count]


def _write_predictions(trained: "Trained", read: "Numbered", options: Any, path: Path) -> None:
    """Writes the predictions into a file, as many at once as keep batches full, and shows the progress."""
    import hashlib

    from regard.cli.prediction_file import PredictionFile
    from regard.training.reporter import default_reporter

    with open_regular(trained.folder.model, LARGEST_DATA) as model:
        model_sum = hashlib.file_digest(model, "sha256").hexdigest()
    block, sources = _block_size(options), read.inputs
    identity = {"model": model_sum, "options": dataclasses.asdict(options), "block": block}
    file = PredictionFile(path, sources, identity, read.numbers, ranked=is_ranked(options), block=block)
    reporter, remarks, counts = default_reporter(), set(), Counter()
    if file.damaged_line:
        reporter.print_line(
            f"{file.part}: line {file.damaged_line} is damaged; predictions from there on are made again"
        )
    if file.done:
        reporter.print_line(f"{file.done:,} of {len(sources):,} predictions were written before; going on")
    reporter.start(file.done / len(sources))
    try:
        with advising(lambda: f"{file.done:,} of {len(sources):,} predictions are written; the same command continues"):
            for predictions in _predicted(trained, sources, options, file.done):
                file.append(predictions)
                for line in trained.remarks(predictions, options):
                    if line not in remarks:
                        remarks.add(line)
                        reporter.print_line(f"regard: {line}")
                counts += _counted(predictions, options)
                reporter.step(file.done / len(sources), f"{file.done:,} of {len(sources):,} inputs")
            file.complete()
        for line in _count_lines(counts, len(sources)):
            reporter.print_line(line)
    finally:
        reporter.stop()
    print(f"{len(sources):,} predictions: {path}")


def is_ranked(options: Any) -> bool:
    """Whether several answers to each input were requested."""
    return getattr(options, "n_best", 1) > 1


def _require_folder(path: Path) -> None:
    """Raises DataError if pictures cannot be written into a folder; does not create it."""
    existing = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    if not existing.is_dir():
        raise DataError(f"--pictures must be a folder; {existing} is a file")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise DataError(f"--pictures: the folder {existing} cannot be written")


def read_inputs(trained: "Trained", sentences: list[str] | None, file: Path | None, column: str | None) -> "Numbered":
    """Reads the inputs from the arguments, a file, a folder or standard input; raises DataError if there are both
    arguments and a file, the file cannot be read, or the text is not UTF-8."""
    from regard.tasks.prediction_inputs import Numbered, expanded, file_inputs, lines_of, text_inputs
    from regard.tasks.trained_run import TableTrained

    if sentences and file:
        raise DataError("sentences were given both as arguments and with --file; use only one of them")
    if column is not None and file is None:
        raise ArgumentError("--column names a column of the table that --file names; give --file too")
    if not isinstance(trained, TableTrained) and (sentences or file is not None):
        return Numbered.from_one(sentences or text_inputs(file or Path()))
    if sentences:
        return Numbered.from_one(expanded(trained, sentences))
    if file is not None:
        return file_inputs(trained, file, column)
    return Numbered.from_one(lines_of(sys.stdin.buffer.read(LARGEST_TEXT + 1), "standard input"))


EMPTY_ANSWER = "(empty)"
"""The text that is printed for an empty answer."""


def print_reports(trained: "Trained", predictions: "Sequence[Prediction]", ranked: bool) -> None:
    """Prints each prediction, with an empty line between two of them, and with ranks if the answers to an input are
    ``ranked``."""
    # A console keeps the standard output of the moment when it is created.
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    for number, prediction in enumerate(predictions):
        if number:
            print()
        print("\n".join(report_lines(trained, prediction, ranked)))
        report = prediction.report()
        if report is not None:
            console.print(report)


def report_lines(trained: "Trained", prediction: "Prediction", ranked: bool) -> Iterator[str]:
    """Yields the lines of a prediction, each with the name of what it says; see `print_reports`."""
    from regard.tasks.attended import attended_line

    named = [prediction.texts()[0]]
    if ranked:
        for rank, one in enumerate(prediction.n_best, start=1):
            certainty = ", ".join(f"{name} {value:.4f}" for name, value in one.certainty.items())
            named.append((str(rank), _answer(one) + (f"  ({certainty})" if certainty else "")))
    elif prediction.is_empty or prediction.shown:
        named.append((trained.task.answer_name.lower(), _answer(prediction)))
        named += [(name, f"{value:.4f}") for name, value in prediction.certainty.items()]
    named.append(("attended to", attended_line(trained, prediction)))
    width = 1 + max(len(name) for name, _ in named)
    for name, text in named:
        first, *others = text.splitlines() or [""]
        yield f"{name + ':':<{width}}  {first}".rstrip()
        yield from (f"{'':<{width}}  {line}".rstrip() for line in others)


def _answer(prediction: "Prediction") -> str:
    return EMPTY_ANSWER if prediction.is_empty else prediction.shown
