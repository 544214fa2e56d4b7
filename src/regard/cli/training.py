"""Implements ``regard train TASK``, which starts, resumes, prints or checks a run."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli import evaluate
from regard.cli.dry_run import dry_run
from regard.cli.option_errors import options_named
from regard.cli.run_configuration import (
    RESUMABLE_OPTIONS,
    RunOptions,
    all_options,
    as_yaml,
    check_name,
    compose_config,
    resume_config,
)
from regard.errors import ArgumentError, RegardError, RunError
from regard.files.platforms import IS_WINDOWS, quoted
from regard.training.processes import is_first_process
from regard.training.reporter import default_reporter
from regard.training.run_folder import RunFolder, continue_with
from regard.training.signal_handler import advising, stopped_line
from regard.training.training_facts import TrainingFacts

if TYPE_CHECKING:
    from regard.training.config import RunConfig
    from regard.training.run import TrainingResult
    from regard.training.run_folder import RunFolder
    from regard.training.task import Task

MOST_EXAMPLE = 80
"""Characters of a text in the line of the next command; of a longer one, its first words."""

MOST_NAMES = 10
"""Runs that a message lists."""


def train_task(task: "Task", options: RunOptions, fields: dict[str, Any]) -> None:
    """Runs the command with the fields of the task's configurations that the user typed."""
    if options.tensorboard:
        names = [name.strip() for name in fields.get("logger", "").split(",") if name.strip()]
        fields = {**fields, "logger": ",".join(dict.fromkeys([*names, "tensorboard"]))}
    if options.dry_run and options.find_lr:
        raise ArgumentError("--dry-run and --find-lr exclude each other; give one of them")
    if options.resume:
        _resume(task, options, fields)
        return
    fitted = compose_config(task, options.config, fields)
    config = fitted.config
    if options.print_config:
        print(as_yaml(config, fitted.reasons), end="")
        return
    name = check_name("--run", options.run if options.run is not None else task.run_name(config))
    with options_named(all_options(task)):
        if options.dry_run:
            dry_run(task, fitted)
            return
        if options.find_lr:
            _find_learning_rate(task, config, options.runs / f"{name}-learning-rate.png")
            return
        from regard.training.run import train_run

        path = options.runs / name
        # The other processes of a distributed run get the folder that the first one makes.
        folder = RunFolder.create(path, options.overwrite) if is_first_process() else RunFolder(path)
        result = train_run(task, config, folder, chosen=fitted.summary())
    finish(task, result)


def _find_learning_rate(task: "Task", config: "RunConfig", picture: Path) -> None:
    from regard.pictures import save
    from regard.training.learning_rate_finder import find_learning_rate

    sweep = find_learning_rate(task, config, default_reporter())
    steps = f"{len(sweep.rates)} steps, rates from {sweep.rates[0]:.1e} to {sweep.rates[-1]:.1e}"
    if sweep.suggestion is None:
        print(f"no learning rate is suggested: the loss fell at none more than it differs between batches ({steps})")
        print("try larger batches, or train as it is")
    else:
        print(f"the loss falls fastest at the learning rate {sweep.suggestion:.1e} ({steps})")
        print(
            f"use it with: --learning-rate {sweep.suggestion:.1e}; without, it is {config.training.learning_rate:.1e}"
        )
    try:
        picture.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot create the folder {picture.parent}: {error.strerror}") from error
    replaced = " (it replaces an earlier one)" if picture.exists() else ""
    print(f"picture: {save(sweep.figure(f'Learning rates of {picture.stem}'), picture)}{replaced}")
    print("nothing of the sweep is kept but the picture")


def _resume(task: "Task", options: RunOptions, fields: dict[str, Any]) -> None:
    for typed, name in (
        (options.config, "--config"),
        (options.overwrite, "--overwrite"),
        (options.dry_run, "--dry-run"),
        (options.find_lr, "--find-lr"),
    ):
        if typed:
            raise ArgumentError(f"{name} and --resume exclude each other; give one of them")
    from regard.training.run import train_run

    _check_no_folder(fields.get("train"))
    folder = RunFolder.open(options.runs / check_name("--run", _resumed_name(task, options, fields)))
    config = resume_config(task, folder.read_config(task), fields)
    if options.print_config:
        print(as_yaml(config), end="")
        return
    with options_named(all_options(task)):
        result = train_run(task, config, folder, resume=True, allow_changed_data=options.allow_changed_data)
    finish(task, result)


def _check_no_folder(data: Any) -> None:
    """Raises ArgumentError if a run folder was typed where the data stand, as in ``--resume runs/topic``."""
    if not isinstance(data, str) or not Path(data).is_dir():
        return
    folder = Path(os.path.abspath(data))
    try:
        owner = RunFolder(folder).read_sections()["task"]
    except RegardError:
        return
    elsewhere = "" if folder.parent == Path("runs").absolute() else f" --runs {quoted(str(Path(data).parent))}"
    raise ArgumentError(
        f"{data} is a run, not data; --run names the run to continue: "
        f"regard train {owner} --run {quoted(folder.name)}{elsewhere} --resume"
    )


def _resumed_name(task: "Task", options: RunOptions, fields: dict[str, Any]) -> str:
    """Returns the name of the run to continue: the typed one, or that of the only run with the typed options; of
    several, the only one that has not ended is meant."""
    if options.run is not None:
        return options.run
    folders = sorted(options.runs.iterdir()) if options.runs.is_dir() else []
    runs = [folder for folder in folders if _has_options(folder, task, fields)]
    unfinished = [folder for folder in runs if not _has_ended(folder)]
    for choice in (runs, unfinished):
        if len(choice) == 1:
            return choice[0].name
    which = f"a run of the task {task.name!r}{' with these options' if fields else ''}"
    if not runs:
        raise RunError(f"{options.runs} has no folder with {which}; name another folder with --runs")
    names = ", ".join(folder.name for folder in runs[:MOST_NAMES]) + (", ..." if len(runs) > MOST_NAMES else "")
    raise RunError(f"{which} is in {len(runs)} folders of {options.runs}: {names}; choose one with --run")


def _has_ended(path: Path) -> bool:
    try:
        facts = TrainingFacts.read(RunFolder(path).facts)
        return facts is not None and bool(facts.finished)
    except RegardError:
        return False


def _has_options(path: Path, task: "Task", fields: dict[str, Any]) -> bool:
    """Whether a folder is a run of a task with these fields, apart from those that may change."""
    try:
        folder = RunFolder(path)
        if folder.read_sections()["task"] != task.name:
            return False
        fixed = {name: value for name, value in fields.items() if name not in RESUMABLE_OPTIONS}
        resume_config(task, folder.read_config(task), fixed)
    except RegardError:
        return False
    return True


def finish(task: "Task", result: "TrainingResult") -> None:
    """Prints the result of a training, draws its pictures, and evaluates it on the test data if there are any."""
    if not is_first_process():  # Only the first process of a distributed run prints.
        return
    folder = result.folder
    exit_if_stopped(task, result)
    print("\n".join(result.lines(task.metrics[0])))
    with advising(lambda: continue_with(folder.path, task.name)):
        for picture in task.report(folder):
            print(f"picture: {picture}")
        config = folder.read_config(task)
        data = task.test_data(folder, config)
        if data is not None:
            print(_test_line(task, config, data), flush=True)
            evaluate.evaluate_run(task, folder, data, "test", {})
    print(f"next: regard predict {quoted(str(folder.path))} {example_input(task, folder)}")


def example_input(task: "Task", folder: "RunFolder") -> str:
    """Returns an input of the user's as it is typed: one that the last validation read."""
    from regard.page.examples import examples_of

    for example in examples_of(folder, task.input_kind):
        text = str(example.path) if example.path is not None else " ".join(example.text.split())
        if len(text) > MOST_EXAMPLE and example.path is None:
            text = text[:MOST_EXAMPLE].rpartition(" ")[0] or text[:MOST_EXAMPLE]
        # A terminal would carry out the others, take them for an option, or (on Windows) replace them.
        if text.isprintable() and not text.startswith("-") and not (IS_WINDOWS and set(text) & set('"%$`!')):
            return quoted(text)
    return {"text": quoted("A text."), "image": "IMAGE.png", "sound": "SOUND.wav"}[task.input_kind]


def _test_line(task: "Task", config: "RunConfig", data: Any) -> str:
    """Returns what is said before a test, which can take longer than a short training."""
    source, beam = getattr(task, "input", None), getattr(task.evaluation_config(), "beam", 1)
    is_generated = source is not None and config.data.bundled and config.data.test is None
    tested = f"{source.generated.test:,} {source.examples}" if source is not None and is_generated else str(data)
    return f"testing on {tested}{f', beam {beam}' if beam > 1 else ''} …"


def exit_if_stopped(task: "Task", result: "TrainingResult") -> None:
    """Exits with the signal's code and prints how to continue, if a signal stopped the training."""
    if result.interrupted:
        advice = continue_with(result.folder.path, task.name)
        print(stopped_line(result.interrupted, result.progress.step, advice), file=sys.stderr)
        sys.exit(128 + result.interrupted)
