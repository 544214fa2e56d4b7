"""The pictures of a captioner: the image with one overlay for each word."""

from collections.abc import Iterable
from pathlib import Path

from regard.regular_file import path_inside
from regard.tasks.caption.caption import Caption


def draw_captions(folder: Path, found: Iterable[Caption], prefix: str = "caption") -> list[Path]:
    """Draw each image with the weights of each word of its caption, as ``<prefix>-1.png``, ``<prefix>-2.png``, ...

    Args:
        folder: folder of the pictures; created if it does not exist.
        found: the captions; those without weights or without words are left out.
        prefix: start of the file names.

    Returns:
        the files.
    """
    from regard.pictures import image_overlays, save

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, one in enumerate(found, start=1):
        weights = one.word_weights
        if weights is None or not one.words:
            continue
        figure = image_overlays(one.image.shown, weights, one.word_texts, one.grid, box=one.image.box, title=one.text)
        paths.append(save(figure, path_inside(folder, f"{prefix}-{number}.png")))
    return paths
