"""Metrics of a trained segmentation on a data set."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from regard.data.images.masked_images import IGNORED, known_classes, open_masked
from regard.errors import DataError
from regard.tasks.label_evaluation import draw_confusion
from regard.tasks.segment.metrics import PixelMetrics, count_pixels
from regard.tasks.segment.trained_segmenter import TrainedSegmenter
from regard.training import task
from regard.training.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class ClassScores:
    """How well one class is found."""

    name: str
    iou: float | None
    """Intersection over union, 0 to 1; None for a class that neither occurs nor is found."""
    recall: float | None
    """Share of its pixels that were found; None for a class that does not occur."""
    pixels: int
    """How many pixels have it."""


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation(task.Evaluation):
    """How good a segmentation is on a data set, pixel by pixel, at the size of its class maps."""

    data: str
    """Name of the data set."""
    images: int
    """Evaluated images."""
    mean_iou: float
    """Mean over the classes that occur or are found, 0 to 1."""
    pixel_accuracy: float
    """Share of the pixels that count whose class was found."""
    seconds: float
    """Duration of the segmentation."""
    by_class: list[ClassScores]
    confusion: list[list[int]]
    """``[true][found]``: numbers of pixels."""

    def lines(self) -> list[str]:
        first = (
            f"{self.data}: {self.images} images · mean IoU {self.mean_iou:.4f} · pixel accuracy "
            f"{self.pixel_accuracy:.4f} · {self.images / max(1e-9, self.seconds):.1f} images/s"
        )
        width = max(5, *(len(one.name) for one in self.by_class))
        table = [f"  {'class':<{width}}     IoU  recall      pixels"]
        table += [
            f"  {one.name:<{width}}  {_share(one.iou)}  {_share(one.recall)}  {one.pixels:10,}" for one in self.by_class
        ]
        return [first, *table]

    def to_dict(self) -> dict[str, Any]:
        """All fields."""
        content: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        content["by_class"] = [asdict(one) for one in self.by_class]
        return content

    def write(self, folder: RunFolder, name: str) -> list[Path]:
        """Write the numbers, and a picture of the confusion matrix."""
        paths = task.Evaluation.write(self, folder, name)
        names = [one.name for one in self.by_class]
        return [*paths, draw_confusion(folder, self.confusion, names, f"confusion-{name}")]


def evaluate(
    segmenter: TrainedSegmenter, data: str | Path, *, batch_size: int = 4, limit: int | None = None
) -> Evaluation:
    """Measure a segmentation on a data set.

    Args:
        segmenter: the trained model.
        data: a source of `regard.data.images.masked_images.open_masked`.
        batch_size: images segmented at once.
        limit: number of images, from the first; None: all.

    Raises:
        DataError: the data cannot be used, or a pixel has a class that the model does not know.
    """
    images, count = open_masked(data, limit=limit), len(segmenter.classes)
    ignore = segmenter.config.data.ignore
    confusion, seconds = torch.zeros(count, count, dtype=torch.int64), 0.0
    for first in range(0, len(images), batch_size):
        part = images[first : first + batch_size]
        loaded = [image.load() for image in part]
        start = time.monotonic()
        found = segmenter.classes_of([one.pixels for one in loaded], [image.name for image in part])
        seconds += time.monotonic() - start
        for image, pair, classes in zip(part, loaded, found, strict=True):
            true = torch.from_numpy(known_classes(pair.classes, None if ignore < 0 else ignore, image.name)).long()
            true = true.masked_fill(true == IGNORED, -1)
            if int(true.max()) >= count:
                raise DataError(
                    f"{image.name}: a pixel has the class {int(true.max())}, and the model knows {count} classes, "
                    f"from 0 to {count - 1}"
                )
            confusion += count_pixels(true, torch.from_numpy(classes).long(), count)
    metrics = PixelMetrics(confusion)
    return Evaluation(
        data=str(data),
        images=len(images),
        mean_iou=metrics.mean_iou,
        pixel_accuracy=metrics.pixel_accuracy,
        seconds=seconds,
        by_class=_by_class(metrics, segmenter.classes.names),
        confusion=confusion.tolist(),
    )


def _by_class(metrics: PixelMetrics, names: Sequence[str]) -> list[ClassScores]:
    pixels = metrics.confusion.sum(1).tolist()
    return [ClassScores(*row) for row in zip(names, metrics.iou, metrics.recall, pixels, strict=True)]


def _share(value: float | None) -> str:
    return "     –" if value is None else f"{value:6.4f}"
