"""Whether a disk has room for what a run will write."""

import shutil
from pathlib import Path

from torch import nn

from regard.errors import RunError
from regard.training.checkpoint_io import CHECKPOINTS_KEPT

_KEPT = ("checkpoints/*.ckpt", "model.safetensors")

REST = 4 << 20
"""Bytes for metrics, samples and pictures."""


def require_space(folder: Path, model: nn.Module) -> None:
    """Raise RunError unless the disk has room for what a run keeps, and for one more checkpoint and model.

    Args:
        folder: the run folder.
        model: the model to train; a checkpoint holds it and two numbers of the optimizer for each parameter.
    """
    parameters = sum(tensor.numel() * tensor.element_size() for tensor in model.parameters())
    buffers = sum(tensor.numel() * tensor.element_size() for tensor in model.buffers())
    checkpoint = 3 * parameters + buffers
    written = sum(path.stat().st_size for pattern in _KEPT for path in folder.glob(pattern))
    needed = (CHECKPOINTS_KEPT + 1) * checkpoint + 2 * (parameters + buffers) + REST - written
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RunError(
            f"the disk of {folder} has {_size(free)} free, but the run needs {_size(needed)} for its checkpoints and "
            "its model; free some space, or name another folder with --runs"
        )


def _size(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB" if count < 1 << 30 else f"{count / (1 << 30):,.1f} GiB"
