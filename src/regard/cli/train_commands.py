"""The commands ``regard train TASK``: ``train_commands.translate`` is the one of the task ``translate``."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.config_options import Panel, field_names, panel, signature
from regard.tasks import registry

if TYPE_CHECKING:
    from regard.training.task import Task

MACHINE = ("logger", "precision", "threads", "accelerator", "devices", "nodes", "strategy")
"""Fields of the training's configuration that are about the machine."""

# Behind `torchrun`, --run would be ambiguous with an option of its own.
SPELLINGS = {
    "train": ("--train", "--data"),
    "accelerator": ("--accelerator", "--device"),
    "run": ("--run", "--run-name"),
}
"""Field → its options, where there are several."""


@dataclass(frozen=True)
class Place:
    """Where a run is, and what is done with it."""

    run: str | None = None
    """Name of the run. Default: that of the task, and of what distinguishes its models."""
    runs: Path = Path("runs")
    """Folder that holds the run folders."""
    resume: bool = False
    """Continue an interrupted run with its own options (--epochs, --max-minutes, --patience and the machine may
    change)."""
    allow_changed_data: bool = False
    """With --resume: continue although the data have changed since the run began."""
    overwrite: bool = False
    """Replace the run of that name; the new run is trained in NAME.new and takes its place when it is complete."""
    config: Path | None = None
    """YAML file with options in the sections data, model and training, as config.yaml of a run; options win."""
    print_config: bool = False
    """Print the configuration that would run, as YAML for --config, and stop."""
    dry_run: bool = False
    """Check everything, print sizes, memory and the time of an epoch, and stop; writes nothing."""
    tensorboard: bool = False
    """The same as --logger tensorboard."""


def __getattr__(name: str) -> Any:
    if name not in registry.names():
        raise AttributeError(f"there is no task {name!r}")
    return make_command(registry.find(name))


def make_command(task: "Task") -> Callable[..., None]:
    """The function behind ``regard train TASK``, for Cyclopts to read and call."""

    def command(**given: Any) -> None:
        from regard.cli.training import train_task

        place = {name: given.pop(name) for name in field_names(Place) if name in given}
        train_task(task, Place(**place), given)

    command.__signature__ = signature(panels(task))  # pyright: ignore[reportFunctionMemberAccess]
    command.__doc__ = task.summary
    return command


def panels(task: "Task") -> list[Panel]:
    """The panels of the options of a task."""
    training = task.training_config
    names = field_names(training)
    return [
        panel("Data", task.data_config, spellings=SPELLINGS, negatives=True),
        panel("Model", task.model_config, negatives=True),
        Panel("Training", training, tuple(name for name in names if name not in MACHINE), negatives=True),
        panel("Run folder", Place, spellings=SPELLINGS),
        Panel("Machine", training, tuple(name for name in names if name in MACHINE), SPELLINGS, negatives=True),
    ]
