"""The pictures of a text classifier: the confusion matrix, and the weights of words."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from regard.tasks.classify.classification import Classification
from regard.training.run_folder import RunFolder


def draw_confusion(folder: RunFolder, confusion: Sequence[Sequence[int]], labels: Sequence[str], name: str) -> Path:
    """Draw ``pictures/<name>.png``: how many texts of each label were given which."""
    from regard.pictures import confusion_matrix, save

    folder.make_pictures()
    return save(confusion_matrix(confusion, labels), folder.pictures / f"{name}.png")


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
        title = f"{one.text} {one.probabilities[one.text]:.3f}"
        paths.append(save(word_weights(one.words, one.weights, title=title), folder / f"words-{number}.png"))
    return paths
