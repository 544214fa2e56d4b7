"""The check of a Hugging Face model's folder, before transformers reads it.

A configuration can name kernels and code that transformers would load from elsewhere: a hub, optional packages, or
files outside the folder. Such a folder is refused.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.errors import RunError
from regard.files.regular import LARGEST_TEXT, read_bytes

ATTENTIONS = ("eager", "sdpa", "flex_attention")
"""Attention implementations that need PyTorch alone; transformers would load others from packages or a hub."""

EXPERTS = ("eager", "batched_mm", "grouped_mm")
"""The same for the experts of a layer."""

DTYPES = ("auto", "float64", "float32", "float16", "bfloat16")
"""Types of weights that a configuration may name, with or without ``torch.`` in front."""

HEADS = {
    "ForSequenceClassification": ("AutoModelForSequenceClassification", "classify", "A text to classify"),
    "ForConditionalGeneration": ("AutoModelForSeq2SeqLM", "generate", "A text"),
    "ForCausalLM": ("AutoModelForCausalLM", "next token", "The beginning of a text"),
    "LMHeadModel": ("AutoModelForCausalLM", "next token", "The beginning of a text"),
    "ForMaskedLM": ("AutoModelForMaskedLM", "fill in", "A text with a masked word"),
}
"""End of an architecture's name → the class of transformers that loads it, its task, and the placeholder."""

_WEIGHTS = "model.safetensors"
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_INDEX = f"{_WEIGHTS}.index.json"


def head_of(architectures: Any) -> tuple[str, str, str]:
    """Returns the class of transformers for a configuration's architectures, the task, and the placeholder."""
    for name in architectures if isinstance(architectures, list) else ():
        for end, head in HEADS.items():
            if isinstance(name, str) and name.endswith(end):
                return head
    return "AutoModel", "encode", "A text"


def facts_of(kind: str, layers: Any, heads: Any) -> str:
    """Returns a model in a few words: ``"BertModel, 6 layers × 12 heads"``."""
    known = all(isinstance(count, int) and count > 0 for count in (layers, heads))
    return f"{kind}, {layers} layers × {heads} heads" if known else kind


def name_of(path: Path) -> str:
    """Returns the name of a model: that of its folder, of the one above for ``model``; OWNER/NAME on the hub."""
    folder = path.resolve()
    if folder.parent.name == "snapshots" and folder.parents[1].name.startswith("models--"):
        return folder.parents[1].name.removeprefix("models--").replace("--", "/")
    return folder.name if folder.name != "model" else folder.parent.name


def check_pretrained(folder: Path) -> None:
    """Raises RunError, in one line that names the file, if a folder needs more than its own weights and settings.

    Refused are: attention implementations other than `ATTENTIONS`, quantized weights and named backbones (transformers
    would load them from a hub), types of weights other than `DTYPES`, adapters (their model is elsewhere), custom code
    of a model that transformers itself does not have, weights that are not safetensors, and links and paths to files
    outside the folder, except for links of the hub's own cache, from its snapshots to its blobs.
    """
    root = folder.resolve()
    for path in sorted(folder.iterdir()):
        if path.is_symlink() and not _is_inside(path.resolve(), root):
            raise RunError(f"{path} is a link that leads out of the folder; copy the file into it")
    if (folder / "adapter_config.json").exists():
        raise RunError(f"{folder} holds an adapter, whose model is elsewhere; merge them, and save the whole model")
    for path in sorted(folder.glob("*.json")):
        if path.name.endswith("config.json"):
            _check_settings(path, _read_any(path))
    config = read_json(folder / "config.json")
    if "auto_map" in config:
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        if config.get("model_type") not in CONFIG_MAPPING:
            raise RunError(
                f"{folder / 'config.json'} cannot be loaded: the model needs code of its own (auto_map), which "
                "is never run; transformers itself has no model of this type"
            )
    _check_weights(folder, root)


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object of a JSON file; raises RunError if it is not regular, too large, or no JSON object."""
    content = _read_any(path)
    if not isinstance(content, dict):
        raise RunError(f"{path} must hold a JSON object")
    return content


def _read_any(path: Path) -> Any:
    """Returns the content of a JSON file; not every file of settings holds an object."""
    try:
        return json.loads(read_bytes(path, LARGEST_TEXT))
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror}); check the file") from error
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise RunError(f"{path} is not JSON ({reason})") from error


def _check_settings(path: Path, content: Any) -> None:
    for name, value in _fields(content):
        field = name.removeprefix("_").removesuffix("_internal")
        if field in ("attn_implementation", "experts_implementation"):
            known = ATTENTIONS if field == "attn_implementation" else EXPERTS
            for one in value.values() if isinstance(value, Mapping) else [value]:
                if one is not None and one not in known:
                    raise RunError(
                        f"{path}: {name} is {one!r:.80}, which would be looked for outside of the folder; "
                        f"remove it, or name one of {', '.join(known)}"
                    )
        elif field in ("dtype", "torch_dtype"):
            for one in value.values() if isinstance(value, Mapping) else [value]:
                if one is not None and not (isinstance(one, str) and one.removeprefix("torch.") in DTYPES):
                    raise RunError(f"{path}: {name} is {one!r:.80}; it must be one of {', '.join(DTYPES)}")
        elif field == "quantization_config" and value:
            raise RunError(f"{path}: the weights are quantized ({name}); save the model with ordinary weights")
        elif field == "backbone" and isinstance(value, str):
            raise RunError(
                f"{path}: {name} is {value!r:.80}, a model that would be looked for outside of the folder; remove it"
            )
        elif field == "trust_remote_code" and value:
            raise RunError(f"{path}: {name} asks to run code of the model, which is never run; remove it")
        elif field.endswith("_file") and isinstance(value, str) and os.sep in value:
            target = path.parent / value
            if target.exists() and not _is_inside(target.resolve(), path.parent.resolve()):
                raise RunError(f"{path}: {name} is the file {value!r:.80} outside of the folder; remove it")


def _fields(content: Any) -> Iterator[tuple[str, Any]]:
    """Yields every named value of a configuration and of its parts."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            yield name, value
            yield from _fields(value)
    elif isinstance(content, list):
        for value in content:
            yield from _fields(value)


def _check_weights(folder: Path, root: Path) -> None:
    if (folder / _INDEX).exists():
        parts = read_json(folder / _INDEX).get("weight_map")
        if not isinstance(parts, dict) or not all(isinstance(name, str) for name in parts.values()):
            raise RunError(f"{folder / _INDEX}: weight_map must say the file of each weight")
        for name in sorted(set(parts.values())):
            path = folder / name
            if Path(name).name != name or not name.endswith(".safetensors") or not _is_inside(path.resolve(), root):
                raise RunError(f"{folder / _INDEX}: {name!r:.80} is not a .safetensors file in the folder")
            if not path.is_file():
                raise RunError(f"{folder / _INDEX}: there is no file {name!r:.80} in the folder")
    elif not (folder / _WEIGHTS).is_file() and any(path.suffix in _PICKLED for path in folder.iterdir()):
        raise RunError(
            f"{folder} has no {_WEIGHTS}; only safetensors are read, not pickled weights: load the model in Python and "
            "save it with save_pretrained"
        )


def _is_inside(path: Path, root: Path) -> bool:
    """Whether a resolved path is in a folder, or in the blobs of the hub's cache if the folder is a snapshot there."""
    is_blob = root.parent.name == "snapshots" and path.parent == root.parent.parent / "blobs"
    return is_blob or path.is_relative_to(root)
