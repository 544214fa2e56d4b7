"""The tasks by name: those of regard, and those that other packages register by an entry point.

A package registers a task in its ``pyproject.toml``; the value names an instance of `regard.training.task.Task`::

    [project.entry-points."regard.tasks"]
    count = "my_package.count:TASK"
"""

import os
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from regard.errors import ArgumentError, RegardError, RunError, UnknownNameError
from regard.names.old_names import TASKS_ELSEWHERE
from regard.training.run_folder import RunFolder
from regard.training.task import Task, Trained

GROUP = "regard.tasks"
"""The group of the entry points."""

BUILT_IN_TASKS = {
    "translate": "Translate text: a Transformer, or a recurrent translator with or without attention.",
    "summarize": "Summarize text: a recurrent network or a Transformer that can copy words of the article.",
    "language": "Predict the next token of running text: a decoder-only Transformer.",
    "classify": "Tell the label of a text: a recurrent network or a Transformer, with attention pooling.",
    "transcribe": "Write what is said: a pyramidal recurrent network or a Transformer that attends to sound.",
    "sounds": "Tell the label of a sound: the encoder of transcribe, with attention pooling.",
    "segment": "Tell the class of each pixel: a small network with channel, position and fusion attention.",
    "images": "Tell the label of an image: a Vision Transformer, or a convolutional network with SE or CBAM.",
    "caption": "Say in words what an image shows: soft or hard attention to its parts, or a Transformer.",
}
"""Name → summary; the task is `TASK` of the module of this name."""


def names() -> dict[str, str]:
    """Returns the name and the summary of every task, without importing any."""
    return BUILT_IN_TASKS | {name: f"A task of the package {_package(point)}." for name, point in _points().items()}


def find(name: str) -> Task:
    """Returns the task of this name.

    Raises:
        UnknownNameError: there is no such task.
        RunError: the package that registers the task cannot be imported, or registers something else.
    """
    if name in BUILT_IN_TASKS:
        return import_module(f"regard.tasks.{name}").TASK
    point = _points().get(name)
    if point is None:
        here = TASKS_ELSEWHERE.get(_written(name))
        raise UnknownNameError("task", name, names(), f"here it is {here!r}" if here else "")
    try:
        task = point.load()
    except RegardError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise RunError(f"the task {name!r} of the package {_package(point)} cannot be imported ({reason})") from error
    if not isinstance(task, Task) or task.name != name:
        registered = f"the task {task.name!r}" if isinstance(task, Task) else f"a {type(task).__name__}"
        raise RunError(
            f"the package {_package(point)} registers {registered} as the task {name!r}; "
            "the entry point must name an instance of regard.training.task.Task with this name"
        )
    return task


def task_elsewhere(name: str) -> str | None:
    """Returns the name here of the task that has this name here or in other programs; None if there is none."""
    return name if name in names() else TASKS_ELSEWHERE.get(_written(name))


def _written(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def of_run(folder: RunFolder) -> Task:
    """Returns the task of a run, by its ``config.yaml``.

    Raises:
        RunError: the folder is not a run, or no installed package has its task.
    """
    name = folder.read_sections()["task"]
    try:
        return find(name)
    except UnknownNameError as error:
        raise RunError(
            f"{folder.path} is a run of the task {name!r}, which no installed package has (known: {', '.join(names())})"
        ) from error


def load(run: str | os.PathLike[str], device: str = "cpu", *, task: str | None = None) -> Trained:
    """Returns a trained run, ready to predict and evaluate.

    ::

        trained = regard.load("runs/translate-bahdanau")
        trained.predict(["The dog sleeps."], beam=5)[0].text
        trained.evaluate("test.tsv").bleu
        regard.load("hf://owner/name")  # a run that regard push has uploaded

    Args:
        run: the run folder, as a path or the ``folder`` of a trained run, or the address of a run on the Hugging Face
            hub: ``hf://OWNER/NAME`` or ``hf://OWNER/NAME@REVISION``, which is downloaded once. Only safetensors, JSON
            and safe YAML are read.
        device: PyTorch device of the model.
        task: the task that the run must have, so that editors know the type of the result; None: any.

    Returns:
        The trained run, with ``predict``, ``evaluate``, ``export``, ``model`` and ``folder``.

    Raises:
        RunError: the folder is not a run folder, or its files are missing, damaged or from different runs.
        ArgumentError: the run has another task.

    Example:
        >>> import regard
        >>> films = ["a fine film", "a dull film"] * 8, ["good", "bad"] * 8
        >>> trained = regard.train("classify", films, validation=0.25, epochs=1, hidden=8, quiet=True, run="runs/films")
        >>> run = regard.load("runs/films")
        >>> run
        TrainedClassifier('runs/films', device='cpu')
        >>> run.predict(["a film"])[0].probabilities == trained.predict(["a film"])[0].probabilities
        True
    """
    folder = RunFolder.open(run)
    kind = of_run(folder)
    if task is not None and kind.name != find(task).name:
        raise ArgumentError(f"{run} is a run of the task {kind.name!r}, not {task!r}; load it with task={kind.name!r}")
    return kind.load(folder, device)


@cache
def _points() -> dict[str, EntryPoint]:
    # A name of regard's own is not replaced.
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in BUILT_IN_TASKS}


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.module
