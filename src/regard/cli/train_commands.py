"""The commands ``regard train TASK``: the attribute ``translate`` is the command of the task ``translate``."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from regard.cli.config_options import OptionPanel, field_names, panel, signature
from regard.cli.run_configuration import RunOptions
from regard.errors import ArgumentError
from regard.tasks import registry
from regard.training.reporter import each_warning_once

if TYPE_CHECKING:
    from regard.training.task import Task

MACHINE = ("logger", "precision", "threads", "accelerator", "devices", "nodes", "strategy")
"""Fields of the training configuration that concern the machine."""

# `torchrun` takes --run for an abbreviation of one of its own options.
SPELLINGS = {
    "train": ("--train", "--data"),
    "accelerator": ("--accelerator", "--device"),
    "run": ("--run", "--run-name"),
}
"""Field → its options, if there are several."""


DATA = inspect.Parameter(
    "data", inspect.Parameter.POSITIONAL_ONLY, default=None,
    annotation=Annotated[str | None, Parameter(help="Training data, the same as --train.")],
)  # fmt: skip
"""The data as an argument without a name."""


def __getattr__(name: str) -> Any:
    if name not in registry.names():
        raise AttributeError(f"there is no task {name!r}")
    return make_command(registry.find(name))


def make_command(task: "Task") -> Callable[..., None]:
    """Returns the function that Cyclopts calls for ``regard train TASK``; its signature has the task's options."""

    def command(data=None, **options) -> None:
        from regard.cli.training import train_task

        if data is not None:
            if "train" in options:
                raise ArgumentError(f"the training data are given twice, as {data!r} and with --train; give them once")
            options["train"] = data
        run_options = {name: options.pop(name) for name in field_names(RunOptions) if name in options}
        with each_warning_once():
            train_task(task, RunOptions(**run_options), options)

    command.__signature__ = signature(panels(task), [DATA])
    command.__doc__ = task.summary
    return command


def panels(task: "Task") -> list[OptionPanel]:
    """Returns the panels of a task's options."""
    training = task.training_config
    names = field_names(training)
    own = tuple(name for name in names if name not in MACHINE)
    return [
        panel("Data", task.data_config, spellings=SPELLINGS, negatives=True, fitted=task.fitted),
        panel("Model", task.model_config, negatives=True, fitted=task.fitted),
        OptionPanel("Training", training, own, negatives=True, fitted=task.fitted),
        panel("Run folder", RunOptions, spellings=SPELLINGS),
        OptionPanel("Machine", training, tuple(name for name in names if name in MACHINE), SPELLINGS, negatives=True),
    ]
