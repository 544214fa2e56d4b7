"""Examples to click: of a run what it read when it was validated, of other models sentences that show something."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.errors import RunError
from regard.page.reading import MOST_CHARACTERS, Example
from regard.training.run_folder import RunFolder
from regard.training.task import InputKind

MOST_EXAMPLES = 4
"""The most examples of a model."""

IMAGES = {
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif",
    ".bmp": "image/bmp",
}  # fmt: skip
SOUNDS = {
    ".wav": "audio/wav", ".flac": "audio/flac", ".ogg": "audio/ogg", ".mp3": "audio/mpeg",
    ".npy": "application/octet-stream",
}  # fmt: skip
FILE_TYPES = IMAGES | SOUNDS
"""Suffix of an example's file, and its type."""

_CORPUS = {"image": "corpus/test-{}.png", "sound": "corpus/test-{}.wav"}
"""In a run on a generated corpus: an example of its test part, by its number from 1."""

SENTENCES = (
    ("coreference", "The animal didn't cross the street because it was too tired."),
    ("repetition", "A red lamp, a blue chair and a green door: a red lamp, a blue chair and a green door."),
    ("agreement", "The keys to the old cabinet in the kitchen are on the table."),
)
"""What a sentence may show, and the sentence."""

BEGINNINGS = (
    ("coreference", "Anna and Tom went to the market, and Tom gave a flower to"),
    ("repetition", "A red lamp, a blue chair and a green door: a red lamp, a blue"),
    ("agreement", "The keys to the old cabinet in the kitchen"),
)
"""The same for a model that writes the next token."""

MASKED_SENTENCES = (
    ("coreference", "The animal didn't cross the street because {mask} was too tired."),
    ("repetition", "A red lamp, a blue chair and a green door: a red lamp, a blue {mask} and a green door."),
    ("agreement", "The keys to the old cabinet in the kitchen {mask} on the table."),
)
"""The same for a model that fills in a masked word."""


def sentences_for(task: str, mask: str | None) -> tuple[Example, ...]:
    """Returns sentences for a Hugging Face model of a task of `regard.page.pretrained_folder.HEADS`, with the
    tokenizer's ``mask`` for a masked word, if there is one."""
    if task == "fill in" and mask:
        return tuple(Example(text.format(mask=mask), shows) for shows, text in MASKED_SENTENCES)
    return tuple(Example(text, shows) for shows, text in (BEGINNINGS if task == "next token" else SENTENCES))


def examples_of(folder: RunFolder, accepts: InputKind) -> tuple[Example, ...]:
    """Returns the inputs of a run's last validation; for a run that reads files, those that still exist."""
    inputs: dict[str, Example] = {}
    for example in _texts(folder) if accepts == "text" else _files(folder, accepts):
        inputs.setdefault(str(example.path or example.text), example)
        if len(inputs) == MOST_EXAMPLES:
            break
    return tuple(inputs.values())


def _texts(folder: RunFolder) -> Iterator[Example]:
    for sample in _samples(folder):
        for name in ("source", "article", "text", "prompt"):
            text = sample.get(name)
            if isinstance(text, str) and text.strip():
                yield Example(text[:MOST_CHARACTERS])


def _files(folder: RunFolder, accepts: InputKind) -> Iterator[Example]:
    for number in range(1, MOST_EXAMPLES + 1):
        path = folder.file(_CORPUS[accepts].format(number))
        if _is_file(path):
            yield Example(path.name, path=path)
    for sample in _samples(folder):
        for name in (accepts, "source"):
            value = sample.get(name)
            if not isinstance(value, str) or "\0" in value or len(value) > 1000:
                continue
            path = Path(value)
            # A run of somebody else may name any file: only images and sounds are shown.
            known = IMAGES if accepts == "image" else SOUNDS
            if path.suffix.lower() in known and _is_file(path):
                yield Example(path.name, path=path)


def _is_file(path: Path) -> bool:
    """Whether a path names a file; False if it can name none, or one that cannot be reached."""
    try:
        return path.is_file()
    except OSError:
        return False


def _samples(folder: RunFolder) -> list[dict[str, Any]]:
    try:
        return folder.read_samples()
    except RunError:  # examples are no reason to refuse a model
        return []
