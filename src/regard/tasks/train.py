"""``regard.train``: the training of any task from Python, on files or on data in memory."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.atomic_file import delete_temporary_folder, make_temporary_folder
from regard.configuration import option_fields
from regard.errors import ArgumentError
from regard.old_names import unknown_name
from regard.tasks import registry
from regard.tasks.stored_data import store, stored_names
from regard.training.config import RunConfig, section_kinds

if TYPE_CHECKING:
    from regard.training.task import Task, Trained

PARTS = ("train", "validation", "test")


def train(
    task: str,
    train: Any = None,
    *,
    validation: Any = None,
    test: Any = None,
    run: str | Path | None = None,
    quiet: bool = False,
    device: str = "cpu",
    **options: Any,
) -> Trained:
    """Train a model, as ``regard train TASK`` does.

    ::

        run = regard.train("classify", (texts, labels), validation=0.1, architecture="gru")
        run.predict(["A film without a dull minute."])[0].label

        run = regard.train("translate", "pairs.tsv", max_minutes=5, run="runs/pairs")
        run.evaluate("test.tsv").bleu

    Args:
        task: name of the task: ``"classify"``, ``"translate"``, ..., or one of another package.
        train: training data: a path, or what else ``--train`` names; two equally long lists ``(inputs, targets)``; an
            iterable of pairs or of dictionaries; a DataFrame; or a data set of Hugging Face. An input is a text; for an
            image, a path or an array uint8 ``[height, width, 3]``; for a sound, a path or an array ``[frames,
            features]``. For ``"language"``, a path or a list of texts. None: an option says it: ``bundled=1000``.
        validation: data that decide which model is the best, in the same forms; or the share of the training data that
            is used for it, such as 0.1. None: as many as the option ``held_out`` says.
        test: data on which `Trained.evaluate` measures the model if it is given none. None: there are none.
        run: the run folder, which must be new or empty; data in memory are written beside it, into ``<run>.data``.
            None: a temporary folder, which is deleted with the result.
        quiet: whether to show no progress.
        device: PyTorch device of the result; the option ``accelerator`` says where it is trained.
        options: any options of ``regard train TASK`` by the names of their fields: ``epochs=5``, ``hidden=128``.

    Returns:
        the trained run, with ``predict``, ``evaluate``, ``model`` and ``folder``.

    Raises:
        ArgumentError: an option is unknown or out of its range, or lists are not equally long.
        KindError: data have no form that can be used.
        DataError: the data cannot be used.
        RunError: the run folder is not empty, or cannot be written.
        TrainingError: the loss is no longer a finite number.
        KeyboardInterrupt: a signal stopped the training; a named run can be resumed by ``regard train TASK --resume``.
    """
    from regard.training.reporter import SilentReporter
    from regard.training.run import train as train_run
    from regard.training.run_folder import RunFolder

    kind = registry.find(task)
    temporary = make_temporary_folder() if run is None else None
    path = Path(run or "") if temporary is None else temporary / "run"
    stored: dict[str, str] = {}
    try:
        with stored_names(stored):
            check_options(kind, options)
            folder = RunFolder.create(path)
            for name, value in zip(PARTS, (train, validation, test), strict=True):
                if isinstance(value, (str, Path)):
                    options[name] = str(value)
                elif name == "validation" and isinstance(value, float):
                    options["held_out"] = value
                elif value is not None:
                    file = path.absolute().with_name(f"{path.name}.data") / name
                    stored[name] = options[name] = store(kind, value, file, name, options)
            trained = train_run(
                kind, configuration(kind, options), folder, reporter=SilentReporter() if quiet else None
            )
            if trained.interrupted:
                raise KeyboardInterrupt(f"signal {trained.interrupted} stopped the training")
            result = kind.load(trained.folder, device)
    except BaseException:
        if temporary is not None:
            delete_temporary_folder(temporary)
        raise
    if temporary is not None:
        weakref.finalize(result, delete_temporary_folder, temporary)
    return result


def check_options(task: Task, options: Iterable[str]) -> None:
    """Raise ArgumentError if the task has no such option."""
    known = [field.name for kind in section_kinds(task).values() for field in option_fields(kind)]
    for name in options:
        if name not in known:
            raise ArgumentError(unknown_name("option", name, known))


def configuration(task: Task, options: Mapping[str, Any]) -> RunConfig[Any, Any, Any]:
    """The configuration of a run with these options, whose names are those of the fields of its sections.

    Raises:
        ArgumentError: an option is out of its range, or options contradict each other.
    """
    sections = {
        section: kind(**{field.name: options[field.name] for field in option_fields(kind) if field.name in options})
        for section, kind in section_kinds(task).items()
    }
    config = RunConfig(task.name, **sections)
    task.check_run(config)
    return config
