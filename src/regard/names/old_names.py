"""The options of earlier versions and of other programs: what they are called here.

One table serves the files of old runs (`regard.configuration.upgrades`) and the command line, which suggests names.
"""

import difflib
import re
from collections.abc import Callable, Iterable

from regard.names.foreign_names import by_name

RENAMED_FIELDS: dict[str, tuple[str, ...]] = {
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

FOREIGN_FIELDS: dict[str, tuple[str, ...]] = {
    name: tuple(here.split())
    for name, here in by_name({
        "batch_size tokens_per_batch": "batch bs",
        "tokens_per_batch": "batch_size",
        "batch_size": "tokens_per_batch",
        "learning_rate": "lr",
        "devices": "gpus num_gpus",
        "beam": "beam_size num_beams",
        "n_best": "num_return_sequences top_k nbest",
        "patience": "early_stopping early_stopping_patience",
        "sound_column": "audio_column audio",
        "source_column": "source src source_lang src_lang source_language from",
        "target_column": "target tgt target_lang tgt_lang target_language",
        "label_column": "label",
        "text_column": "caption_column",
        "text_column label_column article_column source_column": "text_column",
        "label_column text_column": "label_column labels label_col label_field class_column category category_column",
        "image_size height": "image_size",
        "to": "format formats onnx torch hf",
        "run pictures masks": "output output_dir out out_dir",
        "epochs": "num_epochs max_epochs max_steps n_epochs iterations steps",
        "max_minutes": "max_time max_seconds max_hours seconds minutes hours timeout time_limit time",
        "quiet": "verbose verbosity",
        "warmup": "warmup_steps",
        "schedule": "lr_scheduler",
        "clip": "grad_clip gradient_clip_val max_grad_norm",
        "layers encoder_layers": "num_layers n_layers",
        "encoder_layers": "layers",
        "layers": "encoder_layers",
        "heads": "num_heads nhead n_heads",
        "hidden": "hidden_size d_model",
        "feedforward": "ffn_dim dim_feedforward",
        "vocabulary": "vocab_size",
        "max_length": "max_len",
        "validation":
        "val valid validation_file validation_data validation_path val_file val_data valid_file valid_data "
        "dev dev_file eval eval_file eval_data",
        "train": "train_data",
        "train file":
        "data dataset dataset_path data_file data_path data_dir input inputs input_file input_path file files "
        "csv tsv json jsonl parquet path folder dir corpus train_file train_path train_dir train_csv training "
        "training_data training_file images sounds texts",
        "test": "test_file test_data test_path",
        "held_out": "validation_split val_split test_size split holdout",
        "text_column source_column article_column column":
        "text text_col text_field input_column content_column review_column",
        "label_column summary_column text_column": "target_column",
        "article_column text_column": "source_column",
        "article_column": "article",
        "summary_column": "summary",
        "image_column": "image",
        "mask_column": "mask mask_col",
        "optimizer": "optim",
        "weight_decay": "wd",
        "seed": "random_state random_seed",
        "run": "name run_name save_dir save_to",
        "architecture": "arch model_type",
        "embedding": "embed_dim",
        "max_length context": "max_seq_len max_seq_length sequence_length seq_len",
        "lowercase": "lower",
        "threads": "num_workers workers n_jobs",
        "init_from": "checkpoint",
        "init_from backbone_weights": "pretrained",
    }).items()
}  # fmt: skip
"""Field of another program, or of another task → what it may be called here; the first that a command has counts."""

COMMANDS_ELSEWHERE = by_name(
    {
        "train": "fit finetune fine-tune run learn",
        "evaluate": "eval test score validate",
        "predict": "infer inference generate apply",
        "view": "visualize show plot",
        "serve": "web ui app",
        "export": "convert",
        "push": "upload",
        "bench": "benchmark",
        "doctor": "info check",
    }
)  # fmt: skip
"""Command of another program → what it is called here."""

TASKS_ELSEWHERE = by_name(
    {
        "classify":
        "classification classifier text-classification sentiment sentiment-analysis text label labels "
        "zero-shot-classification",
        "translate": "translation translator nmt mt seq2seq text2text-generation",
        "summarize": "summarization summarisation summarise summary",
        "language": "language-modeling language-model language-modelling lm causal-lm clm gpt text-generation",
        "images": "image-classification image vision vit photos",
        "caption": "captioning captions image-captioning image-to-text",
        "segment": "segmentation semantic-segmentation image-segmentation masks",
        "transcribe": "asr speech transcription speech-recognition stt automatic-speech-recognition speech-to-text",
        "sounds": "audio sound audio-classification sound-classification",
    }
)  # fmt: skip
"""Task by its name elsewhere → its name here."""

REPLACED_OPTIONS = {
    "--no-tied": "--tied none",
    "--norm-first": "--norm pre",
    "--no-norm-first": "--norm post",
    "--attention transformer": "--architecture transformer",
    "--architecture se": "--architecture cnn --gate se",
    "--architecture cbam": "--architecture cnn --gate cbam",
    "--architecture recurrent": "--architecture lstm",
}
"""An option of an earlier version, or an option with a value → what to write."""

_LEAST_ALIKE = 0.65
"""Names that are less alike, from 0 to 1, are not suggested: max_seconds and max_source are 0.57 alike."""

_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600}

FORMER_NAMES = {former: name for name, formers in RENAMED_FIELDS.items() for former in formers}


def unknown_name(what: str, name: str, known: Iterable[str], spell: Callable[[str], str] = repr) -> str:
    """Returns a message about a field or an option that there is not, with what it may be called here.

    Args:
        what: ``"option"``.
        name: the unknown field.
        known: the fields that there are.
        spell: writes the name of a field.
    """
    names = list(known)
    if FORMER_NAMES.get(name) in names:
        return f"{spell(name)} is now {spell(FORMER_NAMES[name])}"
    return f"there is no {what} {spell(name)}{suggestion(name, names, spell)}"


def suggestion(name: str, known: Iterable[str], spell: Callable[[str], str] = repr) -> str:
    """Returns the end of a message about an unknown field: what it may be called here; arguments as `unknown_name`."""
    names = list(known)
    here = suggested_name(name, names)
    if here is None:
        return ""
    is_known = here in (FORMER_NAMES.get(name), *FOREIGN_FIELDS.get(name, ()))
    return f"; here it is {spell(here)}" if is_known else f"; did you mean {spell(here)}?"


def suggested_name(name: str, known: Iterable[str]) -> str | None:
    """Returns the field that an unknown one may be; None if it is like none; arguments as `unknown_name`."""
    names = list(known)
    here = next((one for one in (FORMER_NAMES.get(name), *FOREIGN_FIELDS.get(name, ())) if one in names), None)
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
