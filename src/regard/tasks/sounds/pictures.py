"""The pictures of a classifier of sounds: the confusion matrix, and the attention over the spectrogram in seconds."""

from collections.abc import Iterable
from pathlib import Path

from regard.regular_file import path_inside
from regard.tasks.sounds.trained_listener import SoundLabel


def draw_labels(folder: Path, found: Iterable[SoundLabel]) -> list[Path]:
    """Draw the attention to each sound, as ``sound-1.png``, ``sound-2.png``, ...

    Args:
        folder: folder of the pictures; created if it does not exist.
        found: the classified sounds; those without weights are left out.

    Returns:
        the files.
    """
    from regard.pictures import save, sound_alignment

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, one in enumerate(found, start=1):
        if one.weights is None:
            continue
        heads = len(one.weights)
        rows = [one.label] if heads == 1 else [f"{one.label}, query {head}" for head in range(heads)]
        title = f"{one.sound.name}: {one.label} {one.probabilities[one.label]:.3f}"
        figure = sound_alignment(one.weights, one.sound.spectrogram(), rows, one.sound.seconds, title=title)
        paths.append(save(figure, path_inside(folder, f"sound-{number}.png")))
    return paths
