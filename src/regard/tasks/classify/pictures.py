"""The pictures of a text classifier: the weights of words."""

from collections.abc import Iterable
from pathlib import Path

from regard.regular_file import path_inside
from regard.tasks.classify.classification import Classification


def draw_words(folder: Path, found: Iterable[Classification]) -> list[Path]:
    """Draw the words of each text with their weights, as ``words-1.png``, ``words-2.png``, ...

    Args:
        folder: folder of the pictures; created if it does not exist.
        found: the classified texts; those without weights or without words are left out.

    Returns:
        the files.
    """
    from regard.pictures import save, word_weights

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, one in enumerate(found, start=1):
        if one.weights is None or not one.words:
            continue
        title = f"{one.label} {one.probabilities[one.label]:.3f}"
        paths.append(
            save(word_weights(one.words, one.weights, title=title), path_inside(folder, f"words-{number}.png"))
        )
    return paths
