"""The pictures of a classifier of images: each image beside its overlay."""

from collections.abc import Iterable
from pathlib import Path

from regard.regular_file import path_inside
from regard.tasks.images.image_label import ImageLabel


def draw_images(folder: Path, found: Iterable[ImageLabel], prefix: str = "image") -> list[Path]:
    """Draw each image with the weights of its parts, as ``<prefix>-1.png``, ``<prefix>-2.png``, ...

    Args:
        folder: folder of the pictures; created if it does not exist.
        found: the classified images; those without weights are left out.
        prefix: start of the file names.

    Returns:
        the files.
    """
    from regard.pictures import image_overlays, save

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, one in enumerate(found, start=1):
        if one.weights is None:
            continue
        label = f"{one.label} {one.probabilities[one.label]:.3f}"
        figure = image_overlays(one.image.shown, one.weights[None], [label], one.grid, box=one.image.box)
        paths.append(save(figure, path_inside(folder, f"{prefix}-{number}.png")))
    return paths
