"""Checkpoints of a training run: they are written atomically, and read without executing code."""

import pickle
import re
import shutil
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.errors import DataError, RunError
from regard.files.atomic import AtomicFile
from regard.files.regular import LARGEST_DATA, open_regular
from regard.training.manifest import ABSENT_SUM, ManifestFile
from regard.training.run_folder import RunFolder

CHECKPOINTS_KEPT = 2
OTHER_FILES_BYTES = 4 << 20
"""The space for metrics, samples and pictures."""

_NAME = re.compile(r"step-(\d+)\.ckpt")
_ADVICE = "delete it to resume from the checkpoint before it"


def save_checkpoint(path: Path, content: dict[str, Any], manifest: ManifestFile | None = None) -> None:
    """Writes a checkpoint to a temporary file beside it, syncs it to disk and renames it; the manifest records its sum.
    Raises WriteError if the file cannot be written; an old file is unchanged."""
    recording = manifest.recording(path) if manifest else nullcontext()
    with recording as before_replace, AtomicFile(path, before_replace) as temporary:
        try:
            torch.save(content, temporary)
        except RuntimeError as error:  # torch.save raises this when the disk is full
            raise OSError(f"{str(error).splitlines()[0]} (is the disk full?)") from error


def load_checkpoint(path: Path, manifest: ManifestFile | None = None) -> dict[str, Any]:
    """Reads a checkpoint with ``torch.load(weights_only=True)``: a foreign file gives only tensors and plain values.
    The manifest verifies its sum before; raises RunError if it has changed, is damaged, or is no checkpoint."""
    if manifest:
        manifest.verify(path, _ADVICE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of pickles that it did not write; they raise below
            with open_regular(path, LARGEST_DATA) as file:
                content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise RunError(
            f"{path} is damaged, or holds more than tensors and plain values; it was not loaded. {_ADVICE.capitalize()}"
        ) from error
    except (OSError, RuntimeError, EOFError, KeyError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunError(f"{path} cannot be read ({reason}); {_ADVICE}") from error
    if not isinstance(content, dict) or "state_dict" not in content or "regard" not in content:
        raise RunError(f"{path} is not a checkpoint of regard")
    return content


def checkpoint_path(folder: Path, step: int) -> Path:
    """Returns the file of the checkpoint after ``step`` steps."""
    return folder / f"step-{step:08d}.ckpt"


def list_checkpoints(folder: Path) -> list[Path]:
    """Returns the checkpoints of a run, oldest first."""
    numbered = [(int(match[1]), path) for path in folder.glob("*.ckpt") if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(numbered)]


def last_checkpoint(folder: RunFolder) -> Path | None:
    """Returns the checkpoint to resume from; None for a run that has not saved one yet. Raises RunError if the run has
    saved checkpoints, and all of them are gone."""
    if checkpoints := list_checkpoints(folder.checkpoints):
        return checkpoints[-1]
    files = folder.manifest.read().files
    saved = [name for name, sums in files.items() if name.endswith(".ckpt") and ABSENT_SUM not in sums]
    # The first row of the metrics is written just before the first checkpoint.
    if saved or len(folder.read_metrics()) > 1:
        names = f" ({', '.join(sorted(saved))})" if saved else ""
        raise RunError(
            f"{folder.checkpoints} has no checkpoint to resume from, but the run has saved some{names}; "
            "restore one from a copy, or start again with --overwrite"
        )
    return None


def prune_checkpoints(folder: Path, manifest: ManifestFile | None = None) -> None:
    """Deletes all but the last two checkpoints, and the temporary files of interrupted writes."""
    old = list_checkpoints(folder)[:-CHECKPOINTS_KEPT]
    if manifest and old:
        manifest.forget(old)
    for path in [*old, *folder.glob(".*.tmp*")]:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise DataError(f"cannot delete the old checkpoint {path}: {error.strerror}") from error


def require_space(folder: Path, model: nn.Module) -> None:
    """Raises RunError unless the disk has room for the files of a run, and for one more checkpoint (the model, and two
    values of the optimizer for each parameter) and model."""
    parameters = sum(tensor.numel() * tensor.element_size() for tensor in model.parameters())
    buffers = sum(tensor.numel() * tensor.element_size() for tensor in model.buffers())
    checkpoint = 3 * parameters + buffers
    written = sum(
        path.stat().st_size for name in ("checkpoints/*.ckpt", "model.safetensors") for path in folder.glob(name)
    )
    needed = (CHECKPOINTS_KEPT + 1) * checkpoint + 2 * (parameters + buffers) + OTHER_FILES_BYTES - written
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RunError(
            f"the disk of {folder} has {_size(free)} free, but the run needs {_size(needed)} for its checkpoints and "
            "its model; free some space, or name another folder with --runs"
        )


def _size(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB" if count < 1 << 30 else f"{count / (1 << 30):,.1f} GiB"
