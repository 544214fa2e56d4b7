"""What the tasks on a user's own data share: where the data are, tokenizers, and how a trained run is loaded."""

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from regard.data.text.sources import local_files
from regard.data.text.tokenizers import Tokenizer
from regard.errors import ArgumentError, DataError, RunError
from regard.models.checkpoint import load_model
from regard.tasks.run_files import bundled_path
from regard.training.run_folder import RunFolder

if TYPE_CHECKING:
    import datasets

Model = TypeVar("Model", bound=nn.Module)

log = logging.getLogger("regard")


def located(folder: RunFolder, source: str | None) -> str | None:
    """A source of the run's data so that it is found from any working directory; other sources as they are."""
    paths = None if source is None else local_files(source)
    return source if paths is None else ",".join(folder.manifest.resolve(str(path)) for path in paths)


def located_files(folder: RunFolder, sources: Mapping[str, str | None]) -> dict[str, tuple[Path, ...]]:
    """The local files of each part of the run's data, for `regard.training.task.Task.data_files`.

    Args:
        folder: the run folder.
        sources: name of the part → its source, or None; parts without local files are left out.
    """
    found = {part: located(folder, source) for part, source in sources.items()}
    return {
        part: paths
        for part, source in found.items()
        if source is not None and (paths := local_files(source)) is not None
    }


def test_source(folder: RunFolder, data: Any) -> str | None:
    """What a run is evaluated on when its training is over: its test data or the bundled corpus's; None: nothing.

    Args:
        folder: the run folder.
        data: the configuration of the run's data.
    """
    if data.bundled and not data.test:
        return str(bundled_path(folder, "test"))
    return located(folder, data.test)


def warn_of_training_data(data: Any) -> None:
    """Warn if the validation or test data are the training data.

    Args:
        data: the configuration of the run's data.
    """
    for part in ("validation", "test"):
        if data.train is not None and getattr(data, part) == data.train:
            log.warning("the %s data are the training data: their metrics say nothing about other texts", part)


def held_out_size(rows: int, held_out: int, counted: str, data: str = "data") -> int:
    """How much of the training data is used for validation: at most a tenth.

    Args:
        rows: training examples.
        held_out: how many are wanted.
        counted: says in a message how many there are: ``"a.tsv has 7 pairs"``.
        data: what the data are, for a message.

    Raises:
        DataError: there are fewer than ten.
    """
    size = min(held_out, rows // 10)
    if not size:
        raise DataError(
            f"{counted}, too few to use some of them for validation; give validation {data} with --validation"
        )
    return size


def held_out_part(
    train: "datasets.Dataset", held_out: int, counted: str
) -> tuple["datasets.Dataset", "datasets.Dataset"]:
    """The training data without their last rows, and these rows, for validation.

    Args:
        train: the training data.
        held_out: rows to use for validation; at most a tenth of all.
        counted: says in a message how many there are: ``"a.tsv has 7 pairs"``.

    Raises:
        DataError: there are fewer than ten rows.
    """
    first = len(train) - held_out_size(len(train), held_out, counted)
    return train.select(range(first)), train.select(range(first, len(train)))


def run_tokenizer(
    path: Path, initial: str | None, kind: str, lowercase: bool, learn: Callable[[], Tokenizer]
) -> Tokenizer:
    """The tokenizer of a run; at its start, that of the run that it starts from, or a new one, which is saved.

    Args:
        path: the tokenizer's file.
        initial: the run that a model is taken from (``--init-from``), in which the file has the same name; None: none.
        kind: ``bpe``, ``word`` or ``char``, as this run's options say.
        lowercase: as this run's options say.
        learn: learns a new tokenizer from the training data.

    Raises:
        RunError: the tokenizer of ``initial`` is missing, damaged, or of another kind.
    """
    if not path.is_file():
        (learn() if initial is None else _initial_tokenizer(initial, path.name, kind, lowercase)).save(path)
    return Tokenizer.load(path)


def _initial_tokenizer(run: str, file_name: str, kind: str, lowercase: bool) -> Tokenizer:
    found = Tokenizer.load(RunFolder(run).file(file_name))
    for name, wanted, has in (("tokenizer", kind, found.kind), ("lowercase", lowercase, found.lowercase)):
        if wanted != has:
            raise RunError(
                f"--init-from: --{name} is {has!r} in {run}, and {wanted!r} here; a run takes the tokenizers of the "
                "run that it starts from, so give the same"
            )
    return found


def on_device(model: Model, device: str) -> Model:
    """The model on a device of PyTorch.

    Raises:
        ArgumentError: the device cannot be used.
    """
    try:
        torch.ones((), device=device).item()  # raises for "meta", whose tensors have no numbers
        return model.to(device)
    except Exception as error:  # of PyTorch, and of the packages that bring devices
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ArgumentError(f"device {device!r} cannot be used: {reason}") from error


def load_files_and_model(
    folder: RunFolder, loaders: Mapping[Path, Callable[[Path], Any]], kind: type[Model], lack: str
) -> tuple[list[Any], Model]:
    """The files of a run that belong together, and its model, read while no training replaces them.

    Args:
        folder: the run folder.
        loaders: file → what reads it.
        kind: the class of the model.
        lack: says of a model of another class why it cannot be used: ``"which does not translate"``.

    Raises:
        RunError: a file is missing or damaged, the files are of different states of the run, or the model is another.
    """
    folder.require(*loaders)
    files, model = folder.manifest.consistently(
        [folder.model, *loaders],
        lambda: ([load(path) for path, load in loaders.items()], load_model(folder.model)),
    )
    if not isinstance(model, kind):
        raise RunError(f"{folder.model} holds a {type(model).__name__}, {lack}")
    return files, model


def chunks(rows: list[int], size: int) -> Iterator[list[int]]:
    """The rows, so many at once."""
    return (rows[first : first + size] for first in range(0, len(rows), size))
