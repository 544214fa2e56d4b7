"""What the tasks on a user's own data share: where the data are, the tokenizers of another run, the model's device."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from torch import nn

from regard.data.text.sources import local_files
from regard.data.text.tokenizers import Tokenizer
from regard.errors import ArgumentError, DataError, RunError
from regard.training.run_folder import RunFolder

if TYPE_CHECKING:
    import datasets

Model = TypeVar("Model", bound=nn.Module)


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
    held_out = min(held_out, len(train) // 10)
    if not held_out:
        raise DataError(
            f"{counted}, too few to use some of them for validation; give validation data with --validation"
        )
    first = len(train) - held_out
    return train.select(range(first)), train.select(range(first, len(train)))


def tokenizer_of_run(run: str, file_name: str, kind: str, lowercase: bool) -> Tokenizer:
    """The tokenizer of the run that a model is taken from (``--init-from``).

    Args:
        run: that run's folder.
        file_name: the tokenizer's file in it.
        kind: ``bpe``, ``word`` or ``char``, as this run's options say.
        lowercase: as this run's options say.

    Raises:
        RunError: the tokenizer is missing, damaged, or of another kind.
    """
    found = Tokenizer.load(RunFolder(run).path / file_name)
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
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise ArgumentError(f"device {device!r} cannot be used: {str(error).splitlines()[0]}") from error
