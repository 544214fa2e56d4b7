"""What ``regard evaluate`` does, also at the end of a training."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.config_options import options_of
from regard.cli.option_names import options_named

if TYPE_CHECKING:
    from regard.training.run_folder import RunFolder
    from regard.training.task import Task


def evaluate_run(
    task: "Task", folder: "RunFolder", data: Any, name: str, given: dict[str, Any], device: str = "cpu"
) -> None:
    """Evaluate a run, write the results into its folder and print them.

    Args:
        task: the task of the run.
        folder: the run folder.
        data: a data set, in any form that the task's training takes.
        name: name of the results in the run folder.
        given: the options that the user typed, by the names of the fields of the task's ``evaluation_config``.
        device: PyTorch device of the model.
    """
    with options_named({"device": "--device", **options_of(task.evaluation_config)}):
        trained = task.load(folder, device)
        found = trained.evaluate_with(data, task.evaluation_config(**given))
    files = found.write(folder, name)
    print("\n".join(found.lines()))
    print("results: " + " · ".join(map(str, files)))


def name_of(data: str) -> str:
    """The name of the results on some data: that of its file or data set, without what a file's name cannot have."""
    return Path(data.split(",")[0].replace(":", "-").split("?")[0]).stem or "data"
