"""Training a text classifier from lists of Python."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datasets

    from regard.tasks.classify.trained_classifier import TrainedClassifier


def train_classifier(
    texts: Sequence[str],
    labels: Sequence[str | int],
    *,
    validation: tuple[Sequence[str], Sequence[str | int]] | None = None,
    run: str | Path | None = None,
    quiet: bool = False,
    **options: Any,
) -> TrainedClassifier:
    """Train a text classifier.

    ::

        from regard.tasks.classify import train_classifier

        classifier = train_classifier(texts, labels, encoder="lstm", epochs=5)
        print(classifier.predict(["A film without a dull minute."])[0].probabilities)

    Args:
        texts: the training texts.
        labels: the label of each: a text or a number. Predictions have labels as texts.
        validation: texts and labels that decide which model is the best. None: random training texts, as many as
            the option ``held_out`` says.
        run: the run folder, which must be new or empty; the data are written beside it, as ``<run>.data``. None: a
            temporary folder that is deleted with the classifier.
        quiet: whether to print no progress.
        options: any options of ``regard train classify`` by the names of their fields: ``epochs=5``,
            ``class_weights="balanced"``. Without ``max_length`` and so on they have the same defaults.

    Returns:
        the best model, with its ``predict`` and ``evaluate``.

    Raises:
        ArgumentError: an option is unknown or out of its range, or the lists are not equally long.
        DataError: the data cannot be used.
        RunError: the run folder is not empty, or cannot be written.
        KeyboardInterrupt: a signal stopped the training; a named run can be resumed by ``regard train classify``.
    """
    from regard.data.text.sources import labelled_lists
    from regard.errors import ArgumentError
    from regard.tasks.classify.task import TASK
    from regard.training.config import RunConfig
    from regard.training.reporter import SilentReporter
    from regard.training.run import train
    from regard.training.run_folder import RunFolder

    parts = {"train": labelled_lists(texts, labels)}
    if validation is not None:
        parts["validation"] = labelled_lists(*validation)
    for name in (*parts, "bundled", "text_column", "label_column"):
        if name in options:
            raise ArgumentError(f"there is no option {name!r} here: the texts and the labels are the data")
    temporary = tempfile.mkdtemp(prefix="regard-") if run is None else None
    try:
        path = Path(run) if temporary is None and run is not None else Path(str(temporary)) / "run"
        folder = RunFolder.create(path)
        data = {name: str(path.absolute().with_name(f"{path.name}.data") / f"{name}.jsonl") for name in parts}
        sections = _sections({**options, **data})
        for name, part in parts.items():
            _write(Path(data[name]), part)
        config = RunConfig(TASK.name, **sections)
        trained = train(TASK, config, folder, reporter=SilentReporter() if quiet else None)
        if trained.interrupted:
            raise KeyboardInterrupt(f"signal {trained.interrupted} stopped the training")
        found = TASK.load(trained.folder)
    except BaseException:
        if temporary is not None:
            _remove(temporary)
        raise
    if temporary is not None:
        weakref.finalize(found, _remove, temporary)
    return found


def _sections(options: dict[str, Any]) -> dict[str, Any]:
    import dataclasses

    from regard.errors import UnknownNameError
    from regard.tasks.classify import config

    kinds = {
        "data": config.DataConfig,
        "model": config.ModelConfig,
        "training": config.ClassificationTrainingConfig,
    }
    names = {section: [field.name for field in dataclasses.fields(kind)] for section, kind in kinds.items()}
    for name in options:
        if not any(name in known for known in names.values()):
            raise UnknownNameError("option", name, [field for known in names.values() for field in known])
    return {
        section: kind(**{name: options[name] for name in names[section] if name in options})
        for section, kind in kinds.items()
    }


def _write(path: Path, part: datasets.Dataset) -> None:
    import json

    from regard.atomic_file import write_atomically
    from regard.errors import RunError

    rows = zip(part["source"], part["target"], strict=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot create the folder {path.parent}: {error.strerror}") from error
    # Half a surrogate pair is written as an escape, so that reading the file names its place.
    write_atomically(path, "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows).encode())


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
