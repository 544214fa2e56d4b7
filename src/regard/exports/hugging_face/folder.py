"""A folder that transformers loads, and how the library writes and reads it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import ArgumentError, MissingPartError, WriteError
from regard.exports.torch_programs import quiet


class Folder(NamedTuple):
    """A folder that was written: the class of transformers, the class that loads the folder, the largest difference
    between the logits of the loaded model and of regard's, and a hint for users, if any."""

    architecture: str
    auto: str
    difference: float
    note: str = ""


def transformers_package() -> Any:
    """Imports transformers; raises MissingPartError if it is not installed."""
    with MissingPartError.instead("transformers", "export"):
        import transformers
    return transformers


def fill(model: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Gives a model of transformers these weights; each of its own must be among them."""
    with torch.no_grad():
        copies = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    missing, unexpected = model.load_state_dict(copies, strict=False)
    tied = {"lm_head.weight"} if getattr(model.config, "tie_word_embeddings", False) else set()
    positions = {name for name in missing if "embed_positions" in name}  # of sines, which the class computes
    if unexpected or set(missing) - tied - positions:
        raise ArgumentError(
            f"this version of transformers has other weights in a {type(model).__name__}: "
            f"{', '.join([*missing, *unexpected][:3])}; install the version that regard names"
        )
    return model.eval()


def loaded_model(kind: Any, path: Path) -> Any:
    """Loads the model of a folder as a user does. No code of a folder is run, and nothing is downloaded."""
    with quiet(), _no_progress_bars():
        return kind.from_pretrained(str(path), local_files_only=True, trust_remote_code=False).eval()


def write(model: Any, path: Path) -> None:
    """Writes a model of transformers into a folder."""
    from safetensors import SafetensorError

    with quiet(), _no_progress_bars():
        try:
            model.save_pretrained(path)
        except SafetensorError as error:  # safetensors raises this when the disk is full
            raise WriteError(f"cannot write into {path}: {str(error).splitlines()[0]}; free some disk space") from error


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    bars = transformers_package().utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()
