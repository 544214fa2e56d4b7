"""What ``regard train TASK`` does: starts, resumes, describes or only checks a run."""

import sys
from typing import TYPE_CHECKING, Any

from regard.cli.option_names import options_named
from regard.cli.run_configuration import all_options, as_yaml, composed, resumed
from regard.cli.run_name import check_name
from regard.errors import ArgumentError

if TYPE_CHECKING:
    from regard.cli.train_commands import Place
    from regard.training.run import TrainedRun
    from regard.training.task import Task


def train_task(task: "Task", place: "Place", given: dict[str, Any]) -> None:
    """Run the command.

    Args:
        task: the task.
        place: where the run is, and what is done with it.
        given: the options that the user typed, by the names of the fields of the task's configurations.
    """
    if place.tensorboard:
        names = [name.strip() for name in given.get("logger", "").split(",") if name.strip()]
        given = {**given, "logger": ",".join(dict.fromkeys([*names, "tensorboard"]))}
    if place.resume:
        _resume(task, place, given)
        return
    config = composed(task, place.config, given)
    if place.print_config:
        print(as_yaml(config), end="")
        return
    name = check_name("--run", place.run if place.run is not None else task.run_name(config))
    with options_named(all_options(task)):
        if place.dry_run:
            from regard.cli.dry_run import dry_run

            dry_run(task, config)
            return
        from regard.training.processes import is_first_process
        from regard.training.run import train
        from regard.training.run_folder import RunFolder

        path = place.runs / name
        # The other processes of a distributed run get the folder that the first one makes.
        folder = RunFolder.create(path, place.overwrite) if is_first_process() else RunFolder(path)
        trained = train(task, config, folder)
    finish(task, trained)


def _resume(task: "Task", place: "Place", given: dict[str, Any]) -> None:
    for typed, name in ((place.config, "--config"), (place.overwrite, "--overwrite"), (place.dry_run, "--dry-run")):
        if typed:
            raise ArgumentError(f"{name} and --resume exclude each other; give one of them")
    from regard.training.run import train
    from regard.training.run_folder import RunFolder

    folder = RunFolder.open(place.runs / check_name("--run", _resumed_name(task, place, given)))
    config = resumed(task, folder.read_config(task), given)
    if place.print_config:
        print(as_yaml(config), end="")
        return
    with options_named(all_options(task)):
        trained = train(task, config, folder, resume=True, allow_changed_data=place.allow_changed_data)
    finish(task, trained)


def _resumed_name(task: "Task", place: "Place", given: dict[str, Any]) -> str:
    # The name of a run follows from options that the user may repeat.
    return place.run if place.run is not None else task.run_name(composed(task, None, given))


def finish(task: "Task", trained: "TrainedRun") -> None:
    """Print the result of a training, draw its pictures, and evaluate it on the test data if there are any."""
    from regard.training.processes import is_first_process
    from regard.training.run_session import continue_with
    from regard.training.signal_handler import advising

    if not is_first_process():  # only the first process of a distributed run prints
        return
    folder, progress = trained.folder, trained.progress
    exit_if_stopped(task, trained)
    best = "" if progress.best is None else (
        f"; best validation {task.metrics[0].text(progress.best)} at step {progress.best_step}"
    )  # fmt: skip
    print(f"{progress.finished}{best} · {folder.path}")
    with advising(lambda: continue_with(folder.path, task.name)):
        for picture in task.report(folder):
            print(f"picture: {picture}")
        data = task.test_data(folder, folder.read_config(task))
        if data is not None:
            from regard.cli.evaluation import evaluate_run

            evaluate_run(task, folder, data, "test", {})


def exit_if_stopped(task: "Task", trained: "TrainedRun") -> None:
    """Where a signal stopped the training, say how to continue, and exit with its code."""
    from regard.training.run_session import continue_with
    from regard.training.signal_handler import stopped_line

    if trained.interrupted:
        advice = continue_with(trained.folder.path, task.name)
        print(stopped_line(trained.interrupted, trained.progress.step, advice), file=sys.stderr)
        sys.exit(128 + trained.interrupted)
