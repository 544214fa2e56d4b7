"""The models on this machine: runs in a folder, and the Hugging Face cache. None is loaded until it is used."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.files.regular import LARGEST_TEXT, read_text
from regard.page.examples import examples_of, sentences_for
from regard.page.models import open_model, tell_apart
from regard.page.pretrained_folder import facts_of, head_of, name_of, read_json
from regard.page.reading import Reading, ServedModel
from regard.tasks import registry
from regard.training.run_folder import RunFolder

TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model", "tokenizer.model")
"""Files one of which a model that reads texts has."""

LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers")
"""Names of the number of layers in a configuration of transformers."""

HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads", "encoder_attention_heads")
"""Names of the number of heads in a configuration of transformers."""


class OfferedModel(ServedModel):
    """A model that is loaded from its folder when it is first used; until then its files describe it."""

    offered = True
    loaded = False

    def __init__(self, path: Path, device: str = "cpu"):
        self.path = str(path)
        self.device = device
        self.model: ServedModel | None = None

    def load(self) -> ServedModel:
        if self.model is None:
            self.model = open_model(self.path, self.device)
            self.loaded = True
            for name in ("task", "facts", "placeholder", "accepts", "examples", "most_tokens"):
                setattr(self, name, getattr(self.model, name))
        return self.model

    def _read(self, text: str) -> Reading:
        return self.load().read(text)

    def _read_file(self, content: bytes) -> Reading:
        return self.load().read_file(content)


@dataclass(frozen=True)
class Offers:
    """The models that were found, the runs, the newest first, before those of the cache by name; and a line for each
    folder that holds no model that can be opened: its name, and why."""

    models: list[OfferedModel]
    left_out: list[str]


def hub_cache() -> Path:
    """Returns the folder in which Hugging Face keeps downloaded models; it need not exist."""
    try:
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:
        return Path.home() / ".cache" / "huggingface" / "hub"
    return Path(HF_HUB_CACHE)


def find_offers(runs: Path, cache: Path, device: str = "cpu") -> Offers:
    """Returns the models on this machine, described by their files, in a folder of run folders and in a ``cache`` of
    the Hugging Face hub's form, ``models--OWNER--NAME/snapshots/REVISION``; neither need exist. Writes nothing, and
    reads no weights."""
    models: list[OfferedModel] = []
    left_out: list[str] = []
    for describe, folders in ((_run, _runs_in(runs, left_out)), (_pretrained, _snapshots_in(cache, left_out))):
        for folder in folders:
            model = OfferedModel(folder, device)
            try:
                reason = describe(model, folder)
            except (RegardError, OSError) as error:
                reason = _reason(error)
            if reason:
                left_out.append(f"{folder}: {reason}")
            else:
                models.append(model)
    tell_apart(models)
    return Offers(models, left_out)


def _reason(error: Exception) -> str:
    """Returns the reason why a folder is left out, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"it cannot be read ({error.strerror})"
    return " ".join(str(error).split())[:300]


def _runs_in(folder: Path, left_out: list[str]) -> list[Path]:
    """Returns the runs of a folder, the newest first; a line in ``left_out`` for each folder that cannot be read."""
    runs = []
    for path in _folders(folder, left_out):
        changed = _changed(path, "config.yaml", left_out)
        if changed is not None:
            runs.append((-changed, path.name, path))
    return [path for *_, path in sorted(runs)]


def _snapshots_in(cache: Path, left_out: list[str]) -> Iterator[Path]:
    """Yields the folder of each model of a cache: the revision that its name means, or the newest."""
    for model in sorted(path for path in _folders(cache, left_out) if path.name.startswith("models--")):
        revisions = []
        named = _main_revision(model)
        for path in _folders(model / "snapshots", left_out):
            changed = _changed(path, "config.json", left_out)
            if changed is not None:
                revisions.append((path.name == named, changed, path))
        yield from (path for *_, path in sorted(revisions, reverse=True)[:1])


def _changed(folder: Path, name: str, left_out: list[str]) -> float | None:
    """Returns the time when a file of a folder was last written, in seconds; None if it cannot be read."""
    try:
        status = os.stat(folder / name)
    except FileNotFoundError:
        return None
    except OSError as error:
        left_out.append(f"{folder}: {_reason(error)}")
        return None
    return status.st_mtime if stat.S_ISREG(status.st_mode) else None


def _main_revision(model: Path) -> str:
    try:
        return read_text(model / "refs" / "main", LARGEST_TEXT).strip()
    except (OSError, ValueError):  # the name is not stored, or not readable
        return ""


def _folders(folder: Path, left_out: list[str]) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        left_out.append(f"{folder}: {_reason(error)}")
        return []


def _run(model: OfferedModel, path: Path) -> str:
    """Describes a run; returns the reason why it is no model yet, or ""."""
    folder = RunFolder(path)
    sections = folder.read_sections()
    if not folder.model.is_file():
        return "its training has not come to a validation, so that there is no model yet"
    task = registry.find(sections["task"])
    model.name, model.task = path.resolve().name, task.name
    model.accepts, model.placeholder = task.input_kind, task.input_hint
    options = sections.get("model", {})
    kinds = [options.get("architecture")]
    if kinds != ["transformer"]:  # which has no other attention
        kinds.append(options.get("attention"))
    shown = [task.name, *(kind for kind in kinds if isinstance(kind, str) and kind != "none")]
    model.facts = f"{', '.join(shown)} · {_size([folder.model])}"
    model.examples = examples_of(folder, model.accepts)
    return ""


def _pretrained(model: OfferedModel, path: Path) -> str:
    """Describes a Hugging Face model; returns the reason why it cannot be opened, or ""."""
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        return "it has no safetensors, and other weights are not read"
    if not any((path / name).is_file() for name in TOKENIZERS):
        return "it has no tokenizer, so that it reads no texts"
    config = read_json(path / "config.json")
    model.name, model.kind = name_of(path), "pretrained"
    _, model.task, model.placeholder = head_of(config.get("architectures"))
    named = config.get("architectures")
    kind = named[0] if isinstance(named, list) and named else config.get("model_type", "model")
    model.facts = f"{facts_of(str(kind)[:80], _first(config, LAYERS), _first(config, HEADS))} · {_size(weights)}"
    model.examples = sentences_for(model.task, None)
    return ""


def _first(config: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((config[name] for name in names if name in config), None)


def _size(files: list[Path]) -> str:
    """Returns the size of files in words: ``"87 MB"``."""
    size = sum(os.stat(path).st_size for path in files)
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{max(1, round(size / 1e6))} MB"
