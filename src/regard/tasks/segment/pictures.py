"""The pictures of a segmentation: the classes over the images."""

from collections.abc import Iterable
from pathlib import Path

from regard.regular_file import path_inside
from regard.tasks.segment.segmentation import Segmentation


def draw_segments(folder: Path, found: Iterable[Segmentation]) -> list[Path]:
    """Draw each image, the classes over it and the attention of a pixel, as ``segments-1.png``, ``segments-2.png``, ...

    Args:
        folder: folder of the pictures; created if it does not exist.
        found: the segmented images; one without weights has no panel of them.

    Returns:
        the files.
    """
    from regard.pictures import PixelAttention, save, segments

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, one in enumerate(found, start=1):
        attention = None if one.weights is None else PixelAttention(one.weights, one.cell, one.pixel)
        title = Path(one.image).name
        figure = segments(one.pixels, one.classes, one.names, attention=attention, title=title)
        paths.append(save(figure, path_inside(folder, f"segments-{number}.png")))
    return paths
