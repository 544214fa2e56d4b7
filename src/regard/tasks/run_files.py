"""Where the files of a run folder are that several tasks have."""

from pathlib import Path

from regard.training.run_folder import RunFolder

PARTS = ("train", "validation", "test")
"""The parts of a run's data."""


def bundled_path(folder: RunFolder, part: str, suffix: str = ".tsv") -> Path:
    """The file of a part of the bundled corpus in a run folder."""
    return folder.tree("corpus") / f"{part}{suffix}"


def tokenizer_path(folder: RunFolder, side: str | None = None) -> Path:
    """The tokenizer in a run folder, or that of a side: a ``tokenizer.json`` of Hugging Face."""
    return folder.file("tokenizer.json" if side is None else f"tokenizer-{side}.json")
