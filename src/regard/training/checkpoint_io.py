"""Checkpoints of a training run: written atomically, and read without executing code."""

import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from typing_extensions import override

from regard.errors import DataError, RunError
from regard.training.run_folder import AtomicFile

CHECKPOINTS_KEPT = 2
_NAME = re.compile(r"step-(\d+)\.ckpt")


class SafeCheckpointIO(TorchCheckpointIO):
    """Writes checkpoints atomically and reads them safely, for Lightning.

    A checkpoint is written to a temporary file in the same folder, synced to disk and renamed. It is read with
    ``torch.load(weights_only=True)``: a file from an untrusted source can give tensors and plain values only.
    """

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        with AtomicFile(Path(path)) as temporary:
            try:
                torch.save(checkpoint, temporary)
            except RuntimeError as error:  # torch.save raises this when the disk is full
                raise OSError(f"{str(error).splitlines()[0]} (is the disk full?)") from error

    @override
    def load_checkpoint(self, path: Any, map_location: Any = "cpu", weights_only: bool | None = True) -> dict[str, Any]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns of pickles that it did not write; they raise below
                content = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise RunError(
                f"{path} is damaged, or holds more than tensors and plain values; it was not loaded. "
                "Delete it to resume from the checkpoint before it"
            ) from error
        except (OSError, RuntimeError, EOFError, KeyError, ValueError) as error:
            raise RunError(
                f"{path} cannot be read ({str(error).splitlines()[0] if str(error) else type(error).__name__}); "
                "delete it to resume from the checkpoint before it"
            ) from error
        if not isinstance(content, dict) or "state_dict" not in content or "regard" not in content:
            raise RunError(f"{path} is not a checkpoint of regard")
        return content


def checkpoint_path(folder: Path, step: int) -> Path:
    """The file of the checkpoint after ``step`` steps."""
    return folder / f"step-{step:08d}.ckpt"


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    found = [(int(match[1]), path) for path in folder.glob("*.ckpt") if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def prune_checkpoints(folder: Path) -> None:
    """Delete all but the last two checkpoints, and the temporary files of interrupted writes."""
    for path in [*list_checkpoints(folder)[:-CHECKPOINTS_KEPT], *folder.glob(".*.tmp")]:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise DataError(f"cannot delete the old checkpoint {path}: {error.strerror}") from error
