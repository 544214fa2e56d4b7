"""Saves and loads a trained model: a safetensors file, with the model's configuration in its header."""

import dataclasses
import itertools
import json
import threading
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from regard.configuration.upgrades import upgraded, with_former_meaning
from regard.errors import ArgumentError, MissingPartError, RunError, TrainingError, WriteError
from regard.files.atomic import AtomicFile
from regard.files.regular import LARGEST_DATA, require_regular
from regard.shapes.checks import type_text

FILE_NAME = "model.safetensors"

_FLOATS, _INTEGERS = ("F32", "F64", "F16", "BF16"), ("I64", "I32", "I16", "I8", "U8", "BOOL")
"""The dtypes of safetensors that a model is loaded from."""

_BUFFER_LIMIT = 1 << 28
"""Largest number of elements of the tables that a model computes and does not save, such as those of positions."""

MODELS: dict[str, tuple[str, str, str]] = {
    "recurrent_translator": ("recurrent_translator", "RecurrentTranslator", "configs.TranslatorConfig"),
    "transformer_translator": ("transformer_translator", "TransformerTranslator", "configs.TranslatorConfig"),
    "recurrent_pointer_generator": ("pointer_generator", "RecurrentPointerGenerator", "configs.PointerConfig"),
    "transformer_pointer_generator": ("pointer_generator", "TransformerPointerGenerator", "configs.PointerConfig"),
    "pointer_network": ("pointer_network", "PointerNetwork", "pointer_network.PointerNetworkConfig"),
    "language_model": ("language_model", "LanguageModel", "configs.LanguageModelConfig"),
    "text_classifier": ("text_classifier", "TextClassifier", "configs.TextClassifierConfig"),
    "recurrent_transcriber": ("speech.transcriber", "RecurrentTranscriber", "speech.configs.TranscriberConfig"),
    "transformer_transcriber": ("speech.transcriber", "TransformerTranscriber", "speech.configs.TranscriberConfig"),
    "sound_classifier": ("speech.sound_classifier", "SoundClassifier", "speech.configs.SoundClassifierConfig"),
    "recurrent_captioner": ("vision.recurrent_captioner", "RecurrentCaptioner", "vision.configs.CaptionerConfig"),
    "transformer_captioner": ("vision.transformer_captioner", "TransformerCaptioner", "vision.configs.CaptionerConfig"),
    "image_classifier": ("vision.image_classifier", "ImageClassifier", "vision.configs.ImageClassifierConfig"),
    "segmenter": ("vision.segmenter", "Segmenter", "vision.configs.SegmenterConfig"),
}  # fmt: skip
"""Name in the file → module in `regard.models`, model, its configuration. A module is imported when a file names it."""


def model_classes(name: str) -> tuple[type[Any], type[Any]]:
    """Returns the class of a model and that of its configuration, by the model's name in `MODELS`."""
    module_name, model, config = MODELS[name]
    config_module, _, config_name = config.rpartition(".")
    module, configs = (import_module(f"regard.models.{one}") for one in (module_name, config_module))
    return getattr(module, model), getattr(configs, config_name)


def create_model(config: Any) -> nn.Module:
    """Creates the model of a configuration, which must be complete: that of its architecture."""
    module, _, name = config.models[getattr(config, "architecture", "")].partition(":")
    return getattr(import_module(module), name)(config)


def save_model(path: str | Path, model: nn.Module) -> Path:
    """Writes a model that `load_model` can read.

    The content is written to a temporary file in the same folder and synced to disk; the temporary file then replaces
    the old one, so that a crash leaves the old file or the new one. Tied tensors are written once. Equal models give
    equal bytes.

    Args:
        path: a folder, in which the file is ``model.safetensors``, or a file whose name ends in ``.safetensors``.
        model: a model whose class is in `MODELS`.

    Returns:
        The file.

    Raises:
        ArgumentError: the class of the model is not in `MODELS`.
        TrainingError: a weight is NaN or infinite; the old file is unchanged.
        RunError: the file cannot be written.
        MissingPartError: safetensors is not installed.

    Example:
        >>> from regard import models
        >>> model = models.TextClassifier(models.TextClassifierConfig(100, labels=2, embedding=8, hidden=8))
        >>> models.save_model("classifier", model).as_posix()
        'classifier/model.safetensors'
        >>> models.load_model("classifier").config == model.config
        True
    """
    own_name = type(model).__module__, type(model).__qualname__
    names = (name for name, (module, kind, _) in MODELS.items() if own_name == (f"regard.models.{module}", kind))
    name = next(names, None)
    if name is None:
        raise ArgumentError(f"model must be one of {', '.join(MODELS)}; it is {type_text(model)}")
    config = json.dumps(dataclasses.asdict(model.config))  # pyright: ignore[reportArgumentType]
    return save_weights(path, model, {"regard": name, "config": config})


def save_weights(path: str | Path, model: nn.Module, header: dict[str, str] | None = None) -> Path:
    """Writes the weights of any model, as `save_model` does.

    Args:
        path: as in `save_model`.
        model: the model.
        header: texts for the header of the file.

    Returns:
        The file.

    Raises:
        TrainingError: a weight is NaN or infinite; the old file is unchanged.
        RunError: the file cannot be written.
        MissingPartError: safetensors is not installed.

    Example:
        >>> import torch
        >>> from regard import models
        >>> linear, other = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
        >>> file = models.save_weights("linear.safetensors", linear, header={"trained on": "nothing"})
        >>> models.load_weights(file, other)
        >>> torch.equal(other.weight, linear.weight)
        True
    """
    safetensors = _safetensors()
    file = _file(path)
    tensors = _untied(model)
    wrong = _not_finite(tensors)
    if wrong:
        raise TrainingError(
            f"{wrong}: the model is not saved, and the last good one is kept. "
            "Start again with a lower --learning-rate or a smaller --clip"
        )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with AtomicFile(file) as temporary:
            try:
                safetensors.torch.save_file(tensors, temporary, metadata={"format": "pt", **(header or {})})
                _sort_header(temporary)
            except safetensors.SafetensorError as error:  # safetensors raises this when the disk is full
                raise OSError(str(error).splitlines()[0].removeprefix("Error while serializing: ")) from error
    except OSError as error:
        raise RunError(f"cannot write {file}: {error.strerror or error}") from error
    except WriteError as error:
        raise RunError(str(error)) from error
    return file


def _sort_header(file: Path) -> None:
    """Sorts the metadata in the header, whose order safetensors draws, so that equal models are equal files."""
    with file.open("r+b") as content:
        size = int.from_bytes(content.read(8), "little")
        header = json.loads(content.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size)
        if len(text) == size:
            content.seek(8)
            content.write(text)


def _not_finite(tensors: dict[str, Tensor]) -> str:
    """Returns a text on the first tensor that holds NaN or infinity; empty if there is none."""
    for name, tensor in tensors.items():
        wrong = tensor.numel() - int(torch.isfinite(tensor).sum())
        if wrong:
            return f"{name} has {wrong:,} of {tensor.numel():,} weights that are NaN or infinite"
    return ""


def load_model(path: str | Path) -> nn.Module:
    """Loads a model that `save_model` wrote, on the CPU, in evaluation mode.

    Args:
        path: the folder or the file.

    Returns:
        The model, whose class is that of the saved one.

    Raises:
        RunError: there is no such file, it is damaged, or it holds no model of regard.
        MissingPartError: safetensors is not installed.

    Example:
        >>> import torch
        >>> from regard import models
        >>> model = models.LanguageModel(models.LanguageModelConfig(50, context=8, hidden=12, layers=1)).eval()
        >>> loaded = models.load_model(models.save_model("language", model))
        >>> type(loaded).__name__, torch.equal(loaded(torch.tensor([[3, 4]])), model(torch.tensor([[3, 4]])))
        ('LanguageModel', True)
    """
    file = _file(path)
    header, entries = _read_header(file)
    if header.get("regard") not in MODELS:
        raise RunError(f"{file} holds no model that this version of regard knows ({', '.join(MODELS)})")
    kind, config_kind = model_classes(header["regard"])
    try:
        content = json.loads(header.get("config", ""))
    except (ValueError, RecursionError) as error:
        raise RunError(f"{file}: the configuration in its header is not JSON") from error
    config = config_of_header(config_kind, content, header["regard"], f"{file}: config")
    if (expected := _without_memory(kind, config, len(entries), file)) is not None:
        _compare(expected, entries, file)
    model = kind(config)
    _compare(_untied(model), entries, file)
    _fill(model, file)
    return model.eval()


def load_weights(path: str | Path, model: nn.Module) -> None:
    """Replaces the weights of a model by those that `save_weights` or `save_model` wrote.

    Args:
        path: the folder or the file.
        model: the model; the names and the shapes of its tensors must be those of the file.

    Raises:
        RunError: there is no such file, it is damaged, or a tensor does not fit; the model is then unchanged.
        MissingPartError: safetensors is not installed.

    Example:
        >>> import torch
        >>> from regard import models
        >>> file = models.save_weights("small.safetensors", torch.nn.Linear(2, 3))
        >>> models.load_weights(file, torch.nn.Linear(2, 4))
        Traceback (most recent call last):
            ...
        regard.errors.RunError: small.safetensors: weight must have shape [4, 2]; it has [3, 2]
    """
    file = _file(path)
    _compare(_untied(model), _read_header(file)[1], file)
    _fill(model, file)


class _StoredTensor(NamedTuple):
    """A tensor of a file, as the header has it."""

    shape: list[int]
    dtype: str
    """The name of the dtype in safetensors, such as ``F32``."""


def _read_header(file: Path) -> tuple[dict[str, str], dict[str, _StoredTensor]]:
    """Returns the texts in the header of a file, and its tensors by name; no tensor is read."""
    if not file.exists():
        raise RunError(f"there is no model at {file}")
    with _whole(file) as content:
        names = content.keys()
        slices = {name: content.get_slice(name) for name in names}
        return content.metadata() or {}, {
            name: _StoredTensor(one.get_shape(), str(one.get_dtype())) for name, one in slices.items()
        }


@contextmanager
def _whole(file: Path) -> Iterator[Any]:
    """Opens a safetensors file; raises RunError if it is damaged."""
    safetensors = _safetensors()
    try:
        require_regular(file, LARGEST_DATA)
        with safetensors.safe_open(file, framework="pt") as content:
            yield content
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise RunError(f"{file} is not a whole safetensors file: {str(error).splitlines()[0]}") from error


def _without_memory(kind: type[nn.Module], config: Any, tensors: int, file: Path) -> dict[str, Tensor] | None:
    """Returns the tensors of a model without their elements; None for a backbone that needs elements. A configuration
    of unknown origin may ask for any amount of memory and any number of layers: here tensors take no memory, and there
    are no more parts than a model with so many ``tensors``, those of the file, has."""
    thread, parts = threading.get_ident(), itertools.count(1)

    def count(*_: object) -> None:
        if threading.get_ident() == thread and next(parts) > 200 + 20 * tensors:
            raise RunError(f"it asks for a model of many more than {tensors} tensors")

    hooks = [torch_modules.register_module_parameter_registration_hook(count),
             torch_modules.register_module_module_registration_hook(count)]  # fmt: skip
    try:
        with torch.device("meta"):
            model = kind(config)
        temporary = sum(buffer.numel() for buffer in model.buffers())
        if temporary > _BUFFER_LIMIT:
            raise RunError(f"it asks for tables of {temporary:,} numbers")
        return _untied(model)
    except (RuntimeError, ValueError, TypeError, ArithmeticError, MemoryError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        # A network of another package may read a number while it is made; its name decides its size.
        if getattr(config, "backbone", "") and "meta tensor" in reason:
            return None
        raise RunError(f"{file}: its configuration is not that of the model that it holds ({reason:.200})") from error
    finally:
        for hook in hooks:
            hook.remove()


def _compare(expected: dict[str, Tensor], entries: dict[str, _StoredTensor], file: Path) -> None:
    """Raises RunError unless a file holds the tensors of a model."""
    for name in [*(expected.keys() - entries.keys()), *(entries.keys() - expected.keys())]:
        raise RunError(f"{file} {'lacks' if name in expected else 'has an unknown'} tensor {name}")
    for name, tensor in expected.items():
        shape, dtype = entries[name]
        if shape != list(tensor.shape):
            raise RunError(f"{file}: {name} must have shape {list(tensor.shape)}; it has {shape}")
        known = _FLOATS if tensor.is_floating_point() else _INTEGERS
        if dtype not in known:
            kind = "floating-point" if tensor.is_floating_point() else "whole"
            raise RunError(f"{file}: {name} must hold {kind} numbers ({', '.join(known)}); it holds {dtype}")


def _fill(model: nn.Module, file: Path) -> None:
    """Loads the tensors of a file, which were compared with those of the model."""
    with _whole(file) as content:
        tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 (no mapping)
    if wrong := _not_finite(tensors):
        raise RunError(f"{file}: {wrong}, so it can compute nothing; train it again with a lower --learning-rate")
    model.load_state_dict(tensors, strict=False)  # the names were compared above; a tied tensor has one name


def config_of_header(kind: type[Any], content: object, model: str, where: str) -> Any:
    """Returns the configuration with these fields. Types must match; only an int is accepted for a float."""
    if not isinstance(content, dict):
        raise RunError(f"{where} must be a mapping; it is {type_text(content)}")
    if model.startswith("transformer_"):  # earlier versions had a configuration for it alone
        content = {"architecture": "transformer", **content}
    content = _without_constants(kind, with_former_meaning(kind, upgraded(kind, content)), where)
    known = typing.get_type_hints(kind)
    usual = {field.name for field in dataclasses.fields(kind) if "defaults" in field.metadata}  # what None stands for
    for name, value in content.items():
        if name not in known:
            raise RunError(f"{where} has a field {name!r} that this version of regard doesn't know")
        allowed = _types(known[name])
        fits = type(value) in allowed or (float in allowed and type(value) is int) or (value is None and name in usual)
        if type(value) is int and abs(value) >= 1 << 63:
            raise RunError(f"{where}.{name} must be below 2⁶³; it has {value.bit_length():,} bits")
        if not fits:
            raise RunError(f"{where}.{name} must be {' or '.join(part.__name__ for part in allowed)}; it is {value!r}")
    try:
        return kind(**content)
    except (ArgumentError, TypeError) as error:
        raise RunError(f"{where}: {error}") from error


def _without_constants(kind: type[Any], content: dict[str, Any], where: str) -> dict[str, Any]:
    """Returns the fields without those of earlier versions that are the same in all models of this kind now."""
    fields, hints = {field.name for field in dataclasses.fields(kind)}, typing.get_type_hints(kind)
    fields_of_kind = {}
    for name, value in content.items():
        constant = None if name in fields else getattr(kind, name, None)
        if not isinstance(constant, (str, int, float)):
            fields_of_kind[name] = value
        elif name in hints and value != constant:  # one without a type has no meaning in this kind of model
            raise RunError(f"{where}.{name} must be {constant!r} in this kind of model; it is {value!r}")
    return fields_of_kind


def _types(hint: Any) -> tuple[type, ...]:
    """Returns the types of the values that a field may have."""
    if typing.get_origin(hint) is typing.Literal:
        return tuple(dict.fromkeys(map(type, typing.get_args(hint))))
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _untied(model: nn.Module) -> dict[str, Tensor]:
    """Returns the state of a model, in which a tied tensor has its first name only."""
    seen: set[int] = set()
    untied = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            untied[name] = tensor.detach().contiguous()
    return untied


def _file(path: str | Path) -> Path:
    path = Path(path)
    return path if path.suffix == ".safetensors" else path / FILE_NAME


def _safetensors() -> Any:
    with MissingPartError.instead("safetensors", "train"):
        import safetensors
        import safetensors.torch
    return safetensors
