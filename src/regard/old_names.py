"""The options of earlier versions, and those of other programs: what they are called here.

One table serves the files of old runs (``config.yaml``, the header of a model, a file for ``--config``), whose fields
get the names of today, and the command line, which suggests them. This file imports no PyTorch.
"""

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from regard.configuration import Configuration, fill

RENAMED: dict[str, tuple[str, ...]] = {
    "architecture": ("encoder", "network", "model", "cell"),
    "attention": ("context",),
    "decoder_hidden": ("decoder_dim",),
    "embedding": ("embedding_dim",),
    "flip": ("mirror",),
    "gate": ("weigh",),
    "grid": ("grid_dim",),
    "hidden": ("dim", "hidden_dim"),
    "jitter": ("colour",),
    "label_column": ("text_column",),
    "norm": ("norm_first",),
    "rescale": ("zoom",),
    "score_features": ("score_dim",),
    "tied": ("tied_embeddings",),
}
"""Name of a field → its names in earlier versions. A configuration that still has such a field keeps it."""

FOREIGN: dict[str, tuple[str, ...]] = {
    "batch": ("batch_size", "tokens_per_batch"),
    "batch_size": ("tokens_per_batch",),
    "tokens_per_batch": ("batch_size",),
    "lr": ("learning_rate",),
    "gpus": ("devices",),
    "num_gpus": ("devices",),
    "beam_size": ("beam",),
    "num_beams": ("beam",),
    "num_return_sequences": ("n_best",),
    "top_k": ("n_best",),
    "nbest": ("n_best",),
    "early_stopping": ("patience",),
    "early_stopping_patience": ("patience",),
    "audio_column": ("sound_column",),
    "audio": ("sound_column",),
    "source": ("source_column",),
    "target": ("target_column",),
    "label": ("label_column",),
    "caption_column": ("text_column",),
    "text_column": ("text_column", "label_column", "article_column", "source_column"),
    "label_column": ("label_column", "text_column"),
    "image_size": ("image_size", "height"),
    "format": ("to",),
    "formats": ("to",),
    "onnx": ("to",),
    "torch": ("to",),
    "hf": ("to",),
    "output": ("run", "pictures", "masks"),
    "output_dir": ("run", "pictures", "masks"),
    "num_epochs": ("epochs",),
    "max_epochs": ("epochs",),
    "max_steps": ("epochs",),
    "max_time": ("max_minutes",),
    "max_seconds": ("max_minutes",),
    "max_hours": ("max_minutes",),
    "seconds": ("max_minutes",),
    "minutes": ("max_minutes",),
    "hours": ("max_minutes",),
    "timeout": ("max_minutes",),
    "time_limit": ("max_minutes",),
    "time": ("max_minutes",),
    "verbose": ("quiet",),
    "verbosity": ("quiet",),
    "warmup_steps": ("warmup",),
    "lr_scheduler": ("schedule",),
    "grad_clip": ("clip",),
    "gradient_clip_val": ("clip",),
    "max_grad_norm": ("clip",),
    "num_layers": ("layers", "encoder_layers"),
    "layers": ("encoder_layers",),
    "encoder_layers": ("layers",),
    "num_heads": ("heads",),
    "nhead": ("heads",),
    "hidden_size": ("hidden",),
    "d_model": ("hidden",),
    "ffn_dim": ("feedforward",),
    "dim_feedforward": ("feedforward",),
    "vocab_size": ("vocabulary",),
    "max_len": ("max_length",),
    "val": ("validation",),
    "valid": ("validation",),
    "train_data": ("train",),
    **dict.fromkeys(
        (
            "data",
            "dataset",
            "dataset_path",
            "data_file",
            "data_path",
            "data_dir",
            "input",
            "inputs",
            "input_file",
            "input_path",
            "file",
            "files",
            "csv",
            "tsv",
            "json",
            "jsonl",
            "parquet",
            "path",
            "folder",
            "dir",
            "corpus",
            "train_file",
            "train_path",
            "train_dir",
            "train_csv",
            "training",
            "training_data",
            "training_file",
            "images",
            "sounds",
            "texts",
        ),
        ("train", "file"),
    ),
    **dict.fromkeys(
        (
            "validation_file",
            "validation_data",
            "validation_path",
            "val_file",
            "val_data",
            "valid_file",
            "valid_data",
            "dev",
            "dev_file",
            "eval",
            "eval_file",
            "eval_data",
        ),
        ("validation",),
    ),
    **dict.fromkeys(("test_file", "test_data", "test_path"), ("test",)),
    **dict.fromkeys(("validation_split", "val_split", "test_size", "split", "holdout"), ("held_out",)),
    **dict.fromkeys(
        ("text", "text_col", "text_field", "input_column", "content_column", "review_column"),
        ("text_column", "source_column", "article_column", "column"),
    ),
    **dict.fromkeys(
        ("labels", "label_col", "label_field", "class_column", "category", "category_column"),
        ("label_column", "text_column"),
    ),
    **dict.fromkeys(("src", "source_lang", "src_lang", "source_language", "from"), ("source_column",)),
    **dict.fromkeys(("tgt", "target_lang", "tgt_lang", "target_language"), ("target_column",)),
    "target_column": ("label_column", "summary_column", "text_column"),
    "source_column": ("article_column", "text_column"),
    "article": ("article_column",),
    "summary": ("summary_column",),
    "image": ("image_column",),
    "mask": ("mask_column",),
    "mask_col": ("mask_column",),
    "n_epochs": ("epochs",),
    "iterations": ("epochs",),
    "steps": ("epochs",),
    "bs": ("batch_size", "tokens_per_batch"),
    "optim": ("optimizer",),
    "wd": ("weight_decay",),
    "random_state": ("seed",),
    "random_seed": ("seed",),
    "name": ("run",),
    "run_name": ("run",),
    "out": ("run", "pictures", "masks"),
    "out_dir": ("run", "pictures", "masks"),
    "save_dir": ("run",),
    "save_to": ("run",),
    "arch": ("architecture",),
    "model_type": ("architecture",),
    "embed_dim": ("embedding",),
    "n_heads": ("heads",),
    "n_layers": ("layers", "encoder_layers"),
    "max_seq_len": ("max_length", "context"),
    "max_seq_length": ("max_length", "context"),
    "sequence_length": ("max_length", "context"),
    "seq_len": ("max_length", "context"),
    "lower": ("lowercase",),
    "num_workers": ("threads",),
    "workers": ("threads",),
    "n_jobs": ("threads",),
    "checkpoint": ("init_from",),
    "pretrained": ("init_from", "backbone_weights"),
}
"""Field of another program, or of another task → what it may be called here; the first that a command has counts."""

COMMANDS_ELSEWHERE = {
    "fit": "train", "finetune": "train", "fine-tune": "train", "run": "train", "learn": "train",
    "eval": "evaluate", "test": "evaluate", "score": "evaluate", "validate": "evaluate",
    "infer": "predict", "inference": "predict", "generate": "predict", "apply": "predict", "visualize": "view",
    "show": "view", "plot": "view", "web": "serve", "ui": "serve", "app": "serve", "convert": "export",
    "upload": "push", "benchmark": "bench", "info": "doctor", "check": "doctor",
}  # fmt: skip
"""Command of another program → what it is called here."""

TASKS_ELSEWHERE = {
    "classification": "classify", "classifier": "classify", "text-classification": "classify", "sentiment": "classify",
    "sentiment-analysis": "classify", "text": "classify", "label": "classify", "labels": "classify",
    "zero-shot-classification": "classify", "translation": "translate", "translator": "translate", "nmt": "translate",
    "mt": "translate", "seq2seq": "translate", "text2text-generation": "translate", "summarization": "summarize",
    "summarisation": "summarize", "summarise": "summarize", "summary": "summarize", "language-modeling": "language",
    "language-model": "language", "language-modelling": "language", "lm": "language", "causal-lm": "language",
    "clm": "language", "gpt": "language", "text-generation": "language", "image-classification": "images",
    "image": "images", "vision": "images", "vit": "images", "photos": "images", "captioning": "caption",
    "captions": "caption", "image-captioning": "caption", "image-to-text": "caption", "segmentation": "segment",
    "semantic-segmentation": "segment", "image-segmentation": "segment", "masks": "segment", "asr": "transcribe",
    "speech": "transcribe", "transcription": "transcribe", "speech-recognition": "transcribe", "stt": "transcribe",
    "automatic-speech-recognition": "transcribe", "speech-to-text": "transcribe", "audio": "sounds", "sound": "sounds",
    "audio-classification": "sounds", "sound-classification": "sounds",
}  # fmt: skip
"""Task by its name elsewhere → its name here."""

WRITTEN_ANEW = {
    "--no-tied": "--tied none",
    "--norm-first": "--norm pre",
    "--no-norm-first": "--norm post",
    "--attention transformer": "--architecture transformer",
    "--architecture se": "--architecture cnn --gate se",
    "--architecture cbam": "--architecture cnn --gate cbam",
    "--architecture recurrent": "--architecture lstm",
}
"""An option of an earlier version, or an option with a value → what to write."""

MOVED = {"backbone_weights": ("model", "training"), "freeze_backbone": ("model", "training")}
"""Field → the sections of a run's configuration in which it was, and in which it is."""

FORMER_MEANINGS: dict[str, tuple[str, Callable[[Any], bool], Any]] = {
    "final_norm": ("norm", lambda norm: norm == "post", True),
    "backbone_map": ("backbone", bool, "last_stage"),
}
"""New field → the older field that decides whether it has a former meaning, with which values, and that meaning."""

_LEAST_ALIKE = 0.65
"""Names that are less alike, from 0 to 1, are not suggested: max_seconds and max_source are 0.57 alike."""

_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600}

_FORMER = {former: name for name, formers in RENAMED.items() for former in formers}


def unknown_name(what: str, name: str, known: Iterable[str], spell: Callable[[str], str] = repr) -> str:
    """Returns a message about a field or an option that there is not, with what it may be called here.

    Args:
        what: ``"option"``.
        name: the unknown field.
        known: the fields that there are.
        spell: writes the name of a field.
    """
    names = list(known)
    if _FORMER.get(name) in names:
        return f"{spell(name)} is now {spell(_FORMER[name])}"
    return f"there is no {what} {spell(name)}{suggestion(name, names, spell)}"


def suggestion(name: str, known: Iterable[str], spell: Callable[[str], str] = repr) -> str:
    """Returns the end of a message about an unknown field: what it may be called here; arguments as `unknown_name`."""
    names = list(known)
    here = suggested_name(name, names)
    if here is None:
        return ""
    is_known = here in (_FORMER.get(name), *FOREIGN.get(name, ()))
    return f"; here it is {spell(here)}" if is_known else f"; did you mean {spell(here)}?"


def suggested_name(name: str, known: Iterable[str]) -> str | None:
    """Returns the field that an unknown one may be; None if it is like none; arguments as `unknown_name`."""
    names = list(known)
    here = next((one for one in (_FORMER.get(name), *FOREIGN.get(name, ())) if one in names), None)
    return here or next(iter(difflib.get_close_matches(name, names, n=1, cutoff=_LEAST_ALIKE)), None)


def in_minutes(name: str, value: object) -> str:
    """Returns the end of a message about a duration in minutes that has a unit: what to write; empty: it is none.

    Args:
        name: a field or an option, such as ``max_minutes``.
        value: what it was given, such as ``"20s"``.
    """
    text = str(value).strip().lower()
    match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-z]+)", text)
    seconds = [length for unit, length in _SECONDS.items() if match and unit.startswith(match[2])]
    if match is None or not seconds or not name.endswith("minutes"):
        return ""
    minutes = float(match[1]) * seconds[0] / 60
    return f"; for {text} write " + (f"{minutes:.2g}" if minutes < 1 else f"{round(minutes, 2):.10g}")


def upgraded(kind: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a configuration by their names of today.

    Args:
        kind: the configuration, a dataclass.
        fields: what a file has: plain values, by names of this version or of an earlier one. They are not checked.
    """
    known = {field.name: field for field in dataclasses.fields(kind)}
    renamed, has_old = dict[str, Any](), False
    if {"dim", "hidden"} <= fields.keys():  # the sizes of a Transformer and of a recurrent network
        fields = dict(fields)
        other = "hidden" if "transformer" in (fields.get("model"), fields.get("architecture")) else "dim"
        del fields[other]
    for name, value in fields.items():
        if name in known or _FORMER.get(name) not in known:
            current = {name: value}
        else:
            current, has_old = _translated(_FORMER[name], value), True
        if current.get("attention") == "transformer":
            current, has_old = {"architecture": "transformer"}, True
        if "tied" in current and isinstance(current["tied"], bool):
            current, has_old = {"tied": "target" if current["tied"] else "none"}, True
        for one, its_value in current.items():
            if renamed.get(one) != "transformer":  # which had cells without a meaning
                renamed[one] = its_value
    return _meaningful(kind, renamed) if has_old else renamed


def with_former_meaning(kind: Any, fields: Mapping[str, Any], typed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the fields of a model's configuration that was stored, with those that its version did not have yet.

    Args:
        kind: the configuration, a dataclass.
        fields: all that was stored, by the names of today.
        typed: fields that replace stored ones; where they change the one that decides, the new field has its default.
    """
    known = {field.name for field in dataclasses.fields(kind)}
    former = {
        name: meaning
        for name, (decisive, applies, meaning) in FORMER_MEANINGS.items()
        if name in known and applies(value := fields.get(decisive)) and (typed or {}).get(decisive, value) == value
    }
    return {**former, **fields}


def upgraded_sections(sections: dict[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the sections of a run's configuration with the names of today.

    Args:
        sections: what a file has; those of ``kinds`` that it has are mappings of fields.
        kinds: section → its dataclass.
    """
    sections = {name: dict(content) if isinstance(content, dict) else content for name, content in sections.items()}
    if not all(isinstance(sections.get(name, {}), dict) for name in kinds):
        return sections  # whose reader refuses it
    known = {name: {field.name for field in dataclasses.fields(kind)} for name, kind in kinds.items()}
    if "tensorboard" in sections.get("training", ()):  # version 0.1, which had no other logger
        sections["training"]["logger"] = "tensorboard" if sections["training"].pop("tensorboard") else ""
        if sections.get("model", {}).get("score") == "location":  # had 200 keys, whatever the length of the data
            sections["model"] = {"max_source": 200, **sections["model"]}
    for name, (old, new) in MOVED.items():
        if name in sections.get(old, ()) and name not in known[old] and name in known[new]:
            sections.setdefault(new, {})[name] = sections[old].pop(name)
    return {name: upgraded(kinds[name], content) if name in kinds else content for name, content in sections.items()}


def _translated(name: str, value: Any) -> dict[str, Any]:
    if name == "architecture" and value in ("se", "cbam"):
        return {"architecture": "cnn", "gate": value}
    if name == "architecture" and value == "recurrent":
        return {}
    if name == "norm" and isinstance(value, bool):
        return {"norm": "pre"} if value else {"norm": "post", "final_norm": True}
    return {name: value}


def _meaningful(kind: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields without those that have no meaning beside the others, which earlier versions accepted."""
    if not issubclass(kind, Configuration):
        return fields
    probe = object.__new__(kind)
    for field in dataclasses.fields(kind):
        fill(probe, **{field.name: fields.get(field.name, field.default)})
    for field in dataclasses.fields(kind):
        if getattr(probe, field.name) is None:
            fill(probe, **{field.name: probe.usual(field)})
    unknown = fields.keys() - {field.name for field in dataclasses.fields(kind)}
    return {
        field.name: fields[field.name]
        for field in dataclasses.fields(kind)
        if field.name in fields and probe.unmet_need(field) is None
    } | {name: fields[name] for name in unknown}
