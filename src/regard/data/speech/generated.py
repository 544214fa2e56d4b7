"""The generated corpus of speech: words of many voices, with the true time of each word."""

import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from regard.atomic_file import write_atomically
from regard.data.speech.phones import WORDS
from regard.data.speech.sounds import write_sound
from regard.data.speech.utterances import SEGMENTS
from regard.data.speech.voices import RATE, Speech, Voice, speak
from regard.errors import ArgumentError, DataError

SHORTEST, LONGEST = 2, 6
"""Words of an utterance."""


def utterance(part: str, number: int, seed: int, words: int | None = None) -> tuple[str, Speech]:
    """One utterance of the corpus: its text and its sound.

    Args:
        part: name of the part.
        number: of the utterance in it; it does not depend on the size of the part.
        seed: seed of the corpus.
        words: how many are said; None: 2 to 6.
    """
    random = np.random.default_rng([seed, zlib.crc32(part.encode()), number])
    count = int(random.integers(SHORTEST, LONGEST + 1)) if words is None else words
    chosen = [str(word) for word in random.choice(list(WORDS), size=count)]
    return " ".join(chosen), speak(chosen, Voice.draw(random), random)


def write_speech(
    folder: str | os.PathLike[str], sizes: Mapping[str, int], seed: int, words: int | None = None
) -> dict[str, Path]:
    """Write the corpus: a TSV for each part with the columns ``audio``, ``text`` and ``segments``, and wav files.

    Args:
        folder: the folder; created if it does not exist. The sounds are in its folder ``sounds``.
        sizes: utterances of each part, e.g. ``{"train": 1000, "validation": 100, "test": 200}``.
        seed: as in `utterance`.
        words: words of each utterance; None: 2 to 6.

    Returns:
        the table of each part, ``<folder>/<part>.tsv``, which is written last: where it is, its sounds are.

    Raises:
        ArgumentError: a size is negative.
        DataError: the folder cannot be written.
    """
    folder = Path(folder)
    found = {}
    for part, size in sizes.items():
        if size < 0:
            raise ArgumentError(f"the size of {part!r} must be at least 0; got {size}")
    try:
        (folder / "sounds").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror or error}); choose another folder") from error
    for part in sorted(sizes, key=lambda part: (part == "train", part)):
        lines = [f"audio\ttext\t{SEGMENTS}\n"]
        for number in range(sizes[part]):
            text, speech = utterance(part, number, seed, words)
            name = f"sounds/{part}-{number:06d}.wav"
            write_sound(folder / name, speech.samples, RATE)
            times = " ".join(f"{start:.3f}-{end:.3f}" for start, end in speech.segments)
            lines.append(f"{name}\t{text}\t{times}\n")
        found[part] = folder / f"{part}.tsv"
        write_atomically(found[part], "".join(lines).encode())
    return {part: found[part] for part in sizes}
