"""Checkpoints of a training run: written atomically, and read without executing code."""

import pickle
import re
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from typing_extensions import override

from regard.atomic_file import AtomicFile
from regard.errors import DataError, RunError
from regard.regular_file import LARGEST_DATA, open_regular
from regard.training.manifest import ABSENT, ManifestFile
from regard.training.run_folder import RunFolder

CHECKPOINTS_KEPT = 2
_NAME = re.compile(r"step-(\d+)\.ckpt")


class SafeCheckpointIO(TorchCheckpointIO):
    """Writes checkpoints atomically and reads them safely, for Lightning.

    A checkpoint is written to a temporary file in the same folder, synced to disk and renamed. It is read with
    ``torch.load(weights_only=True)``: a file from an untrusted source can give tensors and plain values only.

    Args:
        manifest: records the sum of each checkpoint, and verifies it before the checkpoint is read; None: no sums.
    """

    def __init__(self, manifest: ManifestFile | None = None):
        super().__init__()
        self._manifest = manifest

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        path = Path(path)
        recording = self._manifest.recording(path) if self._manifest else nullcontext()
        with recording as before_replace, AtomicFile(path, before_replace) as temporary:
            try:
                torch.save(checkpoint, temporary)
            except RuntimeError as error:  # torch.save raises this when the disk is full
                raise OSError(f"{str(error).splitlines()[0]} (is the disk full?)") from error

    @override
    def load_checkpoint(self, path: Any, map_location: Any = "cpu", weights_only: bool | None = True) -> dict[str, Any]:
        if self._manifest:
            self._manifest.verify(Path(path), "delete it to resume from the checkpoint before it")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns of pickles that it did not write; they raise below
                with open_regular(path, LARGEST_DATA) as file:
                    content = torch.load(file, map_location="cpu", weights_only=True)
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


def last_checkpoint(folder: RunFolder) -> Path | None:
    """The checkpoint to resume from; None for a run that has not saved one yet.

    Raises:
        RunError: the run has saved checkpoints, and all of them are gone.
    """
    found = list_checkpoints(folder.checkpoints)
    if found:
        return found[-1]
    files = folder.manifest.read().files
    known = [name for name, sums in files.items() if name.endswith(".ckpt") and ABSENT not in sums]
    # The first row of the metrics is written just before the first checkpoint.
    if known or len(folder.read_metrics()) > 1:
        named = f" ({', '.join(sorted(known))})" if known else ""
        raise RunError(
            f"{folder.checkpoints} has no checkpoint to resume from, but the run has saved some{named}; "
            "restore one from a copy, or start again with --overwrite"
        )
    return None


def prune_checkpoints(folder: Path, manifest: ManifestFile | None = None) -> None:
    """Delete all but the last two checkpoints, and the temporary files of interrupted writes."""
    old = list_checkpoints(folder)[:-CHECKPOINTS_KEPT]
    if manifest and old:
        manifest.forget(old)
    for path in [*old, *folder.glob(".*.tmp*")]:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise DataError(f"cannot delete the old checkpoint {path}: {error.strerror}") from error
