"""``regard evaluate``: metrics of a trained run on a data set."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from regard.cli.config_options import field_names, panel, signature
from regard.cli.ranges import Threads

if TYPE_CHECKING:
    from regard.training.task import Task


@dataclass(frozen=True)
class Machine:
    """Where a run is evaluated, and where the results go."""

    threads: Threads = 0
    """CPU threads; 0: PyTorch's own number."""
    device: str = "cpu"
    """cpu, cuda, cuda:1, mps, ..."""
    output: str | None = None
    """Name of the results in the run folder. Default: that of the data."""


Run = Annotated[Path, Parameter(help="Run folder, e.g. runs/translate-bahdanau.")]
Data = Annotated[str, Parameter(help="A data set, in any form that the training of the task takes.")]


def make_command(task: "Task") -> Callable[..., None]:
    """The function behind ``regard evaluate`` for a run of this task, for Cyclopts to read and call."""

    def command(run, data, **given) -> None:
        machine = Machine(**{name: given.pop(name) for name in field_names(Machine) if name in given})
        _evaluate(task, run, data, machine, given)

    positional = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY, annotation=kind)
        for name, kind in (("run", Run), ("data", Data))
    ]
    panels = [panel(f"Task {task.name}", task.evaluation_config), panel("Machine and results", Machine)]
    command.__signature__ = signature(panels, positional)  # pyright: ignore[reportFunctionMemberAccess]
    command.__doc__ = """Measure a trained run on a data set.

    Writes RUN/evaluation-NAME.json, and what else the task has: predictions and pictures. The options depend on the
    task of the run.
    """
    return command


def _evaluate(task: "Task", run: Path, data: str, machine: Machine, given: dict[str, Any]) -> None:
    from regard.cli.evaluation import evaluate_run, name_of
    from regard.cli.run_name import check_name
    from regard.training.run_folder import RunFolder

    if machine.threads:
        import torch

        torch.set_num_threads(machine.threads)
    name = check_name("--output", name_of(data) if machine.output is None else machine.output)
    evaluate_run(task, RunFolder.open(run), data, name, given, machine.device)
