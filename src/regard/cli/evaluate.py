"""``regard evaluate``: metrics of a trained run on a data set."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from regard.cli.config_options import field_names, options_of, panel, signature
from regard.cli.option_errors import options_named
from regard.cli.option_types import Run, Threads, use_threads
from regard.cli.run_configuration import check_name

if TYPE_CHECKING:
    from regard.training.run_folder import RunFolder
    from regard.training.task import Task


@dataclass(frozen=True)
class Machine:
    """The machine, and the name of the results."""

    threads: Threads = 0
    """CPU threads; 0: PyTorch's own number."""
    device: str = "cpu"
    """cpu, cuda, cuda:1, mps, ..."""
    output: str | None = None
    """Name of the results in the run folder. Default: that of the data."""


Data = Annotated[str, Parameter(help="A data set, in any form that the task's training accepts.")]


def make_command(task: "Task") -> Callable[..., None]:
    """Returns the function that Cyclopts calls for ``regard evaluate`` on a run of this task."""

    def command(run, data, **options) -> None:
        machine = Machine(**{name: options.pop(name) for name in field_names(Machine) if name in options})
        _evaluate(task, run, data, machine, options)

    positional = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY, annotation=kind)
        for name, kind in (("run", Run), ("data", Data))
    ]
    panels = [panel(f"Task {task.name}", task.evaluation_config), panel("Machine and results", Machine)]
    command.__signature__ = signature(panels, positional)
    command.__doc__ = """Measure a trained run on a data set.

    Writes RUN/evaluation-NAME.json and, depending on the task, predictions and pictures. The options depend on the
    task of the run.
    """
    return command


def _evaluate(task: "Task", run: str, data: str, machine: Machine, options: dict[str, Any]) -> None:
    from regard.training.run_folder import RunFolder

    use_threads(machine.threads)
    name = check_name("--output", name_of(data) if machine.output is None else machine.output)
    evaluate_run(task, RunFolder.open(run), data, name, options, machine.device)


def evaluate_run(
    task: "Task", folder: "RunFolder", data: Any, name: str, options: dict[str, Any], device: str = "cpu"
) -> None:
    """Evaluates a run on data in any form that its training accepts, with the ``evaluation_config`` fields that the
    user typed, writes the results into its folder, by ``name``, and prints them; ``regard train`` calls it too, if
    there are test data."""
    from regard.training.model_card import write_card

    with options_named({"device": "--device", **options_of(task.evaluation_config)}):
        trained = task.load(folder, device)
        evaluation = trained.evaluate_with(data, task.evaluation_config(**options))
    files = evaluation.write(folder, name)
    if (card := write_card(task, folder, name)) is not None:
        files = [*files, card]
    print("\n".join(evaluation.lines()))
    print("results: " + " · ".join(map(str, files)))


def name_of(data: str) -> str:
    """Returns the name of the results on some data: the name of its file or data set, made valid for a file."""
    return Path(data.split(",")[0].replace(":", "-").split("?")[0]).stem or "data"
